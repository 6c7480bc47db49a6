package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/agent"
)

// While the API server is away, pods that end are left and what is joined
// stays; once it is back, its statuses are true again.
func TestAPIServerAway(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.group("orders", orders)
	w.group("quotes", quotes)
	ends, stays := w.pod("ends", "orders"), w.pod("stays", "quotes")
	ends.wantJoined(orders)
	stays.wantJoined(quotes)

	w.network.cut()
	ends.stop()
	w.eventually("orders is left", func() error {
		if held := w.machine.Memberships(); len(held) != 1 || held[0].Group.String() != quotes {
			return fmt.Errorf("the node holds %v", held)
		}
		return nil
	})
	ends.wantCondition(corev1.ConditionTrue, "AllJoined") // nobody could say otherwise
	// A sandbox that started meanwhile isn't joined: whether its group is there
	// can't be known. A group that is joined already is.
	again := w.podObject("again", "quotes")
	again.run()
	again.wantMember(quotes)
	if stays.igmp(quotes) != 1 {
		t.Errorf("the node holds %v", w.machine.Memberships())
	}

	w.network.mend()
	ends.wantCondition(corev1.ConditionFalse, "SandboxEnded")
	again.wantJoined(quotes)
	stays.wantJoined(quotes)
	w.wantEntries("quotes 2/2")
}

// An agent that starts while the API server is away waits for it.
func TestStartWithoutAPIServer(t *testing.T) {
	w := newWorld(t)
	w.network.cut()
	w.group("orders", orders)
	p := w.pod("app", "orders")
	address := freeAddress(t)
	w.start(func(o *agent.Options) { o.HealthAddr = address })
	w.eventually("the agent follows the runtime", func() error {
		if w.runtime.Lists() < 3 {
			return errors.New("it doesn't")
		}
		return nil
	})
	if held := w.machine.Memberships(); len(held) > 0 {
		t.Errorf("joined without a live look at the group: %v", held)
	}
	w.eventually("it is alive and not ready", func() error {
		return errors.Join(wantHTTP(address, "/healthz", http.StatusOK), wantHTTP(address, "/readyz", http.StatusInternalServerError))
	})
	w.network.mend()
	p.wantJoined(orders)
	if err := wantHTTP(address, "/readyz", http.StatusOK); err != nil {
		t.Error(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

func wantHTTP(address, path string, status int) error {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + address + path)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != status {
		return fmt.Errorf("%s answers %s, want %d", path, resp.Status, status)
	}
	return nil
}

// An agent that ends leaves by closing its ids and touches no entry; the next
// one rejoins what is still wanted and prunes the rest.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	w.group("orders", orders)
	w.group("quotes", quotes)
	ends, stays := w.pod("ends", "orders"), w.pod("stays", "quotes")
	ends.wantJoined(orders)
	stays.wantJoined(quotes)
	w.wantEntries("orders 1/1", "quotes 1/1")
	epoch := stays.epoch()
	stop()
	w.wantNoMembers()
	w.wantEntries("orders 1/1", "quotes 1/1")

	ends.stop()
	w.start()
	stays.wantJoined(quotes)
	w.wantEntries("quotes 1/1")
	ends.wantCondition(corev1.ConditionFalse, "SandboxEnded")
	w.eventually("the pod is told that it was joined anew", func() error {
		if after := stays.epoch(); after <= epoch {
			return fmt.Errorf("epoch %d, before the restart %d", after, epoch)
		}
		return nil
	})
	if ends.igmp(orders) != 0 {
		t.Errorf("the node holds %v", w.machine.Memberships())
	}
}

// A watch that has stopped delivering doesn't make the agent join a group that
// is gone: the read before the first join is a live one.
func TestStaleCache(t *testing.T) {
	w := newWorld(t)
	w.start()
	g := w.group("orders", orders)
	w.group("quotes", quotes)
	w.pod("first", "quotes").wantJoined(quotes)
	// quotes came after orders: the cache has both.
	resume := w.network.stallGroups()
	defer resume()
	w.delete(g)

	p := w.pod("app", "orders,quotes")
	p.wantMember(quotes)
	p.wantCondition(corev1.ConditionFalse, "Waiting", w.namespace+"/orders")
	if n := p.igmp(orders); n != 0 {
		t.Errorf("a group that is gone was joined %d times", n)
	}
	w.wantEntries("quotes 2/2")

	resume()
	p.wantCondition(corev1.ConditionFalse, "UnknownGroup", w.namespace+"/orders")
	if n := p.igmp(orders); n != 0 {
		t.Errorf("a group that is gone was joined %d times", n)
	}
}

// The live read sees a deletion that waits for a finalizer, too: the entry is
// taken back, so that the group can go.
func TestStaleCacheOfDeletingGroup(t *testing.T) {
	w := newWorld(t)
	w.start()
	g := w.group("orders", orders, func(g *v1alpha1.MulticastGroup) { g.Finalizers = []string{v1alpha1.GroupFinalizer} })
	w.group("quotes", quotes)
	w.pod("first", "quotes").wantJoined(quotes)
	resume := w.network.stallGroups()
	defer resume()
	w.delete(g)

	p := w.pod("app", "orders,quotes")
	p.wantMember(quotes)
	p.wantCondition(corev1.ConditionFalse, "Waiting", w.namespace+"/orders")
	w.wantEntries("quotes 2/2")
	if n := p.igmp(orders); n != 0 {
		t.Errorf("a group that is being deleted was joined %d times", n)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := cluster.admin.Patch(t.Context(), g, patch); err != nil {
		t.Fatal(err)
	}
}
