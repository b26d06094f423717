//! Tests with a job that the kernel kills because memory runs out, in a separate control group.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use crate::guard::line::Line;
use crate::guard::machine::until;

/// The limit of memory of the group: enough for a guard and a shell.
const LIMIT: &str = "50331648";

/// A control group that the test has created.
struct Group {
    dir: PathBuf,
}

impl Group {
    /// Creates a group with a limit of memory; `None` if the user who runs the test may not create
    /// one.
    fn limited(name: &str) -> Option<Self> {
        let name = format!("swarm-test-{name}-{}", process::id());
        let root = Path::new("/sys/fs/cgroup");
        let of_version_1 = root.join("memory");
        let (dir, limits) = if of_version_1.join("memory.limit_in_bytes").exists() {
            let limits = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
            (of_version_1.join(name), limits)
        } else {
            (root.join(name), ["memory.max", "memory.swap.max"])
        };
        fs::create_dir(&dir).ok()?;
        let group = Self { dir };
        fs::write(group.dir.join(limits[0]), LIMIT).ok()?;
        // A group without a limit of swap would move pages to the swap instead.
        let swap = if limits[1] == "memory.swap.max" { "0" } else { LIMIT };
        let _ = fs::write(group.dir.join(limits[1]), swap);
        Some(group)
    }

    /// Lets a shell enter the group.
    fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.dir.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        until("the group is empty", || fs::remove_dir(&self.dir).ok());
    }
}

/// A script that needs more memory than the group has.
const HUNGRY: &str = "x=a; while :; do x=$x$x; done";

#[test]
fn a_job_that_is_killed_for_memory_is_joined_with_the_limit() {
    // Only root may create the group.
    let Some(group) = Group::limited("limit") else { return };
    let mut guard = Line::start_from_shell("oom", &group.enter());
    guard.start_job("calm", "exec sleep 600");
    guard.start_job("hungry", HUNGRY);
    let expected = r#"{"is":"joined","job":"hungry","end":{"signal":9},"out_of_memory":"out of memory: limit 48Mi"}"#;
    assert_eq!(guard.reply(), expected);
    // The lack of memory is not reported for a job that the shell kills or that fails by itself.
    guard.start_job("killed", "kill -9 $$");
    let reply = guard.reply();
    assert!(reply.contains(r#""end":{"signal":9}"#) && !reply.contains("memory"), "{reply}");
    // The killed process may be a child of the first process.
    guard.start_job("parent", &format!("sh -c '{HUNGRY}'; exit 3"));
    let reply = guard.reply();
    assert!(reply.contains(r#""end":{"code":3}"#) && reply.contains("limit 48Mi"), "{reply}");
    assert_eq!(guard.processes().len(), 2, "the guard and the calm job");
    guard.end();
}
