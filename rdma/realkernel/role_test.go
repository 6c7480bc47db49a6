//go:build realkernel

package realkernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// roleEnv makes the test binary be another program, in a process of its own.
const (
	roleEnv = "REALKERNEL_ROLE"
	// roleJoinOnce joins and leaves, and does nothing else, so that strace sees
	// what the package writes.
	roleJoinOnce = "join-once"
	// roleHold is a member of heldGroup on heldAddr until its standard input ends.
	roleHold = "hold"
)

const (
	heldGroup = "239.3.1.7"
	heldAddr  = "10.0.0.3"
)

func play(role string) error {
	switch role {
	case roleJoinOnce:
		return member("10.0.0.2", "239.3.2.7", func() error { return nil })
	case roleHold:
		return member(heldAddr, heldGroup, func() error {
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		})
	}
	return fmt.Errorf("unknown role %q", role)
}

// member joins, does something, and leaves.
func member(addr, group string, do func() error) error {
	ch, err := rdma.Local().OpenChannel()
	if err != nil {
		return err
	}
	id, err := ch.NewID(nil, rdma.PortSpaceUDP)
	if err != nil {
		return err
	}
	if err := id.Bind(netip.MustParseAddr(addr)); err != nil {
		return err
	}
	g := netip.MustParseAddr(group)
	if _, err := id.Join(g, rdma.JoinOptions{}); err != nil {
		return err
	}
	if e, err := ch.Next(context.Background()); err != nil || e.Type != rdma.MulticastJoined {
		return fmt.Errorf("joining: event %+v, error %w", e, err)
	}
	return errors.Join(do(), id.Leave(g), id.Close(), ch.Close())
}

// holdElsewhere is another process that is a member, for the time of the test.
func holdElsewhere(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleHold)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Errorf("end the other member: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other member: %v", err)
		}
	})
}
