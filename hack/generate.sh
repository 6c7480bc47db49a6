#!/usr/bin/env bash
# Regenerates what is generated from the Go code: deep copies, CRDs, the
# controller's roles, and the API reference.
set -euo pipefail
cd "$(dirname "$0")/.."
controller_gen=$(hack/tools/build.sh controller-gen)/controller-gen
"$controller_gen" object paths=./api/...
"$controller_gen" crd paths=./api/... output:crd:dir=config/crd/bases
"$controller_gen" rbac:roleName=rdma-multicast-controller,fileName=controller_role.yaml \
	paths=./controllers/... output:rbac:dir=config/rbac
page=$(mktemp)
trap 'rm -f "$page"' EXIT
go run ./hack/apidocs >"$page"
cat "$page" >docs/reference/api.md
