package agent

import (
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// newScheme has the kinds that an agent reads and writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making the agent's scheme: %w", err)
		}
	}
	return scheme, nil
}

// newMapper maps them to their resources.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, v1alpha1.GroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("MulticastGroup"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("MulticastNode"), meta.RESTScopeRoot)
	return mapper
}

func staticMapper(mapper meta.RESTMapper) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
}
