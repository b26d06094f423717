# What people type. CI runs the same commands; `just --list` is the manual.

# Everything CI runs, except the cluster.
check: fmt lint alone docs test deny

# Fail if a file is not formatted.
fmt:
    cargo fmt --all --check

# Fail on any warning of compiler or clippy.
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Fail on any warning in a crate that is compiled alone, with and without its default features.
alone:
    .ci/alone

# Fail if the library does not compile with the oldest Rust that it promises (root, Debian).
oldest-rust:
    .ci/oldest-rust

# Fail if the documentation of the code has a warning.
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Write docs/ as a book with a search to book/ (needs mdbook; `mdbook serve` shows it).
book:
    mdbook build

# All tests that need no cluster.
test:
    cargo test --workspace --locked

# Fail if a dependency, a licence or a source is not agreed (needs cargo-deny).
deny:
    cargo deny check bans licenses sources

# Fail if a dependency has an advisory of RustSec; fetches their database (needs cargo-deny).
advisories:
    cargo deny check advisories

# Regenerate the CRDs, the JSON Schema and the reference pages from the code.
generate: manifests
    UPDATE=1 cargo test --quiet --locked -p swarm-operator --test programs reference::

# List the public API of the library anew, after a change that is meant.
bless-api:
    UPDATE=1 cargo test --quiet --locked -p swarm-core --test public_api

# Measure the planner and print the table.
bench:
    cargo run --release --locked -p swarm-bench

# Count the instructions of requests, and write the list that CI compares them with (needs valgrind).
instructions:
    UPDATE=1 cargo run --release --locked -p swarm-bench -- instructions

# Walk the handover protocol through all its states, with larger bounds than the tests.
model:
    cargo run --release --locked -p swarm-sim

# What CI leaves out, since it takes long and rarely fails.
soak: ordinary-days soak-runs soak-cluster

# Live through ordinary days of 40 recorders, in ten minutes, and judge their files (needs ffmpeg).
ordinary-days *STAGES:
    cargo run --locked -p swarm-days -- {{STAGES}}

# Random runs of whole pools: so many seeds from FIRST on, two minutes each.
soak-runs FIRST="100" COUNT="30":
    for n in $(seq {{FIRST}} $(({{FIRST}} + {{COUNT}} - 1))); do echo "seed $n" && PROPTEST_RNG_SEED=$n cargo test --quiet --locked -p swarm-sim -- fleet:: plain:: || exit 1; done

# The cluster scenarios of the soak set (root, Debian packages).
soak-cluster:
    cargo run --locked -p swarm-e2e -- scenarios --set soak

# Break the library in many small ways, one at a time, and list what no unit test notices (needs
# cargo-mutants; one to two hours on one core, so SHARD takes a part, such as 3/40).
mutants SHARD="0/1":
    cargo mutants --package swarm-core --shard {{SHARD}}

# The 27 streams on this machine.
local *ARGS:
    cargo swarm local deploy/samples/streams.yaml {{ARGS}}

# Run the cluster scenarios, or those whose name contains one of the words (root, Debian packages).
e2e *SCENARIOS:
    cargo run --locked -p swarm-e2e -- scenarios {{SCENARIOS}}

# A shell with a real two-node cluster and the operator in it; it is gone when the shell ends.
cluster:
    cargo run --locked -p swarm-e2e -- shell

# Write the CRDs and the JSON Schema anew, from the types.
manifests:
    cargo run --quiet --locked -p swarm-operator -- crd > deploy/crds/swarm.yaml
    cargo run --quiet --locked -p swarm-operator -- schema > deploy/swarm.schema.json

# Install the CRDs into kubectl's cluster.
install:
    kubectl apply --server-side -k deploy/crds

# Remove the CRDs, and with them every Swarm: undeploy comes first.
uninstall:
    kubectl delete -k deploy/crds --ignore-not-found --timeout=60s

# Install CRDs and operator, or a variant such as overlays/prod, into kubectl's cluster.
deploy VARIANT="overlays/managed": install
    kubectl apply --server-side --force-conflicts -k deploy/{{VARIANT}}

# The operator on this machine, for kubectl's cluster; install comes first.
run *ARGS:
    cargo run --locked -p swarm-operator -- run {{ARGS}}

# Stops where something does not go in time; docs/operations.md says what to do then.
#
# Remove the Swarms, then the operator; uninstall removes the CRDs.
undeploy VARIANT="overlays/managed":
    kubectl delete swarms --all --all-namespaces --ignore-not-found --timeout=60s
    kubectl delete -k deploy/{{VARIANT}} --ignore-not-found --timeout=120s
