package membership

import (
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// pacer spreads the joins on one InfiniBand port: a subnet manager that has just
// taken over hears from every port of the fabric at once. First joins and what is
// joined once more are two streams: a pod's start never waits for a failover's
// rejoins, nor for joins that fail again and again.
type pacer struct {
	interval time.Duration
	burst    int
	next     map[stream]time.Time // when a steady one would come to its next join
}

// stream is one of a port's two.
type stream struct {
	Port
	again bool
}

// maxPaced bounds what is remembered: what is long past is as good as unknown.
const maxPaced = 64

// reserve takes the stream's next place, and returns how long to wait for it.
func (p *pacer) reserve(of stream, now time.Time) time.Duration {
	idle := now.Add(-time.Duration(p.burst) * p.interval)
	if len(p.next) >= maxPaced {
		for id, at := range p.next {
			if at.Before(idle) {
				delete(p.next, id)
			}
		}
	}
	at := p.next[of]
	if at.Before(idle) {
		at = idle
	}
	at = at.Add(p.interval)
	p.next[of] = at
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
	again := s.retry.attempts > 0 || s.status.Epoch > 0
	wait := s.t.pacer.reserve(stream{Port{want.Device, want.Port}, again}, time.Now())
	s.paced = wait > 0
	return wait
}
