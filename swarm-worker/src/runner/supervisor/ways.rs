//! The ways in which the jobs of a worker run: one for all jobs, or one for each runner's name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use swarm_core::RunnerName;

use super::Restarts;
use crate::runner::Runner;

/// A way to run jobs: a runner, and the policy for restarts.
#[derive(Clone)]
pub(crate) struct Way {
    /// The runner. Jobs restart if another one replaces it.
    pub(crate) runner: Arc<dyn Runner>,
    /// The policy for restarts.
    pub(crate) restarts: Restarts,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("restarts", &self.restarts).finish_non_exhaustive()
    }
}

impl Way {
    /// Returns whether both have the same runner, so that a job need not restart.
    pub(super) fn has_runner_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.runner, &other.runner)
    }

    /// Returns whether both restart jobs alike.
    pub(super) fn restarts_as(&self, other: &Self) -> bool {
        let of = |Restarts { limit, pause_max, success_pause, counter: _ }: &Restarts| {
            (*limit, *pause_max, *success_pause)
        };
        of(&self.restarts) == of(&other.restarts)
    }
}

/// The ways to run the jobs of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    /// The way of jobs that name no runner, or none of the following.
    pub(crate) unnamed: Way,
    /// The ways of jobs that name a runner.
    pub(crate) named: BTreeMap<RunnerName, Way>,
}

impl Ways {
    /// Returns the ways of a worker that runs all jobs alike and ignores the runners that they name.
    pub(crate) fn alike(runner: Arc<dyn Runner>, restarts: Restarts) -> Self {
        Self { unnamed: Way { runner, restarts }, named: BTreeMap::new() }
    }

    /// Returns the way of the jobs that name `runner`.
    pub(super) fn of(&self, runner: Option<&RunnerName>) -> &Way {
        runner.and_then(|name| self.named.get(name)).unwrap_or(&self.unnamed)
    }

    /// Keeps the ways of `before` that are missing here and that some job still names. Its next
    /// update names another one.
    pub(super) fn keep(&mut self, before: &Self, is_named: impl Fn(&RunnerName) -> bool) {
        for (name, way) in before.named.iter().filter(|(name, _)| is_named(name)) {
            self.named.entry(name.clone()).or_insert_with(|| way.clone());
        }
    }

    /// Returns whether both run and restart all jobs alike.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&Way, &Way)| a.has_runner_of(b) && a.restarts_as(b);
        is_same((&self.unnamed, &other.unnamed))
            && self.named.keys().eq(other.named.keys())
            && self.named.values().zip(other.named.values()).all(is_same)
    }

    /// Returns all runners.
    pub(super) fn runners(&self) -> impl Iterator<Item = &Arc<dyn Runner>> {
        self.named.values().chain([&self.unnamed]).map(|way| &way.runner)
    }
}
