//! Rules broken on purpose. A check that does not notice is worth nothing.

use swarm_core::handover::Rule;

use crate::{Bounds, Checked, Fault, Invariant, check};

/// A broken rule, and how it was noticed.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Which rule was broken.
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
        Rule::NewerViewsOnly
        | Rule::JoinBeforeAck
        | Rule::AckBeforeGrant
        | Rule::DeadlineFromSending => bounds,
    }
}

/// Breaks each rule in turn, and also checks the same bounds with the rule in force.
pub fn variants() -> impl Iterator<Item = Variant> {
    Rule::ALL.into_iter().map(|rule| {
        let bounds = bounds(rule);
        Variant {
            rule,
            runner_holds: check(bounds, &[Invariant::RunnerHolds]),
            one_runner: check(bounds, &[Invariant::OneRunner]),
            intact: check(Bounds { broken: None, ..bounds }, &Invariant::ALL),
        }
    })
}
