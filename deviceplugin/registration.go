package deviceplugin

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	defaultStreamTimeout = 10 * time.Second
	// After a failure or a registration that didn't last it is tried again after
	// at least minRetry, twice as long each time, up to maxRetry, or at once when
	// kubelet.sock is made anew.
	minRetry = 100 * time.Millisecond
	maxRetry = 5 * time.Second
	// lasting is a registration that did last.
	lasting = 10 * time.Second
)

// registration keeps a server registered with kubelet, whatever comes.
type registration struct {
	server *server
	dir    *kubeletDir
	log    logr.Logger
	// streamTimeout is how long kubelet may take from taking a registration to
	// watching the list, which it does within it.
	streamTimeout time.Duration

	mu    sync.Mutex
	state registrationState
}

type registrationState struct {
	registered bool
	err        error
}

func (r *registration) set(state registrationState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := state.err != nil && (r.state.err == nil || r.state.err.Error() != state.err.Error())
	r.state = state
	switch {
	case !news:
	case errors.Is(state.err, errNoKubelet):
		r.log.Info("waiting for kubelet", "resource", r.server.resource, "reason", state.err.Error())
	default:
		r.log.Error(state.err, "kubelet takes no registration", "resource", r.server.resource)
	}
}

func (r *registration) status() registrationState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// errNoKubelet is what a registration waits for.
var errNoKubelet = errors.New("kubelet.sock isn't there: kubelet isn't up, or has another root than the agent was told")

// run keeps the server registered until ctx ends. It has no socket when it
// returns.
func (r *registration) run(ctx context.Context) {
	retry := time.Duration(0)
	for ctx.Err() == nil {
		changes := r.dir.changes()
		kubelet, up := r.dir.socket()
		if !up {
			r.set(registrationState{err: errNoKubelet})
			select {
			case <-changes:
			case <-ctx.Done():
			}
			retry = 0
			continue
		}
		begun := time.Now()
		why, err := r.once(ctx, kubelet)
		if ctx.Err() != nil {
			break
		}
		r.set(registrationState{err: err})
		if err == nil {
			r.log.Info("registering again with kubelet", "resource", r.server.resource, "reason", why)
			if time.Since(begun) >= lasting {
				retry = 0
			}
		}
		// The first attempt after one that went well comes at once.
		if retry > 0 || err != nil {
			retry = max(retry, minRetry)
			r.wait(ctx, kubelet, retry)
		}
		retry = min(max(2*retry, minRetry), maxRetry)
	}
	r.set(registrationState{})
}

// once registers, and serves for as long as the registration is worth anything.
func (r *registration) once(ctx context.Context, kubelet socketID) (why string, err error) {
	e, err := r.server.listen(r.dir.path)
	if err != nil {
		return "", err
	}
	defer e.stop()
	if err := register(ctx, filepath.Join(r.dir.path, kubeletSocket), r.server.resource, e); err != nil {
		return "", err
	}
	r.set(registrationState{registered: true})
	r.log.Info("registered with kubelet", "resource", r.server.resource, "socket", filepath.Base(e.path))
	return r.serve(ctx, kubelet, e)
}

// serve returns when kubelet has to be told anew, and why.
func (r *registration) serve(ctx context.Context, kubelet socketID, e *endpoint) (why string, err error) {
	begun := time.NewTimer(r.streamTimeout)
	defer begun.Stop()
	for {
		changes := r.dir.changes()
		if now, _ := r.dir.socket(); now != kubelet {
			return "kubelet.sock is another one, or gone", nil
		}
		if !e.there() {
			return "the plugin's socket is gone", nil
		}
		select {
		case <-ctx.Done():
			return "", nil
		case <-e.served:
			return "", e.err
		case <-e.streams.ended:
			return "kubelet ended ListAndWatch", nil
		case <-begun.C:
			if !isClosed(e.streams.begun) {
				return "kubelet never watched the list", nil
			}
		case <-changes:
		}
	}
}

// wait waits before another attempt; a new kubelet is tried at once.
func (r *registration) wait(ctx context.Context, kubelet socketID, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		changes := r.dir.changes()
		if now, _ := r.dir.socket(); now != kubelet {
			return
		}
		select {
		case <-changes:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
