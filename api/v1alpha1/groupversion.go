// Package v1alpha1 holds the API of rdma-multicast.dev: MulticastGroup, which
// users apply, MulticastNode, which each node's agent writes, and the answer
// that the agent gives in a pod's annotation.
//
// +kubebuilder:object:generate=true
// +groupName=rdma-multicast.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of everything in this package.
const GroupName = "rdma-multicast.dev"

// Domain prefixes the annotations, conditions and finalizers of this project.
const Domain = GroupName

var (
	// GroupVersion is the group and version of this package's types.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder adds this package's types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds this package's types to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&MulticastGroup{}, &MulticastGroupList{},
		&MulticastNode{}, &MulticastNodeList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
