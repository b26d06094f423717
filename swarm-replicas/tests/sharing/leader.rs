//! Tests of the election example: one leader at a time, and soon another leader after every fault.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

#[path = "../../examples/leader/election.rs"]
mod election;

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use swarm_apiserver::fault::{Fault, Rule};
use swarm_apiserver::{ApiServer, Verb};
use swarm_replicas::{End, Group, Member};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The time within which another leader exists: a Lease, its grace, and two renewals.
const WITHIN: Duration = Duration::from_secs(20);
/// The time within which a leader that stepped back has a successor: some renewals.
const SOON: Duration = Duration::from_secs(6);

/// The ID of the member that leads now.
type Leader = Arc<Mutex<Option<String>>>;

/// A leadership, which lasts until it is dropped.
struct Leading(Leader);

impl Leading {
    fn begin(leader: &Leader, id: &str) -> Self {
        let before = leader.lock().unwrap().replace(id.to_owned());
        assert_eq!(before, None, "{id} leads as well");
        Self(Arc::clone(leader))
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = None;
    }
}

struct Candidate {
    id: String,
    member: Member,
    task: JoinHandle<()>,
}

async fn stand(server: &ApiServer, leader: &Leader, id: &str) -> Candidate {
    let group = Group::new(server.client("n"), "n", "leader").id(id);
    let member = group.join().await.unwrap();
    let (of, leader, name) = (member.clone(), Arc::clone(leader), id.to_owned());
    let task = tokio::spawn(async move {
        let lead = |_| {
            let leading = Leading::begin(&leader, &name);
            async move {
                let _leading = leading;
                pending::<()>().await;
            }
        };
        election::run(&of, lead).await.unwrap();
    });
    Candidate { id: id.to_owned(), member, task }
}

/// Waits for a leader that is not `former`.
async fn elected(leader: &Leader, former: &str, within: Duration) -> String {
    let start = Instant::now();
    loop {
        let now = leader.lock().unwrap().clone();
        if let Some(now) = now.filter(|it| it != former) {
            return now;
        }
        assert!(start.elapsed() < within, "nobody leads after {former}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_member_leads_and_another_when_it_is_gone() {
    let server = ApiServer::new();
    let leader = Leader::default();
    let mut candidates = Vec::new();
    for id in ["a", "b", "c"] {
        candidates.push(stand(&server, &leader, id).await);
    }
    sleep(WITHIN).await;
    let first = elected(&leader, "", SOON).await;
    let take = |candidates: &mut Vec<Candidate>, id: &str| {
        let place = candidates.iter().position(|it| it.id == id).unwrap();
        candidates.remove(place)
    };

    // The leader steps back.
    let gone = take(&mut candidates, &first);
    assert_eq!(gone.member.leave().await, End::Left);
    let second = elected(&leader, &first, SOON).await;
    gone.task.await.unwrap();

    // The next leader is cut off. Its renewals hang, and it stops by itself before another one
    // leads.
    let cut_off = take(&mut candidates, &second);
    let lease = cut_off.member.id().to_string();
    server.inject(Rule::on(Verb::Update, "leases").named(&lease).always(), Fault::Hang);
    let third = elected(&leader, &second, WITHIN).await;
    assert_eq!(candidates[0].id, third);
    server.heal();
    assert_eq!(cut_off.member.end().await, End::Lost);
    cut_off.task.await.unwrap();

    // The last member is alone, and its Lease runs out in an outage. It does not lead then, but
    // does afterwards.
    server.inject(Rule::on(Verb::Update, "leases").always(), Fault::Hang);
    let start = Instant::now();
    while leader.lock().unwrap().is_some() {
        assert!(start.elapsed() < WITHIN, "{third} leads without a Lease");
        sleep(Duration::from_millis(50)).await;
    }
    server.heal();
    assert_eq!(elected(&leader, "", WITHIN).await, third);
    let last = candidates.remove(0);
    assert_eq!(last.member.leave().await, End::Left);
    last.task.await.unwrap();
}
