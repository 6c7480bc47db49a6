package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNetworkNamespace(t *testing.T) {
	const spec = `{"pid":1,"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/var/run/netns/cni-1"}]}}}`
	tests := []struct {
		name    string
		info    map[string]string
		want    string
		wantErr string
	}{
		{name: "containerd", info: map[string]string{"info": spec}, want: "/var/run/netns/cni-1"},
		{name: "CRI-O", info: crioInfo(t, "pod"), want: "/var/run/netns/0f4d6f4c-7a38-4be1-8d0f-52c7a4d1c2b6"},
		{name: "CRI-O with infra container", info: crioInfo(t, "pod-with-infra-container"), want: "/var/run/netns/6c9be2f7-1df1-4a39-9bb5-8e6f2f4b7a10"},
		{name: "CRI-O with host network", info: crioInfo(t, "pod-on-host-network"), want: "/var/run/netns/a3d7c1e8-55b0-4c8e-b0a4-1f6e9d2c3b47"},
		{name: "not verbose", info: nil, wantErr: `no key "info"`},
		{name: "not JSON", info: map[string]string{"info": "x"}, wantErr: "isn't the JSON expected"},
		{name: "no spec", info: map[string]string{"info": `{"pid":1}`}, wantErr: "no runtimeSpec.linux"},
		{name: "no network namespace", info: map[string]string{"info": `{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"}]}}}`}, wantErr: "no network namespace"},
		{name: "relative path", info: map[string]string{"info": `{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":"netns"}]}}}`}, wantErr: "absolute path"},
		{name: "no path", info: map[string]string{"info": `{"runtimeSpec":{"linux":{"namespaces":[{"type":"network"}]}}}`}, wantErr: "absolute path"},
		{name: "too long", info: map[string]string{"info": spec + strings.Repeat(" ", maxInfo)}, wantErr: "at most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := networkNamespace(tt.info)
			if tt.wantErr == "" && err != nil || tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Fatalf("error = %v, want one with %q", err, tt.wantErr)
			}
			if got != tt.want {
				t.Errorf("path = %q, want %q", got, tt.want)
			}
		})
	}
}

// crioInfo is the verbose info that testdata/README.md tells of.
func crioInfo(t testing.TB, pod string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "cri-o-1.34", pod+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"info": string(text)}
}

func FuzzNetworkNamespace(f *testing.F) {
	f.Add(crioInfo(f, "pod")["info"])
	f.Add(`{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":"/var/run/netns/cni-1"}]}}}`)
	f.Add(`{"runtimeSpec":{"linux":null}}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, text string) {
		path, err := networkNamespace(map[string]string{"info": text})
		if err == nil && !filepath.IsAbs(path) {
			t.Errorf("path %q of %q isn't absolute", path, text)
		}
		if err != nil && path != "" {
			t.Errorf("path %q beside error %v", path, err)
		}
	})
}
