package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

// maxInfo bounds the verbose status of a sandbox, in bytes. The OCI spec in it
// is some ten kilobytes.
const maxInfo = 8 << 20

// networkNamespace finds the path of the sandbox's network namespace in the
// verbose info of PodSandboxStatus: JSON under the key "info", with the OCI
// runtime spec under runtimeSpec, the same in containerd and CRI-O. Nothing
// beside it is read: CRI-O has no pid there for most pods.
func networkNamespace(info map[string]string) (string, error) {
	text, ok := info["info"]
	if !ok {
		return "", errors.New(`the runtime's verbose status has no key "info"`)
	}
	if len(text) > maxInfo {
		return "", fmt.Errorf("the runtime's verbose status has %d bytes; at most %d are read", len(text), maxInfo)
	}
	var parsed struct {
		RuntimeSpec *struct {
			Linux *struct {
				Namespaces []struct {
					Type string `json:"type"`
					Path string `json:"path"`
				} `json:"namespaces"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		return "", fmt.Errorf("the runtime's verbose status isn't the JSON expected: %w", err)
	}
	if parsed.RuntimeSpec == nil || parsed.RuntimeSpec.Linux == nil {
		return "", errors.New("the runtime's verbose status has no runtimeSpec.linux")
	}
	for _, ns := range parsed.RuntimeSpec.Linux.Namespaces {
		if ns.Type != "network" {
			continue
		}
		if !filepath.IsAbs(ns.Path) {
			return "", fmt.Errorf("the runtime tells %.80q as path of the network namespace; an absolute path is expected", ns.Path)
		}
		return ns.Path, nil
	}
	return "", errors.New("runtimeSpec.linux.namespaces in the runtime's verbose status has no network namespace")
}
