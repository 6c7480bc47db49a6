package sandbox

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// runGrace is how long a sandbox that only NRI has told of may be missing from
// CRI: the runtime calls the hooks of RunPodSandbox, all plugins' one after the
// other, before it lists the sandbox.
const runGrace = 30 * time.Second

// errNotAsked is a source's state before its first answer.
var errNotAsked = errors.New("not connected yet")

// set merges what NRI and CRI tell. An ID lives once: what has ended never
// comes back, whichever source says so, however late.
type set struct {
	seq   uint64 // grows with each begin and end
	live  map[string]*entry
	ended map[string]uint64 // to seq; dropped once the runtime has forgotten the ID
}

type entry struct {
	Sandbox
	seq       uint64
	added     time.Time
	seenByCRI bool // CRI has listed it as ready
}

// listed is a row of CRI's list.
type listed struct {
	Sandbox // without NetNS
	ready   bool
}

func newSet() set {
	return set{live: map[string]*entry{}, ended: map[string]uint64{}}
}

// begin reports whether the sandbox is new.
func (s *set) begin(sb Sandbox, seenByCRI bool) bool {
	if _, ok := s.ended[sb.ID]; ok {
		return false
	}
	if e, ok := s.live[sb.ID]; ok {
		e.seenByCRI = e.seenByCRI || seenByCRI
		return false
	}
	s.seq++
	s.live[sb.ID] = &entry{Sandbox: sb, seq: s.seq, added: time.Now(), seenByCRI: seenByCRI}
	return true
}

// end reports whether that is news. A sandbox that was never known is noted
// too: a list that was taken before its end may still be under way.
func (s *set) end(id string) bool {
	if _, ok := s.ended[id]; ok {
		return false
	}
	s.seq++
	delete(s.live, id)
	s.ended[id] = s.seq
	return true
}

// poll compares a list of CRI's, asked for when seq was since, with the set:
// which sandboxes have ended, and which are ready that the set doesn't know.
func (s *set) poll(list []listed, since uint64, now time.Time) (ended []string, unknown []Sandbox) {
	ready := make(map[string]bool, len(list))
	for _, l := range list {
		ready[l.ID] = l.ready
		if !l.ready {
			continue
		}
		if _, over := s.ended[l.ID]; over {
			continue
		}
		if e, ok := s.live[l.ID]; ok {
			e.seenByCRI = true
			continue
		}
		unknown = append(unknown, l.Sandbox)
	}
	for id, e := range s.live {
		switch {
		case ready[id]:
		case e.seq > since: // began after the list was asked for
		case !e.seenByCRI && now.Sub(e.added) < runGrace:
		default:
			ended = append(ended, id)
		}
	}
	for id, seq := range s.ended {
		if _, known := ready[id]; !known && seq <= since {
			delete(s.ended, id)
		}
	}
	slices.Sort(ended)
	slices.SortFunc(unknown, oldestFirst)
	return ended, unknown
}

func (s *set) list() []Sandbox {
	out := make([]Sandbox, 0, len(s.live))
	for _, e := range s.live {
		out = append(out, e.Sandbox)
	}
	slices.SortFunc(out, oldestFirst)
	return out
}

func oldestFirst(a, b Sandbox) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
}
