package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/controllers"
	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
)

const (
	systemNamespace = "rdma-multicast-system"
	controllerUser  = "system:serviceaccount:" + systemNamespace + ":rdma-multicast-controller"
	// patience with a busy machine.
	patience = 60 * time.Second
)

// world is a real kube-apiserver with what config/ holds applied to it. The
// controllers of its tests run one at a time, with their own rights alone.
type world struct {
	plane      *localcluster.ControlPlane
	client     client.WithWatch // the administrator's
	http       *http.Client     // client's
	controller *rest.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctrl.SetLogger(logr.Discard()) // what controller-runtime logs beside the manager's own
	plane, err := localcluster.StartControlPlane(t.Context(), localcluster.ControlPlaneOptions{Progress: os.Stderr})
	if err != nil {
		t.Fatalf("this test needs a kube-apiserver, run `make test`: %v", err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := plane.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	apply := exec.CommandContext(t.Context(), plane.Kubectl, "apply", "--server-side", "-k", "../config", "--cache-dir", t.TempDir())
	apply.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply -k config: %v\n%s", err, out)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{plane: plane}
	if w.http, err = rest.HTTPClientFor(plane.Config); err != nil {
		t.Fatal(err)
	}
	if w.client, err = client.NewWithWatch(plane.Config, client.Options{Scheme: scheme, HTTPClient: w.http}); err != nil {
		t.Fatal(err)
	}
	if w.controller, err = plane.User(controllerUser); err != nil {
		t.Fatal(err)
	}
	return w
}

// start runs a controller until the test ends, or stop. Nothing of it is left
// then.
func (w *world) start(t *testing.T, opts controllers.ClusterOptions) (_ *tap, stop func()) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	tap := &tap{}
	config := rest.CopyConfig(w.controller)
	config.Wrap(tap.wrap)
	opts.AgentNamespace = systemNamespace
	opts.Log = testr.New(t)
	mgr, err := controllers.NewClusterManager(config, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		tap.resume()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("controller: %v", err)
		}
		var err error
		for deadline := time.Now().Add(patience / 4); time.Now().Before(deadline); {
			utilnet.CloseIdleConnectionsFor(mgr.GetHTTPClient().Transport)
			utilnet.CloseIdleConnectionsFor(w.http.Transport)
			// controller-runtime's cache wraps metadata watches with a goroutine
			// that ends by a send that nobody receives any more once the watch is
			// stopped.
			if err = goleak.Find(leaks, goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")); err == nil {
				return
			}
		}
		t.Errorf("left behind by the controller: %v", err)
	}
	t.Cleanup(stop)
	return tap, stop
}

// namespace makes one for one test and empties it at its end.
func (w *world) namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "groups-"}}
	if err := w.client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		var groups v1alpha1.MulticastGroupList
		if err := w.client.List(ctx, &groups, client.InNamespace(ns.Name)); err != nil {
			t.Error(err)
		}
		for i := range groups.Items {
			// Whatever the test has left, the next one shall not see.
			groups.Items[i].Finalizers = nil
			if err := w.client.Update(ctx, &groups.Items[i]); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				t.Error(err)
			}
			if err := w.client.Delete(ctx, &groups.Items[i]); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	return ns.Name
}

func (w *world) create(t *testing.T, namespace, name, address string) *v1alpha1.MulticastGroup {
	t.Helper()
	g := &v1alpha1.MulticastGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.MulticastGroupSpec{Address: address},
	}
	if err := w.client.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	return g
}

func (w *world) delete(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// node makes a Node.
func (w *world) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.client.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range []client.Object{n, &v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{Name: name}}} {
			if err := w.client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	return n
}

// entries writes a MulticastNode as an agent does.
func (w *world) entries(t *testing.T, node string, groups ...v1alpha1.NodeGroup) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n := &v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(n), n)
		if apierrors.IsNotFound(err) {
			err = w.client.Create(t.Context(), n)
		}
		if err != nil {
			return err
		}
		n.Status.Groups = groups
		return w.client.Status().Update(t.Context(), n)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func entryOf(g *v1alpha1.MulticastGroup, members, joined, failing int32) v1alpha1.NodeGroup {
	return v1alpha1.NodeGroup{Namespace: g.Namespace, Name: g.Name, UID: g.UID, Generation: g.Generation, Members: members, Joined: joined, Failing: failing}
}

// eventually polls until check is content, and fails with what it said last.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s: %v", patience, what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// condition waits for a condition of a group and returns the group.
func (w *world) condition(t *testing.T, g *v1alpha1.MulticastGroup, conditionType string, status metav1.ConditionStatus, reason string) *v1alpha1.MulticastGroup {
	t.Helper()
	got := &v1alpha1.MulticastGroup{}
	eventually(t, fmt.Sprintf("%s is %s=%s, %s", g.Name, conditionType, status, reason), func() error {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(g), got); err != nil {
			return err
		}
		c := meta.FindStatusCondition(got.Status.Conditions, conditionType)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != got.Generation {
			return fmt.Errorf("generation %d, finalizers %v, status %+v", got.Generation, got.Finalizers, got.Status)
		}
		return nil
	})
	return got
}

func (w *world) accepted(t *testing.T, g *v1alpha1.MulticastGroup) *v1alpha1.MulticastGroup {
	t.Helper()
	return w.condition(t, g, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}

func (w *world) gone(t *testing.T, o client.Object) {
	t.Helper()
	eventually(t, o.GetName()+" is gone", func() error {
		current := o.DeepCopyObject().(client.Object)
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), current)
		if apierrors.IsNotFound(err) || err == nil && current.GetUID() != o.GetUID() {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is there: %+v", current)
	})
}

// still fails unless the group is there, being deleted.
func (w *world) still(t *testing.T, g *v1alpha1.MulticastGroup) {
	t.Helper()
	var got v1alpha1.MulticastGroup
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(g), &got); err != nil {
		t.Fatalf("%s was let go too early: %v", g.Name, err)
	}
	if got.UID != g.UID || got.DeletionTimestamp.IsZero() {
		t.Fatalf("%s isn't the one that is being deleted: %+v", g.Name, got.ObjectMeta)
	}
}

// events on a group, as "reason: note".
func (w *world) events(t *testing.T, g *v1alpha1.MulticastGroup) []string {
	t.Helper()
	var list eventsv1.EventList
	if err := w.client.List(t.Context(), &list, client.InNamespace(g.Namespace)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Items {
		if e.Regarding.UID == g.UID {
			got = append(got, e.Reason+": "+e.Note)
		}
	}
	return got
}

// event waits for one event of that reason and returns its note.
func (w *world) event(t *testing.T, g *v1alpha1.MulticastGroup, reason string) string {
	t.Helper()
	var note string
	eventually(t, "an event "+reason+" on "+g.Name, func() error {
		all := w.events(t, g)
		for _, e := range all {
			if strings.HasPrefix(e, reason+": ") {
				note = strings.TrimPrefix(e, reason+": ")
				return nil
			}
		}
		return fmt.Errorf("events: %q", all)
	})
	return note
}
