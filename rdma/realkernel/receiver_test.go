//go:build realkernel

package realkernel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
)

// endpoint is a real UD queue pair, in a process of its own that has libibverbs
// and no rdma_cm (test/receiver).
type endpoint struct {
	in   io.WriteCloser
	pipe *os.File
	out  *bufio.Reader
}

var _ rdma.QueuePair = (*endpoint)(nil)

// openEndpoint makes a queue pair on a device, for the time of the test.
func openEndpoint(t *testing.T, device string) *endpoint {
	t.Helper()
	program := os.Getenv(receiverEnv)
	if program == "" {
		t.Fatalf("%s is not set: build test/receiver/receiver.c and give its absolute path", receiverEnv)
	}
	cmd := exec.Command(program, "-i", device)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	err = errors.Join(cmd.Start(), write.Close())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), out.Close()); err != nil {
			t.Errorf("end the receiver: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("receiver: %v", err)
		}
	})
	e := &endpoint{in: in, pipe: out, out: bufio.NewReader(out)}
	if line, err := e.line(); err != nil || line != "ready\n" {
		t.Fatalf("receiver on %s: got %q, error %v, want ready", device, line, err)
	}
	return e
}

// receiverEnv names the environment variable with the path of the program of
// test/receiver, built on the host: a compiler takes its time in the VM.
const receiverEnv = "RECEIVER"

func (e *endpoint) line() (string, error) {
	if err := e.pipe.SetReadDeadline(time.Now().Add(conformance.Patience)); err != nil {
		return "", err
	}
	return e.out.ReadString('\n')
}

func (e *endpoint) do(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(e.in, format+"\n", args...); err != nil {
		return "", err
	}
	line, err := e.line()
	if err != nil {
		return "", err
	}
	var errno int
	if _, err := fmt.Sscanf(line, "error %d", &errno); err == nil {
		return "", syscall.Errno(errno)
	}
	return strings.TrimSpace(line), nil
}

func (e *endpoint) AttachMulticast(mgid netip.Addr, mlid uint16) error {
	_, err := e.do("attach %v %d", mgid, mlid)
	return err
}

func (e *endpoint) DetachMulticast(mgid netip.Addr, mlid uint16) error {
	_, err := e.do("detach %v %d", mgid, mlid)
	return err
}

func (e *endpoint) send(t *testing.T, p rdma.Params, count int) {
	t.Helper()
	if _, err := e.do("send %v %d %d %d %d", p.MGID, p.MLID, p.GIDIndex, p.QKey, count); err != nil {
		t.Fatalf("send to %v: %v", p.MGID, err)
	}
}

func (e *endpoint) received(t *testing.T) int {
	t.Helper()
	line, err := e.do("received")
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscanf(line, "received %d", &n); err != nil {
		t.Fatalf("receiver said %q", line)
	}
	return n
}

func (e *endpoint) eventuallyReceived(t *testing.T, n int) {
	t.Helper()
	conformance.Eventually(t, fmt.Sprintf("%d packets received", n), func() bool { return e.received(t) >= n })
	if got := e.received(t); got != n {
		t.Errorf("received %d packets, want %d", got, n)
	}
}

// mckeySends has mckey send to a group from rxe0, and tells how many packets
// left: mckey takes its address handle away without waiting for its sends, and
// since Linux 6.4 Soft-RoCE sends later than it is asked to.
func mckeySends(t *testing.T, sender, group netip.Addr) int {
	t.Helper()
	const counters = "/sys/class/infiniband/rxe0/ports/1/hw_counters/"
	// Their values may be this many milliseconds old.
	if err := os.WriteFile(counters+"lifespan", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	sent := func() int {
		text, err := os.ReadFile(counters + "sent_pkts")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := sent()
	conformance.Eventually(t, "mckey sends to "+group.String(), func() bool {
		run(t, "mckey", "-s", "-b", sender.String(), "-m", group.String(), "-C", "10")
		return sent() > before
	})
	return sent() - before
}

// startMckey runs librdmacm's mckey until the end of the test, or until it is
// killed, whichever is first.
func startMckey(t *testing.T, args ...string) (kill func()) {
	t.Helper()
	cmd := exec.Command("mckey", args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if killed {
			return
		}
		killed = true
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("kill mckey: %v", err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("mckey ended by itself, want it to hold its membership until killed")
		}
	}
	t.Cleanup(kill)
	return kill
}
