//! Pools whose number of workers follows the jobs.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::scenario::{NAMESPACE, SWARMS, Scenario, on_w};

/// One to four workers, one for each job, with a cooldown of five minutes.
fn one_for_each(jobs: &[&str]) -> Value {
    let mut spec = on_w(jobs);
    spec["autoscale"] = json!({"max": 4, "jobsPerWorker": 1});
    spec
}

fn replicas(s: &Scenario) -> Value {
    s.at("statefulsets.apps", "w", "/spec/replicas")
}

/// A settled pool of three workers, which grew from two when its list got a third job.
async fn of_three() -> Scenario {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.pod("w-1");
    s.swarm("s", one_for_each(&["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.swarm("s", one_for_each(&["a", "b", "c"]));
    s.until("there are to be three", |s| replicas(s) == 3).await;
    s.pod("w-2");
    s.until("each has one", |s| s.is_settled("s") && s.status("s")["workersReady"] == 3).await;
    s
}

#[tokio::test(start_paused = true)]
async fn the_workload_grows_at_once_and_shrinks_after_the_cooldown_when_its_top_is_empty() {
    let mut s = of_three().await;
    assert_eq!(s.status("s")["desiredWorkers"], 3);
    let _ = s.transcript();
    s.swarm("s", one_for_each(&["a"]));
    s.pass(Duration::from_secs(299)).await;
    assert_eq!((replicas(&s), s.status("s")["desiredWorkers"].clone()), (json!(3), json!(3)));
    s.until("there is to be one", |s| replicas(s) == 1).await;
    s.pod_ends("w-2");
    s.pod_ends("w-1");
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert_eq!(s.at(SWARMS, "s", "/spec/replicas"), Value::Null, "what the user wrote stays");
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_operator_begins_with_the_pool_as_it_is_and_a_whole_cooldown() {
    let mut s = of_three().await;
    s.swarm("s", one_for_each(&["a"]));
    s.pass(Duration::from_secs(200)).await;
    s.stop_operator().await;
    s.start_operator().await;
    s.pass(Duration::from_secs(299)).await;
    assert_eq!(replicas(&s), 3);
    s.until("there is to be one", |s| replicas(s) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_needs_more_than_the_maximum_says_so_and_how_many_would_be_enough() {
    let mut s = of_three().await;
    let mut spec = one_for_each(&["a", "b", "c", "d", "e", "f"]);
    spec["worker"] = json!({"maxJobs": 1});
    s.swarm("s", spec);
    s.until("there are to be four", |s| replicas(s) == 4).await;
    s.pod("w-3");
    let is_said = |s: &Scenario| {
        let message = s.trouble("s", "AutoscaleLimited").unwrap_or_default();
        let numbers = ["6 jobs need 6 workers", "max is 4", "2 jobs have no worker"];
        message.starts_with("AtMaximum: ") && numbers.iter().all(|it| message.contains(it))
    };
    s.until("it says so", is_said).await;
    assert_eq!(s.condition("s", "Degraded"), "True/AutoscaleLimited");
    assert_eq!(s.status("s")["desiredWorkers"], 4);
    s.swarm("s", one_for_each(&["a", "b", "c", "d"]));
    s.until("it is enough", |s| s.condition("s", "Degraded") == "/").await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_swings_within_the_cooldown_leaves_the_pool_as_it_is() {
    let mut s = of_three().await;
    for _ in 0..10 {
        s.swarm("s", one_for_each(&["a"]));
        s.pass(Duration::from_mins(4)).await;
        assert_eq!(replicas(&s), 3);
        s.swarm("s", one_for_each(&["a", "b", "c"]));
        s.pass(Duration::from_secs(10)).await;
        assert_eq!(replicas(&s), 3);
    }
}

/// The fewest and the most workers of a pool with a swinging list.
const BOUNDS: [usize; 2] = [2, 4];
/// The time after which the pods follow the number of replicas.
const STEP: Duration = Duration::from_secs(5);

/// Two lists between which a user alternates.
struct Swing {
    what: &'static str,
    low: Vec<Value>,
    high: Vec<Value>,
    /// The number of jobs of `high` that have room.
    fits: usize,
}

fn plain(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"name": format!("job-{n}")})).collect()
}

/// Jobs that each need a whole worker.
fn whole(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"name": format!("whole-{n}"), "share": 100})).collect()
}

fn swinging(jobs: &[Value], cooldown: Duration) -> Value {
    let ([min, max], cooldown) = (BOUNDS, format!("{}s", cooldown.as_secs()));
    json!({
        "pool": {"statefulSet": {"name": "w"}}, "jobs": jobs,
        "autoscale": {"min": min, "max": max, "jobsPerWorker": 3, "cooldown": cooldown},
    })
}

/// Gives the StatefulSet as many pods as its replicas; panics if the number is out of bounds.
fn follow(s: &mut Scenario, what: &str) {
    let asked = usize::try_from(replicas(s).as_u64().unwrap()).unwrap();
    assert!((BOUNDS[0]..=BOUNDS[1]).contains(&asked), "{what}: {asked} replicas");
    for n in 0..BOUNDS[1] {
        let name = format!("w-{n}");
        let is_there = s.server.get("pods", NAMESPACE, &name).is_some();
        if n < asked && !is_there {
            s.pod(&name);
        } else if asked <= n && is_there {
            s.pod_ends(&name);
        }
    }
}

/// The jobs that have a worker. Panics if a job has two, or if a whole-worker job is not alone.
fn placed(s: &Scenario, what: &str) -> BTreeSet<String> {
    let view = swarm_spec::view::read(&s.view("s")).unwrap();
    let mut placed = BTreeSet::new();
    for (worker, entry) in &view.workers {
        let is_whole = entry.jobs.iter().any(|job| job.as_str().starts_with("whole"));
        assert!(!is_whole || entry.jobs.len() == 1, "{what}: {worker} runs {:?}", entry.jobs);
        for job in &entry.jobs {
            assert!(placed.insert(job.to_string()), "{what}: {job} is under two workers");
        }
    }
    placed
}

/// Whether the status is about this list: `fits` of its jobs are assigned, and the others are
/// counted as left out.
fn accounts_for(s: &Scenario, jobs: &[Value], fits: usize) -> bool {
    let status = s.status("s");
    let out = status["unassigned"].as_object().into_iter().flatten();
    let out: u64 = out.filter_map(|(_, count)| count.as_u64()).sum();
    let (all, fits) = (jobs.len() as u64, fits as u64);
    status["observedGeneration"] == s.at(SWARMS, "s", "/metadata/generation")
        && (status["jobs"].as_u64(), status["assigned"].as_u64(), out)
            == (Some(all), Some(fits), all - fits)
}

/// Alternates between two lists, each for half of the period.
async fn swing(swing: &Swing, period: Duration, cooldown: Duration) {
    let Swing { what, low, high, fits } = swing;
    let what = &format!("{what}, every {period:?}");
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    let (half, lasts) = (period / 2, (3 * period).max(2 * cooldown));
    let (mut is_high, mut since, mut passed) = (false, half, Duration::ZERO);
    while passed < lasts {
        if since == half {
            if is_settling_time(half) && !passed.is_zero() {
                let (jobs, fits) = if is_high { (high, *fits) } else { (low, low.len()) };
                assert!(accounts_for(&s, jobs, fits), "{what}: {}", s.status("s"));
                assert_eq!(placed(&s, what).len(), fits, "{what}");
            }
            is_high = !is_high;
            s.swarm("s", swinging(if is_high { high } else { low }, cooldown));
            since = Duration::ZERO;
        }
        let step = STEP.min(half.saturating_sub(since));
        s.pass(step).await;
        (since, passed) = (since + step, passed + step);
        follow(&mut s, what);
    }
    s.swarm("s", swinging(high, cooldown));
    for _ in 0..12 {
        s.pass(STEP).await;
        follow(&mut s, what);
    }
    assert!(accounts_for(&s, high, *fits), "{what}: {}", s.status("s"));
    assert_eq!(placed(&s, what).len(), *fits, "{what}");
    // A cooldown passes between growing and shrinking, and between two times of shrinking.
    let writes = s.at("statefulsets.apps", "w", "/metadata/generation").as_u64().unwrap() - 1;
    let most = 2 * (lasts.as_secs() / cooldown.as_secs()) + 1;
    assert!((1..=most).contains(&writes), "{what}: {writes} times scaled, not {most} at most");
    if half < cooldown {
        assert_eq!(writes, 1, "{what}: each list lasts for less than the cooldown");
    } else if cooldown < half {
        assert!(2 < writes, "{what}: it never shrank");
    }
}

/// Whether a pool settles while it has one list for this time.
fn is_settling_time(time: Duration) -> bool {
    3 * STEP <= time
}

/// The same with many periods, shorter and longer than the cooldown.
async fn swing_with_any_period(each: Swing) {
    let of_short = [1, 2, 5, 10, 30].map(|period| (period, 10));
    let of_long = [30, 60, 120, 299, 300, 301, 450, 600, 640].map(|period| (period, 300));
    for (period, cooldown) in of_short.into_iter().chain(of_long) {
        swing(&each, Duration::from_secs(period), Duration::from_secs(cooldown)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_swings_with_any_period_leaves_no_job_out() {
    let (low, high) = (plain(2), plain(11));
    swing_with_any_period(Swing { what: "jobs alone", low, high, fits: 11 }).await;
}

#[tokio::test(start_paused = true)]
async fn whole_worker_jobs_that_come_and_go_with_any_period_have_workers_for_themselves() {
    let (low, high) = (plain(1), [whole(2), plain(7)].concat());
    swing_with_any_period(Swing { what: "whole workers beside others", low, high, fits: 9 }).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_maximum_does_not_hold_is_left_out_and_counted_with_any_period() {
    let (low, high) = (whole(1), whole(6));
    swing_with_any_period(Swing { what: "more than there is room for", low, high, fits: 4 }).await;
}
