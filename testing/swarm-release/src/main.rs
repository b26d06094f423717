//! Makes the files of a release: the Helm chart, the manifests, archives, packages and checksums.
//!
//! Recipes of the justfile run it. It starts no shell, and downloads nothing.

mod buildah;
mod chart;
mod dockerfile;
mod images;
mod manifests;
mod notices;
mod package_check;
mod packages;
mod release;
mod repository;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Makes the files of a release of swarm.
#[derive(Parser)]
#[command(name = "swarm-release")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the Helm chart from the kustomizations, or compares both.
    Chart(chart::Arguments),
    /// Writes the manifests of a release, such as `install.yaml`.
    Manifests(manifests::Arguments),
    /// Writes the licences of the crates that the programs contain.
    Notices(notices::Arguments),
    /// Packs the programs of one machine into archives and a Debian package.
    Packages(packages::Arguments),
    /// Installs the Debian package on a machine in a container, uses and removes it (root).
    PackageCheck(package_check::Arguments),
    /// Packs prebuilt programs into images, as OCI layouts.
    Images(images::Arguments),
    /// Compiles the images from the checkout, without a registry of images, and compares two builds.
    Dockerfile(dockerfile::Arguments),
    /// Makes all files of a release, and checks that they agree.
    Release(release::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Chart(arguments) => chart::run(&arguments),
        Command::Manifests(arguments) => manifests::run(&arguments),
        Command::Notices(arguments) => notices::run(&arguments),
        Command::Packages(arguments) => packages::run(&arguments),
        Command::PackageCheck(arguments) => package_check::run(&arguments),
        Command::Images(arguments) => images::run(&arguments),
        Command::Dockerfile(arguments) => dockerfile::run(&arguments),
        Command::Release(arguments) => release::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
