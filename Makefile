# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# Needs Go, git, make and a C compiler (for the race detector). Everything else
# is built from the modules that hack/tools pins.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# ---------------------------------------------------------------------- release

# The image that the released manifests name.
IMAGE ?= ghcr.io/capi-fleet/capi-fleet
TAG ?= dev
PLATFORMS ?= linux/amd64,linux/arm64
# The folder that takes the files of a release.
RELEASE_DIR ?= out

# -------------------------------------------------------------------------- go

VERSION_PKG := sigs.k8s.io/cluster-api/version
GIT_VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GIT_COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X $(VERSION_PKG).gitVersion=$(GIT_VERSION) -X $(VERSION_PKG).gitCommit=$(GIT_COMMIT)

# Extra arguments of go test, for example GOTEST_ARGS='-run TestX -v'.
GOTEST_ARGS ?=
# A file for the results as JUnit XML. Empty writes none.
JUNIT ?=
# The packages that test long stories: a whole installation with clusterctl or by hand,
# what the how-tos say, and fleets that change.
SCENARIO_PACKAGES := $(addprefix ./test/integration/,clusterctl cli hosted howto rollout targeting)
# The packages that are tested.
PACKAGES ?= $(shell go list ./... | grep -v $(SCENARIO_PACKAGES:./%=-e /%$$))

# ----------------------------------------------------------------------- tools

# go.mod is the one place that says which version of a tool we use. The names of
# the binaries bear it, so that another branch's tools are never run by mistake. The
# lab runs setup-envtest by itself, and kustomize too, with go tool.
TOOLS := hack/tools
TOOLS_BIN := $(CURDIR)/$(TOOLS)/bin
tool_version = $(shell awk '$$1 == "$(2)" && $$2 ~ /^v/ { print $$2 }' $(TOOLS)/$(1)go.mod)

CONTROLLER_GEN := $(TOOLS_BIN)/controller-gen-$(call tool_version,,sigs.k8s.io/controller-tools)
KUSTOMIZE := $(TOOLS_BIN)/kustomize-$(call tool_version,,sigs.k8s.io/kustomize/kustomize/v5)
GOTESTSUM := $(TOOLS_BIN)/gotestsum-$(call tool_version,,gotest.tools/gotestsum)
GOLANGCI_LINT := $(TOOLS_BIN)/golangci-lint-$(call tool_version,lint/,github.com/golangci/golangci-lint/v2)

$(CONTROLLER_GEN): PKG = sigs.k8s.io/controller-tools/cmd/controller-gen
$(KUSTOMIZE): PKG = sigs.k8s.io/kustomize/kustomize/v5
$(GOTESTSUM): PKG = gotest.tools/gotestsum
$(CONTROLLER_GEN) $(KUSTOMIZE) $(GOTESTSUM): $(TOOLS)/go.mod
	go build -C $(TOOLS) -o $@ $(PKG)

$(GOLANGCI_LINT): $(TOOLS)/lint/go.mod
	go build -C $(TOOLS)/lint -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: tools
tools: $(CONTROLLER_GEN) $(KUSTOMIZE) $(GOTESTSUM) $(GOLANGCI_LINT) ## Build all tools.

.PHONY: clean
clean: ## Remove what was built: binaries, manifests, tools.
	rm -rf bin out $(TOOLS_BIN)

##@ Code

.PHONY: generate
generate: generate-deepcopy generate-crds generate-rbac generate-docs ## Write all generated files anew.

.PHONY: generate-deepcopy
generate-deepcopy: $(CONTROLLER_GEN) ## Write the deep copies of our API and of Fleet's types.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/... paths=./internal/fleet/...

.PHONY: generate-crds
generate-crds: $(CONTROLLER_GEN) ## Write the CRDs of our API.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	go run ./hack/crdbounds config/crd/bases/*_fleetregistrationpolicies.yaml

.PHONY: generate-rbac
generate-rbac: $(CONTROLLER_GEN) ## Write the manager's roles from the markers in the code.
	$(CONTROLLER_GEN) rbac:roleName=capi-fleet-manager-role \
		paths=./controllers/... paths=./internal/manager/... output:rbac:dir=config/rbac

.PHONY: generate-docs
generate-docs: generate-crds generate-rbac ## Write what the reference repeats of manifests and code.
	go run ./hack/docgen

.PHONY: verify
verify: verify-generated verify-modules verify-licence verify-manifests verify-e2e ## Fail if something that is kept in step is not.

.PHONY: verify-generated
verify-generated: $(CONTROLLER_GEN) ## Generate in place, and fail if anything was stale.
	MAKE="$(MAKE)" hack/verify-generated.sh

.PHONY: verify-modules
verify-modules: ## Fail if a go.mod or go.sum is not tidy.
	hack/verify-modules.sh

.PHONY: verify-licence
verify-licence: ## Fail if a Go file lacks the licence header.
	hack/verify-licence.sh

.PHONY: verify-manifests
verify-manifests: $(KUSTOMIZE) ## Fail if the manifests do not build.
	$(KUSTOMIZE) build config/default >/dev/null

.PHONY: verify-e2e
verify-e2e: ## Fail if the end-to-end tests, which need Docker, do not compile, or what they take is wrong.
	go -C test/e2e vet -tags e2e ./...
	go -C test/e2e test ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Look for mistakes in the code.
	$(GOLANGCI_LINT) run
	cd test/capi && $(GOLANGCI_LINT) run
	cd test/e2e && $(GOLANGCI_LINT) run --build-tags e2e

.PHONY: lint-fix
lint-fix: $(GOLANGCI_LINT) ## Look for mistakes, and mend those that can be mended by machine.
	$(GOLANGCI_LINT) run --fix
	cd test/capi && $(GOLANGCI_LINT) run --fix
	cd test/e2e && $(GOLANGCI_LINT) run --fix --build-tags e2e

##@ Test

# The lab finds or builds the Kubernetes binaries that it runs by itself.

# Three packages at a time, also on two cores: the integration tests wait a lot. Never
# from Go's cache of results: it does not know of the manager that they build and run.
.PHONY: test
test: $(GOTESTSUM) ## Run the tests with the race detector.
	$(GOTESTSUM) --format pkgname-and-test-fails $(if $(JUNIT),--junitfile $(JUNIT)) -- \
		-race -count 1 -p 3 -timeout 20m $(GOTEST_ARGS) $(PACKAGES)

.PHONY: test-scenarios
test-scenarios: ## Run the tests of whole installations, and of fleets that change.
	$(MAKE) test PACKAGES='$(SCENARIO_PACKAGES)'

.PHONY: test-long
test-long: $(GOTESTSUM) ## Run all of these, and also what takes long (build tag "long").
	$(GOTESTSUM) --format pkgname-and-test-fails $(if $(JUNIT),--junitfile $(JUNIT)) -- \
		-race -count 1 -p 3 -timeout 60m -tags long $(GOTEST_ARGS) ./...

# Most of the time these wait for Cluster API, so they do it all at once.
.PHONY: test-capi
test-capi: $(GOTESTSUM) ## Run the tests on clusters that Cluster API makes.
	cd test/capi && $(GOTESTSUM) --format testname $(if $(JUNIT),--junitfile $(abspath $(JUNIT))) -- \
		-race -count 1 -timeout 40m -parallel 16 $(GOTEST_ARGS) ./...

# Arguments of the measurements, for example BENCH_ARGS='--clusters 1000 --json out.json'.
BENCH_ARGS ?=

.PHONY: bench
bench: ## Measure registrations: latency, cost, throughput, rest (BENCH_ARGS=--short: only that it works).
	go run ./test/bench $(BENCH_ARGS)

.PHONY: demo
demo: ## Show two clusters in the lab, one of which joins Fleet.
	go run ./test/lab demo

.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests on kind (needs Docker, kubectl and Helm).
	$(MAKE) docker-build TAG=e2e
	$(MAKE) release-manifests TAG=e2e RELEASE_DIR=out/e2e
	go -C test/e2e test -tags e2e -v -timeout 60m ./...

##@ Development

# The name of kind's cluster.
KIND_CLUSTER ?= capi-fleet

.PHONY: kind-up
kind-up: ## Make a cluster of kind with Cluster API and Fleet, for "tilt up".
	KIND_CLUSTER=$(KIND_CLUSTER) hack/kind-up.sh

.PHONY: kind-down
kind-down: ## Take that cluster away.
	kind delete cluster --name $(KIND_CLUSTER)

##@ Build

.PHONY: build
build: ## Build the manager and clusterctl's plugin into bin/.
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/manager ./cmd/clusterctl-fleet

.PHONY: docker-build
docker-build: ## Build the image for the platform of Docker.
	docker build --build-arg LDFLAGS='$(LDFLAGS)' --tag $(IMAGE):$(TAG) .

.PHONY: docker-push
docker-push: ## Build the image for all platforms, and push it.
	docker buildx build --platform $(PLATFORMS) --build-arg LDFLAGS='$(LDFLAGS)' --tag $(IMAGE):$(TAG) --push .

.PHONY: release-manifests
release-manifests: $(KUSTOMIZE) ## Write what clusterctl installs to out/ (IMAGE and TAG name the image).
	mkdir -p $(RELEASE_DIR)
	$(KUSTOMIZE) build config/default | \
		sed 's|image: ghcr.io/capi-fleet/capi-fleet:dev|image: $(IMAGE):$(TAG)|' > $(RELEASE_DIR)/addon-components.yaml
	cp metadata.yaml $(wildcard templates/*.yaml) $(RELEASE_DIR)
