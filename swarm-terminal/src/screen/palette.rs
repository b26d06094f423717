//! Colours. They carry no information that words and signs lack.

use ratatui::style::{Color, Modifier, Style};

/// Styles of less and more important text, with and without colours.
pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// Whether colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    /// The terminal's sixteen colours.
    Colours,
    /// No colours, as `NO_COLOR` requests.
    Plain,
}

impl Palette {
    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(super) fn busy(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn bar(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub(super) fn moved(self) -> Style {
        self.coloured(Color::Cyan)
    }

    fn coloured(self, colour: Color) -> Style {
        match self {
            Self::Colours => Style::new().fg(colour),
            Self::Plain => Style::new(),
        }
    }
}
