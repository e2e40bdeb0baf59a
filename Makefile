# Two commands matter most: `make demo` shows the main job, `make test` runs everything that must always pass.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO            ?= go
GEN            = $(GO) tool -modfile=hack/tools/controller-gen/go.mod controller-gen
PROMTOOL       = $(GO) tool -modfile=hack/tools/promtool/go.mod promtool
LINT           = $(GO) tool -modfile=hack/tools/golangci-lint/go.mod golangci-lint
# Packages need a semantic version, also between releases.
VERSION       ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo v0.1.0-0.g$$(git rev-parse --short HEAD 2>/dev/null || echo 0))
# Where packages go and look for each other.
REGISTRY      ?= registry.example.org/ichor
XPKG           = $(GO) run ./cmd/xpkg --registry '$(REGISTRY)' --tag '$(VERSION)'
LDFLAGS        = -s -w -X github.com/maesh/provider-ichor/internal/version.Version=$(VERSION)
# Where generated files and what go mod tidy writes lie. A kind that is new shows there as an untracked file, not as a difference.
GENERATED      = apis package go.mod go.sum
TEST_TIMEOUT  ?= 20m
# Two cores run two test binaries at a time; more only makes real etcd members miss their heartbeats.
TEST_PARALLEL ?= 2
BENCH_SIZES   ?= 10,100,500
SEED          ?= 0
MINUTES       ?= 10

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## Show the main job on embedded parts, each promise a check; SHORT=1 its main road only, KEEP=1 leaves it running
	@$(if $(SHORT)$(KEEP)$(DEMO_FLAGS),,bin/lab e2e --short)
	@bin/lab demo $(if $(SHORT),--short) $(if $(KEEP),--keep) $(DEMO_FLAGS)

.PHONY: e2e
e2e: build tools ## Go a user's way on real Crossplane: install the packages, write a claim, edit it, delete it; each step a check
	@bin/lab e2e

.PHONY: test
test: tools ## Run everything that must always pass, with the race detector
	@# Tests remove what they make. The directory is for those that are killed: by Ctrl-C, or when their time is up.
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT; TMPDIR=$$tmp $(GO) test -race -timeout $(TEST_TIMEOUT) -p $(TEST_PARALLEL) ./...

.PHONY: bench
bench: build tools ## Measure what the provider costs at BENCH_SIZES machines; about 25 minutes on two cores
	@bin/lab bench --sizes=$(BENCH_SIZES) $(BENCH_FLAGS)

.PHONY: soak
soak: build tools ## Run random campaigns for MINUTES, from SEED on (0: a random one); prints the seed and shrinks what breaks a rule
	@bin/lab soak --seed=$(SEED) --minutes=$(MINUTES) $(SOAK_FLAGS)

.PHONY: prove
prove: build tools ## Run the model check, the crash sweeps and the fault catalogue, and print one table; at most 20 minutes on two cores
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT; TMPDIR=$$tmp bin/lab prove $(PROVE_FLAGS)

.PHONY: sweep
sweep: build tools ## Kill the provider after every write of every job in every variant, on real parts; hours, so see SWEEP_FLAGS=--help
	@bin/lab crashsweep --labs 4 $(SWEEP_FLAGS)

.PHONY: tools
tools: ## Build the external binaries that tests and the demo need, once
	@$(GO) run ./cmd/lab tools

.PHONY: build
build: ## Build the commands into bin/
	@echo "building the commands into bin/"
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: package
package: ## Build the Crossplane packages into bin/packages
	@$(XPKG) build

.PHONY: publish
publish: ## Build the packages and push them: make publish REGISTRY=... VERSION=v0.1.0
	@$(XPKG) push

.PHONY: lint
lint: ## Lint
	@$(LINT) run ./...

.PHONY: monitoring
monitoring: ## Check the Prometheus alerts, and that each fires when it should
	@$(PROMTOOL) check rules cluster/monitoring/alerts.yaml
	@$(PROMTOOL) test rules cluster/monitoring/alerts_test.yaml

.PHONY: generate
generate: ## Regenerate deep copies, CRDs, XRDs and the reference of reasons
	@rm -rf package/crds
	@$(GEN) object:headerFile=hack/boilerplate.go.txt paths=./apis/...
	@$(GEN) crd:crdVersions=v1 paths=./apis/v1alpha1/... output:crd:artifacts:config=package/crds
	@$(GEN) crd:crdVersions=v1 paths=./apis/topology/... output:crd:stdout | $(GO) run ./hack/xrd package/configuration
	@$(GO) run ./hack/reference

.PHONY: verify
verify: generate ## Regenerate and tidy; fail if anything differs from what is committed
	@$(GO) mod tidy
	@git diff --exit-code -- $(GENERATED) || { echo "verify: what is generated differs: run 'make generate' and 'go mod tidy' and commit"; exit 1; }
	@new=$$(git ls-files --others --exclude-standard -- $(GENERATED)); \
		test -z "$$new" || { echo "verify: not under version control:" $$new; exit 1; }
