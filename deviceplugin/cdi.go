package deviceplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A file of the Container Device Interface, version 0.6.0 as far as it is used:
// https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
type (
	cdiSpec struct {
		Version string      `json:"cdiVersion"`
		Kind    string      `json:"kind"`
		Devices []cdiEntry  `json:"devices"`
		Edits   *cdiEditing `json:"containerEdits,omitempty"`
	}
	cdiEntry struct {
		Name  string     `json:"name"`
		Edits cdiEditing `json:"containerEdits"`
	}
	cdiEditing struct {
		Nodes []cdiNode `json:"deviceNodes"`
	}
	cdiNode struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
	}
)

// cdiDevice is what CDI takes for a device's name.
var cdiDevice = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$`)

// cdiPattern are the names of our files, of which others in the folder are none.
const cdiPattern = "rdma-multicast-*.json"

// cdiFile is the name of a resource's file.
func cdiFile(resource string) string {
	return "rdma-multicast-" + strings.ReplaceAll(resource, "/", "_") + ".json"
}

// cdiName is the name of a device for the runtime.
func cdiName(resource, device string) string { return resource + "=" + device }

// writeCDI writes the file of a resource, from the snapshot that names from it
// are given out of. Devices without nodes can't be in it.
func writeCDI(dir, resource string, s *snapshot) error {
	spec := cdiSpec{Version: "0.6.0", Kind: resource, Devices: []cdiEntry{}}
	for _, d := range s.devices {
		if len(d.nodes) > 0 && cdiDevice.MatchString(d.name) {
			spec.Devices = append(spec.Devices, cdiEntry{Name: d.name, Edits: cdiEditing{Nodes: cdiNodes(d.nodes)}})
		}
	}
	path := filepath.Join(dir, cdiFile(resource))
	if len(spec.Devices) == 0 {
		return removeFile(path) // a file without devices isn't valid
	}
	if len(s.shared) > 0 {
		spec.Edits = &cdiEditing{Nodes: cdiNodes(s.shared)}
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	if now, err := os.ReadFile(path); err == nil && string(now) == string(text) {
		return nil // the runtime reads the folder anew at each change
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return replaceFile(path, text, 0o644)
}

func cdiNodes(nodes []string) []cdiNode {
	var out []cdiNode
	for _, node := range nodes {
		out = append(out, cdiNode{Path: nodePath(node), Permissions: permissions})
	}
	return out
}

// removeCDI removes the files of resources that aren't handed out by CDI names.
func removeCDI(dir string, keep func(file string) bool) error {
	files, err := filepath.Glob(filepath.Join(dir, cdiPattern))
	if err != nil {
		return fmt.Errorf("CDI files in %s: %w", dir, err)
	}
	var errs []error
	for _, file := range files {
		if !keep(filepath.Base(file)) {
			errs = append(errs, removeFile(file))
		}
	}
	return errors.Join(errs...)
}

// removeFile removes a file that may be gone.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
