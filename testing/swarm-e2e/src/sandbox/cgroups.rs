//! Gives a run its own part of the host's cgroup tree. Inside the run that part appears as the
//! whole tree.
//!
//! A container runtime puts its containers at a fixed path. In the host's tree two runs would share
//! that path, and their leftovers could not be distinguished.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::leftovers::{CGROUPS, cgroup_name};
use crate::command;

/// The place at which the new tree is built before it replaces the old one.
const ASIDE: &str = "/run/cgroup";

/// Makes the folders of run `id`, and mounts them at the usual place instead of the host's tree.
///
/// The run needs its own `/run`. Call this before mounts are shared.
pub(super) fn confine(id: &str) -> Result<()> {
    let name = cgroup_name(id);
    fs::create_dir(ASIDE)?;
    if Path::new(CGROUPS).join("cgroup.controllers").exists() {
        version_2(&name)?;
    } else {
        version_1(&name)?;
    }
    // Covering is not enough: runtimes read the list of mounts, and would use the first that fits.
    command::run("umount", &["--recursive", "--lazy", CGROUPS])?;
    command::run("mount", &["--move", ASIDE, CGROUPS]).map(drop)
}

/// Makes the folder of cgroup version 2, which has one hierarchy, and hands on all its controllers.
fn version_2(name: &str) -> Result<()> {
    let own = Path::new(CGROUPS).join(name);
    fs::create_dir_all(&own)?;
    for controller in fs::read_to_string(own.join("cgroup.controllers"))?.split_whitespace() {
        fs::write(own.join("cgroup.subtree_control"), format!("+{controller}"))?;
    }
    bind(&own, Path::new(ASIDE))
}

/// Makes the folders of cgroup version 1: one hierarchy per controller, some with a second name.
fn version_1(name: &str) -> Result<()> {
    command::run("mount", &["-t", "tmpfs", "-o", "mode=755", "swarm-e2e", ASIDE])?;
    for hierarchy in fs::read_dir(CGROUPS)? {
        let hierarchy = hierarchy?;
        let place = Path::new(ASIDE).join(hierarchy.file_name());
        if hierarchy.file_type()?.is_symlink() {
            symlink(fs::read_link(hierarchy.path())?, place)?;
            continue;
        }
        let own = hierarchy.path().join(name);
        fs::create_dir_all(&own)?;
        // A new cpuset is empty and would accept no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(inherited) = fs::read_to_string(hierarchy.path().join(file)) {
                fs::write(own.join(file), inherited).context("cannot fill the cpuset")?;
            }
        }
        fs::create_dir(&place)?;
        bind(&own, &place)?;
    }
    Ok(())
}

fn bind(folder: &Path, place: &Path) -> Result<()> {
    let (folder, place) = (folder.display().to_string(), place.display().to_string());
    command::run("mount", &["--bind", &folder, &place]).map(drop)
}
