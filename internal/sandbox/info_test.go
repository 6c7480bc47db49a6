package sandbox

import (
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
		{name: "CRI-O", info: map[string]string{"info": `{"image":"pause","runtimeSpec":{"hostname":"a","linux":{"namespaces":[{"type":"network","path":"/var/run/netns/x"}]}}}`}, want: "/var/run/netns/x"},
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

func FuzzNetworkNamespace(f *testing.F) {
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
