# Two commands do everything on a fresh machine: `make run` and `make test`.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
# System packages by the distribution's name: what the tests and benchmarks run weir against.
PACKAGES := build-essential git git-lfs libarchive-tools busybox-static python3 nginx fcgiwrap openssl apache2-utils postgresql sqlite3 cgit gitweb libcgi-pm-perl

.PHONY: clients conformance gitea nfs recorded states troubles run test lint doc book deny fuzz bench bench-smoke packages slow help

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

packages: ## install the system packages that are missing
	@missing=$$(for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  sudo=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
	  $$sudo apt-get update -qq; DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

run: packages ## build, mirror a sample, serve it, say what to try
	$(CARGO) build --release -p weir
	bash bench/run-sample.sh

test: packages ## all tests but the slow ones
	$(CARGO) test --workspace

conformance: packages ## git's own test suite against weir; writes docs/conformance.md
	$(CARGO) build -p weir
	$(MAKE) --no-print-directory packages PACKAGES="zlib1g-dev dpkg-dev perl xz-utils libcurl4-openssl-dev apache2"
	python3 conformance/run.py

clients: packages ## other people's clients, proxies and package managers in front of weir, and their servers as its upstreams; installs them
	$(CARGO) build -p weir
	@command -v go >/dev/null || $(MAKE) --no-print-directory packages PACKAGES=golang
	@command -v mvn >/dev/null || $(MAKE) --no-print-directory packages PACKAGES="maven default-jdk-headless"
	@command -v npm >/dev/null || $(MAKE) --no-print-directory packages PACKAGES="nodejs npm"
	$(MAKE) --no-print-directory packages PACKAGES="python3-venv apache2 haproxy openssh-server openssh-client debootstrap debian-archive-keyring"
	python3 conformance/clients/run.py
	python3 conformance/upstreams/run.py

gitea: packages ## a real Gitea with 500 repositories, crawled and mirrored through changes; builds it
	$(CARGO) build -p weir
	@command -v go >/dev/null || $(MAKE) --no-print-directory packages PACKAGES=golang
	python3 conformance/gitea.py

recorded: packages ## answers that real forges once gave, crawled by weir; fetches them from PyPI
	$(CARGO) build -p weir
	python3 conformance/recorded.py

states: packages ## random states of clients, served by weir and by git side by side (WEIR_STATES=1000)
	$(CARGO) build --release -p weir
	WEIR=target/release/weir python3 conformance/states.py

troubles: packages ## lists and a GitHub with trouble in them, mirrored and crawled over SQLite and PostgreSQL
	$(CARGO) build --release -p weir
	WEIR=target/release/weir python3 conformance/troubles.py

nfs: packages ## two hosts that share a pool on a real NFS, in an emulated machine, through kills and cut networks (NFS_ROUNDS=20)
	$(CARGO) build --release -p weir
	$(MAKE) --no-print-directory packages PACKAGES="qemu-system-x86 nfs-kernel-server kmod cpio iproute2 util-linux"
	WEIR=target/release/weir python3 conformance/nfs.py $(or $(NFS_ROUNDS),20)

slow: packages ## tests that take long or much disk
	$(CARGO) test --workspace --release -- --ignored

lint: ## format, clippy with warnings denied, and the rules of the house; the fuzzers too, which are a workspace of their own
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir target --all-targets -- -D warnings
	$(CARGO) test -p weir --test house

doc: ## API documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

book: ## the user's book, into target/book
	@command -v mdbook >/dev/null || test -x target/tools/bin/mdbook || \
		$(CARGO) install --locked --quiet mdbook --version 0.5.4 --no-default-features --root target/tools
	PATH="$(CURDIR)/target/tools/bin:$$PATH" mdbook build docs/book --dest-dir $(CURDIR)/target/book

deny: ## licences and advisories of dependencies
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked --quiet cargo-deny --version 0.20.2
	$(CARGO) deny --workspace check licenses bans sources

fuzz: ## run each fuzzer for FUZZ_SECONDS (30), on the stable toolchain
	bash fuzz/run.sh $(or $(FUZZ_SECONDS),30)

bench: packages ## side-by-side benchmarks; prints the tables of docs/benchmarks.md
	$(CARGO) build --release -p weir -p weir-bench
	bash bench/all.sh

bench-smoke: packages ## the same on a small repository: that they run, not how fast
	$(CARGO) build --release -p weir -p weir-bench
	WEIR_BENCH_SMOKE=1 bash bench/all.sh
