# hearsay: `make demo` runs a whole cluster here, `make test` tests it.
GO      ?= go
BIN     := bin/hearsay
GOFILES  = $(shell git ls-files '*.go')
FUZZTIME ?= 10s

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: build
build: ## build bin/hearsay, which is static
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/hearsay

.PHONY: demo
demo: ## 3 routers, 4 simulated engines and generated chats on this machine; Ctrl-C ends it (the first build takes a minute or two)
	@test -x $(BIN) || echo "building $(BIN): the first time takes a minute or two"
	@$(MAKE) --no-print-directory build
	$(BIN) demo --traffic

.PHONY: test
test: ## unit, property, fake-clock and end-to-end tests (about 3 minutes on 2 cores)
	$(GO) test ./...

.PHONY: race
race: ## the same under the race detector
	@GO="$(GO)" ./test/race.sh

.PHONY: fmt
fmt: ## format the code
	$(GO) tool gofumpt -w $(GOFILES)

.PHONY: lint
lint: ## formatting, vet and staticcheck
	@out=$$($(GO) tool gofumpt -l $(GOFILES)); if [ -n "$$out" ]; then echo "not formatted (run make fmt):"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (default 10s) each
	@./test/fuzz.sh $(FUZZTIME)

.PHONY: bench-smoke
bench-smoke: ## every Go benchmark once, so that none rots
	$(GO) test -run '^$$' -bench . -benchtime 1x ./... | grep -vE '^(ok|PASS|\?|goos|goarch|pkg|cpu)' || true

.PHONY: check
check: lint race fuzz-short build ## what CI runs (some 16 minutes on 2 cores)
	$(GO) mod verify
	$(GO) test -count=1 -run TestChaos ./test/e2e -chaos 1m

.PHONY: fuzz-short
fuzz-short:
	@./test/fuzz.sh 2s

.PHONY: e2e
e2e: ## real processes over loopback: official client, disconnects, kills, scaling
	$(GO) test -count=1 -v ./test/e2e

.PHONY: e2e-clients
e2e-clients: build ## the openai libraries for Python and Node, and curl, and Anthropic's for Python, Node and Go, through routers; installs them below bin/clients
	$(GO) run ./test/clients -bin $(BIN)

.PHONY: e2e-engines
e2e-engines: build ## real llama.cpp and vLLM on this machine's CPU behind routers; installs some 8 GB below bin/engines (some 20 minutes on 2 idle cores, an hour beside other work)
	$(GO) run ./test/engines -bin $(BIN)

.PHONY: e2e-kube
e2e-kube: build ## routers with a real Kubernetes control plane in a network of its own; builds it below bin/kube (some 10 minutes of CPU once, then two minutes); Linux, as root or with user namespaces
	$(GO) run ./test/kube -bin $(BIN)

.PHONY: chaos
chaos: ## 10 minutes of engines that reset, stall, restart, die and refuse, and clients that vanish or do not read
	$(GO) test -count=1 -v -timeout 20m -run TestChaos ./test/e2e -chaos 10m

.PHONY: chaos-net
chaos-net: build ## 5 routers and 4 engines, each in a network namespace: partitions, loss, delay, kills, a rolling restart; needs Linux and root (some 10 minutes; CHAOS="-only loss" runs a part)
	$(GO) build -trimpath -o bin/chaosnet ./test/chaosnet
	bin/chaosnet -bin $(BIN) $(CHAOS)

.PHONY: sim
sim: ## whole clusters in simulated time: faults, then scale: figures in test/bench/out, plots in docs/img (some 25 minutes; SIM="-cells m1-agents" runs a part)
	$(GO) test -count=1 ./test/scenario
	$(GO) test -count=1 -v -timeout 1h -run TestLearnersComeAndGo ./test/scenario -churn-sizes 20,50,100 -churn-for 3m
	$(GO) test -c -o bin/sim.test ./test/bench/sim
	bin/sim.test -test.timeout 0 -test.run 'TestSim$$' $(or $(SIM),-cells all) -out test/bench/out -images docs/img

.PHONY: sim-policies
sim-policies: ## every policy on the same workloads in simulated time, their knees, hot prefixes, slow replicas, bands and tenants (an hour or more; SIM="-cells learn -seeds 1" runs a part)
	$(GO) test -c -o bin/sim.test ./test/bench/sim
	bin/sim.test -test.timeout 0 -test.run 'TestSim$$' $(or $(SIM),-cells knee,policies,llmd,hot,k05,k07,k12,learn,mixed) -keep -out test/bench/out -images docs/img

.PHONY: sim-scale
sim-scale: ## the scaling loop beside an HPA-like and a KPA-like rule, each swept, and an oracle, in simulated time: 14 days of ServeGen, steps, spikes, faults (minutes; SCALE="-workloads step" runs a part)
	$(GO) run ./test/bench/scale $(or $(SCALE),-variants 'headroom=8;fade=0.5;fade=6;rush=0;regrow=9' -images docs/img)

.PHONY: bench
bench: ## Go benchmarks of the parts on the request path (minutes)
	$(GO) test -run '^$$' -bench . -benchmem ./state/... ./routing/... ./proxy/...

.PHONY: replay-mooncake
replay-mooncake: build ## 3 routers, 8 engines, the Mooncake conversation trace, by policy and rate (about an hour; see docs/benchmarks.md)
	$(GO) run ./test/bench/mooncake -bin $(BIN)

.PHONY: bench-rivals
bench-rivals: ## our prefix index beside a radix tree and a map of block hashes: speed, memory, bytes, errors (minutes)
	$(GO) run ./test/bench/rivals

.PHONY: bench-memory
bench-memory: build ## a router's memory: idle, per stream, per sketch entry, over a million unique prompts (some 20 minutes)
	$(GO) run ./test/bench/memory -bin $(BIN)

.PHONY: bench-overhead
bench-overhead: build ## CPU and latency of a router beside nginx, HAProxy (installed from Debian if missing), net/http's ReverseProxy and a bare proxy on fasthttp (some 6 minutes)
	$(GO) run ./test/bench/overhead -bin $(BIN) -install

.PHONY: bench-k01
bench-k01: build ## hit rate by number of routers, restarts and joins on a shared-prefix workload (about an hour; go run ./test/bench/k01 -quick: 3 minutes)
	$(GO) run ./test/bench/k01 -bin $(BIN)

.PHONY: cover
cover: ## test coverage per function
	$(GO) test -coverprofile cover.out ./... && $(GO) tool cover -func cover.out | tail -40

.PHONY: vuln
vuln: ## known vulnerabilities in what is linked in
	$(GO) tool govulncheck ./...
