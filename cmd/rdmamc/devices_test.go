package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// output runs a command that ends by itself.
func output(t *testing.T, node *rdmatest.Node, code int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(t.Context(), args, node.Host(), &out, &errs); got != code {
		t.Fatalf("%v: exit code %d, want %d: %s", args, got, code, errs.String())
	}
	return out.String()
}

// newInfiniBandNode has a port in two partitions.
func newInfiniBandNode(t *testing.T) (*rdmatest.Node, *rdmatest.Subnet) {
	t.Helper()
	fabric := rdmatest.NewFabric()
	node, subnet := fabric.AddNode("node"), fabric.AddSubnet("ib", rdmatest.SubnetOptions{})
	subnet.AddPartition(rdmatest.Partition{PKey: 0x0001})
	node.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("fd01::2/64"))
	node.SetPKeys("mlx5_0", 0xffff, 0, 0x8001, 0, 0)
	node.AddIPoIBChild("", "ib0.8001", "ib0", 0x8001, netip.MustParsePrefix("10.2.0.2/24"))
	t.Cleanup(func() {
		if got := node.Memberships(); len(got) > 0 {
			t.Errorf("memberships left over: %+v", got)
		}
		if n := node.OpenWatches(); n > 0 {
			t.Errorf("%d watches left open", n)
		}
	})
	return node, subnet
}

func TestDevices(t *testing.T) {
	node := newNode(t)
	lines := strings.Split(strings.TrimSpace(output(t, node, 0, "devices")), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %q, want a header and one device", lines)
	}
	if got := strings.Fields(lines[1]); len(got) != 8 || got[0] != "rxe0" || got[3] != "Active" || got[5] != "-" || got[6] != "uverbs0" || got[7] != "rdma0" {
		t.Errorf("got row %q", lines[1])
	}
	var got []deviceJSON
	if err := json.Unmarshal([]byte(output(t, node, 0, "devices", "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	gids := got[0].Ports[0].GIDs
	want := []deviceJSON{{Name: "rxe0", NodeGUID: got[0].NodeGUID, UVerbs: "uverbs0", Ports: []portJSON{
		{Number: 1, LinkLayer: "Ethernet", State: "Active", Interfaces: []string{"rdma0"}, PKeys: []string{"0xffff"}, GIDs: gids},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if want := (gidJSON{Index: 2, GID: "::ffff:10.0.0.2", Type: "RoCE v2", Interface: "rdma0"}); len(gids) < 3 || gids[2] != want {
		t.Errorf("got GIDs %+v, want %+v", gids, want)
	}
}

func TestDevicesInFull(t *testing.T) {
	node, _ := newInfiniBandNode(t)
	text := output(t, node, 0, "devices", "-v")
	for _, want := range []string{"P_KEYS", "0xffff,0x0000,0x8001\n", "ib0,ib0.8001", "DEVICE  PORT  INDEX  GID", "fe80::"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if text := output(t, newNode(t), 0, "devices", "-v", "--netns", podNetNS); !strings.Contains(text, "::ffff:10.0.0.51  RoCE v2  net1") || !strings.Contains(text, "uverbs0  net1") {
		t.Errorf("in the pod's namespace:\n%s", text)
	}
}

func TestNoDevices(t *testing.T) {
	var out, errs bytes.Buffer
	node := rdmatest.NewFabric().AddNode("node")
	if code := run(t.Context(), []string{"devices", "-o", "json"}, node.Host(), &out, &errs); code != 0 || out.String() != "[]\n" || !strings.Contains(errs.String(), "no RDMA devices") {
		t.Errorf("exit code %d, output %q, standard error %q", code, out.String(), errs.String())
	}
}

func TestProbe(t *testing.T) {
	node := newNode(t)
	if text := output(t, node, 0, "probe", "--interface", "rdma0"); text != "nothing found that keeps multicast from working\n" {
		t.Errorf("got %q", text)
	}
	if text := output(t, node, 0, "probe", "-o", "json"); text != "[]\n" {
		t.Errorf("got %q", text)
	}
	if text := output(t, node, 0, "probe", "--netns", podNetNS, "--interface", "net1"); !strings.Contains(text, "nothing found") {
		t.Errorf("in the pod: got %q", text)
	}
	if text := output(t, node, 1, "probe", "--interface", "eth0"); !strings.Contains(text, "NoInterface") || !strings.Contains(text, "eth0") {
		t.Errorf("of a plain interface: got %q", text)
	}
	if err := node.UnloadUCM(); err != nil {
		t.Fatal(err)
	}
	var got []problemJSON
	if err := json.Unmarshal([]byte(output(t, node, 1, "probe", "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Reason != "NoRDMACM" || !strings.Contains(got[0].Message, "rdma_ucm") || got[0].Temporary {
		t.Errorf("without rdma_cm: got %+v", got)
	}
}

func TestVersion(t *testing.T) {
	if text := output(t, newNode(t), 0, "--version"); !strings.HasPrefix(text, "rdmamc ") || !strings.Contains(text, " go1.") {
		t.Errorf("got %q", text)
	}
	for want, info := range map[string]*debug.BuildInfo{
		"rdmamc v0.3.0 go1.26.8": {GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.3.0"}},
		"rdmamc (devel) e6a481a modified go1.26.8": {GoVersion: "go1.26.8", Settings: []debug.BuildSetting{
			{Key: "CGO_ENABLED", Value: "0"}, {Key: "vcs.revision", Value: "e6a481a"}, {Key: "vcs.modified", Value: "true"},
		}},
	} {
		if got := versionText(info); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
