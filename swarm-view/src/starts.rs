//! The settings that start the jobs of a pool, and the jobs that other settings restart.
//!
//! A plan for a pool on this machine and a plan for a live Swarm both ask [`Starts::restarts`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use swarm_core::{Job, JobName, Jobs, RunnerName};
use swarm_spec::manifest::Runner;
use swarm_spec::spec::RunnerSpec;

/// The runners of a pool, as its workers get them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runners {
    /// The runner of the jobs that name none.
    runner: Value,
    /// The other runners, by name.
    runners: BTreeMap<String, Value>,
}

impl Runners {
    /// Returns the runners of a spec. O(their size).
    #[must_use]
    pub fn of(runner: &RunnerSpec, runners: &BTreeMap<RunnerName, RunnerSpec>) -> Self {
        // The text is JSON.
        let sent = |spec: &RunnerSpec| serde_json::from_str(&spec.to_json()).unwrap_or_default();
        let named = runners.iter().map(|(name, spec)| (name.as_str().to_owned(), sent(spec)));
        Self { runner: sent(runner), runners: named.collect() }
    }

    fn named(&self, name: Option<&RunnerName>) -> Option<&Value> {
        match name {
            Some(name) => self.runners.get(name.as_str()),
            None => Some(&self.runner),
        }
    }
}

/// The settings that start the jobs of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// The jobs. Only their params and the names of their runners count.
    pub jobs: Jobs,
    /// The runners of the jobs.
    pub runners: Runners,
}

impl Starts {
    /// Returns the jobs that their workers restart when `jobs` and `runners` replace these settings:
    /// other params or another runner start them. A new job restarts nowhere.
    /// O(jobs + size of the runners).
    #[must_use]
    pub fn restarts(&self, jobs: &Jobs, runners: &Runners) -> Vec<JobName> {
        let mut others: BTreeSet<_> = jobs.values().map(|job| job.runner.as_ref()).collect();
        others.retain(|name| !starts_alike(self.runners.named(*name), runners.named(*name)));
        let differs = |job: &Job, before: &Job| {
            job.params != before.params
                || job.runner != before.runner
                || others.contains(&job.runner.as_ref())
        };
        let changed = jobs
            .iter()
            .filter(|(name, job)| self.jobs.get(*name).is_some_and(|before| differs(job, before)));
        changed.map(|(name, _)| name.clone()).collect()
    }
}

/// Returns whether a worker keeps its jobs running when it gets one runner instead of the other. A
/// running program takes other checks and other limits of restarts.
fn starts_alike(one: Option<&Value>, other: Option<&Value>) -> bool {
    if one == other {
        return true;
    }
    let read = |runner: Option<&Value>| Runner::parse(&runner?.to_string()).ok();
    match (read(one), read(other)) {
        (Some(Runner::Command(one)), Some(Runner::Command(other))) => one.starts_as(&other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(runner: Value) -> RunnerSpec {
        serde_json::from_value(runner).unwrap()
    }

    fn runners(runner: Value, x: Value) -> Runners {
        Runners::of(&spec(runner), &[(RunnerName::new("x").unwrap(), spec(x))].into())
    }

    /// Job `a` has a param, and job `b` names the runner `x`.
    fn jobs(param: &str) -> Jobs {
        let a = Job {
            params: [("url".to_owned(), param.to_owned())].into_iter().collect(),
            ..Job::default()
        };
        let b = Job { runner: Some(RunnerName::new("x").unwrap()), ..Job::default() };
        [("a".parse().unwrap(), a), ("b".parse().unwrap(), b)].into_iter().collect()
    }

    fn restarted(by: (&Jobs, &Runners)) -> Vec<String> {
        let before = runners(json!({"command": ["one"]}), json!({"command": ["two"]}));
        let running = Starts { jobs: jobs("1"), runners: before };
        running.restarts(by.0, by.1).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_job_restarts_for_other_params_another_name_or_another_program_of_its_runner() {
        let same = runners(json!({"command": ["one"]}), json!({"command": ["two"]}));
        assert_eq!(restarted((&jobs("1"), &same)), [""; 0]);
        assert_eq!(restarted((&jobs("2"), &same)), ["a"]);
        let unnamed: Jobs = jobs("1")
            .iter()
            .map(|(name, job)| (name.clone(), Job { runner: None, ..job.clone() }))
            .collect();
        assert_eq!(restarted((&unnamed, &same)), ["b"]);
        let other = runners(json!({"command": ["one"]}), json!({"command": ["three"]}));
        assert_eq!(restarted((&jobs("1"), &other)), ["b"]);
        let other = runners(json!({"log": {}}), json!({"command": ["two"]}));
        assert_eq!(restarted((&jobs("1"), &other)), ["a"]);
        let mut more: BTreeMap<_, _> =
            jobs("1").iter().map(|(name, job)| (name.clone(), job.clone())).collect();
        more.insert("c".parse().unwrap(), Job::default());
        assert_eq!(restarted((&more.into_iter().collect(), &other)), ["a"], "c is new");
    }

    #[test]
    fn other_checks_and_limits_reach_a_running_job_and_restart_none() {
        let one = json!({
            "command": ["one"], "alive": {"output": "10s"},
            "restart": {"limit": 3, "failover": 2},
        });
        let checked = runners(one, json!({"command": ["two"], "ready": {"line": "up"}}));
        assert_eq!(restarted((&jobs("1"), &checked)), [""; 0]);
    }

    #[test]
    fn runners_stay_the_same_on_their_way_through_the_socket_of_a_pool() {
        let sent =
            runners(json!({"command": ["one"], "env": {"B": "2", "A": "1"}}), json!({"log": {}}));
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Runners>(&text).unwrap(), sent);
    }
}
