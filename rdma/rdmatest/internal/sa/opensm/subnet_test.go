//go:build opensm

package opensm

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// patience is how long anything may take that normally takes a second.
const patience = 30 * time.Second

// settings are what test/opensm/run.sh tells.
type settings struct {
	client, net, partitions, out, umad2sim string
}

func settingsFromEnvironment(t *testing.T) settings {
	t.Helper()
	var s settings
	for name, where := range map[string]*string{
		"OPENSM_CLIENT": &s.client, "OPENSM_NET": &s.net, "OPENSM_PARTITIONS": &s.partitions,
		"OPENSM_OUT": &s.out, "OPENSM_UMAD2SIM": &s.umad2sim,
	} {
		if *where = os.Getenv(name); *where == "" {
			t.Fatalf("%s isn't set: run this by test/opensm/run.sh", name)
		}
	}
	return s
}

// command is a program of this run with its output in OUT; it ends with the test.
func (s settings) command(t *testing.T, name, path string, args ...string) *exec.Cmd {
	t.Helper()
	log, err := os.Create(filepath.Join(s.out, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	p := exec.Command(path, args...)
	p.Dir = s.out // libumad2sim.so puts its files there
	p.Env = append(os.Environ(), fmt.Sprintf("IBSIM_SOCKNAME=sa-%d", os.Getpid()),
		"OSM_CACHE_DIR="+s.out, "OSM_TMP_DIR="+s.out)
	p.Stdout, p.Stderr = log, log
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p
}

func start(t *testing.T, p *exec.Cmd) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(p) })
}

// stop ends a program, by force if it doesn't.
func stop(p *exec.Cmd) {
	if p.ProcessState != nil {
		return
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	force := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	defer force.Stop()
	_ = p.Wait()
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: not %s", patience, what)
		}
	}
}

// The subnet's ports, by node, as subnet.net and partitions.conf have them.
func ports() map[string]sa.Port {
	return map[string]sa.Port{
		"sm":   {GUID: 0x100001, MTU: sa.MTU2048, Rate: sa.Rate40Gbps, PKeys: []uint16{0xffff}},
		"a":    {GUID: 0x100003, MTU: sa.MTU2048, Rate: sa.Rate40Gbps, PKeys: []uint16{0xffff, 0x8001}},
		"b":    {GUID: 0x100005, MTU: sa.MTU2048, Rate: sa.Rate40Gbps, PKeys: []uint16{0xffff, 0x0001}},
		"c":    {GUID: 0x100007, MTU: sa.MTU2048, Rate: sa.Rate40Gbps, PKeys: []uint16{0x7fff, 0x8001}},
		"mid":  {GUID: 0x100009, MTU: sa.MTU2048, Rate: sa.Rate10Gbps, PKeys: []uint16{0x7fff}},
		"slow": {GUID: 0x10000b, MTU: sa.MTU2048, Rate: sa.Rate2_5Gbps, PKeys: []uint16{0x7fff}},
	}
}

// mlids is what the switch has room for.
const mlids = 32

// subnet is ibsim, OpenSM and a client on each port; and the simulated SA.
type subnet struct {
	settings
	ports     map[string]sa.Port
	ibsim     io.Writer // its console
	opensm    *exec.Cmd
	starts    int
	log       *os.File // OpenSM's, read as far as compared
	clients   map[string]*client
	simulated *sa.SA
	seen      map[difference]int
	// codes counts the refusals by their numbers.
	codes map[string]int
}

func startSubnet(t *testing.T) *subnet {
	t.Helper()
	s := &subnet{
		settings: settingsFromEnvironment(t), ports: ports(),
		clients: map[string]*client{}, seen: map[difference]int{}, codes: map[string]int{},
	}
	p := s.command(t, "ibsim", "ibsim", "-s", "-M", fmt.Sprint(mlids), s.net)
	console, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, p)
	s.ibsim = console
	s.startOpenSM(t)

	s.simulated = sa.New(sa.Options{MLIDs: mlids})
	for node, port := range s.ports {
		s.simulated.SetPort(port)
		s.clients[node] = startClient(t, s.settings, node, s.simulated.PortGID(port.GUID))
	}
	for _, pkey := range []uint16{0xffff, 0x8001} {
		if _, err := s.simulated.Precreate(sa.Preconfigured{PKey: pkey}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// startOpenSM returns when it has set the subnet up.
func (s *subnet) startOpenSM(t *testing.T) {
	t.Helper()
	s.starts++
	name := fmt.Sprintf("opensm-%d", s.starts)
	path := filepath.Join(s.out, name+".messages")
	// No configuration but the partitions, no sweeps but those asked for, and (-d2)
	// each message in the file when it is written.
	s.opensm = s.command(t, name, "opensm", "-F", "/dev/null", "-P", s.partitions, "-s", "0", "-d2", "-f", path)
	s.opensm.Env = append(s.opensm.Env, "SIM_HOST=sm", "LD_PRELOAD="+s.umad2sim)
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	s.log = log
	start(t, s.opensm)
	until(t, "through its first sweep", func() bool { return s.sweeps(t) > 0 })
}

// sweeps counts how often this OpenSM has been through the subnet.
func (s *subnet) sweeps(t *testing.T) int {
	t.Helper()
	messages, err := os.ReadFile(s.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(messages), "SUBNET UP")
}

// saRefusal finds what OpenSM's SA logs of a request that it refuses.
var saRefusal = regexp.MustCompile(`ERR (1B[0-9A-F]{2}|4C05):`)

// code is the number of the first refusal logged since the last call: OpenSM
// writes it before it answers.
func (s *subnet) code(t *testing.T) string {
	t.Helper()
	news, err := io.ReadAll(s.log)
	if err != nil {
		t.Fatal(err)
	}
	if found := saRefusal.FindSubmatch(news); found != nil {
		return string(found[1])
	}
	return ""
}

// console has ibsim do a command.
func (s *subnet) console(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(s.ibsim, format+"\n", args...); err != nil {
		t.Fatal(err)
	}
}
