// Package sandboxtest is a container runtime without containers: it speaks CRI
// (ListPodSandbox and PodSandboxStatus) on a Unix socket, and NRI where asked,
// in the order in which containerd 2 does. For tests and simulated nodes.
//
//	runtime, err := sandboxtest.Start("/tmp/x/cri.sock")
//	defer runtime.Close()
//	runtime.AddSandbox(sandboxtest.Sandbox{ID: "s1", PodUID: "u1", PodNamespace: "default", PodName: "a", NetNS: "/run/netns/a"})
//	runtime.StopSandbox("s1") // NRI hears it first; take the interfaces away once it has returned
//	runtime.RemoveSandbox("s1")
package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is a pod sandbox as kubelet would have asked for it.
type Sandbox struct {
	// ID of the sandbox; never used twice.
	ID                            string
	PodUID, PodNamespace, PodName string
	// NetNS is the path of its network namespace; "" for a host-network pod.
	NetNS string
	// Annotations of the pod.
	Annotations map[string]string
}

// Runtime is the simulated runtime. Safe for concurrent use.
type Runtime struct {
	server *grpc.Server
	served chan struct{}

	mu        sync.Mutex
	nri       *adaptation.Adaptation
	front     *relay
	sandboxes map[string]*state
	failure   error
	info      map[string]string // verbose info instead of the right one, by sandbox ID
	lists     int
	statuses  map[string]int
	// Calls wait for these, where set.
	heldLists, heldStatuses chan struct{}
}

type state struct {
	Sandbox
	created    time.Time
	ready      bool
	containers map[string]bool // running or not
}

// Start serves CRI on a Unix socket at path. A socket that is left over there
// is replaced.
func Start(socket string) (*Runtime, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("sandboxtest: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("sandboxtest: %w", err)
	}
	r := &Runtime{
		server:    grpc.NewServer(),
		served:    make(chan struct{}),
		sandboxes: map[string]*state{},
		info:      map[string]string{},
		statuses:  map[string]int{},
	}
	cri.RegisterRuntimeServiceServer(r.server, &service{r: r})
	go func() {
		defer close(r.served)
		_ = r.server.Serve(l) // ends with Close
	}()
	return r, nil
}

// Close ends CRI and NRI and removes the sockets. The sandboxes are forgotten.
func (r *Runtime) Close() {
	r.server.Stop()
	<-r.served
	r.StopNRI()
}

// AddSandbox runs a sandbox: NRI's RunPodSandbox, then it is ready in CRI.
// An error of an NRI plugin, or an ID that was used before, is returned; the
// sandbox doesn't exist then.
func (r *Runtime) AddSandbox(s Sandbox) error {
	st := &state{Sandbox: s, created: time.Now(), containers: map[string]bool{}}
	r.mu.Lock()
	_, used := r.sandboxes[s.ID]
	nri := r.nri
	r.mu.Unlock()
	if used {
		return fmt.Errorf("sandboxtest: sandbox ID %s was used before", s.ID)
	}
	if nri != nil {
		defer nri.BlockPluginSync().Unblock() // as containerd: a plugin hears of all of it or none
		if err := nri.RunPodSandbox(context.Background(), &adaptation.RunPodSandboxRequest{Pod: nriPod(s, true)}); err != nil {
			return fmt.Errorf("sandboxtest: RunPodSandbox of %s: %w", s.ID, err)
		}
	}
	st.ready = true
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[s.ID] = st
	return nil
}

// StopSandbox stops a sandbox as containerd does: it isn't ready any more, then
// NRI's StopPodSandbox. Once this has returned the pod's network goes; that is
// the caller's. Stopping twice, or what doesn't exist, is no error.
func (r *Runtime) StopSandbox(id string) error {
	r.mu.Lock()
	st, ok := r.sandboxes[id]
	if !ok || !st.ready {
		r.mu.Unlock()
		return nil
	}
	st.ready = false
	r.mu.Unlock()
	return r.StopHook(id)
}

// StopHook calls NRI's StopPodSandbox alone: KillSandbox and StopHook are
// StopSandbox in two steps.
func (r *Runtime) StopHook(id string) error {
	r.mu.Lock()
	st, ok := r.sandboxes[id]
	nri := r.nri
	r.mu.Unlock()
	if !ok || nri == nil {
		return nil
	}
	defer nri.BlockPluginSync().Unblock()
	if err := nri.StopPodSandbox(context.Background(), &adaptation.StopPodSandboxRequest{Pod: nriPod(st.Sandbox, true)}); err != nil {
		return fmt.Errorf("sandboxtest: StopPodSandbox of %s: %w", id, err)
	}
	return nil
}

// KillSandbox lets a sandbox's pause process die: it isn't ready any more, NRI
// isn't told.
func (r *Runtime) KillSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st, ok := r.sandboxes[id]; ok {
		st.ready = false
	}
}

// RemoveSandbox forgets a sandbox that was stopped.
func (r *Runtime) RemoveSandbox(id string) error {
	r.mu.Lock()
	st, ok := r.sandboxes[id]
	if !ok {
		r.mu.Unlock()
		return nil
	}
	if st.ready {
		r.mu.Unlock()
		return fmt.Errorf("sandboxtest: sandbox %s is still running", id)
	}
	delete(r.sandboxes, id)
	nri := r.nri
	r.mu.Unlock()
	if nri == nil {
		return nil
	}
	defer nri.BlockPluginSync().Unblock()
	if err := nri.RemovePodSandbox(context.Background(), &adaptation.RemovePodSandboxRequest{Pod: nriPod(st.Sandbox, false)}); err != nil {
		return fmt.Errorf("sandboxtest: RemovePodSandbox of %s: %w", id, err)
	}
	return nil
}

// Ready lists the IDs of the sandboxes that are ready, sorted.
func (r *Runtime) Ready() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, st := range r.sandboxes {
		if st.ready {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Fail makes every CRI call fail with this error; nil ends it.
func (r *Runtime) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
}

// SetInfo makes PodSandboxStatus of a sandbox tell this as its verbose info.
func (r *Runtime) SetInfo(id, info string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info[id] = info
}

// HoldLists makes ListPodSandbox take its list at once but answer only when
// release is called.
func (r *Runtime) HoldLists() (release func()) { return r.holdCalls(&r.heldLists) }

// HoldStatuses makes PodSandboxStatus look at once but answer only when
// release is called.
func (r *Runtime) HoldStatuses() (release func()) { return r.holdCalls(&r.heldStatuses) }

func (r *Runtime) holdCalls(of *chan struct{}) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hold := make(chan struct{})
	*of = hold
	return sync.OnceFunc(func() {
		r.mu.Lock()
		*of = nil
		r.mu.Unlock()
		close(hold)
	})
}

// Lists counts the calls of ListPodSandbox.
func (r *Runtime) Lists() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lists
}

// Statuses counts the calls of PodSandboxStatus for a sandbox.
func (r *Runtime) Statuses(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.statuses[id]
}
