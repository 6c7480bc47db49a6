//go:build realkernel

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Images of the tests. There is no registry in the machine: they are written as
// docker-archive files and imported.
const (
	podImage      = "docker.io/e2e/pod:1"
	receiverImage = "docker.io/e2e/receiver:1"
)

// writeImage writes an image of one layer with the files (path in the image to
// path on the machine) to the file out.
func writeImage(t *testing.T, out, name string, entrypoint []string, files map[string]string) {
	t.Helper()
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	for inside, outside := range files {
		content, err := os.ReadFile(outside)
		if err != nil {
			t.Fatal(err)
		}
		addFile(t, archive, inside[1:], content)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(layer.Bytes())
	config := marshal(t, map[string]any{
		"architecture": "amd64",
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": entrypoint},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
	})
	manifest := marshal(t, []map[string]any{{
		"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})

	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image := tar.NewWriter(f)
	addFile(t, image, "config.json", config)
	addFile(t, image, "layer.tar", layer.Bytes())
	addFile(t, image, "manifest.json", manifest)
	if err := image.Close(); err != nil {
		t.Fatal(err)
	}
}

func addFile(t *testing.T, archive *tar.Writer, name string, content []byte) {
	t.Helper()
	err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Write(content); err != nil {
		t.Fatal(err)
	}
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// withLibraries adds to files a program that is linked dynamically, and the
// libraries that it needs.
func withLibraries(t *testing.T, files map[string]string, program string) {
	t.Helper()
	for _, library := range regexp.MustCompile(`/[^ ]+\.so[^ ]*`).FindAllString(run(t, "ldd", program), -1) {
		files[library] = library
	}
}

// receiverFiles are those of the image of a program that uses libibverbs and
// Soft-RoCE's provider.
func receiverFiles(t *testing.T, program string) map[string]string {
	t.Helper()
	files := map[string]string{"/receiver": program}
	withLibraries(t, files, program)
	providers, err := filepath.Glob("/usr/lib/*/libibverbs/librxe-*.so")
	if err != nil || len(providers) != 1 {
		t.Fatalf("Soft-RoCE's provider of libibverbs: %q, %v; apt-get install ibverbs-providers", providers, err)
	}
	files[providers[0]] = providers[0]
	withLibraries(t, files, providers[0])
	files["/etc/libibverbs.d/rxe.driver"] = "/etc/libibverbs.d/rxe.driver"
	return files
}
