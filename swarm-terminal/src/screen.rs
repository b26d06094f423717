//! The live view of a pool on a terminal.
//!
//! It has its own thread, so that a blocked terminal delays only the view. It ends when all senders
//! are dropped, and then restores the terminal.

mod draw;
mod head;
mod help;
mod job;
mod jobs;
mod keys;
mod lines;
mod model;
mod palette;
mod questions;
mod reader;
mod rows;
mod steering;
mod window;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep_until, timeout};

use crate::hands::{Answer, Hands};
use crate::scene::{Ends, News, OpenLog, Paths};
use crate::shutdown::Shutdown;
use crate::terminal;
use model::Model;
use palette::Palette;
use questions::Wish;
use reader::Reader;
use window::{Input, Key, Screen};

/// Minimum time between two frames.
const FRAME: Duration = Duration::from_millis(30);

/// Time between two checks whether a suspended screen has its terminal again.
const RECHECK: Duration = Duration::from_millis(250);

/// Maximum number of news, and of answers to actions, that wait to be drawn.
const QUEUE_MAX: usize = 100;

/// Maximum time for restoring the terminal.
const RESTORE_MAX: Duration = Duration::from_secs(1);

/// An open view on the terminal.
#[derive(Debug)]
pub struct View {
    ended: oneshot::Receiver<io::Result<Option<String>>>,
}

impl View {
    /// Takes over the terminal, and returns the sender of its news. Keys and the loss of the terminal
    /// request `shutdown`. Actions on jobs go to `hands`, and `logs` opens the log of a job.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be drawn on, or a thread cannot start.
    pub fn open(
        paths: Paths,
        ends: Ends,
        logs: OpenLog,
        shutdown: Shutdown,
        hands: Hands,
    ) -> io::Result<(Self, mpsc::Sender<News>)> {
        let screen = Screen::open()?;
        let (sender, news) = mpsc::channel(QUEUE_MAX);
        let (result, ended) = oneshot::channel();
        let handle = Handle::current();
        let logs = Reader::start(logs)?;
        let (model, standing) = (Model { ends, ..Model::new(paths) }, Standing::Drawn);
        let (answers, answered) = mpsc::channel(QUEUE_MAX);
        let live = Live { model, screen, standing, news, logs, hands, answers, answered };
        thread::Builder::new().name("screen".to_owned()).spawn(move || {
            // Even after a panic the workers must not continue without the screen.
            let _ends = EndOnDrop(shutdown.clone());
            let last = handle.block_on(live.run(&shutdown));
            let _ = result.send(last);
        })?;
        Ok((Self { ended }, sender))
    }

    /// Waits until the terminal is restored, and returns the last message. All senders of news must be
    /// dropped before.
    ///
    /// # Errors
    ///
    /// If the terminal could not be drawn on or restored.
    pub async fn ended(self) -> anyhow::Result<Option<String>> {
        match timeout(RESTORE_MAX, self.ended).await {
            Ok(Ok(last)) => last.context("the terminal cannot be drawn on"),
            Ok(Err(_)) => anyhow::bail!("the screen failed"),
            Err(_) => anyhow::bail!("the terminal does not accept output"),
        }
    }
}

/// Requests the end of the pool when it is dropped.
struct EndOnDrop(Shutdown);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Live {
    model: Model,
    screen: Screen,
    standing: Standing,
    news: mpsc::Receiver<News>,
    logs: Reader,
    hands: Hands,
    /// Answers to actions on jobs.
    answers: mpsc::Sender<Answer>,
    answered: mpsc::Receiver<Answer>,
}

/// Present user of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The screen.
    Drawn,
    /// Plain text, until a key is pressed.
    Text,
    /// The shell, until it resumes this program.
    Suspended,
}

impl Live {
    async fn run(mut self, shutdown: &Shutdown) -> io::Result<Option<String>> {
        let palette = if terminal::has_colours() { Palette::Colours } else { Palette::Plain };
        let (mut has_input, mut is_stale, mut drawn) = (true, true, Instant::now());
        loop {
            self.logs.ask(self.model.log_wanted());
            let Self { model, screen, standing, news, logs, answered, .. } = &mut self;
            let due = drawn
                + match standing {
                    Standing::Drawn if is_stale => FRAME,
                    Standing::Drawn => model.ages_in(drawn),
                    Standing::Text | Standing::Suspended => RECHECK,
                };
            // The order gives drawing and keys priority over many messages.
            tokio::select! {
                biased;
                () = sleep_until(due.into()) => {
                    drawn = Instant::now();
                    if *standing == Standing::Suspended && terminal::can_draw() {
                        screen.resume()?;
                        *standing = Standing::Drawn;
                    }
                    if *standing == Standing::Drawn {
                        screen.draw(|frame| draw::draw(frame, model, drawn, palette))?;
                        is_stale = false;
                    }
                    continue;
                }
                input = screen.input(), if has_input => {
                    has_input = input.is_some();
                    match input {
                        Some(input) => self.on_input(input, shutdown)?,
                        None => shutdown.end(),
                    }
                }
                Ok(()) = logs.logs.changed() => {
                    let log = Arc::clone(&logs.logs.borrow_and_update());
                    model.on_log(log);
                }
                one = news.recv() => match one {
                    Some(News::Scene(scene)) => {
                        let before = model.on_scene(scene);
                        spawn_blocking(move || drop(before));
                    }
                    Some(News::Message((message, at))) => model.on_message(message, at),
                    None => break,
                },
                Some(answer) = answered.recv() => model.on_answer(answer),
                () = shutdown.ends(), if !model.is_ending && model.ends == Ends::Pool => {
                    model.is_ending = true;
                }
            }
            is_stale = true;
        }
        Ok(self.model.events.pop_front().map(|entry| entry.text))
    }

    fn on_input(&mut self, input: Input, shutdown: &Shutdown) -> io::Result<()> {
        let Input::Key(key) = input else { return Ok(()) };
        if self.standing == Standing::Text {
            self.standing = Standing::Drawn;
            return self.screen.resume();
        }
        if key == Key::Redraw {
            return self.screen.clear();
        }
        match self.model.pressed(key) {
            Wish::Nothing => {}
            Wish::End => shutdown.end(),
            Wish::Interrupt => shutdown.interrupt(),
            Wish::Act(action, job) => {
                let (hands, answers) = (self.hands.clone(), self.answers.clone());
                tokio::spawn(async move {
                    let _ = answers.send(hands.act(action, job).await).await;
                });
            }
            Wish::Suspend => {
                self.standing = Standing::Suspended;
                self.screen.leave();
                terminal::suspend();
            }
            Wish::Text(text) => {
                self.standing = Standing::Text;
                self.screen.leave_for(&text)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
