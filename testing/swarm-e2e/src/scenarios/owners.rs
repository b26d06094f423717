//! Judges, by the audit log alone, whether a replica wrote for a Swarm that another replica owned.
//! A replica that takes a Swarm over writes the ledger first. The ledgers therefore show the owner
//! at each time.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use swarm_adapters_k8s::pool::workload::Kind;

use crate::cluster::Request;
use crate::operator::ACCOUNT;

/// The numbers of writes and takeovers in an audit log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Writes of ledgers that were carried out, and that were refused.
    pub(super) ledgers: (usize, usize),
    /// Writes of status that were carried out.
    pub(super) statuses: usize,
    /// The number of ledger writes that followed a write of another replica.
    pub(super) takeovers: usize,
}

/// Judges the requests for Swarms of a namespace, where each Swarm has a pool of its own name.
///
/// # Errors
///
/// When a replica wrote the status of a Swarm that another replica had taken over before the write
/// was sent.
pub(super) fn judge(requests: &[Request], namespace: &str) -> Result<Verdict> {
    let is_meant = |it: &&Request| {
        let is_of_operator = it.user == ACCOUNT && it.namespace == namespace;
        is_of_operator && it.is_write() && !it.pod.is_empty()
    };
    let requests: Vec<_> = requests.iter().filter(is_meant).collect();
    let mut verdict = Verdict::default();
    // The accepted writes of each ledger, with the pod of each replica. Below they are sorted by
    // the times of their answers.
    let mut ledgers = BTreeMap::<&str, Vec<&Request>>::new();
    for request in requests.iter().filter(|it| it.resource == "swarmledgers") {
        if request.code < 300 {
            verdict.ledgers.0 += 1;
            let (_, pool) = Kind::of_ledger(&request.name).context("no name of a ledger")?;
            ledgers.entry(pool).or_default().push(request);
        } else {
            verdict.ledgers.1 += 1;
        }
    }
    for writes in ledgers.values_mut() {
        writes.sort_by(|a, b| a.answered.cmp(&b.answered));
        verdict.takeovers += writes.windows(2).filter(|pair| pair[0].pod != pair[1].pod).count();
    }
    for write in requests.iter().filter(|it| it.resource == "swarms/status" && it.code < 300) {
        verdict.statuses += 1;
        let Some(of_ledger) = ledgers.get(write.name.as_str()) else { continue };
        // A takeover that was answered only after this write was sent does not count.
        let last = of_ledger.iter().take_while(|it| it.answered < write.received).last();
        ensure!(
            last.is_none_or(|owner| owner.pod == write.pod),
            "{write}, sent by pod {} at {}, when the ledger was of {last:?}",
            write.pod,
            write.received
        );
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(pod: &str, resource: &str, name: &str, received: u32, code: u16) -> Request {
        let time = |at: u32| format!("2026-01-01T00:00:00.{at:06}Z");
        Request {
            user: ACCOUNT.to_owned(),
            verb: "update".to_owned(),
            resource: resource.to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
            code,
            has_right: true,
            pod: pod.to_owned(),
            received: time(received),
            answered: time(received + 5),
            ..Request::default()
        }
    }

    #[test]
    fn a_status_from_a_replica_that_lost_the_swarm_is_found() {
        let mut requests = vec![
            write("a", "swarmledgers", "statefulset.w", 0, 201),
            write("a", "swarms/status", "w", 10, 200),
            write("b", "swarmledgers", "statefulset.w", 20, 200),
            // Sent before the takeover was answered.
            write("a", "swarms/status", "w", 24, 200),
            write("b", "swarms/status", "w", 30, 200),
            write("a", "swarms/status", "w", 40, 409),
            write("a", "swarmledgers", "statefulset.w", 40, 409),
        ];
        let expected = Verdict { ledgers: (2, 1), statuses: 3, takeovers: 1 };
        assert_eq!(judge(&requests, "n").unwrap(), expected);
        requests.push(write("a", "swarms/status", "w", 40, 200));
        let late = judge(&requests, "n").unwrap_err().to_string();
        assert!(late.contains("sent by pod a at 2026"), "{late}");
        assert_eq!(judge(&requests, "other").unwrap(), Verdict::default());
    }
}
