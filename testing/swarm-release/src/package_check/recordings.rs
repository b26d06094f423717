//! A pool whose jobs write a file each, with a last line at an orderly end.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::machine::Machine;

/// The manifest of the pool. A job needs a second to finish its file, whose name ends with its process.
pub(super) const MANIFEST: &str = r#"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: cameras}
spec:
  replicas: 2
  pool: {managed: {}}
  worker:
    protocol: Session
    runner:
      command:
        - sh
        - -c
        - |
          file=/srv/recordings/$1.$$
          trap 'sleep 1; echo "end at the $PLACE" >>"$file"; exit' TERM
          echo begin >"$file"
          while :; do sleep 0.1; done
        - record
        - "{job}"
      inheritEnv: [PLACE]
  handover: {stopTimeout: 5s}
  jobs: [{name: one}, {name: two}, {name: three}]
"#;

/// The variables of the pool, in the file that the unit names.
pub(super) const VARIABLES: &str = "PLACE=gate\n";

/// The files of the jobs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recordings {
    /// The processes of files that have no end.
    pub(super) open: Vec<String>,
    /// The number of files with an end.
    pub(super) complete: usize,
}

impl Recordings {
    /// Reads all files.
    pub(super) fn read(machine: &Machine) -> Result<Self> {
        let text = machine.run("cd /srv/recordings && grep -H '' * || true")?;
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (file, line) in text.lines().filter_map(|line| line.split_once(':')) {
            files.entry(file).or_default().push(line);
        }
        let mut found = Self { open: Vec::new(), complete: 0 };
        for (file, lines) in files {
            match lines[..] {
                ["begin", "end at the gate"] => found.complete += 1,
                _ => found.open.push(file.rsplit('.').next().unwrap_or(file).to_owned()),
            }
        }
        Ok(found)
    }

    /// Waits until three jobs run, and `complete` files have an end.
    pub(super) fn until_three_run(machine: &Machine, complete: usize) -> Result<Self> {
        let mut last = Self { open: Vec::new(), complete: 0 };
        machine.until(&format!("three jobs run, {complete} files are complete"), || {
            last = Self::read(machine)?;
            Ok(last.open.len() == 3 && last.complete == complete)
        })?;
        last.ensure_alive(machine)?;
        Ok(last)
    }

    /// Fails if a file without an end has no process.
    pub(super) fn ensure_alive(&self, machine: &Machine) -> Result<()> {
        machine.run(&format!("kill -0 {}", self.open.join(" "))).map(drop)
    }

    /// Fails unless all of `count` files are complete.
    pub(super) fn ensure_complete(machine: &Machine, count: usize) -> Result<()> {
        let found = Self::read(machine)?;
        let wanted = Self { open: Vec::new(), complete: count };
        ensure!(found == wanted, "{found:?} of {count} complete files");
        Ok(())
    }
}
