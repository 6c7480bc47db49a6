# Every target has a description behind ##; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export CGO_ENABLED := 0
LDFLAGS := -s -w
# The suites of the real kernel leave their results here.
OUT := $(CURDIR)/bin/out
# The race detector needs a C compiler; without one the tests run all the same.
RACE := $(if $(shell command -v gcc),-race)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-z0-9-]*:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: demo
demo: ## Set everything up on this machine and play the main job on a simulated fabric
	@echo "compiling, some minutes on a cold cache ..."
	@go run ./hack/demo

.PHONY: up
up: ## Start the demo's cluster and keep it for playing; prints KUBECONFIG
	@echo "compiling, some minutes on a cold cache ..."
	@go build -o bin/demo ./hack/demo && bin/demo up

.PHONY: down
down: ## End the cluster of `make up`
	@go build -o bin/demo ./hack/demo && bin/demo down

##@ Build

.PHONY: build
build: ## Build the static programs controller, agent and rdmamc into bin/
	go build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...

.PHONY: clean
clean: ## Remove what was built in the checkout (not the cache folder)
	rm -rf bin

##@ Test

.PHONY: test
test: ## Unit tests, simulated conformance, controller and agent against a real kube-apiserver, the demo and its negative controls
	@KUBEBUILDER_ASSETS=$$(hack/kubernetes/build.sh etcd kube-apiserver kubectl) CGO_ENABLED=$(if $(RACE),1,0) \
		go test $(RACE) -timeout 20m ./...
	hack/negative-controls.sh

.PHONY: test-real
test-real: ## The same paths on a real kernel with Soft-RoCE and a real Kubernetes, in a virtual machine
	hack/test-real.sh $(OUT)

.PHONY: test-arm64
test-arm64: ## The tests of rdma/ as arm64 runs them, under QEMU's user emulation elsewhere
	hack/test-arm64.sh

.PHONY: bench
bench: ## Measure on the real kernel in the virtual machine; prints a table, writes bench.json
	test/bench/run.sh $(OUT)/bench
	cp $(OUT)/bench/bench.json bench.json

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (10s)
	hack/fuzz.sh $${FUZZTIME:-10s}

##@ Develop

.PHONY: generate
generate: ## Regenerate deep copies, CRDs, roles and the API reference
	hack/generate.sh

.PHONY: lint
lint: ## Run golangci-lint, and kube-api-linter over api/
	hack/lint.sh

.PHONY: verify
verify: ## Regenerate, lint, and fail when the checkout differs from what is committed
	hack/verify.sh

.PHONY: tools
tools: ## Build the pinned tools and Kubernetes programs into the cache folder now
	hack/kubernetes/build.sh etcd kube-apiserver kubectl kubelet kube-scheduler kube-controller-manager
	hack/containerd/build.sh
	hack/tools/build.sh
