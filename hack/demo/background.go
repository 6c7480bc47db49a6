package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
)

const (
	// progressFD is where the process in the background tells up how it gets on.
	progressFD = 3
	readyLine  = "ready"

	// downTimeout is how long everything may take to end.
	downTimeout = 2 * time.Minute
)

// state is the folder of the cluster in the background: one for each user,
// outside of the checkout.
type state struct{ dir string }

func openState() (state, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return state{}, fmt.Errorf("no folder for the cluster's state: %w: set XDG_STATE_HOME", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	dir := filepath.Join(base, "rdma-multicast")
	return state{dir}, os.MkdirAll(dir, 0o700)
}

func (s state) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }
func (s state) log() string        { return filepath.Join(s.dir, "log") }

// introduction is the file with what up says of a cluster that is ready.
func (s state) introduction() string { return filepath.Join(s.dir, "introduction") }

// errRuns means that a cluster runs in the background.
var errRuns = errors.New("a cluster runs already")

// lock is held by the process in the background as long as it lives; it has its
// process ID as contents. errRuns: somebody else has it.
func (s state) lock() (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(s.dir, "pid"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errRuns
		}
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// running tells whether somebody has the lock.
func (s state) running() (bool, error) {
	file, err := s.lock()
	if errors.Is(err, errRuns) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, file.Close()
}

// clusterSize is how many hollow nodes there are, and how many of them are on
// InfiniBand.
type clusterSize struct{ nodes, infiniBand int }

func (s clusterSize) flags() []string {
	return []string{"-nodes", strconv.Itoa(s.nodes), "-infiniband", strconv.Itoa(s.infiniBand)}
}

// up starts this program anew in the background and waits until its cluster is
// there.
func up(ctx context.Context, size clusterSize) (err error) {
	s, err := openState()
	if err != nil {
		return err
	}
	running, err := s.running()
	if err != nil {
		return err
	}
	if running {
		fmt.Println("A cluster runs already.")
		text, err := os.ReadFile(s.introduction())
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it isn't ready; its log: %s", s.log())
		}
		fmt.Print(string(text))
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	progress, childEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, progress.Close()) }()
	cmd := exec.Command(program, append(size.flags(), "serve")...)
	cmd.ExtraFiles = []*os.File{childEnd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(cmd.Start(), childEnd.Close())
	if err != nil {
		return err
	}
	// An interrupted up ends what it has started.
	release := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer release()
	lines := bufio.NewScanner(progress)
	for lines.Scan() {
		if lines.Text() == readyLine {
			return cmd.Process.Release()
		}
		fmt.Println(lines.Text())
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return errInterrupted
	}
	return fmt.Errorf("the cluster didn't start (%w); its log: %s", err, s.log())
}

// serve is the process in the background.
func serve(ctx context.Context, size clusterSize) (err error) {
	progress := os.NewFile(progressFD, "progress")
	if progress == nil {
		return errors.New("serve is for demo up to run")
	}
	s, err := openState()
	if err != nil {
		return err
	}
	pid, err := s.lock()
	if err != nil {
		fmt.Fprintln(progress, err)
		return err
	}
	// The file stays, since removing what others may be about to lock would let
	// two of them have it.
	defer func() { err = errors.Join(err, pid.Truncate(0), pid.Close()) }()
	if err := errors.Join(pid.Truncate(0), second(fmt.Fprintln(pid, os.Getpid()))); err != nil {
		return err
	}
	log, err := openLog(s.log())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()

	cluster, err := localcluster.Start(ctx, localcluster.Options{
		ControlPlane: localcluster.ControlPlaneOptions{Log: log, Progress: progress},
		Nodes:        size.nodes,
		InfiniBand:   size.infiniBand,
		Log:          log.logger(),
	})
	if err != nil {
		fmt.Fprintln(progress, err)
		return err
	}
	defer func() {
		stopErr := errors.Join(os.Remove(s.introduction()), os.Remove(s.kubeconfig()), cluster.Stop())
		if stopErr != nil { // nobody reads standard error by now
			log.logger().Error(stopErr, "The cluster hasn't ended cleanly")
		}
		err = errors.Join(err, stopErr)
	}()
	if err := cluster.WriteKubeconfig(s.kubeconfig()); err != nil {
		return err
	}
	introduction := fmt.Sprintf(`%d hollow nodes run on a simulated fabric, the last %d of them on InfiniBand.
Pods on them have a network and no containers, so kubectl logs and exec don't work. A pod
without a node gets one. There is no controller for Deployments, Jobs, quotas and namespaces:
a ResourceQuota allows everything, a namespace that is deleted stays Terminating.

  export KUBECONFIG=%s
  kubectl apply -f config/samples
  kubectl get mcg,mcn,pods -A

kubectl is %s; the log is %s; make down ends it all.
`, size.nodes, size.infiniBand, s.kubeconfig(), cluster.Kubectl, s.log())
	if err := os.WriteFile(s.introduction(), []byte(introduction), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s%s\n", introduction, readyLine)
	if err := progress.Close(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func second[T any](_ T, err error) error { return err }

// down ends the process in the background and waits until it has gone.
func down(ctx context.Context) error {
	s, err := openState()
	if err != nil {
		return err
	}
	running, err := s.running()
	if err != nil {
		return err
	}
	if !running {
		fmt.Println("No cluster runs.")
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("%s is locked, and %q is no process ID", filepath.Join(s.dir, "pid"), text)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	deadline := time.After(downTimeout)
	for running {
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("process %d hasn't ended within %v; its log: %s", pid, downTimeout, s.log())
		}
		if running, err = s.running(); err != nil {
			return err
		}
	}
	fmt.Println("The cluster has ended.")
	return nil
}
