package sandboxtest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/types"
)

// service is what Runtime serves of CRI; everything else is Unimplemented.
type service struct {
	cri.UnimplementedRuntimeServiceServer
	r *Runtime
}

// ListPodSandbox is CRI's; the request's filter is honoured for ID and state.
func (s *service) ListPodSandbox(ctx context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	r := s.r
	r.mu.Lock()
	r.lists++
	resp, err, hold := &cri.ListPodSandboxResponse{}, r.failure, r.heldLists
	for _, st := range r.sandboxes {
		if id := req.GetFilter().GetId(); id != "" && id != st.ID {
			continue
		}
		if want := req.GetFilter().GetState(); want != nil && want.State != st.criState() {
			continue
		}
		resp.Items = append(resp.Items, &cri.PodSandbox{
			Id: st.ID, Metadata: st.metadata(), State: st.criState(), CreatedAt: st.created.UnixNano(),
			Labels: st.labels(), Annotations: st.Annotations,
		})
	}
	r.mu.Unlock()
	if herr := held(ctx, hold); herr != nil {
		return nil, herr
	}
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	slices.SortFunc(resp.Items, func(a, b *cri.PodSandbox) int { return strings.Compare(a.Id, b.Id) })
	return resp, nil
}

// PodSandboxStatus is CRI's; verbose, it tells the namespaces as containerd
// and CRI-O do, in the runtimeSpec of the JSON under the key info.
func (s *service) PodSandboxStatus(ctx context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	resp, hold, err := s.r.status(req)
	if herr := held(ctx, hold); herr != nil {
		return nil, herr
	}
	return resp, err
}

func held(ctx context.Context, until <-chan struct{}) error {
	if until == nil {
		return nil
	}
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (r *Runtime) status(req *cri.PodSandboxStatusRequest) (_ *cri.PodSandboxStatusResponse, hold <-chan struct{}, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hold = r.heldStatuses
	r.statuses[req.GetPodSandboxId()]++
	if r.failure != nil {
		return nil, hold, status.Error(codes.Unavailable, r.failure.Error())
	}
	st, ok := r.sandboxes[req.GetPodSandboxId()]
	if !ok {
		return nil, hold, status.Errorf(codes.NotFound, "sandbox %q not found", req.GetPodSandboxId())
	}
	mode := cri.NamespaceMode_POD
	if st.NetNS == "" {
		mode = cri.NamespaceMode_NODE
	}
	resp := &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{
		Id: st.ID, Metadata: st.metadata(), State: st.criState(), CreatedAt: st.created.UnixNano(),
		Labels: st.labels(), Annotations: st.Annotations,
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{Network: mode}}},
	}}
	if !req.GetVerbose() {
		return resp, hold, nil
	}
	info, ok := r.info[st.ID]
	if !ok {
		var err error
		if info, err = verboseInfo(st.NetNS); err != nil {
			return nil, hold, status.Error(codes.Internal, err.Error())
		}
	}
	resp.Info = map[string]string{"info": info}
	return resp, hold, nil
}

func verboseInfo(netns string) (string, error) {
	type namespace struct {
		Type string `json:"type"`
		Path string `json:"path,omitempty"`
	}
	namespaces := []namespace{{Type: "pid"}, {Type: "ipc"}, {Type: "mount"}}
	if netns != "" {
		namespaces = append(namespaces, namespace{Type: "network", Path: netns})
	}
	b, err := json.Marshal(map[string]any{
		"pid":         4711,
		"runtimeSpec": map[string]any{"ociVersion": "1.2.1", "linux": map[string]any{"namespaces": namespaces}},
	})
	return string(b), err
}

func (s *state) criState() cri.PodSandboxState {
	if s.ready {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

func (s *state) metadata() *cri.PodSandboxMetadata {
	return &cri.PodSandboxMetadata{Name: s.PodName, Namespace: s.PodNamespace, Uid: s.PodUID}
}

func (s *state) labels() map[string]string {
	return map[string]string{
		types.KubernetesPodNameLabel:      s.PodName,
		types.KubernetesPodNamespaceLabel: s.PodNamespace,
		types.KubernetesPodUIDLabel:       s.PodUID,
	}
}
