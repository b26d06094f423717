//! Watches that begin on demand. Installations that do not need them pay nothing for them, and need
//! no rights for them.

use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::watch;

/// Whether the watch was requested. Clones share the state.
#[derive(Clone, Default)]
pub(crate) struct OnDemand(watch::Sender<bool>);

impl OnDemand {
    /// Starts the watch, unless it has started.
    pub(crate) fn ask(&self) {
        self.0.send_if_modified(|asked| !std::mem::replace(asked, true));
    }

    /// Returns `stream`, which is not polled before the first request. A watch sends no request
    /// before its stream is polled.
    pub(crate) fn once_asked<T: Send + 'static>(
        &self,
        stream: impl Stream<Item = T> + Send + 'static,
    ) -> BoxStream<'static, T> {
        let mut asked = self.0.subscribe();
        async move {
            if asked.wait_for(|asked| *asked).await.is_err() {
                return futures::stream::empty().boxed();
            }
            stream.boxed()
        }
        .flatten_stream()
        .boxed()
    }
}
