package sys

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestOpenNetNSRefusesOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ns, err := New().OpenNetNS(path); !errors.Is(err, syscall.ENOTTY) || ns != nil {
		t.Errorf("a plain file: got %v, error %v, want ENOTTY", ns, err)
	}
	if ns, err := New().OpenNetNS("/proc/self/ns/uts"); !errors.Is(err, syscall.EINVAL) || ns != nil {
		t.Errorf("another kind of namespace: got %v, error %v, want EINVAL", ns, err)
	}
	if ns, err := New().OpenNetNS(path + "-missing"); !errors.Is(err, syscall.ENOENT) || ns != nil {
		t.Errorf("no file: got %v, error %v, want ENOENT", ns, err)
	}
}

func TestOwnNamespaceByPath(t *testing.T) {
	ns, err := New().OpenNetNS("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	own, err := New().Links(nil)
	if err != nil {
		t.Fatal(err)
	}
	byPath, err := New().Links(ns)
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	name := func(l Link) string { return l.Name }
	if got, want := collect(byPath, name), collect(own, name); !slices.Equal(got, want) || !slices.Contains(got, "lo") {
		t.Errorf("got links %v, want %v with lo", got, want)
	}
	for _, l := range own {
		if l.Loopback != (l.Name == "lo") {
			t.Errorf("link %s: loopback %v", l.Name, l.Loopback)
		}
	}
	if _, err := New().Links(ns); !errors.Is(err, os.ErrClosed) {
		t.Errorf("links of a closed namespace: got error %v, want os.ErrClosed", err)
	}
}

func collect(links []Link, f func(Link) string) []string {
	var out []string
	for _, l := range links {
		out = append(out, f(l))
	}
	return out
}

type foreign struct{}

func (foreign) Close() error { return nil }

func TestNamespaceOfAnotherKernelIsRefused(t *testing.T) {
	if _, err := New().Links(foreign{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("got error %v, want EINVAL", err)
	}
}

// A full pipe stands for the device without an event: it answers EAGAIN.
func TestCloseEndsTheWaitForAnEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openCM(path)
	if err != nil {
		t.Fatal(err)
	}
	var werr error
	for werr == nil {
		if err := c.raw.Control(func(fd uintptr) { _, werr = syscall.Write(int(fd), make([]byte, 4096)) }); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(werr, syscall.EAGAIN) {
		t.Fatalf("filling the pipe: %v", werr)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.GetEvent()
		done <- err
	}()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("got error %v, want os.ErrClosed", err)
	}
	if _, err := c.Leave(1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a command after closing: got error %v, want os.ErrClosed", err)
	}
}
