package membership

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// Calls that all hang keep a sandbox that stops from nothing, not even one whose
// own call waits for a place already: the runtime waits, for every pod.
func TestStopBehindHangingCalls(t *testing.T) {
	run(t, func(e *env) {
		hang := make(chan struct{})
		var wanted []Wanted
		for i := range callsAtOnce {
			iface, addr := fmt.Sprint("slow", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)})
			e.node.AddMACVLAN("", iface, "rdma0", netip.PrefixFrom(addr, 24))
			e.node.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Interface: iface, Until: hang})
			wanted = append(wanted, want(fmt.Sprint("slow", i), "239.2.0.1", onNode, func(w *Wanted) {
				w.Interface, w.BindAddr = iface, addr
			}))
		}
		e.apply(wanted...)
		e.apply(append(wanted, want("a", "239.1.1.7"))...)
		e.wantState("a", Waiting)
		ctx, cancel := context.WithTimeout(e.t.Context(), 450*time.Millisecond)
		defer cancel()
		if err := e.table.LeaveScope(ctx, "s-1"); err != nil {
			t.Error(err)
		}
		e.wantIGMP(netns, "net1", nil)
		close(hang)
		e.settle()
	})
}
