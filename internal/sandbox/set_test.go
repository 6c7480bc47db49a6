package sandbox

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSetMerges(t *testing.T) {
	sb := func(id string) Sandbox { return Sandbox{ID: id} }
	ready := func(id string) listed { return listed{Sandbox: sb(id), ready: true} }
	notReady := func(id string) listed { return listed{Sandbox: sb(id)} }
	type result struct{ Ended, Unknown []string }

	tests := []struct {
		name  string
		prior func(*set)    // before the list is asked for
		while func(*set)    // while the list is under way
		later time.Duration // until the list is compared
		list  []listed
		want  result
	}{
		{name: "a new one is unknown", list: []listed{ready("a")}, want: result{Unknown: []string{"a"}}},
		{name: "one that isn't ready isn't", list: []listed{notReady("a")}},
		{name: "a known one is neither", prior: func(s *set) { s.begin(sb("a"), true) }, list: []listed{ready("a")}},
		{name: "gone: ended", prior: func(s *set) { s.begin(sb("a"), true) }, want: result{Ended: []string{"a"}}},
		{name: "not ready: ended", prior: func(s *set) { s.begin(sb("a"), true) }, list: []listed{notReady("a")}, want: result{Ended: []string{"a"}}},
		{name: "stopped while the list was under way: stays ended",
			prior: func(s *set) { s.begin(sb("a"), true) }, while: func(s *set) { s.end("a") }, list: []listed{ready("a")}},
		{name: "stopped without ever being known: stays ended",
			while: func(s *set) { s.end("a") }, list: []listed{ready("a")}},
		{name: "began while the list was under way: kept", while: func(s *set) { s.begin(sb("a"), true) }},
		{name: "NRI told of it, CRI doesn't list it yet: kept", prior: func(s *set) { s.begin(sb("a"), false) }},
		{name: "NRI told of it, CRI says not ready yet: kept",
			prior: func(s *set) { s.begin(sb("a"), false) }, list: []listed{notReady("a")}},
		{name: "NRI told of it, CRI never listed it: its start has failed",
			prior: func(s *set) { s.begin(sb("a"), false) }, later: 2 * runGrace, want: result{Ended: []string{"a"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSet()
			if tt.prior != nil {
				tt.prior(&s)
			}
			since := s.seq
			if tt.while != nil {
				tt.while(&s)
			}
			ended, unknown := s.poll(tt.list, since, time.Now().Add(tt.later))
			got := result{Ended: ended}
			for _, sb := range unknown {
				got.Unknown = append(got.Unknown, sb.ID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("poll (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnIDNeverLivesTwice(t *testing.T) {
	s := newSet()
	s.begin(Sandbox{ID: "a"}, true)
	s.end("a")
	if s.begin(Sandbox{ID: "a"}, true) || len(s.list()) != 0 {
		t.Errorf("list = %v after the end", s.list())
	}
	if s.end("a") {
		t.Error("it ended twice")
	}
}

func TestSetForgetsWhatTheRuntimeForgot(t *testing.T) {
	s := newSet()
	s.begin(Sandbox{ID: "a"}, true)
	s.end("a")
	s.poll([]listed{{Sandbox: Sandbox{ID: "a"}}}, s.seq, time.Now())
	if len(s.ended) != 1 {
		t.Fatalf("ended = %v while the runtime lists it, want it kept", s.ended)
	}
	since := s.seq
	s.end("b")
	s.poll(nil, since, time.Now())
	if _, ok := s.ended["b"]; !ok || len(s.ended) != 1 {
		t.Fatalf("ended = %v, want b alone: it ended after the list was asked for", s.ended)
	}
	s.poll(nil, s.seq, time.Now())
	if len(s.ended) != 0 {
		t.Fatalf("ended = %v, want none", s.ended)
	}
}

// Where kubelet gives up on RunPodSandbox while CRI-O works on it, CRI-O keeps the
// sandbox aside, unlisted, until kubelet asks again.
func TestASandboxThatIsListedLateLives(t *testing.T) {
	s := newSet()
	s.begin(Sandbox{ID: "a"}, false)
	late := time.Now().Add(2 * runGrace)
	ended, _ := s.poll(nil, s.seq, late)
	if diff := cmp.Diff([]string{"a"}, ended); diff != "" {
		t.Fatalf("ended while it isn't listed (-want +got):\n%s", diff)
	}
	s.end("a")
	s.poll(nil, s.seq, late)
	if _, unknown := s.poll([]listed{{Sandbox: Sandbox{ID: "a"}, ready: true}}, s.seq, late); len(unknown) != 1 || !s.begin(unknown[0], true) {
		t.Errorf("unknown = %v once it is listed, want it, to begin", unknown)
	}
}

func TestSetListsOldestFirst(t *testing.T) {
	s := newSet()
	now := time.Now()
	s.begin(Sandbox{ID: "a", CreatedAt: now.Add(time.Second)}, true)
	s.begin(Sandbox{ID: "c", CreatedAt: now}, true)
	s.begin(Sandbox{ID: "b", CreatedAt: now}, true)
	var got []string
	for _, sb := range s.list() {
		got = append(got, sb.ID)
	}
	if diff := cmp.Diff([]string{"b", "c", "a"}, got); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}
