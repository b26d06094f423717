//! Finds what a person may have meant by a name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use swarm_core::JobName;
use swarm_terminal::output;
use swarm_view::jobs::JobEntry;
use swarm_view::shell;
use swarm_view::status::Status;
use swarm_view::words::counted;

use super::Failure;
use super::pool::{self, Pool, PoolArgs};
use crate::logs::job_log::JobLog;
use crate::serve::web::{self, job_line};
use crate::settings::fixed::Fixed;
use crate::state_dir::state;

/// Maximum number of names that a sentence suggests.
const NEAR_MAX: usize = 3;

/// Maximum number of running pools that a sentence names.
const RUNNING_MAX: usize = 5;

/// The least similarity of a suggested name, from 0 to 1.
const SIMILAR_ENOUGH: f64 = 0.8;

/// Returns the names of jobs that are similar to `name`, the most similar one first. O(jobs).
pub(super) async fn nearest(pool: &Pool, name: &str) -> Result<Vec<String>, Failure> {
    let mut near = Near::to(name);
    let each = |line: &[u8]| {
        if let Some((_, entry)) = job_line(line).transpose()? {
            near.add(entry.name);
        }
        Ok(())
    };
    pool.get(web::JOBS).await?.lines(each).await?;
    Ok(near.found.into_iter().map(|(_, name)| name).collect())
}

/// Returns the other pools in default directories with names similar to `name`, as the end of a
/// sentence.
pub(super) fn nearest_pools(name: &str) -> String {
    let dirs = state::default_home().map(|home| pool::default_dirs(&home)).unwrap_or_default();
    let names = dirs.iter().filter_map(|dir| dir.file_name());
    let names = names.map(|it| it.to_string_lossy().into_owned()).filter(|it| it != name);
    nearest_of(name, names).unwrap_or_default()
}

/// Returns the names that are similar to `name`, as the end of a sentence; `None` if there are none.
pub(super) fn nearest_of(name: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let mut near = Near::to(name);
    names.for_each(|name| near.add(name));
    let names = near.found.iter().map(|(_, name)| format!("`{}`", name.escape_default()));
    let names = names.collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| format!("; the nearest names are {names}"))
}

/// The reports about jobs that exist.
pub(super) type Known = BTreeMap<String, JobEntry<String>>;

/// Returns the reports about these jobs. The error names the jobs that the pool does not have, and
/// the consequence.
pub(super) async fn known(
    pool: &Pool,
    jobs: &[String],
    consequence: &str,
) -> Result<Known, Failure> {
    let (mut known, mut unknown) = (Known::new(), Vec::new());
    for job in jobs {
        match pool.job(job).await? {
            Some(entry) => drop(known.insert(job.clone(), entry)),
            None => unknown.push(job),
        }
    }
    let Some(first) = unknown.first() else { return Ok(known) };
    let near = nearest(pool, first).await?;
    let quoted = |names: &[String]| {
        let names = names.iter().map(|name| format!("`{}`", name.escape_default()));
        names.collect::<Vec<_>>().join(", ")
    };
    let near = if near.is_empty() { String::new() } else { format!("; it has {}", quoted(&near)) };
    let missing: Vec<_> = unknown.into_iter().cloned().collect();
    let job = if missing.len() == 1 { "job" } else { "jobs" };
    Err(Failure::No(format!(
        "the pool has no {job} {}{near}{consequence}. To name a pool, write `--pool POOL`",
        quoted(&missing)
    )))
}

/// The purpose of a command that got a job's name where a pool's belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Look,
    Stop,
}

/// Returns the sentence about a pool that does not run. If a running pool has a job of that name, the
/// sentence has the command for the job. Else it is `nothing`, with the pools that run if it has no
/// nearest names.
pub(super) async fn or_job(named: &PoolArgs, nothing: String, purpose: Purpose) -> String {
    let Some(job) = named.name() else { return nothing };
    let running = pool::all_running().await.unwrap_or_default();
    for pool in &running {
        if let Ok(Some(_)) = pool.job(job).await {
            let options =
                if running.len() == 1 { String::new() } else { state::options(&pool.dir) };
            return job_instead(job, &pool.shown(), &options, purpose);
        }
    }
    if !nearest_pools(job).is_empty() {
        return nothing;
    }
    let mut running: Vec<_> = running.iter().map(Pool::shown).collect();
    running.sort();
    format!("{nothing}{}", running_instead(&running))
}

/// Returns the names of the running pools, as the end of a sentence.
fn running_instead(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(RUNNING_MAX).map(|it| shell::word(it)).collect();
    let more = match names.len().checked_sub(RUNNING_MAX).filter(|more| 0 < *more) {
        Some(more) => format!(" and {}", counted(more, "more pool")),
        None => String::new(),
    };
    match names.len() {
        0 => String::new(),
        1 => format!("; {} runs", shown.join(", ")),
        _ => format!("; {}{more} run", shown.join(", ")),
    }
}

fn job_instead(job: &str, pool: &str, options: &str, purpose: Purpose) -> String {
    let quoted = shell::word(job);
    let command = match purpose {
        Purpose::Look => format!("swarm ps --job {quoted}{options}"),
        Purpose::Stop => format!("swarm suspend {quoted}{options}"),
    };
    format!("no pool `{job}` runs; {pool} runs, and {job} is a job of {pool}: `{command}`")
}

/// Returns the logs of the only pool with lines about this job; `None` if there is none.
pub(super) fn logs_about(job: &JobName) -> Result<Option<PathBuf>, Failure> {
    let home = state::default_home().map_err(Failure::Usage)?;
    let has_line = |logs: &PathBuf| {
        let mut is_found = false;
        let mut log = JobLog::new(logs, job.clone(), None);
        // One line is enough, and a log that cannot be read has none.
        let _ = log.read(&mut |_| {
            is_found = true;
            Err(std::io::ErrorKind::Interrupted.into())
        });
        is_found
    };
    let logs = pool::known_dirs(&home).into_iter().map(|dir| dir.join("logs"));
    let mut found: Vec<_> = logs.filter(has_line).collect();
    if 1 < found.len() {
        found.sort();
        let options: Vec<_> =
            found.iter().filter_map(|logs| Some(state::options(logs.parent()?))).collect();
        let what = format!("several pools had a job {}", shell::word(job.as_str()));
        return Err(Failure::Usage(output::choice(&what, &options)));
    }
    Ok(found.pop())
}

/// Returns the sentence about a pool in `dir` that runs already; `None` if it does not answer.
pub(crate) async fn runs_already(dir: &Path, is_default: bool) -> Option<String> {
    let pool = Pool { dir: state::find(dir).ok()?? };
    let process = pool.operator().await.ok()??.pid();
    let status = pool.state().await?;
    let which = if is_default {
        shell::word(&pool.name()).into_owned()
    } else {
        format!("--dir {}", shell::file(&pool.dir))
    };
    Some(already(&status, process, &which))
}

/// Returns the sentence about a running pool of the Swarm `name` in another directory than `dir`; `None`
/// if there is none. O(pools of this user).
pub(crate) async fn runs_elsewhere(dir: &Path, name: &str) -> Option<String> {
    let dir = state::find(dir).ok().flatten().or_else(|| std::path::absolute(dir).ok())?;
    let home = state::default_home().ok()?;
    let is_of_name = |it: &PathBuf| {
        let recorded = Fixed::recorded(it).ok().flatten();
        *it != dir && recorded.is_some_and(|it| it.swarm == name)
    };
    let dirs = pool::known_dirs(&home).into_iter().filter(is_of_name).collect();
    let (other, _) = pool::sorted(dirs).await.running.into_iter().next()?;
    let shown = other.display().to_string();
    let already = runs_already(&other, state::is_default(&other)).await;
    let already = already.unwrap_or_else(|| format!("{name} runs already, in {shown}"));
    Some(format!(
        "{already}. A second pool in {} would run each of its jobs a second time; --again starts it",
        dir.display()
    ))
}

fn already(status: &Status, process: i32, which: &str) -> String {
    let Status { name, file, since_unix_s, .. } = status;
    let since = since_unix_s.filter(|since| 0 < *since).and_then(|since| i64::try_from(since).ok());
    let since = since.and_then(|since| Timestamp::from_second(since).ok());
    let since = since.map(|since| format!(", since {since}")).unwrap_or_default();
    let file = file.as_ref().map(|file| format!("it follows edits of {file}; "));
    format!(
        "{name} runs already, as process {process}{since}; {}see it with `swarm attach {which}`, end \
         it with `swarm stop {which}`",
        file.unwrap_or_default()
    )
}

/// The names so far that are similar to a wrong one.
struct Near<'a> {
    wrong: &'a str,
    found: Vec<(f64, String)>,
}

impl<'a> Near<'a> {
    fn to(wrong: &'a str) -> Self {
        Self { wrong, found: Vec::new() }
    }

    fn add(&mut self, name: String) {
        let similarity = strsim::jaro_winkler(self.wrong, &name);
        if SIMILAR_ENOUGH <= similarity {
            self.found.push((similarity, name));
            self.found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
            self.found.truncate(NEAR_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_in_place_of_a_pool_gets_the_command_for_the_job() {
        let ps = job_instead("camera-17", "cams", "", Purpose::Look);
        let expected = "no pool `camera-17` runs; cams runs, and camera-17 is a job of cams: \
                        `swarm ps --job camera-17`";
        assert_eq!(ps, expected);
        let stop = job_instead("a b", "cams", " --pool cams", Purpose::Stop);
        assert!(stop.ends_with("`swarm suspend 'a b' --pool cams`"), "{stop}");
    }

    #[test]
    fn a_name_without_a_pool_gets_the_pools_that_run() {
        let names: Vec<_> = (0..7).map(|number| format!("yard-{number}")).collect();
        assert_eq!(running_instead(&names[..0]), "");
        assert_eq!(running_instead(&names[..1]), "; yard-0 runs");
        assert_eq!(running_instead(&names[..2]), "; yard-0, yard-1 run");
        let many = "; yard-0, yard-1, yard-2, yard-3, yard-4 and 2 more pools run";
        assert_eq!(running_instead(&names), many);
    }

    #[test]
    fn a_pool_that_runs_already_is_named_with_its_process_and_file() {
        let (name, file) = ("cams".to_owned(), Some("/srv/cams.yaml".to_owned()));
        let status = Status { name, file, since_unix_s: Some(1_795_400_801), ..Status::default() };
        let expected = "cams runs already, as process 7, since 2026-11-23T02:26:41Z; it follows edits \
                        of /srv/cams.yaml; see it with `swarm attach cams`, end it with `swarm stop \
                        cams`";
        assert_eq!(already(&status, 7, "cams"), expected);
        let piped = already(&Status { file: None, ..status }, 7, "cams");
        assert!(piped.contains("Z; see it with"), "{piped}");
    }

    #[test]
    fn the_most_similar_names_come_first() {
        let near = |wrong: &str| {
            let mut near = Near::to(wrong);
            for name in ["yard", "camera-2", "camera-11", "camera-12", "camera-1"] {
                near.add(name.to_owned());
            }
            near.found.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(near("camera1")[0], "camera-1");
        assert_eq!(near("camera1").len(), 3);
        assert_eq!(near("weather"), [""; 0]);
    }
}
