package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
	"github.com/rdma-multicast/rdma-multicast/internal/sandbox/sandboxtest"
)

const (
	namespace   = "bench"
	system      = "rdma-multicast-system"
	nodeName    = "node1"
	metricsAddr = "127.0.0.1:8080"
)

// cluster is a real API server, this project's programs as users run them, and
// a runtime that has sandboxes but no containers.
type cluster struct {
	s          *settings
	plane      *localcluster.ControlPlane
	client     client.Client
	runtime    *sandboxtest.Runtime
	kubeconfig string
	dir        string
	running    []*exec.Cmd
}

func startCluster(ctx context.Context, s *settings) (*cluster, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	c := &cluster{s: s, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context) (err error) {
	log, err := os.Create(filepath.Join(c.s.out, "controlplane.log"))
	if err != nil {
		return err
	}
	ctrl.SetLogger(logr.Discard()) // errors are returned
	if c.plane, err = localcluster.StartControlPlane(ctx, localcluster.ControlPlaneOptions{Root: c.s.root, Log: log, Progress: os.Stderr}); err != nil {
		return err
	}
	if err := c.plane.WriteKubeconfig(c.kubeconfig); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	if c.client, err = client.New(c.plane.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
	} {
		if err := c.client.Create(ctx, o); err != nil {
			return err
		}
	}
	if c.runtime, err = sandboxtest.Start(c.socket("cri")); err != nil {
		return err
	}
	_, err = c.program("controller", "--kubeconfig="+c.kubeconfig, "--agent-namespace="+system, "--health-address=0", "--metrics-address=0")
	return err
}

func (c *cluster) socket(name string) string { return filepath.Join(c.dir, name+".sock") }

// program starts one of this project's in the background.
func (c *cluster) program(name string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(c.s.out, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.s.programs, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.running = append(c.running, cmd)
	return cmd, nil
}

func (c *cluster) startAgent(nri string) (*exec.Cmd, error) {
	return c.program("agent", "--kubeconfig="+c.kubeconfig, "--node-name="+nodeName, "--namespace="+system,
		"--cri-endpoint=unix://"+c.socket("cri"), "--nri-socket="+nri, "--health-address=0", "--metrics-address="+metricsAddr)
}

// end stops a program as an administrator would.
func (c *cluster) end(cmd *exec.Cmd) error {
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	return cmd.Wait()
}

func (c *cluster) stop() error {
	for _, cmd := range c.running {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
	if c.runtime != nil {
		c.runtime.Close()
	}
	var err error
	if c.plane != nil {
		err = c.plane.Stop()
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

func groupName(g int) string { return fmt.Sprintf("g%d", g) }

// createGroups applies the groups and waits until they are accepted.
func (c *cluster) createGroups(ctx context.Context) error {
	for g := range c.s.groups {
		group := &v1alpha1.MulticastGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: groupName(g)},
			Spec:       v1alpha1.MulticastGroupSpec{Address: groupAddr(g).String()},
		}
		if err := c.client.Create(ctx, group); err != nil {
			return err
		}
	}
	return eventually(ctx, 2*time.Minute, 100*time.Millisecond, "all groups are accepted", func() error {
		var all v1alpha1.MulticastGroupList
		if err := c.client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
			return err
		}
		accepted := 0
		for i := range all.Items {
			for _, condition := range all.Items[i].Status.Conditions {
				if condition.Type == v1alpha1.ConditionAccepted && condition.Status == metav1.ConditionTrue {
					accepted++
				}
			}
		}
		if accepted != c.s.groups {
			return fmt.Errorf("%d of %d", accepted, c.s.groups)
		}
		return nil
	})
}

// createPod makes a pod that asks for the first groups, without a sandbox.
func (c *cluster) createPod(ctx context.Context, name string, groups int) (*corev1.Pod, error) {
	var names []string
	for g := range groups {
		names = append(names, groupName(g))
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Annotations: map[string]string{v1alpha1.GroupsAnnotation: strings.Join(names, ", ")},
		},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "app", Image: "none"}}},
	}
	return pod, c.client.Create(ctx, pod)
}

// runSandbox is what kubelet asks the runtime for, the network being there.
func (c *cluster) runSandbox(pod *corev1.Pod, id string, n int) error {
	return c.runtime.AddSandbox(sandboxtest.Sandbox{
		ID: id, PodUID: string(pod.UID), PodNamespace: pod.Namespace, PodName: pod.Name,
		NetNS: nsPath(n), Annotations: pod.Annotations,
	})
}
