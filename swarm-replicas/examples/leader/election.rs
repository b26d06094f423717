//! The election: a share with one object, which is the right to lead.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use swarm_replicas::{ControllerError, Member, Permit, Weight};

/// The name of the only object, which has one owner. Any text would do.
const LEADER: &str = "leader";

/// Calls `lead` whenever this member becomes the leader. Drops the call when the member no longer
/// leads, even in the middle. Returns when the member has ended.
pub(crate) async fn run<F>(
    member: &Member,
    lead: impl Fn(Arc<Permit>) -> F,
) -> Result<(), ControllerError>
where
    F: Future<Output = ()>,
{
    let share = member.host::<Lease>("election", Weight::default())?;
    let mut gained = pin!(share.follow());
    let ended = member.ended();
    let campaign = async {
        while gained.next().await.is_some() {
            let Some(permit) = share.permit(LEADER).map(Arc::new) else { continue };
            tokio::select! {
                () = lead(Arc::clone(&permit)) => {}
                () = permit.lost() => {}
            }
        }
    };
    tokio::select! {
        () = campaign => {}
        () = ended => {}
    }
    Ok(())
}
