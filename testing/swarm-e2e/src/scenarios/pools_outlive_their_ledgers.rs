//! A pool of sessions under `Exclusive` that has published a view loses its ledger in each of the
//! three ways in which users lose one. The Swarm is deleted and created again. The ledger is
//! deleted under a running operator. The restore runbook deletes the ledger while no operator runs.
//!
//! Every session of the lost ledger closes and opens again, every job runs again, and the status
//! reports `Recovering` until then.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use swarm_client::api::{Swarm, SwarmLedger};

use super::sessions_hand_over::{Pool, jobs};
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

const LEDGER: &str = "statefulset.worker";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let pool = Pool::start(context).await?;
    let nine = jobs(0, 9);
    pool.wants(&nine).await?;
    pool.at_rest(&nine, 3, "nine jobs on three workers").await?;
    // The shared view gets a version from which the next ledger must continue.
    pool.scale(0).await?;
    pool.log.silent_for(Duration::from_secs(1)).await?;
    pool.scale(3).await?;
    pool.at_rest(&nine, 3, "down to no worker and up again").await?;

    pool.the_swarm_is_created_again(&nine).await?;
    pool.the_ledger_is_deleted(&nine).await?;
    // The last part stops the operator. Later scenarios share it, so it is started after a failure,
    // too.
    let outcome = pool.the_runbook_deletes_the_ledger(&nine).await;
    pool.operators(2).await?;
    let verdict = pool.log.judge(&pool.context).await?;
    pool.context.laps.lap(format!("the run log: {verdict}"));
    outcome
}

impl Pool {
    async fn the_swarm_is_created_again(&self, jobs: &BTreeSet<String>) -> Result<()> {
        self.context.kubectl(&["delete", "swarm", "jobs", "--timeout=5m"]).await?;
        self.apply_swarm().await?;
        self.wants(jobs).await?;
        self.recovers(jobs, "the Swarm was deleted and created again").await
    }

    async fn the_ledger_is_deleted(&self, jobs: &BTreeSet<String>) -> Result<()> {
        self.context.kubectl(&["delete", "swarmledger", LEDGER]).await?;
        until("the status to say so", || async {
            let (reason, message) = self.ready().await?;
            ensure!(reason == "Recovering", "{reason}: {message}");
            Ok(Some(()))
        })
        .await?;
        self.recovers(jobs, "the ledger was deleted under the operator").await
    }

    async fn the_runbook_deletes_the_ledger(&self, jobs: &BTreeSet<String>) -> Result<()> {
        self.operators(0).await?;
        self.context.kubectl(&["delete", "swarmledger", LEDGER]).await?;
        self.operators(2).await?;
        self.recovers(jobs, "the ledger was deleted while no operator ran").await
    }

    /// Waits until all jobs run again, and the status agrees. Another job that is added meanwhile
    /// runs, too.
    async fn recovers(&self, jobs: &BTreeSet<String>, what: &str) -> Result<()> {
        let ledgers = self.context.api::<SwarmLedger>();
        until("another ledger", || async { Ok(ledgers.get_opt(LEDGER).await?.map(drop)) }).await?;
        self.at_rest(jobs, 3, what).await?;
        let mut more = jobs.clone();
        more.insert("one-more".to_owned());
        self.wants(&more).await?;
        self.at_rest(&more, 3, "a job was added").await?;
        self.wants(jobs).await?;
        self.at_rest(jobs, 3, "and removed").await?;
        until("the status to be ready", || async {
            let (reason, message) = self.ready().await?;
            ensure!(reason == "Settled", "{reason}: {message}");
            Ok(Some(()))
        })
        .await
    }

    /// The reason and the message of the condition `Ready`.
    async fn ready(&self) -> Result<(String, String)> {
        let swarm = self.context.api::<Swarm>().get("jobs").await?;
        let status = swarm.status.context("no status")?;
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let ready = ready.context("no condition")?;
        Ok((ready.reason.clone(), ready.message.clone()))
    }

    /// Scales the operator, and waits until it has this number of replicas.
    async fn operators(&self, replicas: u32) -> Result<()> {
        let namespace = ["--namespace", operator::NAMESPACE];
        let count = format!("--replicas={replicas}");
        let scale = ["scale", "deployment", "swarm-controller", &count];
        let wait: &[&str] = if replicas == 0 {
            &["wait", "--for=delete", "pod", "--selector=app=swarm-controller", "--timeout=5m"]
        } else {
            &["rollout", "status", "deployment/swarm-controller", "--timeout=5m"]
        };
        for args in [&scale[..], wait] {
            self.context.cluster.kubectl(&[args, &namespace].concat()).await?;
        }
        Ok(())
    }
}
