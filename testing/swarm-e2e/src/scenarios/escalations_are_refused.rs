//! Attempts to gain more rights, each on a pool with something to gain. Users make them: one who
//! may write only Swarms, an editor, and an administrator of the namespace. A worker makes them
//! with its token, and so does a job. `docs/threat-model.md` lists all attempts, and what stops
//! each.

mod by_a_job;
mod by_a_worker;
mod by_users;

use anyhow::{Result, bail, ensure};

use super::vault::{self, TENANTS, VAULT};
use crate::scenario::Context;
use crate::until::until;

/// An administrator of the namespace, through the `ClusterRole` `admin` of every cluster.
const ADMIN: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: admin, apiGroup: rbac.authorization.k8s.io}]
";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(TENANTS).await?;
    context.apply(ADMIN).await?;
    vault::open(&context).await?;
    until("the rights of all", || async {
        for user in ["tenant", "editor", "admin"] {
            let label = ["label", "swarm", VAULT, "--overwrite", "a=b", &format!("--as={user}")];
            context.kubectl(&label).await?;
        }
        Ok(Some(()))
    })
    .await?;
    by_users::refused_by_rights(&context).await?;
    by_users::refused_by_policies(&context).await?;
    by_users::refused_by_the_schema(&context).await?;
    by_users::without_effect(&context).await?;
    by_a_worker::run(&context).await?;
    by_a_job::run(&context).await
}

/// Checks that the answer is a refusal for this reason.
fn refused<T>(what: &str, answer: Result<T>, because: &str) -> Result<()> {
    let Err(error) = answer else { bail!("{what} was accepted") };
    let refusal = format!("{error:#}");
    ensure!(refusal.contains(because), "{what}: refused, but not because `{because}`: {refusal}");
    Ok(())
}
