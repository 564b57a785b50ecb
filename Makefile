# "make demo" and "make test" install what they need, saying what.

export PATH := $(PATH):$(HOME)/.cargo/bin
BINARIES := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release
FUZZ := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/fuzz
CARGO_TEST := SUBSTRAT_BIN_DIR=$(BINARIES) SUBSTRAT_BUF=$(CURDIR)/clients/buf cargo test --locked -q

.PHONY: help build demo test lint format generate bench audit install clean

help: ## what there is to make
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

build: ## the two binaries, in target/release
	@.ci/setup build
	cargo build --locked --release -p substrat-server -p substrat-cli

demo: build ## a team reviews this repository, and survives kill -9
	@$(BINARIES)/substratctl demo

test: build ## all tests
	@.ci/setup test
	@clients/buf --version >/dev/null
	$(CARGO_TEST) --workspace
	SUBSTRAT_BIN_DIR=$(BINARIES) clients/test

lint: ## formatting, lints, documentation, schema, freshness of what is generated
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@# Without the fuzzer itself, for which a C++ compiler would be needed.
	CUSTOM_LIBFUZZER_PATH=/dev/null RUSTFLAGS="-D warnings" cargo check --locked --manifest-path server/fuzz/Cargo.toml --target-dir $(FUZZ)
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	clients/buf lint
	clients/buf breaking --against proto/baseline.binpb
	clients/generate --check

format: ## format the code
	cargo fmt --all

generate: ## the clients' stubs, after a change of the schema
	clients/generate

bench: build ## measure, beside raw limits and rivals; also in target/bench/results.json
	cargo build --locked --release -p substrat-tests
	SUBSTRAT_BIN_DIR=$(BINARIES) $(BINARIES)/substrat-bench $(BENCH)

audit: ## licences and advisories of the dependencies
	@command -v cargo-deny >/dev/null || { echo "audit: installing cargo-deny"; cargo install --locked -q cargo-deny; }
	cargo deny --workspace check

install: build ## both binaries, to PREFIX/bin (default: ~/.local)
	install -D -t $(or $(PREFIX),$(HOME)/.local)/bin $(BINARIES)/substratd $(BINARIES)/substratctl

clean: ## remove what was built and installed here
	rm -rf target .cache clients/typescript/node_modules
