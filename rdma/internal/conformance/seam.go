package conformance

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// openCM opens the kernel's rdma_cm below package rdma.
func openCM(t *testing.T, m Machine) sys.CM {
	t.Helper()
	cm, err := m.Kernel().OpenCM()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cm.Close(); err != nil {
			t.Errorf("close rdma_cm: %v", err)
		}
	})
	return cm
}

func boundID(t *testing.T, cm sys.CM, uid uint64) uint32 {
	t.Helper()
	id, err := cm.CreateID(nil, uid, sys.PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	if err := cm.Bind(id, addr0()); err != nil {
		t.Fatal(err)
	}
	return id
}

func joinCM(t *testing.T, cm sys.CM, id uint32, uid uint64, group netip.Addr) uint32 {
	t.Helper()
	handle, err := cm.Join(id, uid, group, sys.JoinFullMember)
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

func wantRaw(t *testing.T, what string, err error, errno syscall.Errno) {
	t.Helper()
	if !errors.Is(err, errno) {
		t.Errorf("%s: got error %v, want errno %d (%v)", what, err, int(errno), errno)
	}
}

// seam has the kernel's own answers, which package rdma never lets its callers
// see or is built on.
func seam() []Scenario {
	group := netip.MustParseAddr("239.1.11.7")
	return []Scenario{
		{"the kernel knows no handle that was left or destroyed", func(t *testing.T, m Machine) {
			cm := openCM(t, m)
			id := boundID(t, cm, 77)
			handle := joinCM(t, cm, id, 1001, group)
			if _, err := cm.Leave(handle); err != nil {
				t.Fatal(err)
			}
			_, err := cm.Leave(handle)
			wantRaw(t, "leave again", err, syscall.ENOENT)
			handle = joinCM(t, cm, id, 1002, group)
			if _, err := cm.Destroy(id); err != nil {
				t.Fatal(err)
			}
			_, err = cm.Leave(handle)
			wantRaw(t, "leave after destroying the id", err, syscall.ENOENT)
			_, err = cm.Destroy(id)
			wantRaw(t, "destroy again", err, syscall.ENOENT)
			_, err = cm.Join(id, 1003, group, sys.JoinFullMember)
			wantRaw(t, "join on a destroyed id", err, syscall.ENOENT)
			wantIGMP(t, m, "", link0, group, 0)
		}},
		{"another file's ids and handles are refused", func(t *testing.T, m Machine) {
			cm, other := openCM(t, m), openCM(t, m)
			id := boundID(t, cm, 77)
			handle := joinCM(t, cm, id, 1001, group)
			_, err := other.Leave(handle)
			wantRaw(t, "leave", err, syscall.EINVAL)
			_, err = other.Destroy(id)
			wantRaw(t, "destroy", err, syscall.EINVAL)
			_, err = other.Join(id, 1002, group, sys.JoinFullMember)
			wantRaw(t, "join", err, syscall.EINVAL)
			wantIGMP(t, m, "", link0, group, 1)
		}},
		{"events carry the membership's uid and handle, and are counted", func(t *testing.T, m Machine) {
			cm := openCM(t, m)
			id := boundID(t, cm, 77)
			handle := joinCM(t, cm, id, 1001, group)
			e, err := cm.GetEvent()
			if err != nil {
				t.Fatal(err)
			}
			want := sys.Event{UID: 1001, ID: handle, Type: sys.EventMulticastJoin, UD: sys.UDParam{
				QPN: sys.QPNMulticast, QKey: 0x01234567, MGID: group.As16(), SGIDIndex: e.UD.SGIDIndex,
				HopLimit: 64, IsGlobal: true, Port: 1,
			}}
			if diff := cmp.Diff(want, e); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
			events, err := cm.Leave(handle)
			if err != nil || events != 1 {
				t.Errorf("leave: %d events reported, error %v, want 1", events, err)
			}
		}},
		{"a wildcard bind has no port to join on", func(t *testing.T, m Machine) {
			cm := openCM(t, m)
			id, err := cm.CreateID(nil, 77, sys.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			if err := cm.Bind(id, netip.IPv4Unspecified()); err != nil {
				t.Fatal(err)
			}
			_, err = cm.Join(id, 1001, group, sys.JoinFullMember)
			wantRaw(t, "join", err, syscall.EINVAL)
		}},
		{"unknown join flags are refused", func(t *testing.T, m Machine) {
			cm := openCM(t, m)
			_, err := cm.Join(boundID(t, cm, 77), 1001, group, 2)
			wantRaw(t, "join", err, syscall.EINVAL)
			wantIGMP(t, m, "", link0, group, 0)
		}},
		{"the kernel itself takes two joins of one address on one id", func(t *testing.T, m Machine) {
			cm := openCM(t, m)
			id := boundID(t, cm, 77)
			joinCM(t, cm, id, 1001, group)
			joinCM(t, cm, id, 1002, group)
			wantIGMP(t, m, "", link0, group, 2)
			if _, err := cm.Destroy(id); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 0)
		}},
		{"the kernel drops the events of an id without a uid", func(t *testing.T, m Machine) {
			cm := openCM(t, m)
			joinCM(t, cm, boundID(t, cm, 0), 1001, group)
			joinCM(t, cm, boundID(t, cm, 78), 1002, group)
			e, err := cm.GetEvent()
			if err != nil {
				t.Fatal(err)
			}
			if e.UID != 1002 {
				t.Errorf("got an event of uid %d, want the one of 1002 alone", e.UID)
			}
		}},
		{"a bound id tells its device and port", func(t *testing.T, m Machine) {
			cm := openCM(t, m)
			b, err := cm.QueryAddr(boundID(t, cm, 77))
			if err != nil {
				t.Fatal(err)
			}
			names, err := m.Kernel().DeviceNames(nil)
			if err != nil {
				t.Fatal(err)
			}
			if names[b.DeviceIndex] != device0 || b.Port != 1 || b.Source != addr0() || b.PKey != 0 || b.NodeGUID == 0 {
				t.Errorf("got %+v of device %q, want %v on %s port 1", b, names[b.DeviceIndex], addr0(), device0)
			}
		}},
	}
}
