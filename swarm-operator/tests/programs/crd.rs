//! Compares the committed CRDs with those generated from the types.

use std::path::Path;
use std::process::Command;

#[test]
fn the_committed_definitions_are_those_of_the_types() {
    let printed = Command::new(env!("CARGO_BIN_EXE_swarm-operator")).arg("crd").output().unwrap();
    assert!(printed.status.success());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds/swarm.yaml");
    let committed = std::fs::read_to_string(file).unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed == committed, "deploy/crds/swarm.yaml is stale: run `just generate`");
}
