package sandbox

import (
	"path/filepath"
	"testing"

	"github.com/containerd/nri/pkg/api"
)

// nriPod is a sandbox as the runtime sends it.
func nriPod(t testing.TB, id string, namespaces ...*api.LinuxNamespace) []byte {
	t.Helper()
	message, err := (&api.PodSandbox{
		Id: id, Name: "receiver", Namespace: "feeds", Uid: "u",
		Annotations: map[string]string{"rdma-multicast.dev/groups": "market-data"},
		Linux:       &api.LinuxPodSandbox{Namespaces: namespaces},
	}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func TestFromNRI(t *testing.T) {
	network := func(path string) *api.LinuxNamespace { return &api.LinuxNamespace{Type: "network", Path: path} }
	for _, tt := range []struct {
		name       string
		id         string
		namespaces []*api.LinuxNamespace
		want       string
		known      bool
	}{
		{"its own", "a", []*api.LinuxNamespace{{Type: "ipc", Path: "/x"}, network("/run/netns/a")}, "/run/netns/a", true},
		{"the host's", "a", []*api.LinuxNamespace{{Type: "ipc"}}, "", true},
		{"no namespaces", "a", nil, "", false},
		{"no path", "a", []*api.LinuxNamespace{network("")}, "", false},
		{"relative path", "a", []*api.LinuxNamespace{network("netns/a")}, "netns/a", false},
		{"no ID", "", []*api.LinuxNamespace{network("/run/netns/a")}, "/run/netns/a", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pod api.PodSandbox
			if err := pod.UnmarshalVT(nriPod(t, tt.id, tt.namespaces...)); err != nil {
				t.Fatal(err)
			}
			got, known := fromNRI(&pod)
			if known != tt.known || known && got.NetNS != tt.want {
				t.Errorf("namespace %q, known %v, want %q, %v", got.NetNS, known, tt.want, tt.known)
			}
		})
	}
}

func FuzzFromNRI(f *testing.F) {
	f.Add(nriPod(f, "a", &api.LinuxNamespace{Type: "network", Path: "/run/netns/a"}))
	f.Add(nriPod(f, "a", &api.LinuxNamespace{Type: "network", Path: "netns"}))
	f.Add(nriPod(f, "a"))
	f.Fuzz(func(t *testing.T, message []byte) {
		var pod api.PodSandbox
		if pod.UnmarshalVT(message) != nil {
			return
		}
		sb, known := fromNRI(&pod)
		if known && (sb.ID == "" || sb.NetNS != "" && !filepath.IsAbs(sb.NetNS)) {
			t.Errorf("taken: ID %q, namespace %q", sb.ID, sb.NetNS)
		}
	})
}
