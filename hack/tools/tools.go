//go:build tools

// Package tools pins the programs that generate and check the code of this
// repository. It is a module of its own so that none of this reaches the
// product's go.mod; build.sh builds from it.
package tools

import (
	_ "github.com/golangci/golangci-lint/v2/pkg/commands"
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
	_ "sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter"
)
