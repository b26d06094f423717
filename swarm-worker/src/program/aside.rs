//! Work that may take long, on a thread that nothing waits for.

use std::thread;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

/// Does `work` on another thread, and returns its result. Returns `None` if the runtime ends
/// meanwhile. The work learns from its argument whether the result is still awaited.
///
/// The end of a runtime waits for the threads of the runtime, so the work gets a thread of its own.
/// If the system refuses one, the work is done on a thread that the runtime keeps.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Clone + Send + 'static,
) -> Option<T> {
    let begin = || {
        let ((result, awaited), work) = (oneshot::channel(), work.clone());
        let body = move || {
            let done = work(&|| !result.is_closed());
            // The error shows that nothing awaits the result.
            let _ = result.send(done);
        };
        (body, awaited)
    };
    let (body, mut awaited) = begin();
    if thread::Builder::new().name("aside".to_owned()).spawn(body).is_err() {
        let (body, instead) = begin();
        awaited = instead;
        spawn_blocking(body);
    }
    awaited.await.ok()
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;
    use std::sync::{Arc, Mutex, mpsc};

    use swarm_adapters_host::runtime;

    use super::*;
    use crate::DEADLINE;

    #[tokio::test]
    async fn work_is_awaited_until_it_returns_its_result() {
        assert_eq!(aside(|is_awaited| is_awaited()).await, Some(true));
    }

    #[test]
    fn work_that_goes_on_delays_no_end_of_the_runtime_and_learns_that_nothing_awaits_it() {
        let (begin, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        let may_end = Arc::new(Mutex::new(may_end));
        let work = move |is_awaited: &dyn Fn() -> bool| {
            begin.send(is_awaited()).unwrap();
            let was_told = may_end.lock().unwrap().recv_timeout(DEADLINE) == Ok(());
            report.send((was_told, is_awaited())).unwrap();
        };
        let runtime = runtime::single().unwrap();
        runtime.block_on(async {
            let mut working = pin!(aside(work));
            tokio::select! {
                biased;
                _ = &mut working => panic!("the work waits"),
                () = ready(()) => {}
            }
            assert_eq!(has_begun.recv_timeout(DEADLINE), Ok(true));
        });
        drop(runtime);
        end.send(()).unwrap();
        assert_eq!(reported.recv_timeout(DEADLINE), Ok((true, false)), "the runtime waited");
    }
}
