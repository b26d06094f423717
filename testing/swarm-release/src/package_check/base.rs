//! The files of a small Debian machine, installed once into the cache.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::done;
use crate::repository::run;

/// Returns the folder of the machine's files. Installs them first, from where this machine has its packages.
pub(super) fn made() -> Result<PathBuf> {
    let suite = suite()?;
    let base = cache()?.join(format!("debian-{suite}"));
    if base.exists() {
        return Ok(base);
    }
    let since = Instant::now();
    let unfinished = base.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    // Mounts and processes of debootstrap end with this command, however that ends.
    let mut words =
        vec!["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "debootstrap"];
    let (target, address) = (unfinished.display().to_string(), address(&suite)?);
    words.extend(["--variant=minbase", "--include=systemd", &suite, &target]);
    words.extend(address.as_deref());
    run("unshare", &words).context("needs debootstrap: apt-get install debootstrap")?;
    fs::rename(&unfinished, &base)?;
    done(&format!("installed {}", base.display()), since);
    Ok(base)
}

fn cache() -> Result<PathBuf> {
    let in_home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(in_home);
    let cache = cache.context("HOME is not set; set XDG_CACHE_HOME to a folder for caches")?;
    let cache = cache.join("swarm-ci");
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    Ok(cache)
}

/// Returns the name of this machine's distribution, such as `bookworm`.
fn suite() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release has no VERSION_CODENAME; use Debian or Ubuntu")?.to_owned())
}

/// Returns the address from which apt of this machine installs `suite`.
///
/// Without one, debootstrap uses the address that its distribution has built in.
fn address(suite: &str) -> Result<Option<String>> {
    let targets = ["indextargets", "--format", "$(RELEASE) $(SITE)", "Created-By: Packages"];
    let targets = run("apt-get", &targets)?;
    let mut sites = targets.lines().filter_map(|line| line.strip_prefix(suite)?.strip_prefix(' '));
    Ok(sites.find(|site| site.starts_with("http")).map(str::to_owned))
}
