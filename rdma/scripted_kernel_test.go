package rdma

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// scripted is a kernel that does what a test tells it to, whatever that is:
// give the events of InfiniBand, or nonsense, or answer joins as kernels with a
// fault do. What isn't set is answered as if all were well.
type scripted struct {
	sys.Kernel // nil: what isn't below isn't called

	events chan sys.Event
	errs   chan error
	once   sync.Once
	closed chan struct{}

	// Set before use.
	openErr  error
	bound    sys.BoundAddr // port 1
	bindErr  error
	queryErr error
	layerErr error
	links    []sys.Link // nil: EPERM
	devices  []sys.Device
	layer    string
	joinErr  error
	leaveErr error
	answer   func(uid uint64, group netip.Addr) *sys.Event // at once; nil: the test sends to events
	igmpErr  error
	// joinIGMP and leaveIGMP are what a full member's join and leave do to the
	// users of groups; nil: add and take one.
	joinIGMP, leaveIGMP func(users map[netip.Addr]int, group netip.Addr)

	mu       sync.Mutex
	uids     []uint64 // of ids and memberships, in their order
	calls    []string // joins and leaves
	joined   map[uint32]join
	igmp     map[netip.Addr]int
	names    map[uint32]string // of devices; nil: EPERM
	gids     map[int]netip.Addr
	pkeys    []uint16
	pkeysErr error
	reads    []string // of tables
	queue    chan sys.Event
	watches  []*scriptedWatch
	watchErr [2]error // of links, of devices
}

type join struct {
	group netip.Addr
	mode  uint16
}

func newScripted() *scripted {
	return &scripted{
		events: make(chan sys.Event), errs: make(chan error), closed: make(chan struct{}),
		bound: sys.BoundAddr{Port: 1}, layer: "Ethernet", names: map[uint32]string{0: "mlx5_0"},
		joined: map[uint32]join{}, igmp: map[netip.Addr]int{}, gids: map[int]netip.Addr{},
		queue: make(chan sys.Event, 100),
	}
}

func (s *scripted) OpenCM() (sys.CM, error) {
	if s.openErr != nil {
		return nil, s.openErr
	}
	return &scriptedFile{scripted: s, closed: make(chan struct{})}, nil
}

func (s *scripted) Links(sys.NetNS) ([]sys.Link, error) {
	if s.links == nil {
		return nil, syscall.EPERM
	}
	return s.links, nil
}

func (s *scripted) Devices(sys.NetNS) ([]sys.Device, error) { return s.devices, nil }

func (s *scripted) DeviceNames(sys.NetNS) (map[uint32]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, "names")
	if s.names == nil {
		return nil, syscall.EPERM
	}
	return maps.Clone(s.names), nil
}

func (s *scripted) LinkLayer(string, int) (string, error) { return s.layer, s.layerErr }

func (s *scripted) GID(device string, port, index int) (sys.GID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, fmt.Sprintf("gid %s/%d/%d", device, port, index))
	gid, ok := s.gids[index]
	if !ok {
		return sys.GID{}, syscall.EINVAL
	}
	return sys.GID{Index: index, GID: gid}, nil
}

func (s *scripted) PKeys(device string, port int) ([]uint16, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, fmt.Sprintf("pkeys %s/%d", device, port))
	return slices.Clone(s.pkeys), s.pkeysErr
}

func (s *scripted) IGMP(sys.NetNS, string) (map[netip.Addr]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.igmp), s.igmpErr
}

// uid is the cookie of the nth id or membership.
func (s *scripted) uid(n int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uids[n]
}

// took are the joins and leaves so far.
func (s *scripted) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// scriptedFile is an open rdma_cm device of a scripted kernel.
type scriptedFile struct {
	*scripted
	once   sync.Once
	closed chan struct{}
}

func (s *scripted) note(uid uint64) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uids = append(s.uids, uid)
	return uint32(len(s.uids)), nil
}

func (f *scriptedFile) CreateID(_ sys.NetNS, uid uint64, _ uint16) (uint32, error) {
	return f.note(uid)
}

func (f *scriptedFile) Bind(uint32, netip.Addr) error { return f.bindErr }

func (f *scriptedFile) QueryAddr(uint32) (sys.BoundAddr, error) { return f.bound, f.queryErr }

func (f *scriptedFile) Join(_ uint32, uid uint64, group netip.Addr, mode uint16) (uint32, error) {
	return f.join("join", uid, group, mode)
}

func (f *scriptedFile) JoinMGID(_ uint32, uid uint64, mgid netip.Addr, mode uint16) (uint32, error) {
	return f.join("join MGID", uid, mgid, mode)
}

func (f *scriptedFile) join(op string, uid uint64, group netip.Addr, mode uint16) (uint32, error) {
	if f.joinErr != nil {
		return 0, f.joinErr
	}
	handle, err := f.note(uid)
	f.mu.Lock()
	f.calls = append(f.calls, fmt.Sprintf("%s %v %v as %d", op, group, JoinMode(mode), handle))
	f.joined[handle] = join{group, mode}
	switch {
	case mode != sys.JoinFullMember:
	case f.joinIGMP != nil:
		f.joinIGMP(f.igmp, group)
	default:
		f.igmp[group]++
	}
	f.mu.Unlock()
	if f.answer != nil {
		if e := f.answer(uid, group); e != nil {
			f.queue <- *e
		}
	}
	return handle, err
}

func (f *scriptedFile) Leave(handle uint32) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf("leave %d", handle))
	if f.leaveErr != nil {
		return 0, f.leaveErr
	}
	j := f.joined[handle]
	delete(f.joined, handle)
	switch {
	case j.mode != sys.JoinFullMember:
	case f.leaveIGMP != nil:
		f.leaveIGMP(f.igmp, j.group)
	default:
		f.igmp[j.group]--
	}
	return 0, nil
}

func (f *scriptedFile) Destroy(uint32) (uint32, error) { return 0, nil }

func (f *scriptedFile) GetEvent() (sys.Event, error) {
	select {
	case e := <-f.queue:
		return e, nil
	case e := <-f.events:
		return e, nil
	case err := <-f.errs:
		return sys.Event{}, err
	case <-f.closed:
		return sys.Event{}, os.ErrClosed
	}
}

// Close ends the script too: whoever sends events stops.
func (f *scriptedFile) Close() error {
	f.once.Do(func() { close(f.closed) })
	f.scripted.once.Do(func() { close(f.scripted.closed) })
	return nil
}
