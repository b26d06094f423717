//! Replaces the screen if the feature `screen` is off: events are printed as lines.

use std::convert::Infallible;
use std::io;

use tokio::sync::mpsc;

use crate::hands::Hands;
use crate::scene::{Ends, News, OpenLog, Paths};
use crate::shutdown::Shutdown;

/// A view that cannot be opened.
#[derive(Debug)]
pub struct View(Infallible);

impl View {
    /// Opens no view.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(
        _: Paths,
        _: Ends,
        _: OpenLog,
        _: Shutdown,
        _: Hands,
    ) -> io::Result<(Self, mpsc::Sender<News>)> {
        Err(io::Error::other("this program was built without the feature `screen`"))
    }

    /// Waits for the end of a view.
    ///
    /// # Errors
    ///
    /// Never.
    #[expect(clippy::unused_async, reason = "the signature equals the signature of a screen")]
    pub async fn ended(self) -> anyhow::Result<Option<String>> {
        match self.0 {}
    }
}
