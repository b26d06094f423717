//! The view of a pool on a terminal, live.
//!
//! It runs on a thread of its own, so that a blocked terminal delays nothing else. It ends when all
//! senders are gone, and restores the terminal then.

mod draw;
mod head;
mod model;
mod palette;
mod rows;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::outlets::{Message, Voice};
use super::snapshot::Snapshot;
use super::terminal::{self, Input, Key, Screen};
use model::{Model, Wish};
use palette::Palette;

/// The least time between two drawings.
const FRAME: Duration = Duration::from_millis(50);

/// How many messages may wait to be drawn.
const QUEUE_MAX: usize = 1_000;

/// How long the terminal may take to be restored.
const RESTORE_MAX: Duration = Duration::from_secs(1);

/// A view that is on the terminal.
pub(super) struct View {
    ended: oneshot::Receiver<io::Result<Option<String>>>,
}

impl View {
    /// Takes over the terminal. `file` is the file to edit. The key `q` cancels `shutdown`, and so
    /// does the end of the terminal.
    pub(super) fn open(
        file: Option<String>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        shutdown: CancellationToken,
    ) -> io::Result<(Self, Voice)> {
        let screen = Screen::open()?;
        let (voice, messages) = mpsc::channel(QUEUE_MAX);
        let (result, ended) = oneshot::channel();
        let handle = Handle::current();
        let live = Live { model: Model::new(file), screen, snapshots, messages };
        thread::Builder::new().name("screen".to_owned()).spawn(move || {
            // However it ends, in a panic too: without the screen the workers must not run on.
            let _ends = shutdown.clone().drop_guard();
            let last = handle.block_on(live.run(&shutdown));
            let _ = result.send(last);
        })?;
        Ok((Self { ended }, Voice::Screen(voice)))
    }

    /// Waits until the terminal is restored, and returns the last message. All voices must have
    /// been dropped.
    pub(super) async fn ended(self) -> anyhow::Result<Option<String>> {
        match timeout(RESTORE_MAX, self.ended).await {
            Ok(Ok(last)) => last.context("the terminal cannot be drawn on"),
            Ok(Err(_)) => anyhow::bail!("the screen failed"),
            Err(_) => anyhow::bail!("the terminal does not accept output"),
        }
    }
}

struct Live {
    model: Model,
    screen: Screen,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    messages: mpsc::Receiver<Message>,
}

impl Live {
    async fn run(mut self, shutdown: &CancellationToken) -> io::Result<Option<String>> {
        let palette = if terminal::has_colours() { Palette::Colours } else { Palette::Plain };
        let (mut has_snapshots, mut has_input) = (true, true);
        let (mut is_stale, mut drawn) = (true, Instant::now());
        loop {
            let Self { model, screen, snapshots, messages } = &mut self;
            let due = drawn + if is_stale { FRAME } else { model.ages_in(drawn) };
            // Drawing comes first, or many messages would prevent it. Snapshots come before
            // messages, since the moves in a snapshot are older than the messages after it.
            tokio::select! {
                biased;
                () = sleep_until(due.into()) => {
                    drawn = Instant::now();
                    screen.draw(|frame| draw::draw(frame, model, drawn, palette))?;
                    is_stale = false;
                    continue;
                }
                changed = snapshots.changed(), if has_snapshots => {
                    has_snapshots = changed.is_ok();
                    let snapshot = Arc::clone(&snapshots.borrow_and_update());
                    model.on_snapshot(snapshot, Instant::now());
                }
                message = messages.recv() => match message {
                    Some(message) => model.on_message(message, Instant::now()),
                    None => break,
                },
                input = screen.input(), if has_input => match input {
                    Some(Input::Key(Key::Redraw)) => screen.clear()?,
                    Some(Input::Key(key)) => match model.pressed(key) {
                        Wish::Nothing => {}
                        Wish::End => shutdown.cancel(),
                    },
                    Some(Input::Resized) => {}
                    None => {
                        has_input = false;
                        shutdown.cancel();
                    }
                },
                () = shutdown.cancelled(), if !model.is_ending => model.is_ending = true,
            }
            is_stale = true;
        }
        Ok(self.model.log.pop_front().map(|entry| entry.text))
    }
}

#[cfg(test)]
mod tests;
