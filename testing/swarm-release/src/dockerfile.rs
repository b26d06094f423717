//! The command `dockerfile`: compiles the images from the checkout, as `docker build` does, without
//! a registry of images.
//!
//! The image that compiles is replaced by one of this machine: gcc and the static libc from Debian's
//! packages, and Rust and the crates from here, mounted read-only.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::buildah::{Buildah, PREFIX};
use crate::repository::{root, run as output_of};

/// Packages that the image that compiles has besides Rust.
const PACKAGES: &str = "gcc,libc6-dev";

/// The profile of the programs.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Profile {
    /// The programs as they are shipped
    Dist,
    /// The programs in less than half the time
    Quick,
}

/// Arguments of `dockerfile`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Profile of the programs
    #[arg(long, value_enum, default_value = "dist")]
    profile: Profile,
    /// Builds from nothing; two or more must give the same images
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    builds: u8,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let cache = cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let _lock = lock(&cache)?;
    let compiler = Compiler::read(&cache)?;
    let first = build(&cache, &compiler, arguments.profile)?;
    for _ in 1..arguments.builds {
        let again = build(&cache, &compiler, arguments.profile)?;
        ensure!(again == first, "two builds from nothing gave {first:?} and {again:?}");
    }
    for (service, image) in &first {
        println!("{service}: {image} in {} of {0} builds", arguments.builds);
    }
    Ok(())
}

/// The folder that stays, with the packages of Debian.
fn cache() -> Result<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    Ok(caches.context("$HOME is not set")?.join("swarm-ci/image"))
}

/// Waits for other runs, and removes what killed ones have left.
fn lock(cache: &Path) -> Result<File> {
    let lock = File::create(cache.join("lock"))?;
    lock.lock()?;
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(lock)
}

/// The replacement of the image that compiles.
struct Compiler {
    /// The name of the image that it replaces.
    image: String,
    /// The folder with the packages of Debian.
    packages: PathBuf,
    /// The folders of this machine to mount, as arguments of `--volume`.
    mounts: [String; 2],
}

impl Compiler {
    fn read(cache: &Path) -> Result<Self> {
        let text = fs::read_to_string(root().join("Dockerfile"))?;
        let image = image(&text).context("the Dockerfile has no line `ARG RUST=IMAGE`")?;
        let (_, suite) = image.rsplit_once('-').context("the image in ARG RUST names no Debian")?;
        output_of("cargo", &["fetch", "--quiet", "--locked"])?;
        let toolchain = output_of("rustc", &["--print", "sysroot"])?;
        let crates = std::env::var("CARGO_HOME")
            .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))?;
        Ok(Self {
            packages: packages(cache, suite)?,
            mounts: [
                format!("{}:/rust:ro", toolchain.trim()),
                format!("{crates}/registry:/cargo/registry:ro"),
            ],
            image: image.to_owned(),
        })
    }

    /// Makes the image in a store.
    fn commit(&self, buildah: &Buildah) -> Result<()> {
        let container = buildah.run(&["from", "scratch"])?;
        let packages = self.packages.display().to_string();
        buildah.run(&["add", "--quiet", &container, &packages, "/"])?;
        let variables = ["CARGO_HOME=/cargo", "CARGO_NET_OFFLINE=true", "PATH=/rust/bin:/usr/bin"];
        let environment = variables.iter().flat_map(|it| ["--env", it]);
        let config = ["config"].into_iter().chain(environment).chain([&*container]);
        buildah.run(&config.collect::<Vec<_>>())?;
        buildah.run(&["commit", "--quiet", "--rm", &container, &self.image])?;
        Ok(())
    }
}

/// The image that compiles, in the text of a Dockerfile.
fn image(dockerfile: &str) -> Option<&str> {
    dockerfile.lines().find_map(|line| line.strip_prefix("ARG RUST="))
}

/// Returns the folder with Debian's packages, and makes it the first time.
fn packages(cache: &Path, suite: &str) -> Result<PathBuf> {
    let folder = cache.join(format!("{suite},{PACKAGES}"));
    if folder.exists() {
        return Ok(folder);
    }
    println!("installing {PACKAGES} of Debian {suite}; a minute or more, but only once");
    let building = tempfile::Builder::new().prefix(PREFIX).tempdir_in(cache)?;
    let target = building.path().join("root");
    // The mounts of debootstrap end with this namespace, also when debootstrap is killed.
    let mut debootstrap = Command::new("unshare");
    debootstrap.args(["--mount", "debootstrap", "--variant=minbase"]);
    debootstrap.args([&*format!("--include={PACKAGES}"), suite]).arg(&target);
    let output = debootstrap.output().context("cannot start unshare")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(
        output.status.success(),
        "debootstrap failed; it needs root, and `just packages cluster` installs it: {}",
        said.trim()
    );
    fs::rename(&target, &folder)?;
    Ok(folder)
}

/// Builds both images from nothing, starts their programs, and returns the IDs of the images.
fn build(
    cache: &Path,
    compiler: &Compiler,
    profile: Profile,
) -> Result<[(&'static str, String); 2]> {
    let buildah = Buildah::new(Some(cache))?;
    compiler.commit(&buildah)?;
    let built = |service, program| {
        let start = Instant::now();
        let image = build_one(&buildah, compiler, profile, service)?;
        let seconds = start.elapsed().as_secs();
        let container = buildah.run(&["from", "--pull-never", &image])?;
        let version = ["run", "--isolation", "chroot", &container, "--", program, "--version"];
        println!("{service}: {} built in {seconds} s", buildah.run(&version)?);
        anyhow::Ok((service, image))
    };
    // The predecessors' word for the operator.
    Ok([built("controller", "/swarm-operator")?, built("worker", "/swarm-worker")?])
}

fn build_one(
    buildah: &Buildah,
    compiler: &Compiler,
    profile: Profile,
    service: &str,
) -> Result<String> {
    let of_commit = |format| output_of("git", &["log", "-1", format]);
    let profile = match profile {
        Profile::Dist => "dist",
        Profile::Quick => "quick",
    };
    let variables = [
        format!("SERVICE={service}"),
        format!("PROFILE={profile}"),
        format!("COMMIT={}", of_commit("--format=%H")?.trim()),
        format!("DATE={}", of_commit("--format=%cI")?.trim()),
    ];
    // With layers the second image of a store is packed from the programs that the first one compiled.
    let mut arguments = vec!["--layers", "--timestamp", "0", "--tag", service];
    arguments.extend(compiler.mounts.iter().flat_map(|it| ["--volume", it]));
    arguments.extend(variables.iter().flat_map(|it| ["--build-arg", it]));
    arguments.push(".");
    buildah.build(&arguments)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_image_that_compiles_has_the_rust_of_the_checkout() {
        let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
        let toolchain = read("rust-toolchain.toml");
        let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = "));
        let version = channel.unwrap().trim_matches('"');
        let dockerfile = read("Dockerfile");
        let image = image(&dockerfile).unwrap();
        let tag = image.rsplit_once(':').unwrap().1;
        assert!(tag.starts_with(&format!("{version}-slim-")), "{image} has no Rust {version}");
    }

    /// The flags for the compiler in a file, each with what comes after its last `=`.
    fn flags(file: &str) -> BTreeSet<(&str, String)> {
        let value = |word: &str| {
            let value = word.rsplit('=').next().unwrap();
            value.chars().filter(|c| c.is_ascii_alphanumeric() || "/+-".contains(*c)).collect()
        };
        let known = ["target-feature=", "--remap-path-prefix="];
        let found = known.map(|flag| {
            let words = file.split_whitespace().filter(move |word| word.contains(flag));
            words.map(move |word| (flag, value(word)))
        });
        found.into_iter().flatten().collect()
    }

    #[test]
    fn the_dockerfile_compiles_with_the_flags_of_dist() {
        let [dockerfile, dist] =
            ["Dockerfile", ".ci/dist"].map(|file| fs::read_to_string(root().join(file)).unwrap());
        let expected = [
            ("--remap-path-prefix=", "/cargo"),
            ("--remap-path-prefix=", "/swarm"),
            ("target-feature=", "+crt-static"),
        ];
        let expected = expected.map(|(flag, value)| (flag, value.to_owned())).into();
        assert_eq!(flags(&dist), expected);
        assert_eq!(flags(&dockerfile), expected);
    }
}
