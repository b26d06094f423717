//! Rules broken on purpose. A check that does not notice a broken rule is worthless.

use swarm_core::handover::Rule;

use crate::{Bounds, Checked, Fault, Invariant, check};

/// A broken rule, and how it was noticed.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The broken rule.
    pub rule: Rule,
    /// The search for a runner that does not hold its job.
    pub runner_holds: Checked,
    /// The search for a job with two runners.
    pub one_runner: Checked,
    /// The same bounds with the rule in force.
    pub intact: Checked,
}

/// The smallest bounds in which breaking `rule` shows.
fn bounds(rule: Rule) -> Bounds {
    let bounds = Bounds { broken: Some(rule), faults: &[], ..Bounds::default() };
    match rule {
        // A stale write must follow a whole move.
        Rule::CompareAndSet => Bounds { versions: 5, ..bounds },
        // The lease must outlast a tick for a renewal to go unnoticed.
        Rule::RevokeBeforeFence | Rule::RevokeAtSeenVersion => Bounds { lease: 2, ..bounds },
        Rule::DriftMargin => Bounds { drift: 1, ..bounds },
        Rule::CheckOnResume => Bounds { faults: &[Fault::Pause], ..bounds },
        Rule::SessionIdentity => Bounds { faults: &[Fault::ForeignView], ..bounds },
        Rule::JoinBeforeClose => Bounds { faults: &[Fault::Terminate], lease: 2, ..bounds },
        // One job stops slowly while others stop too, and leaves with them or before them.
        Rule::NameAllOrNone | Rule::HoldTheNamed => Bounds { jobs: 2, ..bounds },
        Rule::KeepWhatIsProved => Bounds { jobs: 2, faults: &[Fault::OldLease], ..bounds },
        Rule::AckOfThisIncarnation => Bounds { faults: &[Fault::ForeignLease], ..bounds },
        Rule::NameUntilJoined
        | Rule::NewerViewsOnly
        | Rule::JoinBeforeAck
        | Rule::AckBeforeGrant
        | Rule::DeadlineFromSending => bounds,
    }
}

/// Breaks each of the `rules` in turn, and also checks the same bounds with the rule in force.
pub fn variants(rules: impl IntoIterator<Item = Rule>) -> impl Iterator<Item = Variant> {
    let mut whole: Vec<Checked> = Vec::new();
    rules.into_iter().map(move |rule| {
        let bounds = bounds(rule);
        // Several rules are broken in the same bounds.
        let intact = Bounds { broken: None, ..bounds };
        let known = whole.iter().find(|checked| checked.bounds == intact).cloned();
        let intact = known.unwrap_or_else(|| check(intact, &Invariant::ALL));
        whole.push(intact.clone());
        let [runner_holds, one_runner] = searches(rule);
        Variant { rule, runner_holds, one_runner, intact }
    })
}

/// Breaks the `rule`, and searches for a runner that does not hold its job, and for a job with two
/// runners.
#[must_use]
pub fn searches(rule: Rule) -> [Checked; 2] {
    // Forgetting a proof only costs time.
    let is_slow = rule == Rule::KeepWhatIsProved;
    [Invariant::RunnerHolds, Invariant::OneRunner]
        .map(|by| check(bounds(rule), &[if is_slow { Invariant::ProofsStay } else { by }]))
}
