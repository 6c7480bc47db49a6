package sandboxtest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
)

// relay passes connections on from one Unix socket to another until it is
// closed. NRI's runtime side leaves connections to the end of its process; a
// runtime that restarts inside a test has to cut them.
type relay struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	over  bool
}

func startRelay(from, to string) (*relay, error) {
	if err := os.Remove(from); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", from)
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	r.running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			r.running.Go(func() { r.pass(in) })
		}
	})
	return r, nil
}

func (r *relay) pass(in net.Conn) {
	out, err := net.Dial("unix", r.to)
	if err != nil {
		_ = in.Close()
		return
	}
	r.mu.Lock()
	if r.over {
		_, _ = in.Close(), out.Close()
	}
	r.conns[in], r.conns[out] = struct{}{}, struct{}{}
	r.mu.Unlock()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		ways.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = in.Close(), out.Close()
		})
	}
	ways.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, in)
	delete(r.conns, out)
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.over = true
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}
