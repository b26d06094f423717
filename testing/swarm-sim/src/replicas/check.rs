//! The searches in a group: for a key with two owners, and for dead ends.

use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};
use swarm_replicas::machine::Rule;

use super::{Group, GroupBounds, GroupStep};
use crate::liveness::{Liveness, Verdict, Walked, walk_back};

/// The result of a search.
#[derive(Clone, Debug)]
pub struct GroupChecked {
    /// The bounds that were searched.
    pub bounds: GroupBounds,
    /// The number of different states.
    pub states: usize,
    /// The duration of the search.
    pub took: Duration,
    /// The steps of the longest of all shortest paths.
    pub depth: usize,
    /// Whether the last member owned a key on the way. Otherwise the check is worthless.
    pub has_moved: bool,
    /// The fewest steps to two owners of one key, or `None` if there are none in any state.
    pub found: Option<Vec<GroupStep>>,
}

const ONE_OWNER: &str = "no key has two owners";
const MOVED: &str = "the last member owns something";

struct Sharing(GroupBounds);

impl Model for Sharing {
    type State = Group;
    type Action = GroupStep;

    fn init_states(&self) -> Vec<Group> {
        vec![Group::new(self.0)]
    }

    fn actions(&self, group: &Group, steps: &mut Vec<GroupStep>) {
        steps.extend(group.steps());
    }

    fn next_state(&self, group: &Group, step: GroupStep) -> Option<Group> {
        group.after(&step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_OWNER, |_, group: &Group| group.has_one_owner_each()),
            Property::sometimes(MOVED, |_, group: &Group| has_moved(group)),
        ]
    }
}

fn has_moved(group: &Group) -> bool {
    !group.acting(group.nodes.len() - 1).is_empty()
}

/// Explores all states within `bounds`, breadth first, until a key has two owners.
#[must_use]
pub fn check_group(bounds: GroupBounds) -> GroupChecked {
    let start = Instant::now();
    let until = HasDiscoveries::AnyFailures;
    let checker = Sharing(bounds).checker().threads(2).finish_when(until).spawn_bfs().join();
    GroupChecked {
        bounds,
        states: checker.unique_state_count(),
        took: start.elapsed(),
        depth: checker.max_depth(),
        has_moved: checker.discovery(MOVED).is_some(),
        found: checker.discovery(ONE_OWNER).map(stateright::Path::into_actions),
    }
}

impl fmt::Display for GroupChecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bounds, states, took, depth, has_moved: _, found } = self;
        write!(f, "{bounds:<52} {states:>9} states {:>6.1} s", took.as_secs_f64())?;
        match found {
            Some(steps) => write!(f, "  two owners after {} steps", steps.len()),
            None => write!(f, "  one owner each, depth {depth}"),
        }
    }
}

impl Walked for Group {
    type Step = GroupStep;

    fn all_steps(&self) -> Vec<GroupStep> {
        self.steps()
    }

    fn stepped(&self, step: &GroupStep) -> Option<Self> {
        self.after(step)
    }

    fn verdict(&self) -> Verdict {
        let is_good = self.is_served();
        let has_moved = is_good && has_moved(self);
        Verdict { is_good, is_judged: self.is_live(), has_moved }
    }
}

/// Explores all states within `bounds`. Looks for states with a usable member from which no path
/// leads to an owner for every key.
#[must_use]
pub fn group_dead_ends(bounds: GroupBounds) -> Liveness<GroupStep> {
    walk_back(&Group::new(bounds))
}

/// A broken rule, and how it was noticed.
#[derive(Clone, Debug)]
pub struct GroupVariant {
    /// The broken rule.
    pub rule: Rule,
    /// The search with the rule broken.
    pub broken: GroupChecked,
    /// The same bounds with the rule in force.
    pub intact: GroupChecked,
}

/// The smallest bounds in which breaking `rule` shows.
fn bounds(rule: Rule) -> GroupBounds {
    let bounds = GroupBounds { broken: Some(rule), ..GroupBounds::default() };
    match rule {
        // Two members that come must each be able to miss the other.
        Rule::AwaitOwnWrite | Rule::AllAcknowledge => bounds,
        Rule::StopBeforeWrite => GroupBounds { settled: 1, ..bounds },
        Rule::FenceBeforeTaking => GroupBounds { settled: 2, revocations: 1, ..bounds },
    }
}

/// Breaks each rule in turn, and also checks the same bounds with the rule in force.
pub fn group_variants() -> impl Iterator<Item = GroupVariant> {
    Rule::ALL.into_iter().map(|rule| {
        let bounds = bounds(rule);
        let intact = check_group(GroupBounds { broken: None, ..bounds });
        GroupVariant { rule, broken: check_group(bounds), intact }
    })
}
