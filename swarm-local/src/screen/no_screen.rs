//! Replaces the screen if the feature `terminal` is off: events are printed as lines.

use std::convert::Infallible;
use std::io;

use tokio::sync::mpsc;

use crate::pool::by_hand::Hands;
use crate::pool::outlets::{Paths, Timed};
use crate::pool::shutdown::Shutdown;
use crate::serve::web::Shown;

/// The effect of the end of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// The pool ends with it.
    Pool,
    /// Only the view ends, and the pool goes on.
    View,
    /// The same for a pool that the view only reads: it cannot act on jobs, and has no logs.
    Reader,
}

/// A view that cannot be opened.
pub(super) struct View(Infallible);

impl View {
    pub(super) fn open(
        _: Paths,
        _: Shown,
        _: Shutdown,
        _: Hands,
        _: Ends,
    ) -> io::Result<(Self, mpsc::Sender<Timed>)> {
        Err(io::Error::other("this program was built without the feature `terminal`"))
    }

    #[expect(clippy::unused_async, reason = "the signature equals the signature of a screen")]
    pub(super) async fn ended(self) -> anyhow::Result<Option<String>> {
        match self.0 {}
    }
}
