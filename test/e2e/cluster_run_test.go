//go:build realkernel

package e2e

import "testing"

func TestCluster(t *testing.T) {
	c := startCluster(t)
	p := newPod("p", "")
	c.create(t, p)
	c.podProcess(t, "p")
	t.Log("pod runs")
	c.deletePod(t, "p")
	c.eventually(t, "gone", func() error { return c.gone(p) })
}
