package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
)

const systemNamespace = "rdma-multicast-system"

// cluster is the one API server of this package's tests, with the agents' RBAC
// in force. Each test has a node and a namespace of its own.
var cluster struct {
	admin client.Client
	agent *rest.Config
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(func() int {
		plane, err := localcluster.StartControlPlane(context.Background(), localcluster.ControlPlaneOptions{Progress: os.Stderr})
		if err != nil {
			fmt.Fprintf(os.Stderr, "these tests need a kube-apiserver, run `make test`: %v\n", err)
			return 1
		}
		code := 1
		if err := prepare(plane); err != nil {
			fmt.Fprintln(os.Stderr, err)
		} else {
			code = m.Run()
		}
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

func prepare(plane *localcluster.ControlPlane) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := rest.CopyConfig(plane.Config)
	config.QPS = -1
	var err error
	if cluster.admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if cluster.agent, err = plane.User("system:serviceaccount:" + systemNamespace + ":rdma-multicast-agent"); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}
	if err := cluster.admin.Create(context.Background(), namespace); err != nil {
		return err
	}
	return apply("../../config/rbac/agent_role.yaml")
}

// apply creates what a file of manifests has.
func apply(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var object unstructured.Unstructured
		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := cluster.admin.Create(context.Background(), &object); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}
