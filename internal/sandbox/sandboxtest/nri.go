package sandboxtest

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/containerd/nri/pkg/adaptation"
)

// StartNRI serves NRI on a Unix socket at path, by the same code that
// containerd and CRI-O have it from. No plugin is launched from disk.
func (r *Runtime) StartNRI(socket string) error {
	return r.StartNRIAs(socket, "containerd", "2.4.2")
}

// StartNRIAs is StartNRI of a runtime that calls itself by another name, such
// as cri-o.
func (r *Runtime) StartNRIAs(socket, name, version string) error {
	inner := socket + ".runtime"
	none := filepath.Join(filepath.Dir(socket), "no-nri-plugins")
	nri, err := adaptation.New(name, version, r.synchronize,
		func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
			return nil, nil
		},
		adaptation.WithSocketPath(inner), adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none))
	if err != nil {
		return fmt.Errorf("sandboxtest: %w", err)
	}
	if err := nri.Start(); err != nil {
		return fmt.Errorf("sandboxtest: %w", err)
	}
	front, err := startRelay(socket, inner)
	if err != nil {
		nri.Stop()
		return fmt.Errorf("sandboxtest: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nri, r.front = nri, front
	return nil
}

// StopNRI disconnects every plugin, as a restart of the runtime does. StartNRI
// may follow; sandboxes stay.
func (r *Runtime) StopNRI() {
	r.mu.Lock()
	nri, front := r.nri, r.front
	r.nri, r.front = nil, nil
	r.mu.Unlock()
	if nri != nil {
		nri.Stop()
		front.close()
	}
}

// StartContainer runs a container in a sandbox; NRI is told.
func (r *Runtime) StartContainer(sandboxID, containerID string) error {
	return r.container(sandboxID, containerID, true)
}

// StopContainer stops it, or lets it exit; NRI is told.
func (r *Runtime) StopContainer(sandboxID, containerID string) error {
	return r.container(sandboxID, containerID, false)
}

func (r *Runtime) container(sandboxID, containerID string, running bool) error {
	r.mu.Lock()
	st, ok := r.sandboxes[sandboxID]
	if !ok {
		r.mu.Unlock()
		return fmt.Errorf("sandboxtest: no sandbox %s", sandboxID)
	}
	st.containers[containerID] = running
	nri := r.nri
	r.mu.Unlock()
	if nri == nil {
		return nil
	}
	defer nri.BlockPluginSync().Unblock()
	pod, container := nriPod(st.Sandbox, true), nriContainer(sandboxID, containerID, running)
	if running {
		return nri.StartContainer(context.Background(), &adaptation.StartContainerRequest{Pod: pod, Container: container})
	}
	_, err := nri.StopContainer(context.Background(), &adaptation.StopContainerRequest{Pod: pod, Container: container})
	return err
}

// synchronize tells a plugin that has just connected what there is.
func (r *Runtime) synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	var pods []*adaptation.PodSandbox
	var containers []*adaptation.Container
	r.mu.Lock()
	for _, st := range r.sandboxes {
		pods = append(pods, nriPod(st.Sandbox, st.ready))
		for id, running := range st.containers {
			containers = append(containers, nriContainer(st.ID, id, running))
		}
	}
	r.mu.Unlock()
	_, err := tell(ctx, pods, containers)
	return err
}

// nriPod has no namespaces once the sandbox's task has gone, as in containerd.
func nriPod(s Sandbox, running bool) *adaptation.PodSandbox {
	pod := &adaptation.PodSandbox{
		Id: s.ID, Name: s.PodName, Uid: s.PodUID, Namespace: s.PodNamespace,
		Annotations: s.Annotations,
		Linux:       &adaptation.LinuxPodSandbox{},
	}
	if !running {
		return pod
	}
	pod.Linux.Namespaces = []*adaptation.LinuxNamespace{{Type: "pid"}, {Type: "ipc"}, {Type: "mount"}}
	if s.NetNS != "" {
		pod.Linux.Namespaces = append(pod.Linux.Namespaces, &adaptation.LinuxNamespace{Type: "network", Path: s.NetNS})
	}
	return pod
}

func nriContainer(sandboxID, id string, running bool) *adaptation.Container {
	state := adaptation.ContainerState_CONTAINER_STOPPED
	if running {
		state = adaptation.ContainerState_CONTAINER_RUNNING
	}
	return &adaptation.Container{Id: id, PodSandboxId: sandboxID, Name: id, State: state}
}
