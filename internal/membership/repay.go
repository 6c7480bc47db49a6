package membership

import "github.com/rdma-multicast/rdma-multicast/rdma"

// A membership that InfiniBand has lost (ENETRESET: the port's LID changed, or the
// subnet manager asked for a new registration) is one that the kernel has
// forgotten and the subnet manager may have not: leaving it then tells nobody,
// and the group with its MLID stays for ever. So it is joined once more, and left.

// repay joins a lost membership for the sake of leaving it; false: there is
// nothing to do, or it can't be done. A sandbox that stops can't wait for it.
func (s *slot) repay() bool {
	if !s.lost || !leaves {
		return false
	}
	s.lost = false
	s.t.mu.Lock()
	ended := s.t.ended[s.key.Scope]
	s.t.mu.Unlock()
	if ended {
		return false
	}
	w := s.joined
	p, err := s.t.openPort(portKey{s.key.Scope, s.key.Interface, w.NetNS, w.BindAddr, w.Index, s.key.PortSpace})
	if err != nil {
		return false
	}
	if err := s.joinOn(p, w); err != nil {
		return false
	}
	s.repaying = true
	return true
}

// awaitsRepaying: the answer to repay's join is still to come.
func (s *slot) awaitsRepaying() bool {
	if !s.repaying || !s.joinedAt.IsZero() {
		return false
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return !s.t.ended[s.key.Scope]
}

// losable: the kernel alone has forgotten such a membership.
func (w *Wanted) losable() bool { return w.LinkLayer == rdma.LinkLayerInfiniBand }
