package membership

import (
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// pacer spreads the joins on one InfiniBand port: a subnet manager that has just
// taken over hears from every port of the fabric at once.
type pacer struct {
	interval time.Duration
	burst    int
	next     map[Port]time.Time // when a steady stream would come to its next join
}

// maxPaced bounds what is remembered: what is long past is as good as unknown.
const maxPaced = 64

// reserve takes the port's next place, and returns how long to wait for it.
func (p *pacer) reserve(port Port, now time.Time) time.Duration {
	idle := now.Add(-time.Duration(p.burst) * p.interval)
	if len(p.next) >= maxPaced {
		for id, at := range p.next {
			if at.Before(idle) {
				delete(p.next, id)
			}
		}
	}
	at := p.next[port]
	if at.Before(idle) {
		at = idle
	}
	at = at.Add(p.interval)
	p.next[port] = at
	return max(at.Sub(now), 0)
}

// pace is how long a join has to wait for its turn on its port.
func (s *slot) pace(want *Wanted) time.Duration {
	if s.paced || want.LinkLayer != rdma.LinkLayerInfiniBand {
		s.paced = false
		return 0
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	wait := s.t.pacer.reserve(Port{want.Device, want.Port}, time.Now())
	s.paced = wait > 0
	return wait
}
