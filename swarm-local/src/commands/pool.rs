//! Finds a running pool on this machine and queries it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::http::{self, Answer, AnswerError};
use swarm_adapters_host::runlog::rotated;
use swarm_core::history::Episode;
use swarm_core::{Assignment, Job, JobName, RunnerName, Slot, Unassigned};
use swarm_terminal::output;
use swarm_view::action::Action;
use swarm_view::jobs::JobEntry;
use swarm_view::shell;
use swarm_view::starts::{Runners, Starts};
use swarm_view::status::{Earlier, Status};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::Failure;
use super::names::{self, Purpose};
use crate::pool::events::EventList;
use crate::processes::{Peer, remaining};
use crate::serve::web::{self, job_line};
use crate::settings::fixed::Fixed;
use crate::settings::run_log;
use crate::state_dir::{elsewhere, state};

/// Maximum time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Maximum time for an answer of a pool that is ending.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// Maximum time for a starting pool to know its state, and the time between two requests to it.
const START_MAX: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Maximum time for an operator to make its socket, at its start or after the socket was removed.
const SOCKET_MAX: Duration = Duration::from_secs(4);

/// Maximum length of an unexpected answer in a message, in characters.
const SHOWN_MAX: usize = 200;

/// Maximum number of default directories to search.
const POOLS_MAX: usize = 1_000;

/// Arguments that select a pool.
#[derive(Clone, Debug, Default, Args)]
pub struct PoolArgs {
    /// The name of the pool's Swarm [default: the only pool that runs]
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    /// The pool's directory, if `local` was given one
    #[arg(long, value_name = "DIR", conflicts_with = "pool")]
    pub dir: Option<PathBuf>,
    /// The name of the pool's Swarm; every command has this option
    #[arg(long = "pool", value_name = "POOL", conflicts_with_all = ["pool", "dir"])]
    pub by_option: Option<String>,
}

/// A pool that an option names.
#[derive(Clone, Debug, Args)]
pub struct NamedPool {
    /// The name of the pool's Swarm [default: the only pool that runs]
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// The pool's directory, if `local` was given one
    #[arg(long, value_name = "DIR", conflicts_with = "pool")]
    pub dir: Option<PathBuf>,
}

impl NamedPool {
    pub(super) fn args(&self) -> PoolArgs {
        PoolArgs { pool: self.pool.clone(), dir: self.dir.clone(), by_option: None }
    }

    /// Returns the run logs of the named pool, the older one first. The pool may have ended.
    ///
    /// # Errors
    ///
    /// A sentence about a directory without a run log.
    pub fn run_logs(&self) -> Result<Vec<PathBuf>, String> {
        let dir =
            self.args().named_dir().map_err(|failure| failure.sentence())?.unwrap_or_default();
        let log = dir.join(run_log::NAME);
        let logs: Vec<_> = [rotated(&log), log].into_iter().filter(|log| log.is_file()).collect();
        let missing = || format!("{} has no run log", dir.display());
        if logs.is_empty() { Err(missing()) } else { Ok(logs) }
    }

    /// Returns the directory of the pool, which may have ended.
    pub(super) async fn past_dir(&self) -> Result<PathBuf, Failure> {
        let args = self.args();
        match args.named_dir()? {
            Some(named) => Ok(state::find(&named)?.ok_or_else(|| args.was_never_run(&named))?),
            None => match args.find().await {
                Ok(pool) => Ok(pool.dir),
                Err(failure @ Failure::No(_)) => only_ended()?.ok_or(failure),
                Err(failure) => Err(failure),
            },
        }
    }

    /// Reads the history of the pool, which may have ended. A note says what was not read.
    pub(super) async fn history(&self) -> Result<(Vec<Episode>, Vec<String>), Failure> {
        let dir = self.past_dir().await?;
        match crate::pool::history::read(&dir) {
            (episodes, Some(sentence)) if episodes.is_empty() => {
                Err(Failure::Failed(anyhow::Error::msg(sentence)))
            }
            (episodes, None) if episodes.is_empty() && !ran_in(&dir) => {
                Err(self.args().was_never_run(&dir))
            }
            (episodes, unread) => {
                let note = unread.map(|sentence| format!("note: {sentence}"));
                Ok((episodes, note.into_iter().collect()))
            }
        }
    }
}

/// A pool, and whether it runs.
#[derive(Debug)]
pub(super) enum Found {
    /// The pool runs.
    Runs(Pool),
    /// The pool runs, and its operator, the process with this id, has no socket.
    Mute(Pool, i32),
    /// The pool does not run, but left processes behind.
    Left(Pool, Earlier),
    /// The operator has ended without being asked, and no process is left.
    Lost(Pool),
    /// No pool was found; a sentence.
    Nothing(String),
}

/// A pool that runs or left processes behind.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) dir: PathBuf,
}

impl PoolArgs {
    /// Returns the name of the pool, if it is named.
    pub(super) fn name(&self) -> Option<&String> {
        self.pool.as_ref().or(self.by_option.as_ref())
    }

    /// Returns the arguments as options of another command.
    pub(super) fn options(&self) -> String {
        match (self.name(), &self.dir) {
            (Some(pool), _) => format!(" --pool {}", shell::word(pool)),
            (None, Some(dir)) => format!(" --dir {}", shell::file(dir)),
            (None, None) => String::new(),
        }
    }

    /// Returns the arguments as words for the end of another command.
    pub(super) fn words(&self) -> String {
        match self.name() {
            Some(pool) => format!(" {}", shell::word(pool)),
            None => self.options(),
        }
    }

    /// Returns the directory that the arguments name, if any.
    pub(super) fn named_dir(&self) -> Result<Option<PathBuf>, Failure> {
        match (&self.dir, self.name()) {
            (Some(dir), _) => Ok(Some(dir.clone())),
            (None, Some(name)) => state::default_dir(name).map(Some).map_err(Failure::Usage),
            (None, None) => Ok(None),
        }
    }

    /// Returns the failure about a directory without the state of a pool.
    pub(super) fn was_never_run(&self, dir: &Path) -> Failure {
        let near = self.name().map(|name| names::nearest_pools(name)).unwrap_or_default();
        Failure::No(format!("no pool was run in {}{near}", dir.display()))
    }

    /// Finds the selected pool, or the processes that it left behind.
    pub(super) async fn look(&self) -> Result<Found, Failure> {
        let Some(named) = self.named_dir()? else { return only_one().await };
        let near = || self.name().map(|name| names::nearest_pools(name)).unwrap_or_default();
        let nothing = || Found::Nothing(format!("no pool runs in {}{}", named.display(), near()));
        let pool = match state::find(&named) {
            Ok(Some(dir)) => Pool { dir },
            other => {
                // The operator may be about to create its directory again.
                if let Some(operator) = state::locker(&named) {
                    return Ok(Found::Mute(Pool { dir: named }, operator));
                }
                other?;
                return Ok(nothing());
            }
        };
        if pool.is_up().await? {
            return Ok(Found::Runs(pool));
        }
        if let Some(operator) = pool.locker()? {
            return Ok(Found::Mute(pool, operator.pid()));
        }
        // The path may be a link that leads to another directory now.
        if let Some(operator) = state::locker(&named) {
            return Ok(Found::Mute(Pool { dir: named }, operator));
        }
        let cannot = || format!("processes of the pool in {} cannot be found", named.display());
        let left = remaining(&pool.dir).await.with_context(cannot)?;
        Ok(match left {
            Some(left) => Found::Left(pool, Earlier::from(&left)),
            None if Fixed::is_expected(&pool.dir) => Found::Lost(pool),
            None => nothing(),
        })
    }

    /// Does the same, but waits a while for the socket of an operator that has none.
    async fn look_for_socket(&self) -> Result<Found, Failure> {
        let until = Instant::now() + SOCKET_MAX;
        loop {
            match self.look().await? {
                Found::Mute(..) if Instant::now() < until => sleep(ASK_EVERY).await,
                found => return Ok(found),
            }
        }
    }

    /// Finds the selected pool if it runs.
    pub(super) async fn find(&self) -> Result<Pool, Failure> {
        match self.look_for_socket().await? {
            Found::Runs(pool) => Ok(pool),
            Found::Mute(pool, operator) => Err(pool.without_socket(operator)),
            Found::Left(pool, earlier) => {
                let hint = format!(
                    "`swarm stop --dir {}` waits for them, and with --now kills them",
                    shell::file(&pool.dir)
                );
                Err(Failure::No(format!("{}; {hint}", pool.left_sentence(&earlier))))
            }
            Found::Lost(pool) => Err(Failure::No(pool.lost_sentence())),
            Found::Nothing(sentence) => {
                Err(Failure::No(names::or_job(self, sentence, Purpose::Look).await))
            }
        }
    }
}

/// The pools in the default and in the listed directories.
pub(super) struct Pools {
    /// The running pools, with the process of an operator that has no socket.
    pub(super) running: Vec<(PathBuf, Option<i32>)>,
    /// The directories of other pools.
    pub(super) ended: Vec<PathBuf>,
}

impl Pools {
    /// Returns the running pools.
    pub(super) fn running(&self) -> Vec<Pool> {
        self.running.iter().map(|(dir, _)| Pool { dir: dir.clone() }).collect()
    }

    /// Returns the pools whose operators have ended without being asked. Reads a file of each pool that
    /// has ended.
    pub(super) fn lost(&self) -> Vec<Pool> {
        let lost = self.ended.iter().filter(|dir| Fixed::is_expected(dir));
        lost.map(|dir| Pool { dir: dir.clone() }).collect()
    }
}

/// Returns the default directories of pools. A directory that is unusable cannot be the selected
/// pool.
pub(super) fn default_dirs(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(home).into_iter().flatten().take(POOLS_MAX).flatten();
    let entries = entries.map(|entry| entry.path()).filter(|path| !elsewhere::is_list(path));
    found(entries)
}

/// Returns the default directories of pools, and those in the list of others.
pub(super) fn known_dirs(home: &Path) -> Vec<PathBuf> {
    found(default_dirs(home).into_iter().chain(elsewhere::links_in(home)))
}

/// Returns the directories to which the paths lead. A link in the home leads to a directory that may be
/// there as well.
fn found(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let dirs: BTreeSet<_> = paths.filter_map(|path| state::find(&path).ok()?).collect();
    dirs.into_iter().collect()
}

/// Finds out which pools in these directories run.
pub(super) async fn sorted(dirs: Vec<PathBuf>) -> Pools {
    let (mut running, mut ended) = (Vec::new(), Vec::new());
    for dir in dirs {
        match connected(&dir).await {
            Ok(Some(_)) => running.push((dir, None)),
            Ok(None) => match Peer::that_locks(&dir) {
                Ok(Some(operator)) => running.push((dir, Some(operator.pid()))),
                Ok(None) | Err(_) => ended.push(dir),
            },
            Err(_) => {}
        }
    }
    running.sort();
    Pools { running, ended }
}

/// Finds the running pools of this user.
pub(super) async fn all_running() -> Result<Vec<Pool>, Failure> {
    Ok(all_of_user().await?.running())
}

/// Finds all pools of this user: in the default directories, and in the list of others.
pub(super) async fn all_of_user() -> Result<Pools, Failure> {
    let home = state::default_home().map_err(Failure::Usage)?;
    Ok(sorted(known_dirs(&home)).await)
}

/// Finds all running pools of this user, or else the selected one.
pub(super) async fn every_or(all: bool, selected: &PoolArgs) -> Result<Vec<Pool>, Failure> {
    let running = if all { all_running().await? } else { Vec::new() };
    // The error about a missing pool names the directory.
    if running.is_empty() { Ok(vec![selected.find().await?]) } else { Ok(running) }
}

/// Finds the only running pool, or else the only pool that left processes behind.
async fn only_one() -> Result<Found, Failure> {
    let home = state::default_home().map_err(Failure::Usage)?;
    let Pools { running, ended } = sorted(known_dirs(&home)).await;
    match running.as_slice() {
        [(dir, None)] => Ok(Found::Runs(Pool { dir: dir.clone() })),
        [(dir, Some(operator))] => Ok(Found::Mute(Pool { dir: dir.clone() }, *operator)),
        [] => only_left(&home, ended).await,
        several => Err(several_pools("run", several.iter().map(|(dir, _)| dir))),
    }
}

/// Finds the only pool of these directories that left processes behind.
async fn only_left(home: &Path, ended: Vec<PathBuf>) -> Result<Found, Failure> {
    let mut left = Vec::new();
    for dir in ended {
        if let Ok(Some(remaining)) = remaining(&dir).await {
            left.push((dir, Earlier::from(&remaining)));
        }
    }
    match left.as_slice() {
        [(dir, earlier)] => Ok(Found::Left(Pool { dir: dir.clone() }, earlier.clone())),
        [] => {
            let home = home.display();
            let sentence = format!("no pool runs in {home}; name another directory with --dir");
            Ok(Found::Nothing(sentence))
        }
        several => Err(several_pools("have left processes", several.iter().map(|(dir, _)| dir))),
    }
}

/// Returns the directory of the only pool that was run; `None` if there is none.
pub(super) fn only_ended() -> Result<Option<PathBuf>, Failure> {
    only_ended_in(&state::default_home().map_err(Failure::Usage)?)
}

fn only_ended_in(home: &Path) -> Result<Option<PathBuf>, Failure> {
    let mut dirs = known_dirs(home);
    dirs.retain(|dir| ran_in(dir));
    match dirs.as_slice() {
        [] | [_] => Ok(dirs.pop()),
        several => Err(several_pools("have ended", several.iter())),
    }
}

/// Whether a directory has the state of a pool.
pub(crate) fn ran_in(dir: &Path) -> bool {
    ["ledger.json", "pool.json"].iter().any(|name| dir.join(name).is_file())
}

/// Returns the failure about several pools, with the commands that name one.
fn several_pools<'a>(what: &str, dirs: impl Iterator<Item = &'a PathBuf>) -> Failure {
    let options: Vec<_> = dirs.map(|dir| state::options(dir)).collect();
    Failure::Usage(output::choice(&format!("several pools {what}"), &options))
}

/// State of a running pool that a plan needs.
#[derive(Clone, Debug)]
pub struct RunningPool {
    /// The state directory.
    pub dir: PathBuf,
    /// The file whose edits the pool follows, if it follows one.
    pub file: Option<String>,
    /// The revision of the ledger.
    pub revision: u64,
    /// The number of workers.
    pub workers: usize,
    /// The slot of each job that a worker runs or will run.
    pub held: Assignment,
    /// The jobs that are done.
    pub done: BTreeSet<JobName>,
    /// The settings that the pool keeps, if its version records them.
    pub fixed: Option<Fixed>,
    /// The settings that start its jobs, if its version answers them.
    pub starts: Option<Starts>,
}

/// Queries the selected pool for its assignment. Returns `None` if the pool does not run. O(jobs).
///
/// # Errors
///
/// If the pool does not answer, or belongs to another user.
pub async fn running(args: &PoolArgs) -> anyhow::Result<Option<RunningPool>> {
    let asked = async {
        let pool = match args.look_for_socket().await? {
            Found::Runs(pool) => pool,
            Found::Mute(pool, operator) => return Err(pool.without_socket(operator)),
            Found::Left(..) | Found::Lost(_) | Found::Nothing(_) => return Ok(None),
        };
        let (_, status) = pool.swarm().await?;
        let (mut held, mut jobs, mut done) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let each = |line: &[u8]| {
            let Some((_, entry)) = job_line(line).transpose()? else { return Ok(()) };
            let JobEntry { name, slot, params, runner, state, .. } = entry;
            let Ok(name) = name.parse::<JobName>() else { return Ok(()) };
            if state == "done" {
                done.insert(name);
            } else if let Some(slot) = slot {
                let runner = runner.and_then(|runner| RunnerName::new(&runner).ok());
                jobs.insert(name.clone(), Job { params, runner, ..Job::default() });
                held.push((name, Slot(slot)));
            }
            Ok(())
        };
        pool.get(web::JOBS).await?.lines(each).await?;
        let jobs = jobs.into();
        let starts = pool.runners().await?.map(|runners| Starts { jobs, runners });
        let Status { file, revision, workers, .. } = status;
        let (held, workers) = (held.into_iter().collect(), workers.len());
        let fixed = Fixed::recorded(&pool.dir).map_err(anyhow::Error::msg)?;
        Ok(Some(RunningPool { dir: pool.dir, file, revision, workers, held, done, fixed, starts }))
    };
    match asked.await {
        Ok(running) => Ok(running),
        // A name that cannot name a directory cannot name a running pool.
        Err(Failure::Usage(_)) => Ok(None),
        Err(Failure::No(sentence)) => Err(anyhow::Error::msg(sentence)),
        Err(Failure::Failed(error)) => Err(error),
    }
}

/// Whether a connection ended before the answer.
fn is_broken(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(AnswerError::Connection(_)))
}

async fn connected(dir: &Path) -> Result<Option<UnixStream>, Failure> {
    let cannot = || format!("the pool in {} cannot be asked", dir.display());
    Ok(http::connect(dir).await.with_context(cannot)?)
}

impl Pool {
    /// Whether an operator runs the pool.
    pub(super) async fn is_up(&self) -> Result<bool, Failure> {
        Ok(connected(&self.dir).await?.is_some())
    }

    /// Returns the operator that has locked the pool's directory.
    fn locker(&self) -> Result<Option<Peer>, Failure> {
        let cannot = || format!("the operator in {} cannot be found", self.dir.display());
        Ok(Peer::that_locks(&self.dir).with_context(cannot)?)
    }

    /// Returns the operator that runs the pool, also if it has no socket.
    pub(super) async fn operator(&self) -> Result<Option<Peer>, Failure> {
        let cannot = || format!("the operator in {} cannot be found", self.dir.display());
        match connected(&self.dir).await? {
            Some(stream) => Ok(Peer::of(&stream).with_context(cannot)?),
            None => self.locker(),
        }
    }

    /// Returns the error for an operator without a socket.
    fn without_socket(&self, operator: i32) -> Failure {
        let (dir, quoted) = (self.dir.display(), shell::file(&self.dir));
        Failure::Failed(anyhow::anyhow!(
            "an operator runs in {dir} (process {operator}), but its socket {dir}/api.sock is \
             missing; end it with `swarm stop --dir {quoted}`"
        ))
    }

    /// Returns a sentence about processes that the pool left behind.
    pub(super) fn left_sentence(&self, earlier: &Earlier) -> String {
        format!("no operator runs in {}; {}", self.dir.display(), earlier.sentence(unix_s()))
    }

    /// Returns a sentence about a pool whose operator has ended without being asked.
    pub(super) fn lost_sentence(&self) -> String {
        let dir = shell::file(&self.dir);
        format!(
            "the operator of {} ended without being asked, so nothing restarts its jobs; start it again, \
             or write `swarm stop --dir {dir}` if it should not run",
            self.shown()
        )
    }

    /// Connects to the pool. An operator whose directory was removed has a moment to create it again.
    pub(super) async fn connect(&self) -> Result<UnixStream, Failure> {
        let until = Instant::now() + SOCKET_MAX;
        loop {
            if let Some(stream) = connected(&self.dir).await? {
                return Ok(stream);
            }
            if until <= Instant::now() || state::locker(&self.dir).is_none() {
                let dir = self.dir.display();
                return Err(Failure::No(format!("the pool in {dir} has ended")));
            }
            sleep(ASK_EVERY).await;
        }
    }

    /// Requests `path`. Repeats the request while the pool starts, unless it waits for processes of
    /// an earlier run.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        let missing = || {
            let dir = self.dir.display();
            Failure::Failed(anyhow::anyhow!("the pool in {dir} does not know {path}"))
        };
        self.get_if_any(path).await?.ok_or_else(missing)
    }

    /// Does the same; `None` if the pool has no such thing.
    pub(super) async fn get_if_any(&self, path: &str) -> Result<Option<Answer>, Failure> {
        let until = Instant::now() + START_MAX;
        loop {
            let answer = self.ask(path).await?;
            match answer.status().as_u16() {
                200 => return Ok(Some(answer)),
                404 => return Ok(None),
                503 if Instant::now() < until => self.check_start().await?,
                _ => return Err(self.unexpected(answer).await),
            }
            sleep(ASK_EVERY).await;
        }
    }

    /// Returns a job; `None` if the pool does not have it.
    pub(super) async fn job(&self, name: &str) -> Result<Option<JobEntry<String>>, Failure> {
        match self.get_if_any(&format!("{}/{}", web::JOBS, http::escaped(name))).await? {
            Some(answer) => Ok(Some(serde_json::from_slice(&answer.whole().await?)?)),
            None => Ok(None),
        }
    }

    /// Returns the messages of the operator after the one with this number. An earlier version has
    /// none.
    pub(super) async fn events(&self, number: u64) -> Result<EventList, Failure> {
        match self.get_if_any(&format!("{}/{number}", web::EVENTS)).await? {
            Some(answer) => Ok(serde_json::from_slice(&answer.whole().await?)?),
            None => Ok(EventList::default()),
        }
    }

    /// Returns the runners of the jobs. An earlier version answers none.
    async fn runners(&self) -> Result<Option<Runners>, Failure> {
        match self.get_if_any(web::RUNNERS).await? {
            Some(answer) => Ok(Some(serde_json::from_slice(&answer.whole().await?)?)),
            None => Ok(None),
        }
    }

    /// Acts on a job. The inner error is a sentence about the reason why the action has no effect.
    pub(super) async fn act(
        &self,
        action: Action,
        job: &str,
    ) -> Result<Result<String, String>, Failure> {
        let path = format!("{}/{}/{}", web::BY_HAND, action.as_str(), http::escaped(job));
        let stream = self.connect().await?;
        let answer = self.answered(http::post(stream, &path)).await?;
        let status = answer.status().as_u16();
        if !matches!(status, 200 | 409) {
            return Err(self.unexpected(answer).await);
        }
        let document: serde_json::Value = serde_json::from_slice(&answer.whole().await?)?;
        let text = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
        Ok(if status == 200 { Ok(text("effect")) } else { Err(text("error")) })
    }

    async fn ask(&self, path: &str) -> Result<Answer, Failure> {
        match self.answered(http::request(self.connect().await?, path)).await {
            Err(Failure::Failed(error)) if is_broken(&error) => {
                // The operator was killed meanwhile, which another connection finds out.
                sleep(ASK_EVERY).await;
                self.answered(http::request(self.connect().await?, path)).await
            }
            answered => answered,
        }
    }

    async fn answered(
        &self,
        request: impl Future<Output = Result<Answer, http::AnswerError>>,
    ) -> Result<Answer, Failure> {
        let silent = || {
            let (dir, quoted) = (self.dir.display(), shell::file(&self.dir));
            anyhow::anyhow!(
                "the pool in {dir} does not answer; if it was suspended with Ctrl-Z, continue it \
                 with `fg`, or end it with `swarm stop --dir {quoted}`"
            )
        };
        let answer = timeout(ANSWER_MAX, request).await;
        Ok(answer.map_err(|_| silent())??)
    }

    /// Refuses to wait for a pool that ends processes of an earlier run first, which can take minutes.
    async fn check_start(&self) -> Result<(), Failure> {
        let Some(Status { earlier: Some(earlier), .. }) = self.state().await else {
            return Ok(());
        };
        let (dir, sentence) = (self.dir.display(), earlier.sentence(unix_s()));
        Err(Failure::Failed(anyhow::anyhow!("the pool in {dir} is starting: {sentence}")))
    }

    /// Returns the error for an answer with an unexpected status.
    async fn unexpected(&self, answer: Answer) -> Failure {
        let status = answer.status();
        let text = answer.whole().await.unwrap_or_default();
        let document = serde_json::from_slice::<serde_json::Value>(&text).unwrap_or_default();
        let error = document["error"].as_str().map(str::to_owned);
        let said = error.unwrap_or_else(|| String::from_utf8_lossy(&text).trim().to_owned());
        let said: String = said.chars().take(SHOWN_MAX).collect();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let dir = self.dir.display();
        Failure::Failed(anyhow::anyhow!("the pool in {dir} answers with status {status}{said}"))
    }

    /// Returns the state as the received document and as parsed.
    pub(super) async fn swarm(&self) -> Result<(serde_json::Value, Status), Failure> {
        let answer = self.get(web::SWARM).await?.whole().await?;
        let mut document: serde_json::Value = serde_json::from_slice(&answer)?;
        let status = serde_json::from_slice(&answer).with_context(|| {
            format!("the answer comes from another version: {}", document["error"])
        })?;
        // `jobs` counts suspended jobs separately, too.
        if let Some(unassigned) = document["unassigned"].as_array_mut() {
            unassigned.retain(|it| it["reason"] != Unassigned::Suspended.as_str());
        }
        Ok((document, status))
    }

    /// Returns the state, if the pool answers soon.
    pub(super) async fn state(&self) -> Option<Status> {
        let stream = http::connect(&self.dir).await.ok()??;
        let answer = timeout(ENDING_MAX, http::request(stream, web::SWARM)).await.ok()?.ok()?;
        let answer = timeout(ENDING_MAX, answer.whole()).await.ok()?.ok()?;
        serde_json::from_slice(&answer).ok()
    }

    /// Returns the name that commands take, if the pool is in a default directory.
    pub(super) fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the name that a list of pools shows: the path of a pool that is in no default directory.
    pub(super) fn shown(&self) -> String {
        if state::is_default(&self.dir) { self.name() } else { self.dir.display().to_string() }
    }

    /// Returns the directory of the pool's logs.
    pub(super) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;
    use crate::state_dir::state::StateDir;

    #[test]
    fn an_option_names_a_pool_as_well_as_an_argument_does() {
        let parsed = |words: &[&str]| {
            let command = PoolArgs::augment_args(Command::new("status"));
            let matches = command.try_get_matches_from([&["status"], words].concat()).ok()?;
            PoolArgs::from_arg_matches(&matches).ok()?.name().cloned()
        };
        assert_eq!(parsed(&["cams"]).as_deref(), Some("cams"));
        assert_eq!(parsed(&["--pool", "cams"]).as_deref(), Some("cams"));
        assert_eq!(parsed(&["cams", "--pool", "yard"]), None, "only one of them");
        assert_eq!(parsed(&["--dir", "/srv", "--pool", "yard"]), None);
    }

    #[test]
    fn the_only_pool_that_was_run_needs_no_name() {
        let home = tempfile::tempdir().unwrap();
        let only = || only_ended_in(home.path());
        assert_eq!(only().unwrap(), None);
        let dirs = ["cams", "yard"].map(|name| home.path().join(name));
        for dir in &dirs {
            drop(StateDir::claim(dir).unwrap());
        }
        fs::write(dirs[1].join("pool.json"), "{}").unwrap();
        assert!(only().unwrap().is_some_and(|dir| dir.ends_with("yard")));
        fs::write(dirs[0].join("pool.json"), "{}").unwrap();
        // A link leads to a pool that counts already.
        std::os::unix::fs::symlink(&dirs[0], home.path().join("link")).unwrap();
        let Err(Failure::Usage(sentence)) = only() else { panic!("{:?}", only()) };
        let lines: Vec<_> = sentence.lines().collect();
        assert_eq!(lines[0], "several pools have ended; name one of them:");
        let ends = dirs.map(|dir| format!(" --dir {}", shell::file(&dir)));
        assert_eq!(lines.len(), 3, "{sentence}");
        assert!(lines[1].ends_with(&ends[0]) && lines[2].ends_with(&ends[1]), "{sentence}");
        // A listed directory counts, too.
        let listed = tempfile::tempdir().unwrap();
        fs::write(listed.path().join("pool.json"), "{}").unwrap();
        let home = tempfile::tempdir().unwrap();
        elsewhere::add(home.path(), listed.path()).unwrap();
        assert_eq!(only_ended_in(home.path()).unwrap().as_deref(), Some(listed.path()));
    }
}
