// Package controllers holds the reconcilers, thin ones: what they decide is
// decided in functions that know no API server, or in internal/membership.
//
// The files group_*.go are the cluster's side (NewClusterManager, run by
// cmd/controller): groups are accepted or refused, their nodes are summed up,
// and a group that is deleted is let go once every node has left it.
//
// The files node_*.go are a node's side (put together by internal/agent): they
// feed internal/membership with what the node's pods ask for, keep the node's
// MulticastNode, and answer the pods.
//
// Neither side ever calls the other one: they agree through the API's objects
// alone.
package controllers
