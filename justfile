# Recipes for people and for CI. `just`, or `just --list --unsorted`, is the manual.
#
# `.ci/tool` finds cargo-deny, mdbook and actionlint for a recipe, and installs each once.

set shell := ["bash", "-euo", "pipefail", "-c"]

[private]
manual:
    @"{{ just_executable() }}" --list --unsorted

# Run the steps that most changes need, in CI's order: no root, no cluster.
[group('check a change')]
check: fmt prose lint alone docs test deny

# Run every step of the gate, from here (root, Debian, Go; half an hour with full caches).
[group('check a change')]
gate:
    .ci/run

# Fail if a file is not formatted; `cargo fmt --all` formats it.
[group('check a change')]
fmt:
    cargo fmt --all --check

# Fail if a workflow of GitHub is wrong (needs Go).
[group('check a change')]
actionlint:
    "$(.ci/tool actionlint)" .github/workflows/*.yml

# Fail on any warning about a script of CI (needs shellcheck).
[group('check a change')]
shellcheck:
    shellcheck .ci/*

# Fail if a text newly breaks a writing rule; with PATHS, list all places below them.
[group('check a change')]
prose *PATHS:
    VALE="$(.ci/tool vale)" cargo run --quiet --locked -p swarm-prose -- check {{ PATHS }}

# Fail on any warning of compiler or clippy.
[group('check a change')]
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Fail on any warning in a crate that is compiled alone, with and without its default features.
[group('check a change')]
alone:
    .ci/alone

# Fail if the library does not compile with the oldest Rust that it supports (root and Debian, or OLDEST_RUSTC).
[group('check a change')]
oldest-rust:
    .ci/oldest-rust

# Fail if the public API of a library differs from its list; the first run compiles for minutes.
[group('check a change')]
api:
    cargo test --quiet --locked -p swarm-e2e --test repository -- --include-ignored public_api::

# Make the packages of the four libraries, without the network; `just crates-compiled` compiles them, too.
[group('check a change')]
crates *OPTIONS="--no-verify":
    cargo package --locked --offline --allow-dirty {{ OPTIONS }} --features k8s-openapi/v1_33 -p jobswarm-core -p jobswarm-spec -p jobswarm-client -p jobswarm-replicas

# Fail if the documentation of the code has a warning.
[group('check a change')]
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Run all tests that need no cluster (with ffmpeg and sqlite3, more of them run).
[group('check a change')]
test:
    cargo test --workspace --locked --no-fail-fast

# Run all these tests three times beside 16 busy loops; run this before a release.
[group('measure, and test for hours')]
test-busy TIMES="3":
    for n in $(seq {{ TIMES }}); do echo "run $n"; .ci/busy 16 "{{ just_executable() }}" test; done

# Run CI's cluster scenarios beside four busy loops (root; `just packages` first).
[group('measure, and test for hours')]
scenarios-busy:
    .ci/busy 4 .ci/scenarios

# Check the protocols in all states of small worlds, in random runs, and with every fault: four minutes.
[group('check a change')]
test-protocols:
    SWARM_TESTS=full cargo test --quiet --locked -p swarm-sim -- --include-ignored
    SWARM_TESTS=full cargo test --quiet --locked -p swarm-cli --test programs chaos::handover

# Check and test the worker in Go (needs Go).
[group('check a change')]
go-worker:
    test -z "$(gofmt -l testing/go-worker)" || { gofmt -d testing/go-worker; exit 1; }
    GOWORK=off GOTOOLCHAIN=local go vet -C testing/go-worker ./...
    GOWORK=off GOTOOLCHAIN=local go test -C testing/go-worker ./...

# Count code, tests, words and fields, and their growth since the last tag; FOLDER may be another project.
[group('measure, and test for hours')]
size FOLDER=".":
    .ci/size {{ quote(FOLDER) }}

# Run the examples of the library; fail if one of them fails.
[group('check a change')]
examples:
    for example in scheduler what_if exclusive handover; do cargo run --quiet --locked -p jobswarm-core --example "$example" >/dev/null; done

# Run the README's main command until all jobs run, then stop it.
[group('check a change')]
first-command:
    state=$(mktemp -d); cargo swarm local deploy/samples/cameras/cameras.yaml --dir "$state/cameras" --until-settled; rm -rf "$state"

# Run two parts of the planner's benchmark; CI checks only that they succeed.
[group('check a change')]
bench-smoke:
    cargo run --quiet --release --locked -p swarm-bench -- planner shares

# Count the instructions of requests; fail if a count is far above the committed list (needs valgrind).
[group('check a change')]
instructions:
    cargo run --quiet --release --locked -p swarm-bench -- instructions

# Fail if deny.toml does not allow a dependency, a licence or a source.
[group('check a change')]
deny:
    "$(.ci/tool cargo-deny)" check bans licenses sources

# Fetch the database of RustSec; fail if a dependency has an advisory in it.
[group('check a change')]
advisories:
    "$(.ci/tool cargo-deny)" check advisories

# Look for advisories in a local copy of that database, and fetch nothing; without a copy print a note.
[group('check a change')]
advisories-offline:
    .ci/advisories "$(.ci/tool cargo-deny)"

# Write docs/ to book/, as a book with a search.
[group('check a change')]
book:
    "$(.ci/tool mdbook)" build

# Run CI's cluster scenarios on two clusters side by side (root; `just packages` first).
[group('check a change')]
scenarios:
    .ci/scenarios

# Needs root, and no registry of images; `just packages` first. ARGS such as `--profile quick --builds 1` save time.
#
# Compile both images from this checkout by the Dockerfile, twice; fail if the builds differ.
[group('check a change')]
image *ARGS:
    cargo run --quiet --locked -p swarm-release -- dockerfile {{ ARGS }}

# Fail if a cluster leaves anything behind after any kind of end (root; `just packages` first).
[group('check a change')]
gone:
    cargo run --quiet --locked -p swarm-e2e -- gone

# Install the Debian packages that tests and clusters need, or one set: `tests`, `cluster` or `machine`.
[group('check a change')]
packages SET="":
    .ci/packages {{ SET }}

# Regenerate the CRDs, the JSON Schema and the reference pages from the code.
[group('write what is generated')]
generate: manifests
    UPDATE=1 cargo test --quiet --locked -p swarm-operator -p swarm-cli --test programs reference:: -- --test-threads=1
    UPDATE=1 cargo test --quiet --locked -p swarm-view --test schema
    UPDATE=1 cargo test --quiet --locked -p swarm-e2e --test repository rights::

# Regenerate the CRDs and the JSON Schema from the types.
[group('write what is generated')]
manifests:
    cargo run --quiet --locked -p swarm-operator -- crd > deploy/crds/swarm.yaml
    cargo run --quiet --locked -p swarm-cli --bin swarm -- schema > deploy/swarm.schema.json

# Write the counts that `prose` compares with, after a count fell or text moved between files.
[group('write what is generated')]
bless-prose:
    VALE="$(.ci/tool vale)" cargo run --quiet --locked -p swarm-prose -- bless

# Write the list of all messages, after a sentence in the code was reworded.
[group('write what is generated')]
bless-messages:
    UPDATE=1 cargo test --quiet --locked -p swarm-prose messages::

# Regenerate the lists of the libraries' public API, after an intended change.
[group('write what is generated')]
bless-api:
    UPDATE=1 cargo test --quiet --locked -p swarm-e2e --test repository -- --include-ignored public_api::

# Write the list that `just instructions` compares with, after an intended change (needs valgrind).
[group('write what is generated')]
bless-instructions:
    UPDATE=1 cargo run --release --locked -p swarm-bench -- instructions

# Write the Helm chart in deploy/chart from the kustomizations (needs Go).
[group('write what is generated')]
chart:
    KUSTOMIZE="$(.ci/tool kustomize)" cargo run --quiet --locked -p swarm-release -- chart

# Fail if the Helm chart has other objects than the kustomizations, or takes wrong values (needs Go).
[group('check a change')]
chart-check:
    KUSTOMIZE="$(.ci/tool kustomize)" HELM="$(.ci/tool helm)" HELM3="$(.ci/tool helm3)" cargo run --quiet --locked -p swarm-release -- chart --check

# Check the alerts, their tests and their runbooks (needs promtool, of Debian's package prometheus).
[group('check a change')]
alerts:
    .ci/promtool

# TARGET is a Rust target, such as aarch64-unknown-linux-gnu; it needs Debian's gcc for it.
#
# Build small static programs for images and packages; the symbols of PROGRAM are in PROGRAM.debug (needs binutils).
[group('build it')]
dist TARGET="":
    .ci/dist {{ TARGET }}

# Pack the static programs in FOLDER into archives and a Debian package in dist/ (needs Go).
[group('build it')]
pack FOLDER:
    NFPM="$(.ci/tool nfpm)" cargo run --quiet --locked -p swarm-release -- packages --programs {{ FOLDER }} --out dist

# Write the version, date and images of a release into the checkout, for a commit that gets its tag.
[group('release it')]
pin VERSION REGISTRY="registry.example.com/swarm":
    cargo run --quiet -p swarm-release -- release pin {{ quote(VERSION) }} --registry {{ quote(REGISTRY) }}
    "{{ just_executable() }}" chart

# Write the images of a clone into the checkout again, after the tag.
[group('release it')]
unpin:
    cargo run --quiet --locked -p swarm-release -- release unpin

# Fail if tag, version, changelog, chart and pinned images disagree.
[group('release it')]
pinned VERSION REGISTRY="registry.example.com/swarm":
    cargo run --quiet --locked -p swarm-release -- release check {{ quote(VERSION) }} --registry {{ quote(REGISTRY) }}

# Make all files of a release in dist/; OTHER has files from a machine of another architecture, instead of a cross build.
[group('release it')]
release VERSION REGISTRY="registry.example.com/swarm" DOWNLOADS="https://downloads.example.com/swarm" OTHER="":
    HELM="$(.ci/tool helm)" KUSTOMIZE="$(.ci/tool kustomize)" NFPM="$(.ci/tool nfpm)" \
      cargo run --quiet --locked -p swarm-release -- release make {{ quote(VERSION) }} \
      --registry {{ quote(REGISTRY) }} --downloads {{ quote(DOWNLOADS) }} {{ if OTHER == "" { "" } else { "--add " + quote(OTHER) } }}

# Fail if a file or an image in dist/ is not what its digest says.
[group('release it')]
verify-release DIST="dist":
    cargo run --quiet --locked -p swarm-release -- release verify {{ quote(DIST) }}

# Run the 27 streams on this machine.
[group('run it')]
local *ARGS:
    cargo swarm local deploy/samples/streams.yaml {{ ARGS }}

# Open a shell with a real two-node cluster and the operator in it; the cluster ends with the shell.
[group('run it')]
cluster:
    cargo run --locked -p swarm-e2e -- shell

# Run the cluster scenarios, or only scenarios whose name contains one of the words (root, Debian packages).
[group('run it')]
e2e *SCENARIOS:
    cargo run --locked -p swarm-e2e -- scenarios {{ SCENARIOS }}

# Run scenarios as `just e2e` does, on another Kubernetes version, such as 1.30.
[group('run it')]
e2e-on VERSION *SCENARIOS:
    SWARM_E2E_KUBERNETES={{ VERSION }} cargo run --locked -p swarm-e2e -- scenarios {{ SCENARIOS }}

# Install the CRDs into kubectl's cluster.
[group('run it in the cluster of kubectl')]
install:
    kubectl apply --server-side -k deploy/crds

# Run the operator on this machine, for kubectl's cluster; run install first.
[group('run it in the cluster of kubectl')]
run *ARGS:
    cargo run --locked -p swarm-operator -- run {{ ARGS }}

# Install CRDs and operator, or a variant such as overlays/prod, into kubectl's cluster.
[group('run it in the cluster of kubectl')]
deploy VARIANT="overlays/managed": install
    kubectl apply --server-side --force-conflicts -k deploy/{{ VARIANT }}

# Each command has a deadline; docs/operations.md explains how to continue after it.
#
# Remove the Swarms, then the operator; uninstall removes the CRDs.
[group('run it in the cluster of kubectl')]
undeploy VARIANT="overlays/managed":
    kubectl delete swarms --all --all-namespaces --ignore-not-found --timeout=60s
    kubectl delete -k deploy/{{ VARIANT }} --ignore-not-found --timeout=120s

# Remove the CRDs, and with them every Swarm; run undeploy first.
[group('run it in the cluster of kubectl')]
uninstall:
    kubectl delete -k deploy/crds --ignore-not-found --timeout=60s

# Measure the planner and print the table.
[group('measure, and test for hours')]
bench:
    cargo run --release --locked -p swarm-bench

# Walk the handover protocol through all its states, with larger bounds than the tests.
[group('measure, and test for hours')]
model:
    cargo run --release --locked -p swarm-sim

# Run all checks that CI leaves out because they take long and rarely fail.
[group('measure, and test for hours')]
soak: alone oldest-rust bench-smoke instructions deny advisories-offline book ordinary-days soak-runs soak-cluster crates-compiled image package-check soak-versions

# Simulate ordinary days of 40 recorders in ten minutes, and judge their files (needs ffmpeg).
[group('measure, and test for hours')]
ordinary-days *STAGES:
    cargo run --locked -p swarm-days -- {{ STAGES }}

# Make random runs of whole pools: COUNT seeds from FIRST on, two minutes each.
[group('measure, and test for hours')]
soak-runs FIRST="100" COUNT="30":
    for n in $(seq {{ FIRST }} $(({{ FIRST }} + {{ COUNT }} - 1))); do echo "seed $n"; SWARM_TESTS=full PROPTEST_RNG_SEED=$n cargo test --quiet --locked -p swarm-sim -- fleet:: plain::; done

# cargo takes the siblings of a library from the previous run if their version is the same, so both folders go.
#
# Make the packages of the libraries, and compile each of them from its package alone.
[group('measure, and test for hours')]
crates-compiled:
    cargo fetch --quiet --locked
    rm -rf "${CARGO_TARGET_DIR:-target}/crates" "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/jobswarm-*
    "{{ just_executable() }}" crates --target-dir "${CARGO_TARGET_DIR:-target}/crates"

# Run the cluster scenarios of the soak set (root, Debian packages).
[group('measure, and test for hours')]
soak-cluster:
    HELM="$(.ci/tool helm)" cargo run --locked -p swarm-e2e -- scenarios --set soak

# The first run installs a small Debian into the cache, in four minutes (root, Debian, Go).
#
# Install the Debian package on a machine in a container; upgrade it, remove it, and see what pools lose.
[group('measure, and test for hours')]
package-check:
    #!/usr/bin/env bash
    set -euo pipefail
    .ci/packages machine
    target=$(rustc -vV | sed -n 's/^host: //p')
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --quiet --locked --profile quick --target "$target" -p swarm-cli -p kubectl-swarm
    NFPM="$(.ci/tool nfpm)" cargo run --quiet --locked -p swarm-release -- package-check --programs "${CARGO_TARGET_DIR:-target}/$target/quick"

# Run CI's cluster scenarios on the oldest and the newest Kubernetes (root, Debian packages).
[group('measure, and test for hours')]
soak-versions: (e2e-on "1.30") (e2e-on "1.37")

# Takes one to two hours on one core (needs cargo-mutants); SHARD takes a part, such as 3/40.
#
# Break the library in many small ways, one at a time, and list the mutants that no unit test notices.
[group('measure, and test for hours')]
mutants SHARD="0/1":
    cargo mutants --package jobswarm-core --shard {{ SHARD }}
