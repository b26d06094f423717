//! `attach`: shows and steers a pool that runs elsewhere on this machine. Its end does not end the
//! pool.

mod follow;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use swarm_terminal::can_draw;
use swarm_terminal::hands::{Hands, Request};
use swarm_terminal::output::{complain_in_lines, has_no_reader, print as print_styled};
use swarm_terminal::scene::{Ends, News, Paths};
use swarm_terminal::screen::View;
use swarm_terminal::shutdown::Shutdown;
use swarm_view::message::Message;
use swarm_view::shell;
use swarm_view::status::Status;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::pool::{Found, Pool};
use super::{Failure, PoolArgs, ended, status};
use crate::logs::job_log;
use crate::print::text;
use follow::{Feed, Left};

/// The time between two looks for the reader of the lines.
const LOOK: Duration = Duration::from_millis(200);

/// Maximum number of lines that wait to be printed.
const QUEUE_MAX: usize = 1_000;

/// Arguments of `attach`.
#[derive(Clone, Debug, Args)]
pub struct AttachArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Print lines of events, on a terminal too, instead of the view
    #[arg(long)]
    pub plain: bool,
}

/// Shows a running pool until the user detaches or the pool ends. Exit code 3 if no such pool runs.
///
/// # Errors
///
/// If the pool does not answer, or the terminal cannot be drawn on.
pub async fn attach(args: AttachArgs) -> anyhow::Result<ExitCode> {
    ended(show(&args).await)
}

async fn show(args: &AttachArgs) -> Result<(), Failure> {
    let shutdown = Shutdown::by_signals()?;
    let pool = Arc::new(args.pool.find().await?);
    let (_, status) = pool.swarm().await?;
    let left = if !args.plain && can_draw() {
        draw(&pool, status.file, &shutdown).await?
    } else {
        print(&args.pool, &pool, &status, &shutdown).await?
    };
    if left != Left::Unread {
        text::say(&last(args, &pool, left).await);
    }
    Ok(())
}

/// Draws the pool until the user detaches or the pool ends.
async fn draw(
    pool: &Arc<Pool>,
    file: Option<String>,
    shutdown: &Shutdown,
) -> Result<Left, Failure> {
    let paths = Paths { file, dir: pool.dir.display().to_string() };
    let (hands, requests) = Hands::new();
    let acting = tokio::spawn(carry_out(Arc::clone(pool), requests));
    let logs = job_log::opener(pool.dir.join("logs"));
    let (view, news) = View::open(paths, Ends::View, logs, shutdown.clone(), hands)?;
    let feed = Feed { pool: Arc::clone(pool), news };
    // The view ends once the feed has dropped its channels.
    let left = feed.run(0, shutdown).await;
    acting.abort();
    view.ended().await?;
    left
}

/// Prints the state of the pool and each later event as lines.
async fn print(
    named: &PoolArgs,
    pool: &Arc<Pool>,
    status: &Status,
    shutdown: &Shutdown,
) -> Result<Left, Failure> {
    let known = pool.events(0).await?.events.last().map_or(0, |event| event.number);
    let runs = status::run_again(pool, status).await?;
    print_styled(&status::text(status, &pool.dir, named, &runs, false))?;
    let (news, printed) = mpsc::channel(QUEUE_MAX);
    let feed = Feed { pool: Arc::clone(pool), news };
    tokio::select! {
        (left, ()) = async { tokio::join!(feed.run(known, shutdown), print_all(printed)) } => left,
        () = reader_lost() => Ok(Left::Unread),
    }
}

/// Waits until standard output has no reader, as after `head` has ended.
async fn reader_lost() {
    while !has_no_reader(&io::stdout()) {
        sleep(LOOK).await;
    }
}

async fn print_all(mut news: mpsc::Receiver<News>) {
    while let Some(one) = news.recv().await {
        let News::Message((message, _)) = one else { continue };
        match message {
            Message::Info(text) | Message::Moved(text) | Message::Settled(text) => text::say(&text),
            Message::Problem(text) => complain_in_lines(&text),
        }
    }
}

/// Passes actions of the user on to the pool.
async fn carry_out(pool: Arc<Pool>, mut requests: mpsc::Receiver<Request>) {
    while let Some(Request { action, job, answer }) = requests.recv().await {
        let done = match pool.act(action, &job).await {
            Ok(done) => done,
            Err(Failure::No(sentence) | Failure::Usage(sentence)) => Err(sentence),
            Err(Failure::Failed(error)) => Err(format!("{error:#}")),
        };
        // The view may have ended.
        let _ = answer.send(done);
    }
}

/// Returns the sentence after the view has ended.
async fn last(args: &AttachArgs, pool: &Pool, left: Left) -> String {
    let dir = pool.dir.display();
    match left {
        Left::Detached | Left::Unread => {
            let which = match (&args.pool.dir, args.pool.name()) {
                (Some(dir), _) => format!(" --dir {}", shell::file(dir)),
                (None, Some(name)) => format!(" {}", shell::word(name)),
                (None, None) => String::new(),
            };
            format!("detached; the pool goes on: `swarm attach{which}` shows it again")
        }
        Left::Ended => {
            let named = PoolArgs { dir: Some(pool.dir.clone()), ..PoolArgs::default() };
            match named.look().await {
                Ok(Found::Left(pool, earlier)) => pool.left_sentence(&earlier),
                _ => format!("the pool in {dir} has ended"),
            }
        }
    }
}
