# Two commands do everything on a fresh machine: `make run` and `make test`.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
# rustup's programs are not in the PATH of the shell that installed them.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
CARGO ?= cargo
# Nothing here acts on the repository of a hook that calls make.
unexport $(filter GIT_%,$(.VARIABLES))
# Installs what is missing, or says what to install.
NEED := bash setup/need.sh

.PHONY: build clients conformance container-try deb deb-try dist dist-try fresh gitea http-front install monitoring nfs openapi packages recorded run states troubles test lint doc book deny fuzz bench bench-smoke slow webhooks help

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

run: ## build, mirror a sample, serve it, say what to try (WEIR_SAMPLE_PORT=9418, WEIR_SAMPLE=FOLDER)
	@$(NEED) rust run
	@bash setup/sample.sh check
	$(CARGO) build --release -p weir
	@bash setup/sample.sh

packages: ## install what tests use, where it is missing (make run installs what it needs itself)
	@$(NEED) rust run test

test: packages ## all tests but the slow ones; tells what was skipped (WEIR_TEST_REQUIRE=all lets nothing be skipped)
	@bash setup/count-skips.sh $(CARGO) test --workspace

# The commit that 'weir --version' names.
COMMIT = $(shell git describe --always --abbrev=12 --dirty 2>/dev/null)

build: ## build weir: target/release/weir
	@$(NEED) rust
	WEIR_COMMIT="$(COMMIT)" $(CARGO) build --release -p weir

install: ## install what was built, its manual pages, completions and systemd unit (PREFIX=/usr/local, DESTDIR=)
	@bash setup/install.sh

dist: ## build what is given away: target/weir-dist with a tar, debug symbols, an SBOM (CycloneDX) and checksums
	@$(NEED) rust dist
	WEIR_COMMIT="$(COMMIT)" bash packaging/dist.sh

dist-try: dist ## build it again in another folder: are the files the same, byte for byte?
	bash packaging/dist-again.sh

container-try: deb ## build the image of packaging/Containerfile without a registry, start it, clone from it (as root)
	@$(NEED) container
	bash packaging/container-try.sh

deb: build ## make a Debian package: target/weir_VERSION_ARCHITECTURE.deb
	@$(NEED) deb
	bash packaging/deb.sh

deb-try: build ## install that package in a bare Debian, serve, upgrade under load, purge (as root; RELEASE=bookworm)
	@$(NEED) deb fresh
	bash packaging/try.sh $(or $(RELEASE),bookworm)

fresh: ## both commands in bare Debians, as root and as an ordinary user, without a network (FRESH=bookworm trixie)
	@$(NEED) fresh
	bash setup/fresh.sh $(or $(FRESH),bookworm trixie)

conformance: packages ## git's own test suite against weir; writes docs/conformance.md
	@$(NEED) conformance
	$(CARGO) build -p weir
	python3 conformance/run.py

clients: packages ## other people's clients, proxies and package managers in front of weir, and their servers as its upstreams; installs them
	@$(NEED) clients python
	$(CARGO) build -p weir
	python3 conformance/clients/run.py
	python3 conformance/upstreams/run.py

gitea: packages ## a real Gitea with 500 repositories, crawled and mirrored through changes, and told of pushes by webhooks; builds it
	@$(NEED) go
	$(CARGO) build -p weir
	python3 conformance/gitea.py

recorded: packages ## answers that real forges once gave, crawled by weir; fetches them from PyPI
	@$(NEED) python
	$(CARGO) build -p weir
	python3 conformance/recorded.py

openapi: packages ## the API held against its description by schemathesis, which is fetched
	@$(NEED) python
	$(CARGO) build -p weir
	python3 conformance/openapi.py

http-front: packages ## HTTP/2 by h2spec, and a thousand slow clients by slowhttptest; builds and installs them
	@$(NEED) go http-front
	$(CARGO) build -p weir
	python3 conformance/http_front.py

monitoring: packages ## the dashboard and the alerts, checked by Prometheus' promtool and Grafana's types; fetches both
	@$(NEED) python go monitoring
	$(CARGO) build -p weir
	python3 conformance/monitoring.py

webhooks: packages ## bodies that real forges once sent to webhooks, posted to weir; fetches them from npm and PyPI
	@$(NEED) python npm
	$(CARGO) build -p weir
	python3 conformance/recorded_webhooks.py

states: packages ## random states of clients, served by weir and by git side by side (WEIR_STATES=1000)
	$(CARGO) build --release -p weir
	WEIR=target/release/weir python3 conformance/states.py

troubles: packages ## lists and a GitHub with trouble in them, mirrored and crawled over SQLite and PostgreSQL
	$(CARGO) build --release -p weir
	WEIR=target/release/weir python3 conformance/troubles.py

nfs: packages ## two hosts that share a pool on a real NFS, in an emulated machine, through kills and cut networks (NFS_ROUNDS=20)
	@$(NEED) nfs
	$(CARGO) build --release -p weir
	WEIR=target/release/weir python3 conformance/nfs.py $(or $(NFS_ROUNDS),20)

slow: packages ## tests that take long or much disk
	@bash setup/count-skips.sh $(CARGO) test --workspace --release -- --ignored

lint: ## format, clippy with warnings denied, and the rules of the house
	@$(NEED) rust
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace --test house

doc: ## API documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

book: ## the user's book, into target/book
	@bash setup/rust-tool.sh mdbook 0.5.4 --no-default-features --features search
	PATH="$(CURDIR)/target/checkers/bin:$$PATH" mdbook build docs/book --dest-dir "$(CURDIR)/target/book"

deny: ## licences, sources and advisories of dependencies; advisories only where their database can be reached
	@bash setup/rust-tool.sh cargo-deny 0.20.2
	@export PATH="$(CURDIR)/target/checkers/bin:$$PATH"; $(CARGO) deny --workspace check licenses bans sources; \
	if timeout 20 git ls-remote -q https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; \
	then $(CARGO) deny --workspace check advisories; \
	else echo "the database of advisories cannot be reached: advisories were not checked"; fi

fuzz: ## run each fuzzer for FUZZ_SECONDS (30), on the stable toolchain
	bash fuzz/run.sh $(or $(FUZZ_SECONDS),30)

# The plots of the book. They show docs/benchmarks.md; bench-smoke draws them again, so that they stay what it says.
PLOTS = python3 bench/plots.py docs/benchmarks.md docs/book/src/pictures serving mirroring-one-large-repository

bench: packages ## side-by-side benchmarks; prints the tables of docs/benchmarks.md, and draws them into target/plots
	@$(NEED) python bench
	$(CARGO) build --release -p weir -p weir-bench
	bash bench/all.sh | tee target/benchmarks.md
	python3 bench/plots.py target/benchmarks.md target/plots

bench-smoke: packages ## the same on a small repository: that they run, not how fast
	@$(NEED) python bench
	$(CARGO) build -p weir -p weir-bench
	WEIR_BENCH_SMOKE=1 WEIR_BENCH_PROFILE=debug bash bench/all.sh
	$(PLOTS)
