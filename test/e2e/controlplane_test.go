//go:build realkernel

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	apiServer = "https://127.0.0.1:6443"
	nodeName  = "node1"
	adminUser = "admin"
	nodeUser  = "system:node:" + nodeName
)

// staticTokens are those of the parts that come before any ServiceAccount.
var staticTokens = map[string]string{
	adminUser: "admin-token",
	nodeUser:  "node-token",
}

// startEtcd starts the API server's store, in memory.
func (c *cluster) startEtcd(t *testing.T) {
	c.startProcess(t, "etcd", filepath.Join(c.settings.kubernetes, "etcd"),
		"--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379")
}

// startAPIServer starts kube-apiserver; it is used again after it was stopped.
func (c *cluster) startAPIServer(t *testing.T) {
	c.apiServer = c.startProcess(t, "kube-apiserver", filepath.Join(c.settings.kubernetes, "kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=127.0.0.1", "--secure-port=6443", "--advertise-address=10.0.0.2",
		"--tls-cert-file="+c.path("apiserver.crt"), "--tls-private-key-file="+c.path("apiserver.key"),
		"--token-auth-file="+c.path("tokens"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.path("sa.pub"),
		"--service-account-signing-key-file="+c.path("sa.key"))
}

// startControllers starts kube-scheduler and kube-controller-manager.
func (c *cluster) startControllers(t *testing.T) {
	admin := c.path("kubeconfig-" + adminUser)
	c.startProcess(t, "kube-scheduler", filepath.Join(c.settings.kubernetes, "kube-scheduler"),
		"--kubeconfig="+admin, "--leader-elect=false", "--bind-address=127.0.0.1")
	c.startProcess(t, "kube-controller-manager", filepath.Join(c.settings.kubernetes, "kube-controller-manager"),
		"--kubeconfig="+admin, "--leader-elect=false", "--bind-address=127.0.0.1",
		"--service-account-private-key-file="+c.path("sa.key"),
		// All of them take a large part of an emulated machine for minutes.
		"--controllers=job-controller,namespace-controller,node-lifecycle-controller,"+
			"root-ca-certificate-publisher-controller,serviceaccount-controller,taint-eviction-controller")
}

// writeCredentials makes what the API server is started with. Elliptic curves:
// an RSA handshake takes a large part of a second under emulation.
func (c *cluster) writeCredentials(t *testing.T) {
	t.Helper()
	_, public := c.writeKey(t, "sa.key")
	c.write(t, "sa.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))

	key, _ := c.writeKey(t, "apiserver.key")
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true, // its own
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "apiserver.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))

	c.write(t, "tokens", fmt.Sprintf("%s,%s,1,system:masters\n%s,%s,2,system:nodes\n",
		staticTokens[adminUser], adminUser, staticTokens[nodeUser], nodeUser))
}

// writeKey makes a key and writes it; it gives the public part's encoding too.
func (c *cluster) writeKey(t *testing.T, file string) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
	return key, public
}

// writeKubeconfig writes the file of one user.
func (c *cluster) writeKubeconfig(t *testing.T, file, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: apiServer, CertificateAuthority: c.path("apiserver.crt")}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "user"}
	config.CurrentContext = "e2e"
	path := c.path(file)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// serviceAccountKubeconfig writes the file of a ServiceAccount, with a token of
// the kind that a pod of it has.
func (c *cluster) serviceAccountKubeconfig(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	hours := int64(24 * 3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	if err := c.client.SubResource("token").Create(context.Background(), account, request); err != nil {
		t.Fatalf("token for ServiceAccount %s/%s: %v", namespace, name, err)
	}
	return c.writeKubeconfig(t, "kubeconfig-"+name, request.Status.Token)
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) write(t *testing.T, name, text string) string {
	t.Helper()
	path := c.path(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
