//go:build realkernel

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"

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
func (c *cluster) startAPIServer(t *testing.T) *process {
	return c.startProcess(t, "kube-apiserver", filepath.Join(c.settings.kubernetes, "kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=127.0.0.1", "--secure-port=6443", "--advertise-address=10.0.0.2",
		"--cert-dir="+c.path("apiserver"),
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
		"--service-account-private-key-file="+c.path("sa.key"))
}

// writeCredentials makes what the API server is started with.
func (c *cluster) writeCredentials(t *testing.T) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.write(t, "sa.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	c.write(t, "tokens", fmt.Sprintf("%s,%s,1,system:masters\n%s,%s,2,system:nodes\n",
		staticTokens[adminUser], adminUser, staticTokens[nodeUser], nodeUser))
}

// writeKubeconfig writes the file of one user. The API server has written its
// certificate when it is ready; before, the path of it serves.
func (c *cluster) writeKubeconfig(t *testing.T, file, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: apiServer, CertificateAuthority: c.path("apiserver/apiserver.crt")}
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
