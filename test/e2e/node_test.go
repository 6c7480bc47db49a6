//go:build realkernel

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The pods' interfaces are macvlans on this NIC; mckey sends from the other.
const (
	podNIC        = "rdma1"
	podDevice     = "rxe1"
	podPort       = "port1" // of the switch
	podNICAddress = "10.0.0.3"
	senderNIC     = "rdma0"
	senderDevice  = "rxe0"
	senderPort    = "port0"
	senderAddress = "10.0.0.2"
)

const containerdSocket = "/run/containerd/containerd.sock"

// prepareMachine gives the node's programs a place in memory: the root is an
// overlay, on which containerd can't put another.
func prepareMachine(t *testing.T) {
	t.Helper()
	if err := unix.Mount("tmpfs", "/var", "tmpfs", 0, "mode=755"); err != nil {
		t.Fatalf("mount a tmpfs on /var: %v", err)
	}
	for _, dir := range []string{"/var/lib/kubelet", "/var/lib/etcd", "/var/log", "/var/tmp", "/etc/cni/net.d"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/run", "/var/run"); err != nil {
		t.Fatal(err)
	}
	// Pods get a copy of it; the machine has no name server.
	if err := os.Remove("/etc/resolv.conf"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile("/etc/resolv.conf", []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// startContainerd starts containerd, with NRI on, as it is by default.
func (c *cluster) startContainerd(t *testing.T) {
	t.Helper()
	config := c.write(t, "containerd.toml", fmt.Sprintf(`version = 3
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %q
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%q]
  use_internal_loopback = true
`, podImage, c.settings.containerd))
	cni := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
	"type": "macvlan", "master": %q, "mode": "bridge",
	"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.50", "rangeEnd": "10.0.0.250"}]]}}]}`, podNIC)
	if err := os.WriteFile("/etc/cni/net.d/10-pods.conflist", []byte(cni), 0o644); err != nil {
		t.Fatal(err)
	}
	c.containerd = c.startProcess(t, "containerd", filepath.Join(c.settings.containerd, "containerd"), "-c", config)
}

func (c *cluster) awaitContainerd(t *testing.T) {
	t.Helper()
	c.eventually(t, "containerd", func() error {
		_, err := output(filepath.Join(c.settings.containerd, "ctr"), "version")
		return err
	})
}

// importImages brings the test's images in.
func (c *cluster) importImages(t *testing.T) {
	t.Helper()
	c.awaitContainerd(t)
	ctr := filepath.Join(c.settings.containerd, "ctr")
	pod := c.path("pod.tar")
	writeImage(t, pod, podImage, []string{"/pod"}, map[string]string{"/pod": filepath.Join(c.settings.programs, "pod")})
	run(t, ctr, "-n", "k8s.io", "images", "import", "--local", pod)
	receiver := c.path("receiver.tar")
	writeImage(t, receiver, receiverImage, []string{"/receiver"}, receiverFiles(t, filepath.Join(c.settings.programs, "receiver")))
	run(t, ctr, "-n", "k8s.io", "images", "import", "--local", receiver)
}

// startKubelet starts kubelet. There is no default route to find an address
// by, no swap, and no iptables in need of chains.
func (c *cluster) startKubelet(t *testing.T) {
	t.Helper()
	config := c.write(t, "kubelet.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://`+containerdSocket+`
failSwapOn: false
makeIPTablesUtilChains: false
address: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 10Mi, nodefs.available: 0%, imagefs.available: 0%}
`)
	c.startProcess(t, "kubelet", filepath.Join(c.settings.kubernetes, "kubelet"),
		"--config="+config, "--kubeconfig="+c.path("kubeconfig-"+nodeUser),
		"--hostname-override="+nodeName, "--node-ip="+senderAddress, "--v=2")
}
