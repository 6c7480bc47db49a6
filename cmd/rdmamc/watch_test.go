package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// watching is an "rdmamc watch -o json" that runs.
type watching struct {
	t      *testing.T
	shown  lines
	code   chan int
	errs   *bytes.Buffer
	cancel context.CancelFunc
}

func startWatch(t *testing.T, node *rdmatest.Node, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t: t, shown: make(lines), code: make(chan int, 1), errs: &bytes.Buffer{}, cancel: cancel}
	args = append([]string{"watch", "-o", "json", "--interval", "10ms"}, args...)
	go func() { w.code <- run(ctx, args, node.Host(), w.shown, w.errs) }()
	t.Cleanup(w.stop)
	return w
}

// stop interrupts the command, which has to end well.
func (w *watching) stop() {
	w.cancel()
	for {
		select {
		case <-w.shown:
		case code := <-w.code:
			if code != 0 {
				w.t.Errorf("exit code %d: %s", code, w.errs.String())
			}
			w.code <- code
			return
		}
	}
}

// until takes lines until one that is wanted, by its change, kind and name.
func (w *watching) until(change, kind, name string) lineJSON {
	w.t.Helper()
	var seen []string
	timeout := time.After(10 * time.Second)
	for {
		select {
		case text := <-w.shown:
			seen = append(seen, text)
			var line lineJSON
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				w.t.Fatalf("%v in %q", err, text)
			}
			if line.Time.IsZero() || strings.Count(text, "\n") != 1 {
				w.t.Errorf("no time, or not one line: %q", text)
			}
			if line.Change == change && line.Kind == kind && line.Name == name {
				return line
			}
		case code := <-w.code:
			w.code <- code
			w.t.Fatalf("ended with %d: %s", code, w.errs.String())
		case <-timeout:
			w.t.Fatalf("no %s %s %q in:\n%s", change, kind, name, strings.Join(seen, ""))
		}
	}
}

func TestWatchShowsWhatThereIsAndWhatChanges(t *testing.T) {
	node := newNode(t)
	w := startWatch(t, node)
	for _, item := range [][2]string{
		{"host", "rdma_cm"}, {"device", "rxe0"}, {"port", "rxe0/1"}, {"gid", "rxe0/1 ::ffff:10.0.0.2 RoCE v2 rdma0"}, {"interface", "rdma0"},
	} {
		w.until("present", item[0], item[1])
	}
	node.AddAddress("", "rdma0", netip.MustParsePrefix("10.0.0.9/24"))
	w.until("added", "gid", "rxe0/1 ::ffff:10.0.0.9 RoCE v2 rdma0")
	line := w.until("changed", "interface", "rdma0")
	if got := line.Fields["addresses"]; got != "10.0.0.2/24,10.0.0.9/24,fd00::2/64" {
		t.Errorf("got addresses %q", got)
	}
	if got := line.Was["addresses"]; got != "10.0.0.2/24,fd00::2/64" {
		t.Errorf("got addresses before %q", got)
	}
	node.RemoveDevice("rxe0")
	for _, item := range [][2]string{{"device", "rxe0"}, {"port", "rxe0/1"}, {"interface", "rdma0"}} {
		w.until("removed", item[0], item[1])
	}
	if err := node.UnloadUCM(); err == nil {
		if line := w.until("changed", "host", "rdma_cm"); line.Fields["state"] != "missing" {
			t.Errorf("got %+v", line)
		}
	}
}

// Other programs' memberships are shown by the users of each group.
func TestWatchShowsUsersOfGroups(t *testing.T) {
	for _, netns := range []string{"", podNetNS} {
		node, link := newNode(t), "rdma0"
		args := []string{}
		if netns != "" {
			link, args = "net1", []string{"--netns", netns}
		}
		w := startWatch(t, node, args...)
		w.until("present", "interface", link)
		ctx, cancel := context.WithCancel(t.Context())
		code := make(chan int, 1)
		join := append([]string{"join", "239.1.1.7", "--interface", link}, args...)
		go func() { code <- run(ctx, join, node.Host(), io.Discard, io.Discard) }()
		if line := w.until("added", "group", link+" 239.1.1.7"); line.Fields["users"] != "1" {
			t.Errorf("got %+v, want one user", line)
		}
		cancel()
		w.until("removed", "group", link+" 239.1.1.7")
		if c := <-code; c != 0 {
			t.Errorf("join ended with %d", c)
		}
		w.stop()
	}
}

func TestWatchJoinsAndRejoins(t *testing.T) {
	node, subnet := newInfiniBandNode(t)
	w := startWatch(t, node, "-g", "239.1.1.7,ff0e::1234", "--mgid", "ff15:a01b:0:1::7", "--interface", "ib0")
	for _, name := range []string{"ib0 239.1.1.7", "ib0 MGID ff15:a01b:0:1::7", "ib0 ff0e::1234"} {
		w.until("present", "membership", name)
	}
	waitFor(t, w, "ib0 MGID ff15:a01b:0:1::7", "joined")
	if got := len(node.Memberships()); got != 3 {
		t.Errorf("got %d memberships, want 3", got)
	}
	subnet.FailOver(true)
	if line := waitFor(t, w, "ib0 MGID ff15:a01b:0:1::7", "failed"); !strings.Contains(line.Fields["error"], "keep membership of MGID") {
		t.Errorf("got %+v", line)
	}
	waitFor(t, w, "ib0 MGID ff15:a01b:0:1::7", "joined")
}

// waitFor waits until a membership is shown in a state.
func waitFor(t *testing.T, w *watching, name, state string) lineJSON {
	t.Helper()
	for {
		if line := w.until("changed", "membership", name); line.Fields["state"] == state {
			return line
		}
	}
}

// A group that can't be joined is told once, however often it is tried: one
// that is refused at once, and one whose answer is an error.
func TestWatchTellsOnceWhatCannotBeJoined(t *testing.T) {
	node := newNode(t)
	node.Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Group: netip.MustParseAddr("239.1.1.8"), Err: syscall.EAGAIN, Times: 3})
	w := startWatch(t, node, "-g", "ff0e::1", "-g", "239.1.1.8", "--interface", "rdma0")
	if line := w.until("present", "membership", "rdma0 ff0e::1"); !strings.Contains(line.Fields["error"], "not supported") {
		t.Errorf("got %+v", line)
	}
	if line := w.until("changed", "membership", "rdma0 239.1.1.8"); line.Fields["state"] != "failed" {
		t.Errorf("got %+v, want failed", line)
	}
	// The next that is told of it is the fourth try's success.
	if line := w.until("changed", "membership", "rdma0 239.1.1.8"); line.Fields["state"] != "joined" {
		t.Errorf("got %+v, want joined", line)
	}
	node.AddAddress("", "rdma0", netip.MustParsePrefix("10.0.0.9/24"))
	for {
		select {
		case text := <-w.shown:
			if strings.Contains(text, "ff0e::1") {
				t.Errorf("told again: %s", text)
			}
			if strings.Contains(text, `"10.0.0.2/24,10.0.0.9/24`) {
				return
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the address isn't shown")
		}
	}
}

// Every interface is in 224.0.0.1, which says nothing.
func TestAllSystemsIsNotShown(t *testing.T) {
	node := newNode(t)
	ch, err := node.Host().OpenChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Close()
	id, err := ch.NewID(nil, rdma.PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Bind(netip.MustParseAddr("10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"224.0.0.1", "239.1.1.7"} {
		if _, err := id.Join(netip.MustParseAddr(group), rdma.JoinOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := take(node.Host(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for key := range s {
		if key.kind == kindGroup {
			groups = append(groups, key.name)
		}
	}
	if diff := cmp.Diff([]string{"rdma0 239.1.1.7"}, groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func TestWatchTellsThatItsDeviceIsGone(t *testing.T) {
	node := newNode(t)
	w := startWatch(t, node, "-g", "239.1.1.7")
	w.until("present", "membership", "rdma0 239.1.1.7")
	node.RemoveDevice("rxe0")
	for line := waitFor(t, w, "rdma0 239.1.1.7", "failed"); line.Fields["error"] != "the RDMA device is gone"; {
		line = waitFor(t, w, "rdma0 239.1.1.7", "failed")
	}
}

// gone is a reader that has gone.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestWatchEndsWithItsReader(t *testing.T) {
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"watch", "-g", "239.1.1.7"}, newNode(t).Host(), gone{}, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d, standard error %q", code, errs.String())
	}
}

// It ends too when there is nothing to write.
func TestWatchEndsWithAReaderThatWasSatisfied(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	host, code := newNode(t).Host(), make(chan int, 1)
	go func() {
		code <- run(t.Context(), []string{"watch", "-g", "239.1.1.7", "--interval", "10ms"}, host, w, io.Discard)
	}()
	scanner := bufio.NewScanner(r)
	for scanner.Scan() && !strings.Contains(scanner.Text(), "state=joined") {
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-code:
		if c != 0 {
			t.Errorf("exit code %d", c)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

func TestLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	key := itemKey{kindPort, "mlx5_0/1"}
	for want, c := range map[string]change{
		"03:04:05.006 present port       mlx5_0/1 linkLayer=InfiniBand state=Active\n": {what: "present", key: key, now: fields("linkLayer", "InfiniBand", "state", "Active", "interfaces", "")},
		"03:04:05.006 changed port       mlx5_0/1 state=Down was state=Active\n":       {what: "changed", key: key, now: fields("state", "Down"), was: fields("state", "Active")},
		"03:04:05.006 removed port       mlx5_0/1\n":                                   {what: "removed", key: key},
	} {
		if got := lineText(at, c); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestDiff(t *testing.T) {
	device, port, gid := itemKey{kindDevice, "a"}, itemKey{kindPort, "a/1"}, itemKey{kindGID, "a/1 fe80::1"}
	before := snapshot{device: fields("uverbs", "uverbs0"), port: fields("state", "Active", "interfaces", "ib0"), gid: nil}
	now := snapshot{port: fields("state", "Down", "interfaces", "ib0"), gid: nil, {kindGroup, "x"}: fields("users", "1")}
	opts := cmp.AllowUnexported(change{}, itemKey{}, field{})
	want := []change{
		{what: "removed", key: device},
		{what: "changed", key: port, now: fields("state", "Down"), was: fields("state", "Active")},
		{what: "added", key: itemKey{kindGroup, "x"}, now: fields("users", "1")},
	}
	if d := cmp.Diff(want, diff(before, now), opts); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if got := diff(now, now); got != nil {
		t.Errorf("got %v of nothing", got)
	}
	if got := diff(nil, before); len(got) != 3 || got[0].what != "present" || got[0].key != device {
		t.Errorf("got %v of the first", got)
	}
	if got := diff(snapshot{}, before); len(got) != 3 || got[0].what != "added" {
		t.Errorf("got %v of the first after none", got)
	}
}

// Two pods may have the same address on interfaces of one name.
func TestOneGIDInTwoNamespaces(t *testing.T) {
	s := snapshot{}
	gid := netip.MustParseAddr("::ffff:10.0.0.9")
	s.addDevice(rdma.Device{Name: "d", NUMANode: 1, Ports: []rdma.Port{{Number: 1, GIDs: []rdma.GID{
		{Index: 3, GID: gid, Type: rdma.RoCEv2, Interface: "eth0"}, {Index: 7, GID: gid, Type: rdma.RoCEv2, Interface: "eth0"},
	}}}})
	want := fields("index", "3,7")
	if d := cmp.Diff(want, s[itemKey{kindGID, "d/1 ::ffff:10.0.0.9 RoCE v2 eth0"}], cmp.AllowUnexported(field{})); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
}
