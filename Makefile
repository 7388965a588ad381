SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tests are built without cgo, like the released programs, so that each package is compiled only once.
# The race detector requires cgo.
export CGO_ENABLED ?= 0
VERSION = $(shell git describe --always --dirty 2>/dev/null || echo devel)
COMMANDS = ./rules/cmd/rules ./plugin/cmd/sluice-cni ./install/cmd/kubectl-sluice
DEMO = ./rules/cmd/demo
# Packages with concurrency, whose tests `make test-race` runs. `make test` does not use the race
# detector, which builds every package a second time and makes tests several times slower.
RACE = $(patsubst %,./%/...,$(wildcard nft plugin install)) ./compat/validation ./rules/cmd/...
# Packages with long tests of memory, of which the race detector needs more.
MEMORY = ./nft/established ./install/audit ./compat/save
# Tests mostly wait for the kernel, clocks and other processes. Therefore more packages and tests run
# in parallel than there are cores.
PARALLEL = -p $$((3 * $$(nproc))) -parallel $$((8 * $$(nproc)))
# The slowest packages, which make test starts first.
SLOWEST = ./install/agent ./nft ./compat ./rules/cmd/rules ./plugin/chaintest ./rules ./install/node
# The programs in the image besides the plugin, the image's registry and tag, and its architectures.
IMAGE_COMMANDS = ./install/cmd/sluice-node ./rules/cmd/rules
HUB ?= ghcr.io/sluice-mesh
TAG ?= $(VERSION)
ARCHITECTURES ?= amd64 arm64
# Prerequisites of release-test, and of the tests on a cluster.
RELEASE_PREREQUISITES = build bin/tools/gotestsum bin/istio-cni bin/istio-iptables $(addprefix bin/e2e/,helm install-cni mesh)
CLUSTER_PREREQUISITES = image $(RELEASE_PREREQUISITES)
# Tests that use istiod, the module that builds istiod, and programs of Istio that these tests run.
ISTIO_TESTS = ^Test(Istio|InjectedPods|InvalidAnnotations|SampleInjection|Command)$$
ISTIOD_MODULE = e2e/injection/build
ISTIO_PROGRAMS = bin/e2e/istio/pilot-discovery bin/e2e/pilot-agent
# Additional flags of go test.
TESTFLAGS =
# Time limit of e2e-kernels. ci doubles it, because a first run downloads and builds everything.
LIMIT ?= 10m
# Duration of soak, and of soak in test-long.
SOAK ?= 1h
SOAK_LONG ?= 5m
# Number of nodes that scale simulates.
NODES ?= 5000
FUZZTIME ?= 30s
# FUZZTIME of targets named *WithinBudget. One run of these takes up to seconds.
BUDGETTIME ?= $(FUZZTIME)
# Number of generated pairs of ruleset and packet in test-kernel, and their seed (default: depends on the date).
PAIRS ?= 20000
SEED ?=
BENCH ?= .
COUNT ?= 6
BENCHTIME ?= 300ms

# Programs that only tests run are built without -trimpath, so that packages that they share with the
# tests and with each other are compiled once.
stripped = -buildvcs=false -ldflags '-s -w'
# The user builds, and only the test binary runs as root.
e2e-test = go test -C e2e -exec "'$(CURDIR)/.ci/as-root'"
# gotestsum prints the output of tests as they run, and the output of the failed ones again at the end.
# progress omits the lines that report that a test starts, pauses or continues.
gotestsum = $(CURDIR)/bin/tools/gotestsum --format standard-verbose --hide-summary skipped --
e2e-suite = cd e2e; $(gotestsum) -exec "'$(CURDIR)/.ci/as-root'"
progress = grep --line-buffered -vE '^ *=== (RUN|PAUSE|CONT|NAME)'
build-static = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/

ALL = help build demo test test-race test-long test-kernel test-peers test-fresh soak \
	scale fuzz bench bench-peers bench-packages bench-ambient e2e e2e-kind e2e-istio \
	e2e-node e2e-kernels manifests chart-test image release release-test lint ci clean
.PHONY: $(ALL)
# Targets that test-fresh runs.
TARGETS ?= $(filter-out test-fresh,$(ALL))

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' Makefile

build: ## Build static commands into bin/.
	$(build-static) $(COMMANDS)

demo: ## Demonstrate the rules in a network namespace (root or sudo).
	$(build-static) $(DEMO)
	@.ci/as-root bin/$(notdir $(DEMO))

test: bin/cni/bridge
test: ## Run the short tests, without the race detector (some tests run only with root or sudo).
	@.ci/test $(PARALLEL) -timeout 10m $(TESTFLAGS) $(SLOWEST) ./...

test-race: export CGO_ENABLED = 1
test-race: export SLUICE_CHECKS ?= 20
test-race: bin/cni/bridge
test-race: ## Run the tests of packages with concurrency under the race detector.
	@.ci/test -race -p $$((2 * $$(nproc))) -timeout 20m $(TESTFLAGS) $(RACE)

test-long: export CGO_ENABLED = 1
test-long: bin/cni/bridge
test-long: ## Run short and long tests under the race detector, tests of memory without it, soak for SOAK_LONG (5m), and test-kernel with a million packets.
	@SLUICE_LONG=1 .ci/test -race -timeout 40m $(TESTFLAGS) ./...
	@CGO_ENABLED=0 SLUICE_LONG=1 .ci/test -p 1 -timeout 10m -run '^TestMemoryOf' $(TESTFLAGS) $(MEMORY)
	@$(MAKE) --no-print-directory soak SOAK=$(SOAK_LONG) SANDBOXES=5000 SLUICE_SOAK_WRITE=
	@$(MAKE) --no-print-directory test-kernel PAIRS=1000000

test-kernel: export SLUICE_PAIRS = $(PAIRS)
test-kernel: export SLUICE_SEED = $(SEED)
test-kernel: ## Send PAIRS (20000) packets through generated rulesets in the kernel, and compare with the model (root or sudo); SEED=7 sets the seed.
	@.ci/packages
	@go test -exec "'$(CURDIR)/.ci/as-root'" -count=1 -v -timeout 3h $(TESTFLAGS) \
		-run '^Test(ModelPredictsKernel|DecisionsHoldInKernel|ModelPredictsTracedPaths)$$' ./compat/kerneltest

# With -p 1 (one package at a time) and -v, go test prints results immediately.
test-peers: export SLUICE_LONG ?= 1
test-peers: export MODULE = e2e
test-peers: export EXCEPT = /e2e/(cluster|suite|injection)
test-peers: ## Compare with Istio's programs (root or sudo); SLUICE_LONG= runs fewer configurations, SLUICE_SEED=7 sets the seed.
test-peers: build bin/e2e/install-cni bin/istio-iptables bin/istio-ambient
	@$(build-static) ./install/cmd/sluice-node
	@.ci/test -p 1 -v -timeout 30m $(TESTFLAGS) ./... | grep --line-buffered -vE '^ *(=== (RUN|PAUSE|CONT|NAME)|--- PASS)'

soak: export SLUICE_SOAK = $(SOAK)
soak: export SLUICE_SOAK_SANDBOXES = $(SANDBOXES)
soak: export SLUICE_SOAK_WRITE ?= 1
soak: build
soak: ## Create and remove SANDBOXES (5000 per hour) on a node for SOAK (1h), and check that the agent leaks nothing (root or sudo); writes e2e/bench/RESULTS.md.
	@$(build-static) ./install/cmd/sluice-node
	@$(e2e-test) -count=1 -v -timeout 5h $(TESTFLAGS) -run '^TestSoak$$' ./soak

scale: export SLUICE_SCALE = $(NODES)
scale: export SLUICE_SCALE_WRITE ?= 1
scale: ## Simulate the load of the agents of NODES (5000) nodes on the API server, in virtual time; writes e2e/bench/RESULTS.md.
	@go test -C e2e -count=1 -v -timeout 3h $(TESTFLAGS) -run '^TestScale$$' ./scale

test-fresh: ## Run each of TARGETS (all) in a clean clone with empty module and build caches; some take an hour.
	@.ci/fresh $(TARGETS)

# The test binary of a package is linked once for all its targets. go test -fuzz would link it for each.
fuzz: ## Run every fuzz target for FUZZTIME (30s; 50000x sets a number of runs).
	@rm -rf bin/fuzz
	@cache=$$(go env GOCACHE)/fuzz/$$(go list -m); \
	while IFS=: read -r file target; do \
		folder=$$(dirname "$$file"); name=$${target#func }; binary=$(CURDIR)/bin/fuzz/$$folder.test; \
		echo "$$file: $$name"; \
		case "$$name" in *WithinBudget) time=$(BUDGETTIME);; *) time=$(FUZZTIME);; esac; \
		[ -e "$$binary" ] || go test -vet=off -c -fuzz . -o "$$binary" "$$folder"; \
		(cd "$$folder"; "$$binary" -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime "$$time" \
			-test.fuzzcachedir "$$cache/$$folder"); \
	done < <(grep -roE --include='*_test.go' --exclude-dir=e2e '^func Fuzz\w+' .)

bench: export SLUICE_ROUNDS ?= 10
bench: ## Benchmark against Istio's programs in SLUICE_ROUNDS (10) rounds, under 5 minutes without building (root or sudo); writes e2e/bench/RESULTS.md and the figures in README.md.
bench-peers: export SLUICE_ROUNDS ?= 30
bench-peers: ## Like bench, in SLUICE_ROUNDS (30) rounds.
bench bench-peers: build bin/istio-cni bin/e2e/install-cni bin/e2e/istio/pilot-agent bin/istio-iptables
	@$(build-static) ./install/cmd/sluice-node
	@.ci/packages || true
	@$(e2e-test) -run '^$$' -bench Peers -benchtime 1x -timeout 60m ./bench

bench-ambient: build bin/e2e/install-cni
bench-ambient: ## Compare the ADD of a pod in ambient mode with istio-cni (root or sudo).
	@$(build-static) ./install/cmd/sluice-node
	@.ci/packages || true
	@$(e2e-test) -run '^$$' -bench ADD -benchtime 100x -count 3 ./zds

bench-packages: bin/tools/golangci-lint
bench-packages: ## Run the Go benchmarks of all packages COUNT (6) times; BASE=file compares with an earlier bin/bench.out.
	@.ci/test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) $(TESTFLAGS) ./... | tee bin/bench.out
	@bin/tools/benchstat $(BASE) bin/bench.out

# -p 1 is explained at test-peers.
e2e: export SLUICE_REQUIRE = 1
e2e: export E2E_PROVIDER ?= local
e2e: $(CLUSTER_PREREQUISITES)
e2e: ## Build Kubernetes, and run the tests on a cluster in namespaces (root or sudo); E2E_KEEP=1 keeps the cluster until Ctrl-C.
	@.ci/packages
	@cd e2e; go run ./cluster/cmd/software
	@$(e2e-suite) -p 1 -timeout 30m -skip '^Test(Istio|Release)$$' $(TESTFLAGS) ./cluster/... ./suite/... | \
		$(progress)

# Tests of e2e-kind. With SHORT=1: installation of the chart, traffic through both proxies, repair of
# flushed rules, and uninstallation.
KIND_TESTS = $(if $(SHORT),^TestSluice$$/^(installation|faults|uninstallation)$$/^(the_DaemonSet|one_pod|rules_that|after_helm),^Test(NamespacedEngine|Kind|Sluice))
KIND_PACKAGES = $(if $(SHORT),,./cluster/docker ./cluster) ./suite
# Like e2e. With E2E_NODE_IMAGE=build, root also builds the node image from the distribution's packages.
e2e-kind: export SLUICE_REQUIRE = 1
e2e-kind: export E2E_PROVIDER = kind
e2e-kind: $(CLUSTER_PREREQUISITES)
e2e-kind: ## Run the tests of e2e on a kind cluster with two nodes (root or sudo); SHORT=1 runs a subset, E2E_NODE_IMAGE=build builds the node image without a registry.
	@.ci/packages
	@cd e2e; go run ./cluster/cmd/software
	@$(e2e-suite) -p 1 -timeout 40m -run '$(KIND_TESTS)' $(TESTFLAGS) \
		$(KIND_PACKAGES) | $(progress)

# Like e2e. The rule of bin/e2e/istio/pilot-discovery builds all of Istio's programs and charts.
e2e-istio: export SLUICE_REQUIRE = 1
e2e-istio: export E2E_PROVIDER ?= local
e2e-istio: $(CLUSTER_PREREQUISITES) $(ISTIO_PROGRAMS)
e2e-istio: ## Run tests with pods that istiod injects and istio-validation checks (root or sudo).
	@.ci/packages
	@cd e2e; go run ./cluster/cmd/software
	@$(e2e-suite) -p 1 -timeout 15m -run '$(ISTIO_TESTS)' $(TESTFLAGS) ./injection/... ./suite | \
		$(progress)

# Like e2e. Root also builds the file system of the virtual machine from Debian's packages.
e2e-node: export SLUICE_REQUIRE = 1
e2e-node: export E2E_PROVIDER = vm
e2e-node: export RUNTIME ?= containerd
e2e-node: ARCHITECTURES = $(shell go env GOARCH)
e2e-node: build image bin/tools/gotestsum $(addprefix bin/e2e/,helm mesh)
e2e-node: ## Run tests on a virtual machine with Debian's kernel, systemd and containerd (root or sudo); RUNTIME=crio uses CRI-O.
	@cd e2e; go run ./cluster/cmd/software
	@$(e2e-suite) -count=1 -timeout 60m -run '^TestNode$$' $(TESTFLAGS) ./suite | \
		$(progress)

e2e-kernels: ## Run tests on older kernels under qemu; UPDATE=1 writes the table in e2e/README.md, KERNEL=5.10 selects a kernel.
	@go run -C e2e ./kernels/cmd/kernels $(if $(UPDATE),-update) -timeout $(LIMIT) -kernel '$(KERNEL)' -modules '$(MODULES)'

manifests: ## Render install/manifests from the chart.
	go test -C e2e/deploy -count=1 -run TestManifests . -update

chart-test: ## Test chart, manifests and alerts with the libraries of Helm and Prometheus.
chart-test: bin/tools/golangci-lint
	go mod tidy -C e2e/deploy -diff
	cd e2e/deploy && ../../bin/tools/golangci-lint run
	go test -C e2e/deploy $(TESTFLAGS) ./...

image: ## Build the image HUB/sluice:TAG for ARCHITECTURES into bin/image.tar; PUSH=1 also pushes it.
	@rm -rf bin/image
	@for architecture in $(ARCHITECTURES); do \
		root=bin/image/$$architecture; export GOOS=linux GOARCH=$$architecture; mkdir -p $$root/usr/local/bin $$root/opt/cni/bin; \
		$(build-static)image/$$architecture/usr/local/bin/ $(IMAGE_COMMANDS); \
		$(build-static)image/$$architecture/opt/cni/bin/ ./plugin/cmd/sluice-cni; \
	done
	@go run -C e2e ./image/cmd/image -ref $(HUB)/sluice:$(TAG) -o ../bin/image.tar $(foreach a,$(ARCHITECTURES),$(a)=../bin/image/$(a))
	@if [ "$(PUSH)" = 1 ]; then \
		mkdir bin/image/layout; tar -xf bin/image.tar -C bin/image/layout; \
		cd e2e/deploy; go tool crane push ../../bin/image/layout $(HUB)/sluice:$(TAG); \
	fi

release: ## Build release VERSION (v0.2.0) from a clean checkout into bin/release; COSIGN_KEY=file signs it, PUSH=1 pushes image and chart to HUB.
	@rm -rf bin/release
	@go run -C e2e/release ./cmd/release -version '$(VERSION)' -hub '$(HUB)' -source ../.. -o ../../bin/release $(if $(filter 1,$(PUSH)),-push)

# First the files of a release are tested, then the commands in README.md on a cluster.
release-test: export SLUICE_REQUIRE = 1
release-test: export E2E_PROVIDER = local
release-test: $(RELEASE_PREREQUISITES) bin/tools/golangci-lint
release-test: ## Build a release twice and compare, verify signatures, and run the commands in README.md on a cluster with a local registry (root or sudo).
	go mod tidy -C e2e/release -diff
	go mod tidy -C e2e/release/krew -diff
	cd e2e/release && ../../bin/tools/golangci-lint run
	@cd e2e/release; SLUICE_LONG=1 $(gotestsum) -count=1 -timeout 30m $(TESTFLAGS) ./... | $(progress)
	@.ci/packages
	@cd e2e; go run ./cluster/cmd/software
	@$(e2e-suite) -count=1 -timeout 30m -run '^TestRelease$$' $(TESTFLAGS) ./suite | \
		$(progress)

lint: ## Check formatting, and run linters, which include the analyzers of go vet.
lint: bin/tools/golangci-lint
	@unformatted=$$(bin/tools/gofumpt -l .); \
	if [ -n "$$unformatted" ]; then printf 'run bin/tools/gofumpt -w on:\n%s\n' "$$unformatted"; exit 1; fi
	go mod tidy -diff
	bin/tools/golangci-lint run
	go mod tidy -C e2e -diff
	cd e2e && ../bin/tools/golangci-lint run

# The step kind builds the node image of kind if docker does not run, because a registry is then often
# missing too. The step fuzz limits the number of runs and not the time, because go test sometimes
# fails with "context deadline exceeded" at the end of a time limit. `make test` runs 15 random inputs
# per property and a third of some long lists of cases, test-race runs 20 inputs, and the step checks
# runs 100 and all cases, without the race detector.
# The step kernels boots each kernel with all modules, and one without nf_tables and without
# iptables-legacy; nightly.yml runs all combinations.
# Istio is built in the background of steps that mostly wait for virtual machines and clusters.
ci: export SLUICE_REQUIRE = 1
ci: ## Run all checks of a change: lint, test, test-race, test-kernel, a short test-peers and fuzz, chart-test, e2e-kernels, e2e, a short e2e-kind, release-test and e2e-istio.
	@echo 'ci: lint'; $(MAKE) --no-print-directory lint
	@echo 'ci: test'; $(MAKE) --no-print-directory test TESTFLAGS='-count=1 $(TESTFLAGS)'
	@echo 'ci: race'; $(MAKE) --no-print-directory test-race TESTFLAGS='-count=1 $(TESTFLAGS)'
	@echo 'ci: checks'; SLUICE_CHECKS=100 .ci/test -count=1 $(TESTFLAGS) ./nft ./rules ./rules/diff ./compat ./compat/nftlist ./compat/save ./plugin/chaintest
	@echo 'ci: kernel'; $(MAKE) --no-print-directory test-kernel
	@echo 'ci: peers'; $(MAKE) --no-print-directory test-peers SLUICE_LONG= TESTFLAGS='-count=1 $(TESTFLAGS)'
	@echo 'ci: chart'; $(MAKE) --no-print-directory chart-test TESTFLAGS='-count=1 $(TESTFLAGS)'
	@echo 'ci: fuzz'; $(MAKE) --no-print-directory fuzz FUZZTIME=5000x BUDGETTIME=20x
	@mkdir -p bin; nice -n 19 $(MAKE) --no-print-directory $(ISTIO_PROGRAMS) >bin/istio-build.log 2>&1 & \
	trap 'kill $$! 2>/dev/null || true' EXIT; \
	echo 'ci: kernels'; $(MAKE) --no-print-directory e2e-kernels MODULES=all LIMIT=20m; \
	$(MAKE) --no-print-directory e2e-kernels KERNEL=5.10 MODULES=no LIMIT=20m; \
	echo 'ci: Kubernetes'; $(MAKE) --no-print-directory e2e TESTFLAGS='-count=1 $(TESTFLAGS)'; \
	echo 'ci: kind'; $(MAKE) --no-print-directory e2e-kind SHORT=1 TESTFLAGS='-count=1 $(TESTFLAGS)' \
		E2E_NODE_IMAGE="$${E2E_NODE_IMAGE-$$(docker info >/dev/null 2>&1 || echo build)}"; \
	echo 'ci: release'; $(MAKE) --no-print-directory release-test; \
	wait $$! || { cat bin/istio-build.log; exit 1; }
	@echo 'ci: Istio'; $(MAKE) --no-print-directory e2e-istio TESTFLAGS='-count=1 $(TESTFLAGS)'

clean: ## Remove bin/.
	rm -rf bin

# Istio's programs, with which tests compare Sluice.
bin/istio-iptables bin/istio-ambient: bin/%: e2e/go.mod e2e/go.sum $(wildcard e2e/istio/cmd/*/*.go)
	@echo "$@: built from Istio's module, which takes half a minute the first time"
	CGO_ENABLED=0 go build -C e2e $(stripped) -o ../bin/ ./istio/cmd/$*
	@touch $@

bin/istio-cni: e2e/bench/istio/go.mod e2e/bench/istio/go.sum
	@echo "$@: built from Istio's module, which takes minutes the first time"
	CGO_ENABLED=0 go build -C e2e/bench/istio $(stripped) -o ../../../bin/ istio.io/istio/cni/cmd/istio-cni
	@touch $@

bin/e2e/istio/pilot-discovery: $(ISTIOD_MODULE)/go.mod $(ISTIOD_MODULE)/go.sum
	@echo "$@: 1800 packages of Istio, which take minutes the first time"
	@mkdir -p $(@D)
	@CGO_ENABLED=0 go build -C $(ISTIOD_MODULE) -v $(stripped) -o $(CURDIR)/$(@D)/ $$(go list -C $(ISTIOD_MODULE) tool) 2>&1 | \
		awk '/^go: downloading/ { next } ++n % 100 == 0 { print n " packages"; fflush() } /: |^#/'
	@rm -rf $(@D)/charts
	@cp -r --no-preserve=mode "$$(go list -C $(ISTIOD_MODULE) -m -f '{{.Dir}}' istio.io/istio)/manifests/charts" $(@D)
	@touch $@

bin/e2e/istio/pilot-agent: $(ISTIOD_MODULE)/go.mod $(ISTIOD_MODULE)/go.sum
	@echo "$@: built from Istio's module, which takes minutes the first time"
	CGO_ENABLED=0 go build -C $(ISTIOD_MODULE) $(stripped) -o $(CURDIR)/$(@D)/ istio.io/istio/pilot/cmd/pilot-agent
	@touch $@

bin/e2e/pilot-agent: e2e/go.mod $(wildcard e2e/injection/cmd/pilot-agent/*.go)
	CGO_ENABLED=0 go build -C e2e $(stripped) -o ../bin/e2e/ ./injection/cmd/pilot-agent
	@touch $@

bin/e2e/mesh: e2e/go.mod $(wildcard e2e/mesh/*/*.go e2e/mesh/*/*/*.go)
	CGO_ENABLED=0 go build -C e2e $(stripped) -o ../bin/e2e/ ./mesh/cmd/mesh
	@touch $@

bin/e2e/helm: e2e/deploy/go.mod e2e/deploy/go.sum
	CGO_ENABLED=0 go build -C e2e/deploy $(stripped) -o ../../bin/e2e/ helm.sh/helm/v4/cmd/helm
	@touch $@

bin/e2e/install-cni: e2e/bench/istio/go.mod e2e/bench/istio/go.sum
	CGO_ENABLED=0 go build -C e2e/bench/istio $(stripped) -o ../../../bin/e2e/ \
		istio.io/istio/cni/cmd/install-cni
	@touch $@

# The CNI plugins that tests chain with Sluice's; the rule of bridge builds all of them. They are named
# here, because go list tool would download the modules of all tools.
bin/cni/bridge: .ci/tools/go.mod .ci/tools/go.sum
	CGO_ENABLED=0 go build -C .ci/tools $(stripped) -o ../../bin/cni/ \
		github.com/containernetworking/plugins/plugins/{main/bridge,main/ptp,meta/portmap,ipam/host-local}
	@touch $@

bin/tools/gotestsum: .ci/tools/go.mod .ci/tools/go.sum
	CGO_ENABLED=0 go build -C .ci/tools $(stripped) -o ../../bin/tools/ gotest.tools/gotestsum
	@touch $@

# Builds all tools.
bin/tools/golangci-lint: .ci/tools/go.mod .ci/tools/go.sum
	CGO_ENABLED=0 go build -C .ci/tools -o ../../bin/tools/ $$(go list -C .ci/tools tool | grep -v containernetworking)
	@touch $@
