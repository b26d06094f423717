//! Tests that no two members ever act on one object, and that every object is acted on again after
//! faults.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use swarm_apiserver::fault::{Fault, Rule};
use swarm_apiserver::{ApiServer, Verb};
use swarm_replicas::{End, Group, Member, Share, Weight};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The number of objects.
const OBJECTS: usize = 50;
/// The duration of a request.
const REQUEST: Duration = Duration::from_millis(300);
/// The pause between two looks at an object.
const PAUSE: Duration = Duration::from_millis(10);
/// The time within which every object is acted on again: a Lease, its grace, two renewals and a
/// round of turns.
const WITHIN: Duration = Duration::from_secs(40);

/// The member that acts on each object now, and the number of turns on each object.
#[derive(Default)]
struct Turns {
    now: BTreeMap<usize, String>,
    count: BTreeMap<usize, usize>,
    cut_off: Option<String>,
}

/// A turn that is under way. It also ends if its member is killed in the middle of it.
struct Turn(Arc<Mutex<Turns>>, usize);

impl Turn {
    fn begin(turns: &Arc<Mutex<Turns>>, object: usize, member: &str) -> Self {
        let before = turns.lock().unwrap().now.insert(object, member.to_owned());
        assert_eq!(before, None, "{member} acts on object {object} as well");
        Self(Arc::clone(turns), object)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.0.lock().unwrap();
        turns.now.remove(&self.1);
        *turns.count.entry(self.1).or_default() += 1;
    }
}

/// Acts on every object on which the member may act, again and again.
async fn work(name: String, share: Share<ConfigMap>, turns: Arc<Mutex<Turns>>) {
    let (name, share, turns) = (&name, &share, &turns);
    let on = |object: usize| async move {
        loop {
            let Some(permit) = share.permit(&format!("uid-{object}")) else {
                sleep(PAUSE).await;
                continue;
            };
            let turn = Turn::begin(turns, object, name);
            let is_cut_off = turns.lock().unwrap().cut_off.as_ref() == Some(name);
            let request = async {
                // A member that is cut off receives no answer.
                sleep(if is_cut_off { Duration::MAX } else { REQUEST }).await;
                Ok::<_, std::io::Error>(())
            };
            let _ = permit.run(request).await;
            drop(turn);
            drop(permit);
            sleep(PAUSE).await;
        }
    };
    futures::future::join_all((0..OBJECTS).map(on)).await;
}

struct World {
    server: ApiServer,
    turns: Arc<Mutex<Turns>>,
    tasks: Vec<JoinHandle<()>>,
}

impl World {
    async fn start(&mut self, id: &str) -> (Member, JoinHandle<()>) {
        let group = Group::new(self.server.client("n"), "n", "objects").id(id);
        let member = group.join().await.unwrap();
        let share = member.host::<ConfigMap>("objects", Weight::default()).unwrap();
        let task = tokio::spawn(work(id.to_owned(), share, Arc::clone(&self.turns)));
        (member, task)
    }

    /// Waits until each object was acted on again.
    async fn all_are_served(&self, when: &str) {
        self.turns.lock().unwrap().count.clear();
        let start = Instant::now();
        while self.turns.lock().unwrap().count.len() < OBJECTS {
            assert!(self.tasks.iter().all(|task| !task.is_finished()), "{when}: two at a time");
            assert!(start.elapsed() < WITHIN, "{when}: some objects are served by nobody");
            sleep(PAUSE).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_two_members_act_on_one_object_whatever_happens() {
    let server = ApiServer::new();
    let mut world = World { server: server.clone(), turns: Arc::default(), tasks: Vec::new() };
    let (first, task) = world.start("a").await;
    world.tasks.push(task);
    world.all_are_served("one member").await;
    let (cut_off, task) = world.start("b").await;
    world.tasks.push(task);
    let (deleted, task) = world.start("c").await;
    world.tasks.push(task);
    sleep(WITHIN).await;
    world.all_are_served("three members").await;

    // Its renewals get no answer any more. It stops in time, and the other members wait that long.
    world.turns.lock().unwrap().cut_off = Some("b".to_owned());
    let lease = cut_off.id().to_string();
    server.inject(Rule::on(Verb::Update, "leases").named(&lease).always(), Fault::Hang);
    sleep(WITHIN).await;
    world.all_are_served("one is cut off").await;
    server.heal();
    assert_eq!(cut_off.end().await, End::Lost, "its Lease was taken away meanwhile");

    // A deleted Lease proves nothing, and its member ends.
    server.remove("leases.coordination.k8s.io", "n", &deleted.id().to_string());
    assert_eq!(deleted.end().await, End::Lost);
    world.all_are_served("a Lease was deleted").await;

    // Replies are lost after the write.
    server.inject(Rule::on(Verb::Update, "leases").times(3), Fault::LoseReply);
    let (fourth, task) = world.start("d").await;
    world.tasks.push(task);
    world.all_are_served("replies are lost").await;

    // A watch that shows nothing new delays only the start of gained objects.
    server.stall_watches("leases");
    let (fifth, task) = world.start("e").await;
    world.tasks.push(task);
    sleep(Duration::from_secs(5)).await;
    server.resume_watches("leases");
    world.all_are_served("a watch was late").await;

    // Members come and go all the time.
    for round in 0..10 {
        let (member, task) = world.start(&format!("f{}", round % 3)).await;
        sleep(Duration::from_millis(2500)).await;
        if round % 2 == 0 {
            assert_eq!(member.leave().await, End::Left);
        }
        assert!(!task.is_finished(), "two at a time");
        task.abort();
        sleep(Duration::from_secs(1)).await;
    }
    world.all_are_served("members came and went").await;
    for member in [&first, &fourth, &fifth] {
        assert_eq!(member.leave().await, End::Left);
    }
}
