//! `--color`, which both programs have before and after each command.

use clap::{Args, ColorChoice};

/// The use of colours.
#[derive(Clone, Copy, Debug, Args)]
pub struct Colors {
    /// Use colours: `auto` leaves them out in a pipe, on a dumb terminal, or with `NO_COLOR`
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
}

impl Colors {
    /// Applies the choice to all output of this process.
    pub fn apply(self) {
        let choice = match self.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}
