# What a developer and CI run. `make help` lists it. Needs Go, git, bash and make; the tools below are built
# by `go install` into .tools/ when a target needs them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

TOOLS := $(CURDIR)/.tools
export PATH := $(TOOLS):$(PATH)

GOLANGCI_VERSION := v2.15.0
GOFUMPT_VERSION := v0.12.0
GOVULNCHECK_VERSION := v1.9.0
NATS_VERSION := v0.5.0
ASSEMBLYSCRIPT_VERSION := 0.28.20

GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION).installed
GOFUMPT := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION).installed
GOVULNCHECK := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION).installed
NATS := $(TOOLS)/nats-$(NATS_VERSION).installed
ASC := $(TOOLS)/assemblyscript-$(ASSEMBLYSCRIPT_VERSION).installed

# Further flags for go test, as in make test TESTFLAGS=-count=1.
TESTFLAGS ?=
# How long make fuzz spends on each decoder, and on what the compiler is given.
FUZZTIME ?= 8s
GUEST_FUZZTIME ?= 60s
# What make explore searches: all, or large.
EXPLORE ?= all

# What make sim runs; a failure names its seed.
SEED ?= 1
SEEDS ?= 2000
MOVES ?= 500

# How long make chaos kills processes, how many megabytes of records it moves meanwhile, and what decides about
# victims and moments; 0 takes a new seed.
CHAOS_TIME ?= 10m
CHAOS_SIZE ?= 2000
CHAOS_SEED ?= 0

# What make check runs after the tests, in this order.
CHECKS := build lint arch race fuzz explore sim chaos-short mutants wasm-check tidy-check vuln-check

##@ Use

demo: ## Count the words of Go's standard library on a cluster, and compare with plain Go
	@mkdir -p bin
	@go build -o bin/ ./examples/demo
	@bin/demo

build: ## Build bin/engine and bin/submit
	@mkdir -p bin
	go build -o bin/ ./cmd/...

##@ Test

test: ## Run all tests
	go test $(TESTFLAGS) ./...

e2e-long: ## Run the acceptance tests at full size: a million records, and longer
	PINION_E2E=long go test -count=1 -timeout 30m $(TESTFLAGS) ./e2e

race: ## Run the short tests under the race detector (needs a C compiler)
	@command -v "$$(go env CC)" >/dev/null || { echo "make race: the race detector needs a C compiler ($$(go env CC)): install gcc or clang" >&2; exit 1; }
	CGO_ENABLED=1 go test -race -short $(TESTFLAGS) ./...

fuzz: ## Fuzz every decoder of outside bytes for FUZZTIME (8s) each, what guests are compiled from for 60s
	@.ci/fuzz $(FUZZTIME) $(GUEST_FUZZTIME)

explore: ## Search the protocol's states breadth first, about two minutes; EXPLORE=large takes hours and gigabytes
	go test -count=1 -timeout 12h -v -run 'TestExploreAll$$|TestExploreWalks$$' ./pmr -explore $(EXPLORE) -explore.walks 10000

sim: ## Run SEEDS (2000) seeds of the simulator from SEED (1) on, and MOVES (500) with moves, against runs without
	go test -count=1 -timeout 60m -v -run 'TestSeeds$$|TestMoves$$|TestReplay$$' ./sim -sim.seed=$(SEED) -sim.seeds=$(SEEDS) -sim.moves=$(MOVES)

chaos: ## Kill one process after the other for CHAOS_TIME (10m) while buckets move, records come and jobs count
	go test -count=1 -timeout 3h -v -run 'TestChaos$$' ./e2e -chaos -chaos.time=$(CHAOS_TIME) -chaos.size=$(CHAOS_SIZE) -chaos.seed=$(CHAOS_SEED)

chaos-short: ## The same with 200 MB of records, for a minute
	@$(MAKE) --no-print-directory chaos CHAOS_TIME=60s CHAOS_SIZE=200

mutants: ## Switch off one mechanism of the protocol after the other: a test must notice each
	go run ./internal/mutants

bench: build ## Measure the engine against what one would use instead, in one run
	@go build -o bin/ ./bench
	@bin/bench

microbench: ## Run the packages' benchmarks
	go test -run '^$$' -bench . -benchmem ./...

##@ Keep in order

arch: ## Check which package imports which
	go test -count=1 ./internal/arch

lint: $(GOLANGCI) ## Look for mistakes, in the guests too
	go vet ./...
	GOOS=wasip1 GOARCH=wasm go vet ./guest ./examples/wasm/...
	$(TOOLS)/golangci-lint run ./...

fmt: $(GOFUMPT) ## Format all Go files
	$(TOOLS)/gofumpt -w $$(go list -f '{{.Dir}}' ./...)
	go mod tidy

schema: ## Write docs/schema, the JSON schemas of the messages
	go run ./internal/schema docs/schema

tidy-check: $(GOFUMPT) ## Check that make fmt would change nothing
	@unformatted="$$($(TOOLS)/gofumpt -l $$(git ls-files --cached --others --exclude-standard --deduplicate '*.go' | while read -r f; do [ ! -e "$$f" ] || echo "$$f"; done))"; \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:" >&2; echo "$$unformatted" >&2; exit 1; fi
	go mod tidy -diff

# Every committed .wasm has its source beside it, the built-in ones in examples/wasm.
define each_wasm
	{ find . -path './.?*' -prune -o -path '*/testdata/*.wat' -print; ls plugins/builtin/*.wasm; } | sort | while read -r name; do \
		case "$$name" in \
		*.wasm) wasm="$$name"; base="$$(basename "$$name" .wasm)"; wat="examples/wasm/$$base/wat/$$base.wat";; \
		*) wat="$$name"; wasm="$${name%.wat}.wasm";; \
		esac; \
		$(1) \
	done
endef

wasm: wat2wasm ## Assemble the committed guests, and build the examples that the toolchains allow into bin/wasm
	@$(call each_wasm, wat2wasm "$$wat" -o "$$wasm"; )
	@examples/wasm/build.sh --all bin/wasm

wasm-check: wat2wasm ## Check that the committed guests are what their sources say
	@dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; \
	$(call each_wasm, \
		wat2wasm "$$wat" -o "$$dir/out.wasm"; \
		cmp "$$dir/out.wasm" "$$wasm" || { echo "$$wasm is not what $$wat says: run make wasm" >&2; exit 1; }; )

wat2wasm:
	@command -v wat2wasm >/dev/null || $(call install_packages,wabt)

# What guests are compiled with, as Debian calls it. Tests skip what is missing, unless PINION_TOOLCHAINS=all.
GUEST_PACKAGES := clang lld wasi-libc libclang-rt-dev-wasm32 rustc libstd-rust-dev-wasm32 wabt

toolchains: $(ASC) ## Install what the guests of all languages are compiled with (Debian packages; AssemblyScript into .tools/)
	@missing=""; for p in $(GUEST_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	[ -z "$$missing" ] || $(call install_packages,$$missing)

$(ASC):
	@command -v npm >/dev/null || $(call install_packages,nodejs npm)
	npm install --no-save --no-audit --no-fund --silent --prefix $(TOOLS)/assemblyscript assemblyscript@$(ASSEMBLYSCRIPT_VERSION)
	ln -sf assemblyscript/node_modules/.bin/asc $(TOOLS)/asc
	@touch $@

# install_packages installs packages where this is root's Debian, and else says what to install.
install_packages = { \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1); \
	else \
		echo "install first, under the names that your system has for them:" $(1) >&2; exit 1; \
	fi; }

vuln: $(GOVULNCHECK) ## Look for known vulnerabilities in what is used (asks a database on the network)
	$(TOOLS)/govulncheck ./...

# As vuln, but only a vulnerability is a failure, not a database that cannot be reached.
vuln-check: $(GOVULNCHECK)
	@out="$$($(TOOLS)/govulncheck ./... 2>&1)" && { echo "$$out"; exit; }; \
	if grep -q 'fetching vulnerabilities' <<<"$$out"; then \
		echo "vuln: SKIPPED, the vulnerability database cannot be reached"; \
	else \
		echo "$$out"; exit 1; \
	fi

check: ## Run all that CI runs
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory check-rest

check-rest: ## The same without make test
	@failed=; \
	for target in $(CHECKS); do \
		echo "== make $$target"; begin=$$SECONDS; \
		$(MAKE) --no-print-directory $$target || failed="$$failed $$target"; \
		echo "== make $$target: $$((SECONDS - begin)) s"; \
	done; \
	if [ -n "$$failed" ]; then echo "make check: failed:$$failed" >&2; exit 1; fi; \
	echo "make check: all good"

##@ The rest

tools: $(GOLANGCI) $(GOFUMPT) $(GOVULNCHECK) $(NATS) ## Build the tools into .tools/

$(GOLANGCI):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@touch $@

$(GOFUMPT):
	GOBIN=$(TOOLS) go install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	@touch $@

$(GOVULNCHECK):
	GOBIN=$(TOOLS) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	@touch $@

$(NATS):
	GOBIN=$(TOOLS) go install github.com/nats-io/natscli/nats@$(NATS_VERSION)
	@touch $@

clean: ## Remove what was built, and the tools
	rm -rf bin .tools

help: ## This list
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo build test e2e-long race fuzz explore sim chaos chaos-short mutants bench microbench arch lint fmt schema tidy-check wasm wasm-check wat2wasm toolchains vuln vuln-check check check-rest tools clean help
