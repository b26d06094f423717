//! Threads for long computations: the texts and turns of large Swarms. They have a lower priority,
//! so they use the processor time that all other threads leave. No small turn waits in their
//! queues.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinError, JoinHandle, JoinSet};

/// The number of threads. Large turns run one after another on one thread, while the other fetches
/// lists.
const THREADS: usize = 2;
/// The `nice` value of these threads. In competition with one thread at 0 they get a tenth of a
/// processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

tokio::task_local! {
    /// Whether the present turn has asked to continue in the background.
    static LEAVES: Arc<AtomicBool>;
}

/// The threads, which all clones share and which end with the last clone. Without threads, work
/// runs on the caller's runtime.
#[derive(Clone, Default)]
pub struct Background(Option<Arc<Threads>>);

struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        // A shutdown must not wait for running work, because it may happen in a task.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Background").field(&self.0.is_some()).finish()
    }
}

impl Background {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// When the system gives no threads.
    pub fn start() -> std::io::Result<Self> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(THREADS).thread_name("background").enable_all();
        let runtime = runtime.on_thread_start(yield_to_others).build()?;
        Ok(Self(Some(Arc::new(Threads(Some(runtime))))))
    }

    fn runtime(&self) -> Option<&Runtime> {
        self.0.as_ref()?.0.as_ref()
    }

    /// Runs a turn in a separate task, which ends with this future. The turn continues in the
    /// background once it calls [`go_on`].
    ///
    /// # Errors
    ///
    /// When it panics.
    pub(crate) async fn turn<T: Send + 'static>(
        &self,
        turn: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        let Some(runtime) = self.runtime() else { return ended(turn, None).await };
        let leaves = Arc::<AtomicBool>::default();
        let mut turn = Box::pin(LEAVES.scope(Arc::clone(&leaves), turn));
        let begun = async move {
            let outcome = poll_fn(|context| match turn.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending if leaves.load(Ordering::Relaxed) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            outcome.await.ok_or(turn as Pin<Box<dyn Future<Output = T> + Send>>)
        };
        match ended(begun, None).await? {
            Ok(outcome) => Ok(outcome),
            Err(turn) => ended(turn, Some(runtime)).await,
        }
    }

    /// Starts work that blocks a thread.
    pub(crate) fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        match self.runtime() {
            Some(runtime) => runtime.spawn_blocking(work),
            None => tokio::task::spawn_blocking(work),
        }
    }
}

/// Runs `future` in a task that ends with this function's own future.
async fn ended<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
    elsewhere: Option<&Runtime>,
) -> Result<T, JoinError> {
    let mut task = JoinSet::new();
    match elsewhere {
        Some(runtime) => task.spawn_on(future, runtime.handle()),
        None => task.spawn(future),
    };
    match task.join_next().await {
        Some(ended) => ended,
        // The set has one task, so this arm is never reached.
        None => std::future::pending().await,
    }
}

/// Moves the calling turn to the background, if one exists.
pub(crate) async fn go_on() {
    let asked = LEAVES.try_with(|leaves| leaves.swap(true, Ordering::Relaxed));
    if asked == Ok(false) {
        // The poll of the turn returns here, and the caller moves the turn to the background.
        tokio::task::yield_now().await;
    }
}

fn yield_to_others() {
    // On other systems the priority would apply to the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::warn!(%error, "the threads for large Swarms keep the normal priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of the thread, and what it yields.
    fn here() -> (String, i32) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        (name, rustix::process::getpriority_process(None).unwrap())
    }

    #[tokio::test]
    async fn a_turn_goes_on_in_the_background_once_it_asks_for_that() {
        let background = Background::start().unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let turn = async {
            let begun = here();
            go_on().await;
            let asked = here();
            // The turn wakes in the background, too, and stays there.
            let said = receiver.await.unwrap();
            go_on().await;
            (begun, asked, said, here())
        };
        let sending = async { sender.send(7).unwrap() };
        let (turn, ()) = tokio::join!(background.turn(turn), sending);
        let (begun, asked, said, after) = turn.unwrap();
        assert_ne!(begun.0, "background");
        assert!(asked.0 == "background" && NICE <= asked.1, "{asked:?}");
        assert_eq!((said, after), (7, asked));
        assert!(NICE <= background.blocking(here).await.unwrap().1);
    }

    #[tokio::test]
    async fn without_threads_a_turn_stays_where_it_is() {
        let background = Background::default();
        let turn = async {
            go_on().await;
            here()
        };
        assert_eq!(background.turn(turn).await.unwrap(), here());
    }

    #[tokio::test]
    async fn a_turn_that_panics_there_says_so_and_one_that_is_given_up_ends() {
        let background = Background::start().unwrap();
        let turn = background.turn(async {
            go_on().await;
            panic!("too many holders")
        });
        assert!(turn.await.unwrap_err().is_panic());

        let held = Arc::new(());
        let (holds, (sender, receiver)) = (Arc::clone(&held), tokio::sync::oneshot::channel());
        let turn = background.turn(async move {
            go_on().await;
            sender.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(holds);
        });
        tokio::select! {
            _ = turn => panic!("it waits for ever"),
            () = async { receiver.await.unwrap() } => {}
        }
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
