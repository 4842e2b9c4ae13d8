# make demo   what it does, live, on this machine
# make test   what every change has to pass, after installing what the tests need
# make lanes  what takes longer: all seeds and crash points, the VM, long waits for a takeover, the operator as pods that
#             are updated, moved and killed. ENO_UPGRADE_FROM=COMMIT is the version that the update starts from
# make bench  how fast it is
# make image  the container images of the operator and of NATS, without a container daemon: target/image
# make chart  the Helm chart: target/eno-VERSION.tgz
# make reproducible  builds the images of the last commit twice, in two folders, and compares their bytes
# make console  the files of the pages of `eno ui`, which `eno` carries: console/dist
# make crds   writes what deploy/ has of kinds and parts, deploy/rendered, schemas/v1 and the references of kinds and commands
# make deny   licences, advisories, sources and duplicates of dependencies, if cargo-deny is installed

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := demo

CARGO ?= cargo
ARGS ?=
# Programs and the packages that they come from, which are installed only where the program is missing.
NEEDED := cc:gcc ld:binutils setpriv:util-linux ip:iproute2 openssl:openssl curl:curl jq:jq
# For the tests, besides: the images of tests contain busybox, and skopeo and umoci look at them. Prometheus scrapes ENO.
# A browser opens the pages of `eno ui`, which node and npm build. Some packages of node contain npm.
NEEDED_FOR_TESTS := skopeo:skopeo umoci:umoci busybox:busybox-static prometheus:prometheus promtool:prometheus \
  node:nodejs npm:npm chromium:chromium
# Modules of Debian's Python, with the packages that they come from.
NEEDED_MODULES :=
# Debian's OpenStack, which the driver neutron is tested with besides the current one.
NEEDED_MODULES_FOR_LANES := neutron:python3-neutron keystone:python3-keystone waitress:python3-waitress
# As root, besides: for nodes in a sandbox, for BGP of simulated switches, for looking at what the tests made, and for the VM with another kernel.
NEEDED_AS_ROOT := containerd:containerd runc:runc ovs-vswitchd:openvswitch-switch busybox:busybox-static vtysh:frr \
  ethtool:ethtool ping:iputils-ping nft:nftables iptables-save:iptables qemu-system-x86_64:qemu-system-x86

.PHONY: demo test lanes bench image chart reproducible programs console crds deny supply fmt lint build tests parts deps
.SILENT: deps deny supply programs image reproducible

demo: deps build
	target/debug/eno demo $(ARGS)

# Property tests try the same cases in each run of all tests; others with: make test PROPTEST_RNG_SEED=$RANDOM
export PROPTEST_RNG_SEED ?= 1

TEST := $(CARGO) test --workspace --locked --no-fail-fast
# Many tests wait for others most of the time.
THREADS ?= 4
# Tests that are ignored need root.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] && echo --include-ignored)

# Modules called `lanes` hold what `make lanes` runs.
test: export PROPTEST_CASES ?= 256
test: NEEDED += $(NEEDED_FOR_TESTS)
test: deps lint supply parts
	$(TEST) -- --test-threads $(THREADS) --skip lanes:: $(AS_ROOT)
	echo "Tests in lanes were not run. To run them: make lanes"
	$(if $(AS_ROOT),,echo "Tests that need root were not run. To run them: sudo -E make test")

# It bounds the memory of the process, of which code that is not optimised takes some MB more.
OPTIMISED := --config profile.dev.package.eno-driver-netconf.opt-level=1

# The crash tests at every point, and the modules called `lanes`; properties and histories with all their cases.
LANES := properties transaction_scale large_answers scale crash_at_api crash_at_nats crash_at_netconf mutants ha soak nats callbacks \
  openstack vm book ui toy metallb in_cluster
# One lane, or several: make lanes LANE="ha vm"
LANE ?= $(LANES)
$(foreach lane,$(filter-out $(LANES),$(LANE)),$(error $(lane) is none of the lanes: $(LANES)))
RUN_properties := $(TEST) --test tests -- properties:: histories:: seeded:: agent::killed:: --include-ignored
RUN_transaction_scale := $(TEST) --test transaction_scale $(OPTIMISED)
RUN_large_answers := $(TEST) --test tests -- large_answers::lanes:: --include-ignored
RUN_scale := ENO_VLANS=200 $(TEST) --test scale
RUN_crash := ENO_CRASH_PLACE=@ $(TEST) --test tests -- lanes::crash --include-ignored
$(foreach place,api nats netconf,$(eval RUN_crash_at_$(place) := $(subst @,$(place),$(RUN_crash))))
# More than half of the runs: all take 35 minutes.
RUN_crash_at_nats := ENO_CRASH_ALL=$${ENO_CRASH_ALL_AT_NATS:-125} $(RUN_crash_at_nats)
RUN_mutants := { $(TEST) --test tests -- mutants::lanes:: && $(subst @,mutants,$(RUN_crash)); }
$(foreach lane,ha soak book ui toy metallb,$(eval RUN_$(lane) := $(TEST) --test tests -- lanes::$(lane):: --include-ignored))
RUN_nats := $(TEST) --test tests -- nats::lanes:: --include-ignored
RUN_callbacks := $(TEST) --lib -- callbacks::tests::lanes:: --include-ignored
RUN_openstack := $(TEST) --test tests -- cloud::lanes:: openstack::lanes:: --include-ignored
RUN_vm := $(TEST) --test tests -- vm_lanes:: --include-ignored
RUN_in_cluster := $(TEST) --test tests -- lanes::in_cluster:: --include-ignored --nocapture --test-threads 1

lanes: export PROPTEST_CASES ?= 2500
lanes: export ENO_SEEDS ?= 6000
lanes: export ENO_CRASH_ALL = 1
lanes: NEEDED += $(NEEDED_FOR_TESTS)
lanes: NEEDED_MODULES += $(NEEDED_MODULES_FOR_LANES)
lanes: deps parts
	$(if $(AS_ROOT),,echo "Most lanes need root: sudo -E make lanes"; exit 1)
	$(if $(filter in_cluster,$(LANE)),$(MAKE) image)
	failed=(); \
	$(foreach lane,$(LANE),$(RUN_$(lane)) || failed+=($(lane));) \
	if [ $${#failed[@]} -gt 0 ]; then echo "failed: $${failed[*]}"; exit 1; fi

# The packages of the programs in the image, which the parts name.
PROGRAMS := $(shell sed -n 's/^program = { package = "\([^"]*\)".*/-p \1/p' */part.toml */*/part.toml */*/*/part.toml)

bench: deps
	$(CARGO) build --release --locked $(PROGRAMS) -p eno-lab -p eno-control-plane
	target/release/eno bench $(ARGS)

# The architecture of the images: amd64 or arm64.
ARCH ?= amd64
ifeq ($(ARCH),arm64)
MUSL := aarch64-unknown-linux-musl
NEEDED_FOR_IMAGE := aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-ar:binutils-aarch64-linux-gnu
programs: export CC_aarch64_unknown_linux_musl = aarch64-linux-gnu-gcc
programs: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER = aarch64-linux-gnu-gcc
else
MUSL := x86_64-unknown-linux-musl
NEEDED_FOR_IMAGE := musl-gcc:musl-tools
programs: export CC_x86_64_unknown_linux_musl = musl-gcc
endif
# In a checkout the commit is known; elsewhere, as in deploy/images/Containerfile, it is given.
# It is read once: a commit may come while the programs are built.
ifndef COMMIT
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)$(shell git diff --quiet HEAD 2>/dev/null || echo -modified)
endif
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
TAG ?= dev
# The names under which `eno install` finds the images, if they are given: ENO_IMAGE=registry.example.com/eno:v1.
programs: export ENO_IMAGE := $(or $(ENO_IMAGE),eno:$(TAG))
programs: export ENO_NATS_IMAGE := $(or $(ENO_NATS_IMAGE),eno-nats:$(TAG))
IMAGES := target/image
NATS_MODULE := lab/control-plane/go/nats

# Statically linked programs. Paths of this machine are not in them, so the same commit and the same compilers give the
# same bytes.
programs: NEEDED := cc:gcc $(NEEDED_FOR_IMAGE)
programs: NEEDED_AS_ROOT :=
programs: export ENO_VERSION = $(VERSION) ($(COMMIT))
# mimalloc contains the time of its compilation.
programs: export CFLAGS_$(subst -,_,$(MUSL)) = -Wno-builtin-macro-redefined -D__DATE__="none" -D__TIME__="none"
programs: export RUSTFLAGS = --remap-path-prefix=$(CURDIR)=/eno --remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=/cargo -C strip=symbols
programs: deps
	rustc --print target-libdir --target $(MUSL) | xargs test -d || rustup target add $(MUSL)
	RUSTFLAGS="$(RUSTFLAGS)" $(CARGO) build --release --locked --target $(MUSL) $(PROGRAMS)
	mkdir -p $(IMAGES)
	cd $(NATS_MODULE) && GOFLAGS= GOWORK=off CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build -mod=readonly -trimpath -buildvcs=false \
	  -ldflags "-s -w" -o $(CURDIR)/$(IMAGES)/nats-server github.com/nats-io/nats-server/v2

image: programs
	$(CARGO) build --locked -p eno-image
	about=(--out $(IMAGES) --tag $(TAG) --version $(VERSION) --commit $(COMMIT) --time $(SOURCE_DATE_EPOCH) --target $(MUSL)); \
	target/debug/eno-image "$${about[@]}" eno --programs target/$(MUSL)/release --workspace .; \
	target/debug/eno-image "$${about[@]}" nats --server $(IMAGES)/nats-server

# The chart's images, if they are given: ENO_IMAGE=registry.example.com/eno:v1 ENO_NATS_IMAGE=…
chart: deps
	$(if $(ENO_IMAGE),ENO_IMAGE=$(ENO_IMAGE)) $(if $(ENO_NATS_IMAGE),ENO_NATS_IMAGE=$(ENO_NATS_IMAGE)) $(CARGO) build --workspace --locked
	target/debug/eno chart target/eno-$(VERSION).tgz

# The folders have paths of different lengths.
reproducible:
	for folder in one another; do \
	  rm -rf target/reproducible/$$folder/source; \
	  mkdir -p target/reproducible/$$folder/source; \
	  git archive HEAD | tar -x -C target/reproducible/$$folder/source; \
	  $(MAKE) -C target/reproducible/$$folder/source image COMMIT=$$(git rev-parse HEAD) SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	done
	for file in eno.tar eno.cdx.json eno-nats.tar eno-nats.cdx.json; do \
	  cmp target/reproducible/{one,another}/source/target/image/$$file; \
	done
	cd target/reproducible/one/source/target/image && sha256sum *.tar

# The same sources give the same bytes; a test compares them.
console: NEEDED := node:nodejs npm:npm
console: NEEDED_AS_ROOT :=
console: deps
	cd console && npm ci --no-audit --no-fund --ignore-scripts && npm run --silent check && npm run --silent build

# Of what Kustomize renders: the objects that are not in the first file. The definitions are left out, since `eno` has
# their types, and so are the hashes in the names of ConfigMaps.
define RENDERED
BEGIN { RS = "\n---\n"; print "# Written by `make crds`. Do not edit." } \
{ sub(/\n$$/, "") } \
is_known { seen[$$0]; next } \
!($$0 in seen) && !/\nkind: CustomResourceDefinition\n/ { print "---\n" $$0 }
endef

crds:
	$(CARGO) build --workspace --locked
	target/debug/eno-deploy
	target/debug/eno-schemas
	kubectl=$$(target/debug/eno-get-parts kubectl); \
	render() { \
	  "$$kubectl" kustomize --load-restrictor LoadRestrictionsNone "$$1" \
	    | sed -E 's/(name: eno(-nats)?)-[bcdfghkmt2456789]{10}$$/\1/' \
	    | awk '$(RENDERED)' is_known=1 "$${2:-/dev/null}" is_known=0 -; \
	}; \
	render deploy >deploy/rendered/operator.yaml; \
	render deploy/nats-cluster-install deploy/rendered/operator.yaml >deploy/rendered/nats-cluster.yaml
	target/debug/eno-lab reference >target/commands.md
	mv target/commands.md docs/src/reference/commands.md

deny:
	if command -v cargo-deny >/dev/null; then cargo deny check; \
	else echo "cargo-deny is not installed: cargo install --locked cargo-deny"; exit 1; fi

# What of it needs no database of advisories, which is fetched from GitHub.
supply:
	if command -v cargo-deny >/dev/null; then cargo deny check bans licenses sources; \
	else echo "Licences, sources and banned crates were not checked. To check them: cargo install --locked cargo-deny"; fi

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	# It is no target of `cargo test`.
	$(CARGO) clippy --workspace --test transaction_scale --test scale --locked -- -D warnings

# All at once, so that the features of the dependencies, and with them the artefacts, are those of the tests.
build:
	$(CARGO) build --workspace --locked

# The tests and the programs that they start.
tests:
	$(CARGO) test --workspace --locked --no-run

# The programs of the control plane, found or built, so that no test has to wait for them.
parts: tests
	target/debug/eno-get-parts >/dev/null

deps:
	missing=(); \
	needed="$(NEEDED)"; \
	if [ "$$(id -u)" = 0 ]; then needed="$$needed $(NEEDED_AS_ROOT)"; fi; \
	for need in $$needed; do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${need%%:*}" >/dev/null || missing+=("$${need#*:}"); \
	done; \
	for need in $(NEEDED_MODULES); do \
	  /usr/bin/python3 -c "import $${need%%:*}" 2>/dev/null || missing+=("$${need#*:}"); \
	done; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv); \
	if [ $${#missing[@]} -gt 0 ]; then \
	  if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "Please install: $${missing[*]}"; exit 1; \
	  fi; \
	  apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$${missing[@]}"; \
	fi
	command -v $(CARGO) >/dev/null || { echo "Please install Rust 1.95 or later: https://rustup.rs"; exit 1; }
	command -v go >/dev/null || { echo "Please install Go 1.21 or later (it gets the 1.26 that Kubernetes needs by itself): https://go.dev/dl"; exit 1; }
