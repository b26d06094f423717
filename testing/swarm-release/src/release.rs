//! The command `release`: makes all files of a release, and checks that they agree.

mod agree;
mod archive;
mod contents;
mod descriptor;
mod file;
#[cfg(test)]
mod fixture;
mod krew;
mod layout;
mod make;
pub(crate) mod names;
mod notes;
mod outcome;
mod pieces;
mod pin;
pub(crate) mod pins;
#[cfg(test)]
mod refusals;
pub(crate) mod sbom;
mod source;
mod sums;
mod verify;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `release`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Writes version, date and images of a release into the checkout, to be committed and tagged
    Pin(pin::Arguments),
    /// Writes the images of a clone into the checkout again, after the tag
    Unpin,
    /// Fails if tag, version, changelog, chart and pinned images disagree
    Check(agree::Arguments),
    /// Makes all files of a release from the commit of the checkout
    Make(make::Arguments),
    /// Fails if a file or an image of a release is not what its digest says
    Verify(verify::Arguments),
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.step {
        Step::Pin(arguments) => pin::run(arguments),
        Step::Unpin => pin::unpin(),
        Step::Check(arguments) => agree::run(arguments),
        Step::Make(arguments) => make::run(arguments),
        Step::Verify(arguments) => verify::run(arguments),
    }
}
