//! Replaces the screen if the feature `terminal` is off: events are printed as lines.

use std::convert::Infallible;
use std::io;

use super::outlets::{Paths, Voice};
use super::shutdown::Shutdown;
use super::web::Shown;

/// A view that cannot be opened.
pub(super) struct View(Infallible);

impl View {
    pub(super) fn open(_: Paths, _: Shown, _: Shutdown) -> io::Result<(Self, Voice)> {
        Err(io::Error::other("this program was built without the feature `terminal`"))
    }

    #[expect(clippy::unused_async, reason = "the signature equals the signature of a screen")]
    pub(super) async fn ended(self) -> anyhow::Result<Option<String>> {
        match self.0 {}
    }
}
