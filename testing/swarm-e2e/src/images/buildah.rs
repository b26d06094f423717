//! The real route: the repository's Dockerfile packs prebuilt programs, by buildah, without a daemon
//! or a registry.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::cache::Cache;
use crate::command;

/// Builds `dockerfile` over the static binaries in `ours` and writes image `name` to `archive`.
pub(super) fn build(
    cache: &Cache,
    dockerfile: &Path,
    ours: &Path,
    args: &[(&str, &str)],
    name: &str,
    archive: &Path,
) -> Result<()> {
    let work = cache.building()?;
    let context = context(work.path(), ours)?;
    let store = |folder: &str| work.path().join(folder).display().to_string();
    let (root, runroot) = (store("root"), store("runroot"));
    // The vfs driver copies instead of mounting: slower, but nothing can be left mounted.
    let storage = ["--root", &root, "--runroot", &runroot, "--storage-driver", "vfs"];

    let dockerfile = dockerfile.display().to_string();
    let args: Vec<_> = args.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut bud = storage.to_vec();
    bud.extend(["bud", "--quiet", "--isolation", "chroot", "--file", &dockerfile, "--tag", name]);
    bud.extend(args.iter().flat_map(|arg| ["--build-arg", arg]));
    bud.push(&context);
    command::run("buildah", &bud)?;

    let target = format!("docker-archive:{}:{name}", archive.display());
    let mut push = storage.to_vec();
    push.extend(["push", "--quiet", name, &target]);
    command::run("buildah", &push)?;
    Ok(())
}

/// Makes a folder with only the static binaries, without the gigabytes of a target folder.
fn context(work: &Path, ours: &Path) -> Result<String> {
    let context = work.join("context");
    fs::create_dir(&context)?;
    for binary in ["swarm-operator", "swarm-worker"] {
        fs::copy(ours.join(binary), context.join(binary))?;
    }
    Ok(context.display().to_string())
}
