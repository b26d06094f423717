//! The cost of the heartbeats of a thousand sessions, from Leases that are made and renewed as by
//! workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use swarm_client::session::{SESSION_LABEL, version, written};
use swarm_core::handover::{Ack, Holder, LeaseTerms, LeaseVersion, LeaseWrite, SessionId};
use swarm_core::session::Former;
use tokio::task::JoinSet;

use crate::figures::Times;
use crate::figures::cpu::{self, COUNTED};
use crate::output::say;
use crate::scenario::Context;

const SESSIONS: u32 = 1_000;

/// The renewals since counting began.
#[derive(Default)]
struct Renewals {
    failed: AtomicU64,
    times: Mutex<Vec<Duration>>,
}

pub(super) async fn measure(context: &Context) -> Result<()> {
    let terms = LeaseTerms::default();
    let at_rest = cpu::taken(context).await?;
    let mut opened = JoinSet::new();
    let renewals = Arc::new(Renewals::default());
    for n in 0..SESSIONS {
        let (api, renewals) = (context.api::<Lease>(), Arc::clone(&renewals));
        opened.spawn(async move { live(&api, n, &terms, &renewals).await });
    }
    // After this time all sessions have been opened and renewed, and the steady state begins.
    tokio::time::sleep(terms.renew * 3).await;
    renewals.times.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let failed_before = renewals.failed.load(Ordering::Relaxed);
    let loaded = cpu::taken(context).await?;
    let times = Times::new(std::mem::take(
        &mut *renewals.times.lock().unwrap_or_else(PoisonError::into_inner),
    ));
    let failed = renewals.failed.load(Ordering::Relaxed) - failed_before;
    opened.shutdown().await;
    let per_second = times.0.len() as u64 / COUNTED.as_secs();
    say(format_args!(
        "\n| {SESSIONS} sessions that renew every {} s | at rest | with them |",
        terms.renew.as_secs()
    ));
    say("|---|---|---|");
    say(format_args!("| renewals a second ({failed} failed) | 0 | {per_second} |"));
    for ((what, idle), (_, busy)) in at_rest.iter().zip(&loaded) {
        say(format_args!("| CPU of {what}, of one core | {idle:.1} % | {busy:.1} % |"));
    }
    say("\n| | renewals | median | 99 % | worst |\n|---|---|---|---|---|");
    say(format_args!("| time of a renewal | {} |", times.cells()));
    let of_sessions = ListParams::default().labels(&format!("{SESSION_LABEL}=true"));
    context.api::<Lease>().delete_collection(&DeleteParams::default(), &of_sessions).await?;
    Ok(())
}

/// Opens a session, and renews it until its task is aborted.
async fn live(api: &Api<Lease>, n: u32, terms: &LeaseTerms, renewals: &Renewals) {
    let id = SessionId::new(&format!("00000000-0000-0000-0000-{n:012}"), n.into());
    // The first renewals are spread over one renewal interval, as with independent workers.
    let first = terms.renew * n / SESSIONS;
    tokio::time::sleep(first).await;
    let mut ticks = tokio::time::interval(terms.renew);
    let mut expected: Option<LeaseVersion> = None;
    let mut number = 0;
    loop {
        ticks.tick().await;
        number += 1;
        let ack = Ack::default();
        let write = LeaseWrite { expected, holder: Holder::Session, number, ack };
        let object = written(&id, &write, terms, &Former::default());
        let sent = Instant::now();
        let answer = match expected {
            None => api.create(&PostParams::default(), &object).await,
            Some(_) => api.replace(&id.to_string(), &PostParams::default(), &object).await,
        };
        match answer {
            Ok(object) => {
                expected = version(&object);
                let mut times = renewals.times.lock().unwrap_or_else(PoisonError::into_inner);
                times.push(sent.elapsed());
            }
            Err(_) => drop(renewals.failed.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
