package leak

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// roleEnv makes the test binary leak, to see that Main notices.
const roleEnv = "LEAK_ROLE"

func TestMain(m *testing.M) { Main(m) }

func TestRole(t *testing.T) {
	switch os.Getenv(roleEnv) {
	case "file":
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		runtimeKeeps(r, w)
	case "goroutine":
		go func() { select {} }()
	}
}

// runtimeKeeps keeps files from being closed by the garbage collector.
func runtimeKeeps(files ...*os.File) {
	for _, f := range files {
		f.Fd() // blocking mode, so that the poller has no part in it
	}
	kept <- files
}

// kept outlives the tests.
var kept = make(chan []*os.File, 1)

func TestMainNoticesLeaks(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[string]string{"file": "pipe:", "goroutine": "select", "": ""} {
		cmd := exec.Command(self, "-test.run=^TestRole$")
		cmd.Env = append(os.Environ(), roleEnv+"="+role)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if failed := errors.As(err, &exit); failed != (role != "") {
			t.Errorf("leaking %q: %v, want it noticed\n%s", role, err, out)
		}
		if !strings.Contains(string(out), want) {
			t.Errorf("leaking %q: output lacks %q:\n%s", role, want, out)
		}
	}
}
