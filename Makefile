SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION = $(shell git describe --always --dirty 2>/dev/null || echo devel)
COMMANDS = ./rules/cmd/rules ./plugin/cmd/sluice-cni
DEMO = ./rules/cmd/demo
# Programs of others, in the module e2e, with which tests compare ours.
PEER = istio/cmd/istio-iptables
# Packages whose tests `make test` runs with the race detector.
RACE = $(patsubst %,./%/...,$(wildcard nft plugin install)) ./rules/cmd/...
# What the image holds besides the plugin, its name, and for which architectures it is.
IMAGE_COMMANDS = ./install/cmd/sluice-node ./rules/cmd/rules
HUB ?= ghcr.io/sluice-mesh
TAG ?= $(VERSION)
ARCHITECTURES ?= amd64 arm64
# More flags for go test.
TESTFLAGS =
FUZZTIME ?= 30s
BENCH ?= .
COUNT ?= 6
BENCHTIME ?= 300ms

build-static = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/

.PHONY: help build demo test test-long test-peers fuzz bench bench-peers manifests chart-test image lint ci clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-11s %s\n", $$1, $$2 }' Makefile

build: ## Build the commands, static, into bin/.
	$(build-static) $(COMMANDS)

demo: ## Show the rules at work in a network namespace (root or sudo).
	$(build-static) $(DEMO)
	@.ci/as-root bin/$(notdir $(DEMO))

test: bin/cni/bridge
test: ## Run the tests (as root or with sudo: all of them).
	@RACE='$(RACE)' .ci/test -timeout 3m $(TESTFLAGS)

test-long: bin/cni/bridge
test-long: ## Run the tests with the long ones, all under the race detector.
	@SLUICE_LONG=1 RACE=./... .ci/test -timeout 40m $(TESTFLAGS)

# One package at a time and -v, or go test would print nothing before the end.
test-peers: export SLUICE_LONG ?= 1
test-peers: export MODULE = e2e
test-peers: ## Compare with Istio's own programs (root or sudo); SLUICE_LONG= in part, SLUICE_SEED=7 by other chance.
test-peers: build bin/$(notdir $(PEER))
	@.ci/test -p 1 -v -timeout 30m $(TESTFLAGS) | grep --line-buffered -vE '^ *(=== (RUN|PAUSE|CONT|NAME)|--- PASS)'

fuzz: ## Fuzz every target for FUZZTIME (30s, or a number of runs: 50000x).
	@while IFS=: read -r file target; do \
		echo "$$file: $${target#func }"; \
		go test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
	done < <(grep -roE --include='*_test.go' --exclude-dir=e2e '^func Fuzz\w+' .)

bench: ## Run the benchmarks COUNT (6) times; BASE=file compares with an earlier bin/bench.out.
bench: bin/tools/golangci-lint
	@RACE= .ci/test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) $(TESTFLAGS) | tee bin/bench.out
	@bin/tools/benchstat $(BASE) bin/bench.out

bench-peers: export SLUICE_ROUNDS ?= 30
bench-peers: build bin/istio-cni
bench-peers: ## Compare the plugin's time and memory with its peers' (root or sudo), in SLUICE_ROUNDS (30) rounds.
	@go test -C e2e -exec "'$(CURDIR)/.ci/as-root'" -run '^$$' -bench Peers -benchtime 1x -timeout 30m ./bench

manifests: ## Render install/manifests from the chart.
	go test -C e2e/deploy -count=1 -run TestManifests . -update

chart-test: ## Test chart, manifests, alerts and image with Helm, Prometheus and a registry, none of which need be there.
chart-test: bin/tools/golangci-lint
	go mod tidy -C e2e/deploy -diff
	go vet -C e2e/deploy ./...
	cd e2e/deploy && ../../bin/tools/golangci-lint run
	go test -C e2e/deploy $(TESTFLAGS) ./...

image: ## Build the image HUB/sluice:TAG for ARCHITECTURES into bin/image.tar; with PUSH=1 push it.
	@rm -rf bin/image
	@for architecture in $(ARCHITECTURES); do \
		root=bin/image/$$architecture; export GOOS=linux GOARCH=$$architecture; mkdir -p $$root/usr/local/bin $$root/opt/cni/bin; \
		$(build-static)image/$$architecture/usr/local/bin/ $(IMAGE_COMMANDS); \
		$(build-static)image/$$architecture/opt/cni/bin/ ./plugin/cmd/sluice-cni; \
	done
	@go run ./install/cmd/image -ref $(HUB)/sluice:$(TAG) -o bin/image.tar $(foreach a,$(ARCHITECTURES),$(a)=bin/image/$(a))
	@if [ "$(PUSH)" = 1 ]; then \
		mkdir bin/image/layout; tar -xf bin/image.tar -C bin/image/layout; \
		cd e2e/deploy; go tool crane push ../../bin/image/layout $(HUB)/sluice:$(TAG); \
	fi

lint: ## Check format, vet and linters.
lint: bin/tools/golangci-lint
	@unformatted=$$(bin/tools/gofumpt -l .); \
	if [ -n "$$unformatted" ]; then printf 'run bin/tools/gofumpt -w on:\n%s\n' "$$unformatted"; exit 1; fi
	go mod tidy -diff
	go vet ./...
	bin/tools/golangci-lint run
	go mod tidy -C e2e -diff
	go vet -C e2e ./...
	cd e2e && ../bin/tools/golangci-lint run

# A number of runs for the fuzz: go test fails now and then, with "context deadline exceeded", when a time limit ends.
ci: export SLUICE_REQUIRE = 1
ci: ## Run what a change must pass: lint, test, part of test-peers, and a short fuzz.
	@echo 'ci: lint'; $(MAKE) --no-print-directory lint
	@echo 'ci: test'; $(MAKE) --no-print-directory test TESTFLAGS='-count=1 $(TESTFLAGS)'
	@echo 'ci: peers'; $(MAKE) --no-print-directory test-peers SLUICE_LONG= TESTFLAGS='-count=1 $(TESTFLAGS)'
	@echo 'ci: chart'; $(MAKE) --no-print-directory chart-test TESTFLAGS='-count=1 $(TESTFLAGS)'
	@echo 'ci: fuzz'; $(MAKE) --no-print-directory fuzz FUZZTIME=50000x

clean: ## Remove what make built.
	rm -rf bin

bin/$(notdir $(PEER)): e2e/go.mod e2e/go.sum $(wildcard e2e/$(PEER)/*.go)
	@echo "$@: built from Istio's module, which takes half a minute the first time"
	CGO_ENABLED=0 go build -C e2e -trimpath -buildvcs=false -ldflags '-s -w' -o ../bin/ ./$(PEER)
	@touch $@

bin/istio-cni: e2e/bench/istio/go.mod e2e/bench/istio/go.sum
	@echo "$@: built from Istio's module, which takes minutes the first time"
	CGO_ENABLED=0 go build -C e2e/bench/istio -trimpath -buildvcs=false -ldflags '-s -w' -o ../../../bin/ istio.io/istio/cni/cmd/istio-cni
	@touch $@

# The plugins with which tests run ours in a chain; bridge stands for all of them.
bin/cni/bridge: .ci/tools/go.mod .ci/tools/go.sum
	CGO_ENABLED=0 go build -C .ci/tools -trimpath -buildvcs=false -ldflags '-s -w' -o ../../bin/cni/ \
		$$(go list -C .ci/tools tool | grep containernetworking)
	@touch $@

# golangci-lint stands for all the tools: one command builds them.
bin/tools/golangci-lint: .ci/tools/go.mod .ci/tools/go.sum
	CGO_ENABLED=0 go build -C .ci/tools -o ../../bin/tools/ $$(go list -C .ci/tools tool | grep -v containernetworking)
	@touch $@
