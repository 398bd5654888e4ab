# SPDX-License-Identifier: Apache-2.0
# Thin names over cargo and scripts. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cinder-csi
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
MDBOOK_VERSION := 0.5.4
MDBOOK := $(CACHE)/mdbook-$(MDBOOK_VERSION)/bin/mdbook
SITE := $(or $(CARGO_TARGET_DIR),target)/site
RELEASE_CRANE := $(or $(CARGO_TARGET_DIR),target)/release-tools/crane

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the product for this machine (needs cargo and a C compiler)
	$(CARGO) build --locked

.PHONY: check
check: ## The quick tests: cargo alone, no root, no Go
	$(CARGO) test --locked

.PHONY: test
test: test-prepare ## All tests: real devices, csi-sanity, the Go driver, real OpenStack, a small machine, the cluster (root)
	tests/run

.PHONY: fuzz
fuzz: ## Fuzz the parsers under libFuzzer, 5 minutes for each target (FUZZ='60 clouds-yaml' picks)
	tests/fuzz/run $(FUZZ)

.PHONY: simulate
simulate: ## Random faults in simulated time: a million steps, or ARGS='--seed 7 --trace'
	$(CARGO) run --locked --release -p simulate -- $(ARGS)

.PHONY: test-vm
test-vm: ## The node service in a small machine: virtio, SCSI and NVMe, config drive, online growth of ext4 (root)
	$(CARGO) build --locked -p cinder-csi-driver --bins
	kernel=$$(tests/vm/prepare); VM_KERNEL=$$kernel $(CARGO) test --locked -p suites --test vm -- --ignored

.PHONY: sanity
sanity: prepare ## csi-sanity, every combination, and the Go driver: on the simulator and on real OpenStack (root)
	$(CARGO) build --locked -p cinder-csi-driver -p openstack-sim
	tests/openstack/cloud up >/dev/null
	trap 'tests/openstack/cloud down' EXIT; $(CARGO) test --locked -p suites --test sanity --test go_driver -- --include-ignored

.PHONY: e2e
e2e: prepare ## The product on two servers of real OpenStack, every scenario (root; E2E='zones backup' picks)
	$(CARGO) build --locked --workspace --bins
	tests/openstack/cloud up >/dev/null
	trap 'tests/openstack/cloud down' EXIT; \
	E2E_SCENARIOS=all HARNESS_PROFILE=$(or $(HARNESS_PROFILE),dev) $(CARGO) test --locked -p suites --test e2e -- $(E2E)

.PHONY: e2e-kubernetes
e2e-kubernetes: prepare ## Kubernetes' own tests of storage drivers (External Storage) with ours or the Go driver (root; ARGS='--driver both' picks)
	HARNESS_PROFILE=$(or $(HARNESS_PROFILE),dev) $(CARGO) run --locked --quiet -p suites --bin kubernetes-e2e -- $(ARGS)

.PHONY: takeover
takeover: prepare ## From the Go driver, by its own manifests and chart, to ours and back, under writing pods (root)
	HARNESS_PROFILE=$(or $(HARNESS_PROFILE),dev) $(CARGO) test --locked -p suites --test takeover

.PHONY: matrix
matrix: prepare ## The product on each version of Kubernetes and OpenStack that is built here, into docs/compatibility.md (root; MATRIX='1.30 1.36@2024.1' picks)
	tests/matrix/run $(MATRIX)

.PHONY: bench
bench: prepare ## Our driver beside the Go driver, our operator in a large cluster: calls, time, memory (root; BENCH='--subject claims' picks)
	$(CARGO) run --locked --quiet --release -p bench -- $(BENCH)

.PHONY: openstack-up
openstack-up: ## Real Keystone, Cinder, Nova and Placement on loopback (root); prints where they are described
	tests/tools/apt
	tests/openstack/cloud up

.PHONY: openstack-down
openstack-down: ## End them, with all their processes, loop devices and files
	tests/openstack/cloud down

.PHONY: demo
demo: ## One volume's life on a cluster of real parts (root; KEEP=1 leaves it up, KUBERNETES=1.30 picks a version)
	@tests/demo $(if $(KEEP),--keep)

.PHONY: packages
packages:
	@tests/tools/apt

.PHONY: prepare
prepare: packages ## Install what the tests need: Debian packages, Rust target, Go-built peers
	@tests/tools/prepare tools

.PHONY: test-prepare
test-prepare: packages ## Fetch and build all that `make test` needs, and run none of it (root)
	@tests/tools/prepare test

.PHONY: clean-room
clean-room: ## README.md's commands on a Debian without anything else (root; KEEP=1 leaves its files; ROOM="'tests/tools/apt'" picks)
	@tests/clean-room/room $(ROOM)

.PHONY: lint
lint: fmt-check clippy doc-check deny generate-check lines-check edges-check words-check idiom-check faults-check version-check forge-check publish-check workflows-check spdx-check advisories-check releases-check compatibility-check site ## Formatting, lints, licences, generated files, edges between modules, words, workflows

.PHONY: fmt-check
fmt-check:
	$(CARGO) fmt --all --check

.PHONY: clippy
clippy:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@# Not among all targets, because `make test` does not run it.
	$(CARGO) clippy --locked --workspace --test takeover --test matrix -- -D warnings

.PHONY: doc-check
doc-check:
	@# Public items may link to private ones, because these pages show both.
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' $(CARGO) doc --locked --workspace --no-deps --document-private-items --keep-going

.PHONY: deny
deny: $(DENY)
	$(DENY) --locked check --deny unmatched-skip --deny unnecessary-skip bans licenses sources

.PHONY: advisories
advisories: $(DENY) ## Check crates, Debian packages, sidecars and Go tools against advisory databases (needs network)
	@# The second runs whatever the first finds.
	status=0; tests/tools/advisories || status=1; \
	$(DENY) --locked check --deny advisory-not-detected advisories || status=1; exit $$status

.PHONY: releases
releases: ## Compare the operator's table of sidecars and the pinned Kubernetes with the newest releases (needs network)
	tests/tools/releases

.PHONY: releases-check
releases-check:
	tests/tools/releases --self-test

.PHONY: advisories-check
advisories-check:
	tests/tools/advisories --self-test

$(DENY):
	@echo "cargo-deny $(DENY_VERSION): building once into $(CACHE)"
	$(CARGO) install --locked --quiet cargo-deny --version $(DENY_VERSION) --root $(CACHE)/cargo-deny-$(DENY_VERSION)

.PHONY: generate
generate: ## Write the files that are made from code and values: the CRD, docs/reference, examples of pages, alerts of the operator, chart
	$(CARGO) run --locked --quiet -p xtask
	UPDATE_REFERENCE=1 $(CARGO) test --locked --quiet -p cinder-csi-driver --lib page_of_codes_matches_table
	tests/tools/chart

# A test of the driver checks the page of gRPC codes.
.PHONY: generate-check
generate-check:
	$(CARGO) run --locked --quiet -p xtask -- --check
	tests/tools/chart --self-test
	tests/tools/chart --check

.PHONY: site
site: $(MDBOOK) ## Build the site of docs/ into target/site, and check its links, its search and README.md's
	@tests/tools/site --self-test
	tests/tools/site build $(MDBOOK) $(SITE)

# Tables and text alone: without its server and its watch for changes, and hardly optimised, because the whole site takes a second.
$(MDBOOK):
	@echo "mdbook $(MDBOOK_VERSION): building once into $(CACHE)" >&2
	env -u CARGO_TARGET_DIR CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 \
	  $(CARGO) install --locked mdbook --version $(MDBOOK_VERSION) --no-default-features --features search \
	  --root $(CACHE)/mdbook-$(MDBOOK_VERSION)

.PHONY: site-tools
site-tools: $(MDBOOK)

.PHONY: lines-check
lines-check:
	tests/tools/lines --self-test

# The faults that the simulation has to find are put in by patches; tests/simulate/catch runs them.
.PHONY: faults-check
faults-check:
	git apply --check tests/simulate/faults/*.patch

# Scripts that check the repository, and themselves first.
SELF_TESTED := edges-check words-check idiom-check version-check forge-check spdx-check compatibility-check
.PHONY: $(SELF_TESTED)
$(SELF_TESTED): %-check:
	tests/tools/$* --self-test
	tests/tools/$*

.PHONY: release
release: ## Images for amd64 and arm64, chart, install.yaml and plugin of this commit, in target/release-VERSION (root; RELEASE='--arch amd64' picks)
	tests/tools/apt release
	config/release/release $(RELEASE)
	@# What publishes it compiles nothing.
	program=$$(tests/tools/build registry); install -D "$${program#crane }" $(RELEASE_CRANE)

.PHONY: publish
publish: ## Push images and chart of target/release-VERSION to a registry (REGISTRY=registry.example.org/path; `crane auth login` first)
	CRANE=$(RELEASE_CRANE) config/release/publish $(or $(CARGO_TARGET_DIR),target)/release-$(VERSION) $(REGISTRY)

.PHONY: test-arm64
test-arm64: ## Unit tests of the node's pure parts, built for arm64, in an emulator (root)
	tests/tools/apt release
	rustup target add aarch64-unknown-linux-musl
	CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER=qemu-aarch64-static \
	$(CARGO) test --locked --target aarch64-unknown-linux-musl -p csi-host --lib

.PHONY: workflows-check
workflows-check:
	@# Without the programs that it would call if the machine had them.
	program=$$(tests/tools/build actionlint); "$${program#actionlint }" -no-color -shellcheck= -pyflakes=

.PHONY: publish-check
publish-check:
	program=$$(tests/tools/build registry); CRANE="$${program#crane }" config/release/publish --self-test

.PHONY: release-tag
release-tag: ## Check that TAG is the version, and that CHANGELOG.md has its section with a date
	tests/tools/version --tag "$$TAG"

.PHONY: release-login
release-login: ## Log in to the registry of the releases (FORGE_USER, FORGE_TOKEN)
	@# An artefact of a workflow has no modes.
	chmod +x $(RELEASE_CRANE)
	@printf %s "$$FORGE_TOKEN" | $(RELEASE_CRANE) auth login ghcr.io --username "$$FORGE_USER" --password-stdin

.PHONY: release-sign
release-sign: ## Sign the pushed image or chart NAME as this workflow (cosign; COSIGN=/path names another program)
	config/release/publish --sign "$$NAME" $(or $(CARGO_TARGET_DIR),target)/release-$(VERSION)

.PHONY: release-publish
release-publish: ## Attach the files of `make release` to the forge's release of TAG (FORGE_TOKEN)
	config/release/publish --forge $(or $(CARGO_TARGET_DIR),target)/release-$(VERSION)

