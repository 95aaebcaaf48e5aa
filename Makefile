# `make` alone lists the targets. Only Go, Node and a C compiler (for the race detector) must be
# installed. Tools are built or installed on first use, at the versions pinned under tools/.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ROUNDS   ?= 200
FUZZTIME ?= 30s
SEED     ?= 1
SEEDS    ?= 20
LOSSES   ?= 0
TIME     ?= 60s
EVERY    ?= 1s
DURATION ?= 1m
CLIENTS  ?= 4
CI_LOSSES ?= 10000
JOBS     ?= $(shell nproc)
KEEP     ?=
LOG      ?=
BUS      ?=
AGAINST  ?= main

BROWSER := tools/browser/node_modules/.package-lock.json
BUF     := tools/buf/node_modules/.bin/buf
LINT    := .bin/golangci-lint
TEMPORAL      := .bin/temporal-v1.5.1
WORKFLOWCHECK := .bin/workflowcheck-v0.6.0
PLUGINS := $(addprefix .bin/,protoc-gen-go protoc-gen-go-grpc protoc-gen-grpc-gateway protoc-gen-openapiv2)
PROTOS  := third_party/googleapis

# What is tested and built here has the versions of its own go.mod, also where a go.work lies.
export GOWORK := off

# The modules of the products and of what they share. Each other module has a target of its own.
MODULES := . testbed proto client client/observe client/clienttest engine

# They use the client and the engines as modules of others do.
EXAMPLES := examples/engine examples/engine/tests examples/runner

# Go files of all modules, in git or not yet added.
GOFILES = git ls-files --cached --others --exclude-standard -- '*.go' | while read -r f; do if [[ -f $$f ]]; then echo "$$f"; fi; done

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# gRPC's own tracing pages are a template, and with templates the linker has to keep every method of
# every type: a sixth of the binary. OpenTelemetry's spans do not need them.
BUILDFLAGS = -trimpath -buildvcs=false -tags grpcnotrace -ldflags '-X main.version=$(VERSION)'

.PHONY: build
build: ## build bin/runlog, one static binary
	go build $(BUILDFLAGS) -o bin/runlog ./cmd/runlog

.PHONY: build-runner
build-runner: ## build bin/runlog-runner, the reference engine
	go -C engine build $(BUILDFLAGS) -o ../bin/ ./cmd/runlog-runner

.PHONY: build-conductor
build-conductor: ## build bin/runlog-conductor, the worker of Conductor
	go -C engine build $(BUILDFLAGS) -o ../bin/ ./cmd/runlog-conductor

.PHONY: build-bench
build-bench: ## build bin/runlog-bench, the load generator
	go build $(BUILDFLAGS) -o bin/runlog-bench ./cmd/runlog-bench

# A workspace has the modules of all dependencies, also those of which no package is needed. An old
# genproto among them has packages that are in modules of their own since.
.PHONY: work
work: export GOWORK :=
work: ## write go.work, with which an editor changes several modules at once
	rm -f go.work go.work.sum && go work init $(addprefix ./,$(MODULES))
	go work edit -replace "google.golang.org/genproto=google.golang.org/genproto@$$(go list -m -f '{{.Version}}' google.golang.org/genproto/googleapis/rpc)"

.PHONY: generate
generate: $(BUF) $(PLUGINS) $(PROTOS) ## generate code from proto/
	tools/generate.sh

.PHONY: check
check: check-format check-rules check-generated check-lint ## check everything except the tests: format, imports, sizes, clocks, prose, generated code, vet, lint

.PHONY: check-generated
check-generated: $(BUF) $(PLUGINS) $(PROTOS)
	tools/generate.sh --check
	$(BUF) lint

.PHONY: check-format
check-format:
	@unformatted=$$($(GOFILES) | xargs -r gofmt -l); \
	if [[ -n $$unformatted ]]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	for module in $(MODULES) $(EXAMPLES); do go -C $$module mod tidy -diff || exit 1; done

.PHONY: check-lint
check-lint: $(LINT)
	for module in $(MODULES); do \
		go -C $$module vet ./... && (cd $$module && $(CURDIR)/$(LINT) run) || exit 1; \
	done

# -count=1: the result depends on files that the test cache does not see.
.PHONY: check-rules
check-rules:
	go test -count=1 -run 'TestImportTable|IsLight|TestClock|TestConformance|TestContract|TestTabledRules|TestProse' .

.PHONY: breaking
breaking: $(BUF) $(PROTOS) ## find changes in proto/ that break its users, compared with AGAINST (main)
	@base=$$(mktemp -d); trap 'rm -rf "$$base"' EXIT; \
	git archive $(AGAINST) buf.yaml proto | tar -x -C "$$base"; \
	mkdir "$$base/third_party"; cp -P $(PROTOS) "$$base/third_party/"; \
	$(BUF) breaking --against "$$base"

# The released binary has no C code, and neither have the tests: they run Pebble as it is released,
# and link faster. The race detector needs C.
build build-runner build-conductor build-bench check-rules check-lint quick test check-mutants mutants bin/sim: export CGO_ENABLED := 0

# Tests wait more than they compute, so more packages are tested at a time than there are cores.
# make check runs go vet. Linking is faster without debug information and symbol table; stack traces
# do not need them.
TESTFLAGS := -vet=off -ldflags=-s -timeout 20m -p 3 -parallel 4

# The race detector slows computing down by a factor of ten. It watches how goroutines use memory,
# for which a few drawn cases are enough: with -short, tests draw less, and those that only compute
# more than others are skipped.
RACEFLAGS := -race -short $(TESTFLAGS)

# The tests of these packages only start other programs. make race has real processes with the race
# detector. tools/race-packages.sh leaves out packages that only compute.
NO_RACE := runlog runlog/server/servertest/mutants runlog/server/servertest/procs \
	$(addprefix runlog/cmd/,runlog runlog-bench runlog/internal/audit runlog/internal/backup) \
	runlog/client/command/output runlog/client/command/session runlog/engine/cmd/runlog-runner

# With the race detector no test is about a disk. Files in memory save about a tenth of the time.
RACE_TMP := $(shell df --output=avail -B1G /dev/shm 2>/dev/null | awk 'END { if ($$1 >= 4) print "/dev/shm" }')

# Tests end their goroutines: a process need not wait a second for a race after its last test.
.PHONY: test
test: ## run all tests, and those of goroutines again with the race detector
	for module in $(MODULES); do go -C $$module test $(TESTFLAGS) ./... || exit 1; done
	@for module in $(MODULES); do \
		packages=$$(tools/race-packages.sh $$module | grep -vx $(patsubst %,-e %,$(NO_RACE)) || true); \
		[[ -z $$packages ]] || (set -x; TMPDIR=$(or $(RACE_TMP),$${TMPDIR:-/tmp}) GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 \
			go -C $$module test $(RACEFLAGS) $$packages) || exit 1; \
	done

# What needs processes, other people's servers or a whole cluster's minute is left to make test.
.PHONY: quick
quick: ## run what a change in storage/, raft/, projector/ or server/ needs, in under three minutes
	go -C proto vet ./...
	go vet ./storage/... ./raft/... ./projector/... ./server/...
	go -C proto test -short $(TESTFLAGS) ./...
	go test -short $(TESTFLAGS) . $$(go list ./storage/... ./raft/... ./projector/... ./server/... | grep -vx -e runlog/server/servertest/procs -e runlog/server/servertest/mutants)

.PHONY: race
race: ## run all tests in full with the race detector, those of real processes too
	for module in $(MODULES); do go -C $$module test -race -timeout 30m -p 1 -parallel 4 ./... || exit 1; done

# Not part of test, because it needs a browser, which is large.
.PHONY: check-browser
check-browser: $(BROWSER) ## let a real browser, Debian's chromium, follow runs across a restart
	@[[ -x /usr/bin/chromium ]] || apt-get install -y --no-install-recommends chromium
	RUNLOG_BROWSER=$(CURDIR)/tools/browser/watch.mjs go test ./server -run TestBrowser -count=1 -v

.PHONY: demo
demo: build build-runner ## start a node and a runner, append the quickstart runs twice, attest a step of another run, and print the results
	./tools/demo.sh

.PHONY: cluster
cluster: build ## start a cluster of three nodes under load, and show it until Ctrl-C or for CLUSTER_SECONDS
	./tools/cluster.sh

.PHONY: crash
crash: ## kill nodes ROUNDS times during appends, and check for lost events
	TEST_RUNLOG_CRASH_ROUNDS=$(ROUNDS) go test ./cmd/runlog -run TestKillNine -count=1 -timeout 60m -v

.PHONY: kill-engines
kill-engines: ## kill runners, workers of the fake Conductor, and nodes in ROUNDS runs of each engine
	TEST_RUNLOG_RUNNER_ROUNDS=$(ROUNDS) go -C engine test ./runner -run TestKills -count=1 -timeout 60m -v
	TEST_RUNLOG_CONDUCTOR_ROUNDS=$(ROUNDS) go -C engine test ./conductor -run TestKilled -count=1 -timeout 60m -v
	TEST_RUNLOG_ENGINE_STRIDE=1 go -C engine test ./mock ./runner ./conductor -run TestAdapter -count=1 -timeout 60m -v

.PHONY: sim
sim: bin/sim ## simulate SEEDS clusters for TIME of fake time, with a fault at each EVERY, and subscriptions in each fourth world, or in all if BUS=1; SEED, KEEP, LOG=1 repeat one
	@if [[ -n "$(KEEP)$(LOG)" ]]; then \
		GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1,randseednop=0 bin/sim -test.v -test.run '^TestSeeds$$' -sim.seed=$(SEED) -sim.seeds=1 \
			-sim.time=$(TIME) -sim.every=$(EVERY) -sim.keep=$(KEEP) $(if $(BUS),-sim.bus) $(if $(LOG),-sim.log); \
	else \
		bin/sim -test.v -test.run '^TestFleet$$' -test.timeout=0 -sim.fleet=$(JOBS) -sim.seed=$(SEED) -sim.seeds=$(SEEDS) \
			-sim.losses=$(LOSSES) -sim.time=$(TIME) -sim.every=$(EVERY) -sim.clients=$(CLIENTS) -sim.shrink=20 -sim.logs=bin/failed-worlds $(if $(BUS),-sim.bus); \
	fi

.PHONY: sim-ci
sim-ci: ## simulate 10,000 losses of power, with seeds from the commit, as CI does
	$(MAKE) --no-print-directory sim LOSSES=$(CI_LOSSES) TIME=30s EVERY=300ms SEED=$$((16#$$(git rev-parse HEAD | head -c 12)))

.PHONY: sim-nightly
sim-nightly: ## simulate 100,000 losses of power, with seeds from the date
	$(MAKE) --no-print-directory sim LOSSES=100000 TIME=60s EVERY=300ms SEED=$$(date +%Y%m%d)000000

.PHONY: bin/sim
bin/sim:
	go test -c -o bin/sim ./server/servertest/sim

.PHONY: bench-list
bench-list: ## read pages of a list of a million runs, by filters, in the projection's database
	go test ./projector/list -run '^$$' -bench 'List|Count' -benchtime 300x -listed 1000000

.PHONY: bench-fair
bench-fair: ## measure what a tenant keeps while another one floods the node
	go test ./server -run '^$$' -bench Fair -benchtime 3x

.PHONY: check-mutants
check-mutants: ## put in over a hundred bugs, one at a time, and compile: tells which ones no longer fit the sources
	go test ./server/servertest/mutants -run 'TestFits|TestApplied' -mutants=all -count=1 -timeout 1h

# For the night. A bug that does not fit the sources ends it before the first search.
.PHONY: mutants
mutants: check-mutants ## build in over a hundred bugs, one at a time, and check that the simulator or a model test finds each; takes about half an hour of processor time
	go test ./server/servertest/mutants -run TestFound -mutants=all -count=1 -timeout 3h -v

.PHONY: procs
procs: ## attack processes with SEEDS plans, for at most TIME, and check what their clients saw
	go test ./server/servertest/procs -run 'TestRounds|TestDeliveries' -count=1 -timeout 0 -v -procs.seed=$(SEED) -procs.seeds=$(SEEDS) -procs.time=$(TIME)

.PHONY: golden
golden: ## save a data directory of this version as GOLDEN, for later versions to open
	@[[ -n "$(GOLDEN)" ]] || { echo "name the tag: make golden GOLDEN=v1.2.3"; exit 1; }
	@[[ ! -e server/servertest/procs/testdata/golden/$(GOLDEN) ]] || { echo "$(GOLDEN) exists and is never changed; choose another tag"; exit 1; }
	go test ./server/servertest/procs -run TestMakeGolden -count=1 -procs.golden=$(GOLDEN)

.PHONY: bench
bench: build build-bench ## measure appends on this machine; ARGS is passed on
	bin/runlog-bench $(ARGS)

.PHONY: attack-memory
attack-memory: build ## attack a node's memory, and print what it uses and how a well-behaved client fares; ARGS is passed on, such as -only gRPC
	go build -o bin/attack ./bench/attack
	bin/attack -runlog bin/runlog $(ARGS)

.PHONY: attack-tenants
attack-tenants: ## have two tenants of a node attack each other for DURATION, and check that no byte leaks; needs Linux
	go -C engine test ./runner/rivals -run TestRivals -count=1 -timeout 0 -v -rivals.time=$(DURATION)

.PHONY: bench-cluster
bench-cluster: build build-bench ## measure a cluster of three nodes against one node; ARGS is passed on
	bin/runlog-bench cluster $(ARGS)

.PHONY: bench-access
bench-access: build build-bench ## measure what access control costs; ARGS is passed on
	bin/runlog-bench access $(ARGS)

.PHONY: bench-peers
bench-peers: build ## compare with PostgreSQL, etcd and NATS JetStream on this machine; ARGS is passed on, such as --nodes 3
	go -C bench/peers build -o ../../bin/peers .
	bin/peers --runlog bin/runlog $(ARGS)

# Not part of check and test, because it builds etcd and a NATS server, which takes longer than all
# of runlog.
.PHONY: check-peers
check-peers: $(LINT) ## vet, lint and test the module bench/peers
	go -C bench/peers mod tidy -diff
	go -C bench/peers vet ./...
	cd bench/peers && ../../$(LINT) run
	go -C bench/peers test -race ./...

# Not part of check, because it has tests.
.PHONY: check-example
check-example: build $(LINT) ## vet, lint and test the modules of examples, as their authors would, and run the engine
	for module in $(EXAMPLES); do \
	  go -C $$module vet ./... && (cd $$module && $(CURDIR)/$(LINT) run) && go -C $$module test ./... || exit 1; \
	done
	go -C examples/engine build -o ../../bin/engine .
	./tools/example.sh

# Not part of check, because it has tests, and because the SDK is fetched from the network.
.PHONY: check-conductor
check-conductor: $(LINT) ## let Conductor's published Go SDK drive the fake Conductor of the tests
	go -C engine/conductor/sdkcheck mod tidy -diff
	go -C engine/conductor/sdkcheck vet ./...
	cd engine/conductor/sdkcheck && ../../../$(LINT) run
	go -C engine/conductor/sdkcheck test -count=1 ./...

# Not part of check, because it has tests, and because Temporal's server takes minutes to build.
.PHONY: check-temporal
check-temporal: $(LINT) $(TEMPORAL) $(WORKFLOWCHECK) ## vet, lint and test the module engine/temporal on a real Temporal server
	go -C engine/temporal mod tidy -diff
	go -C engine/temporal vet ./...
	cd engine/temporal && ../../$(LINT) run
	cd engine/temporal && ../../$(WORKFLOWCHECK) -config workflowcheck.yaml ./...
	TEMPORAL=$(CURDIR)/$(TEMPORAL) TEST_RUNLOG_ENGINE_STRIDE=67 go -C engine/temporal test -short -count=1 -timeout 30m -parallel 6 ./...

.PHONY: tools-temporal
tools-temporal: $(LINT) $(TEMPORAL) $(WORKFLOWCHECK) # what check-temporal needs; takes minutes

.PHONY: kill-temporal
kill-temporal: $(TEMPORAL) ## kill workers of Temporal at each of their actions; then workers, nodes and the Temporal server in ROUNDS rounds
	TEMPORAL=$(CURDIR)/$(TEMPORAL) TEST_RUNLOG_ENGINE_STRIDE=1 go -C engine/temporal test . -run TestSuiteENG2/Killed -count=1 -timeout 120m -parallel 8 -v
	TEMPORAL=$(CURDIR)/$(TEMPORAL) TEST_RUNLOG_TEMPORAL_ROUNDS=$(ROUNDS) go -C engine/temporal test ./cmd/runlog-temporal -run TestChaos -count=1 -timeout 120m -v

.PHONY: demo-temporal
demo-temporal: build $(TEMPORAL) ## run a plan on a real Temporal server, kill its worker, pause, resume and retry, and compare the log with Temporal
	go -C engine/temporal build -ldflags '-X main.version=$(VERSION)' -o ../../bin/ ./cmd/runlog-temporal
	TEMPORAL=$(CURDIR)/$(TEMPORAL) ./tools/demo-temporal.sh

.PHONY: bench-temporal
bench-temporal: build $(TEMPORAL) ## measure steps on Temporal with runlog and without; ARGS is passed on, such as -temporal.rounds=3
	TEMPORAL=$(CURDIR)/$(TEMPORAL) RUNLOG=$(CURDIR)/bin/runlog go -C engine/temporal test . -run TestBenchENG3 -count=1 -timeout 30m -v -temporal.bench $(ARGS)

.PHONY: record-temporal
record-temporal: $(TEMPORAL) ## record the histories that replay tests of engine/temporal read, for a new version of its workflow
	TEMPORAL=$(CURDIR)/$(TEMPORAL) go -C engine/temporal test . -run TestReplayENG3 -count=1 -v -temporal.record

# Not part of check, because it has tests, and because the clients of the clouds are large.
.PHONY: check-cloud
check-cloud: $(LINT) ## vet, lint and test the module engine/blob/cloud: blobs of Google and Azure
	go -C engine/blob/cloud mod tidy -diff
	go -C engine/blob/cloud vet ./...
	cd engine/blob/cloud && ../../../$(LINT) run
	go -C engine/blob/cloud test -count=1 ./...

# Not part of check, because it has tests, and because the programs of others are large.
.PHONY: check-witness
check-witness: $(LINT) ## vet, lint and test the module audit/witness/interop: public witnesses, clients and verifiers with ours
	go -C audit/witness/interop mod tidy -diff
	go -C audit/witness/interop vet ./...
	cd audit/witness/interop && ../../../$(LINT) run
	go -C audit/witness/interop test -count=1 ./...

# By default the fuzzer minimises each new input for up to a minute and tries nothing else in this
# time. With inputs of some kilobytes this is most of the time.
.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@$(GOFILES) | { grep '_test\.go$$' || true; } | { xargs -r grep -Eo '^func Fuzz[A-Za-z0-9_]+' /dev/null || true; } | \
	while IFS=: read -r file func; do \
		target=$${func#func } package=./$$(dirname "$$file"); \
		echo "$$target in $$package"; \
		go -C "$$package" test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s </dev/null; \
	done

.PHONY: clean
clean: ## remove the build results and the tools
	rm -rf bin .bin third_party tools/buf/node_modules tools/browser/node_modules

# Tools. Each is rebuilt when its pinned version changes.

$(PLUGINS) &: tools/protoc/go.mod tools/protoc/go.sum
	@mkdir -p .bin
	go -C tools/protoc build -o ../../.bin/ tool
	@touch $(PLUGINS)

$(LINT): tools/lint/go.mod tools/lint/go.sum
	@mkdir -p .bin
	go -C tools/lint build -o ../../.bin/ tool
	@touch $@

# Temporal's command line has the server. It cannot be a tool of a module beside others: its
# dependencies are older. The version is in the name of the file.
$(TEMPORAL):
	@mkdir -p .bin
	GOBIN=$(CURDIR)/.bin go install github.com/temporalio/cli/cmd/temporal@$(@:.bin/temporal-%=%)
	@mv .bin/temporal $@

$(WORKFLOWCHECK):
	@mkdir -p .bin
	GOBIN=$(CURDIR)/.bin go install go.temporal.io/sdk/contrib/tools/workflowcheck@$(@:.bin/workflowcheck-%=%)
	@mv .bin/workflowcheck $@

$(BUF): tools/buf/package.json tools/buf/package-lock.json
	cd tools/buf && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(BROWSER): tools/browser/package.json tools/browser/package-lock.json
	cd tools/browser && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# grpc-gateway's first major version contains google/api and google/rpc. The second one expects them
# from a registry.
$(PROTOS):
	@mkdir -p $(@D)
	@module=$$(go mod download -json github.com/grpc-ecosystem/grpc-gateway@v1.16.0 | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p'); \
	ln -sfn "$$module/third_party/googleapis" $@
