use std::collections::BTreeSet;

use super::*;
use crate::handover::{Evidence, Policy, Proof, SessionId};
use crate::{
    Desired, Job, Ledger, Observed, Presence, Slot, Timing, Unacknowledged, WorkerSeen, decide,
    jobs,
};

/// A pool whose sessions acknowledge what the test says.
struct Pool {
    recorder: Recorder,
    ledger: Ledger,
    desired: Desired,
    workers: Vec<(Presence, u64)>,
    unacknowledged: Unacknowledged,
    acknowledged: u64,
    now_ms: u64,
    edits: Vec<String>,
}

const READY: Presence = Presence::Ready;

impl Pool {
    fn new(names: &[&str], workers: usize) -> Self {
        let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
        let jobs = jobs(names.iter().copied()).unwrap();
        let desired = Desired { jobs, timing, policy: Policy::Exclusive, ..Desired::default() };
        let workers = (0..workers).map(|n| (READY, n as u64)).collect();
        Self {
            recorder: Recorder::default(),
            ledger: Ledger::new(1),
            desired,
            workers,
            unacknowledged: Unacknowledged::default(),
            acknowledged: 0,
            now_ms: 10_000,
            edits: Vec::new(),
        }
    }

    fn session(nonce: u64) -> SessionId {
        SessionId::new("pod", nonce)
    }

    /// Runs a turn, one second after the last one.
    fn turn(&mut self) -> Recorded {
        self.now_ms += 1_000;
        let worker = |(n, (presence, nonce)): (u32, &(Presence, u64))| {
            let session = Some(Self::session(*nonce));
            (Slot(n), WorkerSeen::new(format!("w-{n}"), *presence, session))
        };
        let acknowledged = Evidence::acked(self.acknowledged);
        let sessions = self.ledger.sessions();
        let living: Vec<_> = self.workers.iter().map(|it| Self::session(it.1)).collect();
        let evidence = sessions.keys().map(|it| {
            let ended = (!living.contains(it)).then_some(Proof::Closed);
            ((*it).clone(), Evidence { ended, ..acknowledged.clone() })
        });
        let evidence: Vec<_> = evidence.collect();
        let mut observed = Observed::new((0..).zip(&self.workers).map(worker), 1, []);
        observed.evidence = evidence.into_iter().collect();
        let decision = decide(&self.ledger, &self.desired, &observed);
        let is_new = |job: &&JobName| {
            let before = self.ledger.cells.jobs.get(*job);
            before != decision.ledger.cells.jobs.get(*job)
        };
        let granted: BTreeSet<_> =
            decision.ledger.cells.jobs.keys().filter(is_new).cloned().collect();
        let acknowledged = self.acknowledged;
        self.unacknowledged.observe(&decision.ledger, &granted, |_, _| acknowledged);
        let progress = crate::Progress::of(&decision, &self.desired, &observed, vec![]);
        let turn = Turned {
            before: &self.ledger,
            decision: &decision,
            desired: &self.desired,
            edits: &std::mem::take(&mut self.edits),
            observed: &observed,
            unacknowledged: &self.unacknowledged,
            is_settled: progress.is_settled() && self.unacknowledged.is_empty(),
        };
        let recorded = self.recorder.observe(self.now_ms, &turn);
        self.ledger = decision.ledger;
        recorded
    }

    /// Lets all sessions acknowledge the newest ledger, and runs a turn.
    fn acknowledge(&mut self) -> Recorded {
        self.acknowledged = self.ledger.revision();
        self.turn()
    }

    /// Runs turns until an episode ends.
    fn settled(&mut self) -> Episode {
        (0..9).find_map(|_| self.acknowledge().episode).unwrap()
    }
}

fn only(recorded: Recorded) -> Episode {
    recorded.episode.unwrap()
}

#[test]
fn an_edit_that_moves_nothing_is_kept_once() {
    let mut pool = Pool::new(&["a", "b"], 1);
    let _ = pool.turn();
    let _ = only(pool.acknowledge());
    let revision = pool.ledger.revision();
    pool.desired.jobs = {
        let mut jobs: BTreeMap<_, _> =
            pool.desired.jobs.iter().map(|(name, job)| (name.clone(), job.clone())).collect();
        jobs.get_mut("a").unwrap().title = Some(crate::Title::new("Front Door").unwrap());
        jobs.into()
    };
    let edit = only(pool.turn());
    assert_eq!(edit.causes, ["job a was changed (title)"]);
    assert_eq!(
        (edit.move_count(), edit.first_revision, edit.last_revision),
        (0, revision, revision)
    );
    assert_eq!(edit.to_string(), "no job changed hands: job a was changed (title)");
    assert_eq!(pool.turn(), Recorded::default());
    pool.edits = vec!["worker.runner.command".to_owned()];
    assert_eq!(only(pool.turn()).causes, ["the manifest was edited (worker.runner.command)"]);
    assert_eq!(pool.turn(), Recorded::default());
}

#[test]
fn an_edit_is_described_by_the_fields_that_differ() {
    let mut pool = Pool::new(&["a", "b", "c"], 1);
    let _ = pool.settled();
    let mut jobs: BTreeMap<_, _> =
        pool.desired.jobs.iter().map(|(name, job)| (name.clone(), job.clone())).collect();
    let params = |params: &[(&str, &str)]| {
        params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    jobs.get_mut("a").unwrap().params = params(&[("fps", "5"), ("url", "rtsp://a")]);
    jobs.get_mut("b").unwrap().priority = 7;
    jobs.get_mut("b").unwrap().suspend = true;
    jobs.get_mut("c").unwrap().suspend = true;
    pool.desired.jobs = jobs.clone().into();
    let edited = pool.settled();
    assert_eq!(
        edited.causes,
        ["jobs a, b were changed (priority, params.fps, params.url)", "jobs b, c were suspended"]
    );
    let edits = edited.edits.iter().map(|it| (it.fields.join(" "), it.jobs[0].as_str()));
    let expected = [("params.fps params.url".to_owned(), "a"), ("priority".to_owned(), "b")];
    assert_eq!(edits.collect::<Vec<_>>(), expected);
    jobs.get_mut("a").unwrap().params = params(&[("fps", "9"), ("url", "rtsp://a")]);
    pool.desired.jobs = jobs.into();
    pool.desired.replicas = Some(1);
    pool.edits = ["handover.stopTimeout from 30s to 1m", "view added"].map(str::to_owned).into();
    assert_eq!(
        pool.settled().causes,
        [
            "job a was changed (params.fps)",
            "the number of workers was set to 1",
            "the manifest was edited (handover.stopTimeout from 30s to 1m, view added)"
        ]
    );
    pool.desired.max_jobs = Some(9);
    assert_eq!(pool.settled().causes, ["the settings were changed"]);
}

#[test]
fn a_new_pool_and_a_handover_are_episodes_with_the_time_of_each_step() {
    let mut pool = Pool::new(&["a", "b", "c", "d"], 1);
    assert_eq!(pool.turn(), Recorded::default());
    assert_eq!(pool.recorder.open().map(Episode::move_count), Some(4));
    let first = only(pool.acknowledge());
    assert_eq!(
        (first.causes.clone(), first.counts.clone()),
        (vec!["the pool is new".to_owned()], [("new".to_owned(), 4)].into())
    );
    assert_eq!(
        (first.duration().as_millis(), first.first_revision, first.last_revision),
        (1_000, 0, 1)
    );
    assert!(first.moves.iter().all(|it| it.from.is_none() && it.to.as_deref() == Some("w-0")));
    assert!(first.moves.iter().all(|it| it.running == Some(1_000) && it.standstill().is_none()));

    assert_eq!(pool.turn(), Recorded::default(), "nothing is recorded at rest");
    pool.workers.push((READY, 7));
    assert_eq!(pool.turn(), Recorded::default());
    let granted = pool.acknowledge();
    assert_eq!((granted.episode, granted.standstills), (None, vec![]));
    let sentences: Vec<_> = granted.moves.iter().filter_map(JobMove::sentence).collect();
    assert_eq!(sentences, ["c: w-0 → w-1 (balance)", "d: w-0 → w-1 (balance)"]);
    let ended = pool.acknowledge();
    assert_eq!(ended.moves, [], "a move is told once");
    assert_eq!(ended.standstills, [Duration::from_secs(1); 2]);
    let second = only(ended);
    assert_eq!(second.causes, ["worker w-1 joined"]);
    assert_eq!(second.counts, [("balance".to_owned(), 2)].into());
    for it in &second.moves {
        assert_eq!((it.from.as_deref(), it.to.as_deref()), (Some("w-0"), Some("w-1")));
        let times = [it.released, it.acknowledged, it.granted, it.running];
        assert_eq!(times, [0, 1_000, 1_000, 2_000].map(Some));
        assert_eq!(it.revision, second.last_revision);
    }
    assert_eq!(second.first_revision, first.last_revision);
}

#[test]
fn edits_are_causes() {
    let mut pool = Pool::new(&["a", "b"], 2);
    let _ = (pool.turn(), pool.acknowledge());
    pool.desired.jobs.insert("c".parse().unwrap(), Job::default());
    let _ = pool.turn();
    let added = only(pool.acknowledge());
    assert_eq!(added.causes, ["job c was added"]);
    assert_eq!(added.counts, [("new".to_owned(), 1)].into());
    pool.desired.jobs.remove("c");
    pool.desired.jobs.get_mut("a").unwrap().suspend = true;
    let _ = pool.turn();
    let removed = only(pool.acknowledge());
    assert_eq!(removed.causes, ["job c was removed", "job a was suspended"]);
    assert_eq!(removed.counts, [("removed".to_owned(), 1), ("suspended".to_owned(), 1)].into());
    pool.desired.suspend = true;
    let _ = pool.turn();
    assert_eq!(only(pool.acknowledge()).causes, ["all jobs were suspended"]);
}

#[test]
fn a_long_episode_is_cut_and_its_moves_go_on() {
    let mut pool = Pool::new(&["a", "b"], 1);
    let _ = (pool.turn(), pool.acknowledge());
    pool.workers.push((READY, 7));
    let _ = pool.turn();
    pool.now_ms += PIECE_MAX_MS;
    let piece = only(pool.turn());
    assert!(piece.is_cut && piece.moves[0].granted.is_none());
    pool.now_ms += 2 * PIECE_MAX_MS;
    assert_eq!(pool.turn().episode, None, "a piece without news is not recorded");
    let _ = pool.acknowledge();
    let last = only(pool.acknowledge());
    assert_eq!((last.move_count(), last.moves.len(), last.is_cut), (0, 1, false));
    assert!(last.moves[0].released.unwrap() < -600_000, "{last:?}");
    assert!(0 < last.moves[0].running.unwrap());
}

#[test]
fn an_operator_that_starts_again_marks_moves_that_nobody_recorded() {
    let mut pool = Pool::new(&["a", "b"], 1);
    let _ = pool.turn();
    let last = only(pool.acknowledge());
    pool.recorder = Recorder::default();
    assert_eq!(pool.turn(), Recorded::default(), "nothing is recorded at rest");
    pool.recorder = Recorder::default();
    pool.acknowledged -= 1;
    pool.unacknowledged = Unacknowledged::default();
    assert_eq!(pool.turn(), Recorded::default());
    assert!(pool.recorder.open().is_some());
    assert_eq!(pool.acknowledge(), Recorded::default(), "a start that changes nothing is no news");
    assert!(pool.recorder.open().is_none());
    assert_eq!(pool.recorder.begin().unwrap().gap_after(&last), None);
    pool.workers.push((READY, 7));
    let _ = (pool.turn(), pool.acknowledge());
    pool.recorder = Recorder::default();
    assert_eq!(pool.acknowledge(), Recorded::default());
    let gap = pool.recorder.begin().unwrap().gap_after(&last).unwrap();
    assert!(gap.is_gap && gap.moves.is_empty(), "{gap:?}");
    assert!(gap.first_revision == last.last_revision && last.last_revision < gap.last_revision);
}

#[test]
fn an_operator_that_starts_names_the_workers_that_came_and_went_without_one() {
    let mut pool = Pool::new(&["a", "b", "c"], 3);
    let _ = pool.settled();
    pool.recorder = Recorder::default();
    pool.workers[0] = (READY, 9);
    pool.workers[1].0 = Presence::Away(Duration::from_secs(60));
    pool.workers.push((READY, 7));
    let causes = pool.settled().causes;
    let expected = ["the operator started", "worker w-3 joined", "worker w-1 left"];
    assert_eq!(causes[..3], expected);
    assert_eq!(causes[3..], ["worker w-0 started again"]);
}

#[test]
fn a_worker_that_ends_and_starts_again_gets_its_jobs_back() {
    let mut pool = Pool::new(&["a", "b"], 2);
    let _ = (pool.turn(), pool.acknowledge());
    pool.workers[1] = (READY, 9);
    pool.recorder.note(pool.now_ms, "worker w-1 was killed".to_owned());
    let told = [pool.turn(), pool.turn()].map(|it| it.moves).concat();
    let back = only(pool.acknowledge());
    let sentences: Vec<_> = told.iter().filter_map(JobMove::sentence).collect();
    assert_eq!(sentences, ["b: w-1 → w-1 (returned)"]);
    assert_eq!(back.causes, ["worker w-1 was killed", "worker w-1 started again"]);
    assert_eq!(back.counts, [(RETURNED.to_owned(), 1)].into());
    let it = &back.moves[0];
    assert_eq!((it.from.as_deref(), it.to.as_deref()), (Some("w-1"), Some("w-1")));
}

#[test]
fn more_moves_than_fit_are_counted() {
    let names: Vec<_> = (0..3 * MOVES_MAX / 2).map(|n| format!("job-{n:04}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut pool = Pool::new(&names, 1);
    let _ = pool.turn();
    let first = only(pool.acknowledge());
    assert_eq!((first.move_count(), first.moves.len(), first.omitted), (1_500, 1_000, 500));
    // Their worker ends and starts again.
    pool.workers[0] = (READY, 9);
    let (mut told, mut ended) = (0, None);
    while ended.is_none() {
        let recorded = pool.acknowledge();
        told += recorded.moves.iter().filter(|it| it.reason == RETURNED).count();
        ended = recorded.episode;
    }
    let back = ended.unwrap();
    assert_eq!((told, &back.counts), (1_500, &[(RETURNED.to_owned(), 1_500)].into()));
    assert_eq!((back.moves.len(), back.omitted), (1_000, 500));
    let mut history = vec![first.clone(), Episode::default()];
    fit(&mut history, 16 * 1024);
    assert_eq!(history.len(), 2);
    let kept = &history[0];
    assert!(30 < kept.moves.len() && kept.moves.len() < 100, "{}", kept.moves.len());
    assert_eq!(kept.moves.len() as u64 + kept.omitted, 1_500);
}

#[test]
fn more_edits_than_fit_are_counted_and_the_newest_are_kept() {
    let names: Vec<_> = (0..1_500).map(|n| format!("job-{n:04}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut pool = Pool::new(&names, 1);
    let _ = pool.settled();
    let jobs = |priority| {
        names.iter().map(move |name| (name.parse().unwrap(), Job { priority, ..Job::default() }))
    };
    pool.desired.jobs = jobs(1).collect::<BTreeMap<_, _>>().into();
    pool.desired.jobs.get_mut("job-1499").unwrap().title = Some(crate::Title::new("T").unwrap());
    let edited = pool.settled();
    let counts: Vec<_> = edited.edits.iter().map(|it| (it.fields.len(), it.jobs.len())).collect();
    assert_eq!((counts, edited.edits_omitted), (vec![(1, 999), (2, 1)], 500));
    let mut history = vec![Episode::default(), edited];
    fit(&mut history, 16 * 1024);
    let counts: Vec<_> =
        history[1].edits.iter().map(|it| (it.fields.len(), it.jobs.len())).collect();
    assert!(counts.len() == 2 && 100 < counts[0].1 && counts[0].1 < 200, "{counts:?}");
    assert_eq!(history[1].edits_omitted + counts[0].1 as u64 + 1, 1_500);
}

#[cfg(feature = "serde")]
mod text {
    use proptest::prelude::*;
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;

    fn any_move() -> impl Strategy<Value = JobMove> {
        let time = || prop::option::of(any::<i64>());
        let text = || prop::option::of(any::<String>());
        let times = (time(), time(), time(), time());
        ("[!-~]{1,60}", text(), text(), any::<u64>(), times).prop_map(
            |(job, from, to, revision, times)| {
                let (released, acknowledged, granted, running) = times;
                let (job, reason) = (job.parse().unwrap(), "balance".to_owned());
                JobMove {
                    job,
                    from,
                    to,
                    reason,
                    revision,
                    released,
                    acknowledged,
                    granted,
                    running,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_history_that_fits_has_at_most_so_many_bytes(
            moves in prop::collection::vec(prop::collection::vec(any_move(), 0..20), 0..20),
            causes in prop::collection::vec(any::<String>(), 0..4),
            edited in 0..4_usize,
            bytes_max in 0..8_000_usize,
        ) {
            let jobs = vec!["j\"".parse().unwrap(); 9 * edited];
            let edits = vec![JobEdit { at: i64::MIN, fields: causes.clone(), jobs }; edited];
            let counts = BTreeMap::from([("balance".to_owned(), u64::MAX)]);
            let (start_ms, end_ms) = (u64::MAX, u64::MAX);
            let episode = |moves| Episode {
                start_ms, end_ms, moves, causes: causes.clone(), counts: counts.clone(),
                edits: edits.clone(), edits_omitted: u64::MAX,
                first_revision: u64::MAX, last_revision: u64::MAX, is_gap: true, is_cut: true, is_open: true,
                holders: "0123456789abcdef".to_owned(),
                omitted: u64::MAX, outage: "api-server".to_owned(),
            };
            let mut history: Vec<_> = moves.into_iter().map(episode).collect();
            let mut packed = history.clone();
            fit(&mut history, bytes_max);
            let json = serde_json::to_string(&history).unwrap();
            prop_assert!(json.len() <= bytes_max.max(2), "{} of {bytes_max}", json.len());
            prop_assert_eq!(serde_json::from_str::<Vec<Episode>>(&json).unwrap(), history);
            let all = Kept::of(&mut packed, bytes_max);
            prop_assert_eq!(without_digests(read(&json!(all))), without_digests(packed));
        }
    }

    fn without_digests(mut episodes: Vec<Episode>) -> Vec<Episode> {
        let older = episodes.len().saturating_sub(1);
        episodes[..older].iter_mut().for_each(|it| it.holders.clear());
        episodes
    }

    fn read(kept: &serde_json::Value) -> Vec<Episode> {
        let kept = Vec::<Kept>::deserialize(kept).unwrap();
        kept.into_iter().flat_map(Kept::into_episodes).collect()
    }

    /// A history of a pool with 40 jobs and long names. Every minute another job moves.
    fn a_move_a_minute(moves: u64) -> Vec<Episode> {
        let episode = |n: u64| {
            let job = format!("camera-entrance-north-{:03}", n * 7 % 40);
            Episode {
                start_ms: 1_796_000_000_000 + n * 60_000,
                end_ms: 1_796_000_000_000 + n * 60_000 + 2_345,
                causes: vec![format!("job {job} was changed (pin)")],
                first_revision: 3 * n,
                last_revision: 3 * n + 3,
                counts: [("pin".to_owned(), 1)].into(),
                moves: vec![JobMove {
                    job: job.parse().unwrap(),
                    from: Some(format!("recorder-{}", n % 4)),
                    to: Some(format!("recorder-{}", (n + 1) % 4)),
                    reason: "pin".to_owned(),
                    revision: 3 * n + 2,
                    released: Some(0),
                    acknowledged: Some(1_204),
                    granted: Some(1_204),
                    running: Some(2_345),
                }],
                holders: format!("{n:016x}"),
                ..Episode::default()
            }
        };
        (0..moves).map(episode).collect()
    }

    #[test]
    fn forty_jobs_and_a_hundred_moves_fit_with_their_details() {
        let all = a_move_a_minute(100);
        let mut episodes = all.clone();
        let kept = json!(Kept::of(&mut episodes, 16 * 1024));
        assert!(episodes == all, "{} of {} episodes", episodes.len(), all.len());
        assert!(without_digests(read(&kept)) == without_digests(all));
        assert!(kept.to_string().len() <= 16 * 1024, "{}", kept.to_string().len());
        let one = Episode {
            moves: a_move_a_minute(100).into_iter().flat_map(|it| it.moves).collect(),
            ..a_move_a_minute(1).remove(0)
        };
        let mut one = vec![one];
        let kept = json!(Kept::of(&mut one, 16 * 1024));
        assert!(one[0].moves.len() == 100 && read(&kept) == one, "{}", one[0].moves.len());
        let mut many = a_move_a_minute(2_000);
        let kept = json!(Kept::of(&mut many, 16 * 1024)).to_string();
        assert!(100 < many.len() && kept.len() <= 16 * 1024, "{} of {}", many.len(), kept.len());
    }

    #[test]
    fn a_program_that_does_not_know_the_form_reads_a_summary() {
        let mut episodes = a_move_a_minute(50);
        episodes[49].is_open = true;
        let kept = json!(Kept::of(&mut episodes, 16 * 1024));
        let old = Vec::<Episode>::deserialize(&kept).unwrap();
        let [summary, newest @ ..] = &old[..] else { panic!("{old:?}") };
        let packed = 50 - newest.len();
        assert_eq!(*newest, episodes[packed..]);
        assert_eq!((summary.omitted, summary.moves.len()), (packed as u64, 0));
        assert_eq!(summary.counts["pin"], packed as u64);
        assert_eq!(summary.start_ms, episodes[0].start_ms);
        let last = &episodes[packed - 1];
        assert_eq!((summary.last_revision, &summary.holders), (last.last_revision, &last.holders));
        assert!(!summary.is_open && old.last().unwrap().is_open, "only the last one goes on");
        let mut few = a_move_a_minute(20);
        assert_eq!(
            json!(Kept::of(&mut few, 16 * 1024)),
            json!(few),
            "a history with room is plain"
        );
        let mut later = kept.clone();
        later[0]["packed"]["format"] = json!(2);
        assert_eq!(read(&later), old);
        later[0]["packed"] = json!({"format": 2, "episodes": "of another form"});
        assert_eq!(read(&later), old);
        // Someone has edited the object.
        let mut damaged = kept.clone();
        damaged[0]["packed"]["names"] = json!([]);
        assert_eq!(read(&damaged), old);
        assert_eq!(read(&json!(old)), old, "a history of an earlier version");
    }
}

/// Returns the moves of the last episode in words.
fn moves(episodes: &[Episode]) -> Vec<String> {
    let last = episodes.last().unwrap();
    let shown = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    let of = |it: &JobMove| {
        let state = if it.granted.is_some() { "runs" } else { "waits" };
        format!("{} {} {} {} {state}", it.job, shown(&it.from), shown(&it.to), it.reason)
    };
    last.moves.iter().map(of).collect()
}

#[test]
fn a_history_has_a_move_as_soon_as_the_ledger_has_it() {
    let mut pool = Pool::new(&["a", "b", "c", "d"], 2);
    let mut kept = vec![pool.settled()];
    let known = pool.ledger.clone();
    let caught_up = |kept: &[Episode], ledger: &Ledger| {
        let mut episodes = kept.to_vec();
        catch_up(&mut episodes, ledger, 90_000, Scope::All);
        episodes
    };
    assert_eq!(caught_up(&kept, &known), kept, "nothing is late");
    // The worker of half of the jobs ends, and comes back as another session.
    pool.workers.truncate(1);
    pool.desired.replicas = Some(1);
    let _ = pool.turn();
    let _ = pool.acknowledge();
    let late = caught_up(&kept, &pool.ledger);
    assert_eq!(late.len(), 2);
    let lost: Vec<_> = kept[0].moves.iter().filter(|it| it.to.as_deref() == Some("w-1")).collect();
    assert_eq!(lost.len(), 2);
    let expected: Vec<_> =
        lost.iter().map(|it| format!("{} w-1 w-0 recent runs", it.job)).collect();
    assert_eq!(moves(&late), expected);
    let open = late.last().unwrap();
    assert_eq!((open.first_revision, open.start_ms), (kept[0].last_revision, 90_000));
    assert_eq!((open.last_revision, open.is_open), (pool.ledger.revision(), true));
    assert_eq!(open.counts, [(RECENT.to_owned(), 2)].into());
    let mut of_one = kept.clone();
    catch_up(&mut of_one, &pool.ledger, 90_000, Scope::One(&lost[0].job));
    assert_eq!(moves(&of_one), expected[..1]);
    // Moves without details leave the previous workers open.
    kept[0].omitted = 1;
    assert_eq!(caught_up(&kept, &pool.ledger), kept);
}

#[test]
fn a_move_that_goes_on_in_a_history_gets_its_end_from_the_ledger() {
    let mut pool = Pool::new(&["a", "b", "c", "d"], 1);
    let kept = pool.settled();
    pool.workers.push((READY, 9));
    pool.desired.replicas = Some(2);
    let _ = pool.turn();
    let open = pool.recorder.open().unwrap().clone();
    let moving: Vec<_> = open.moves.iter().map(|it| it.job.clone()).collect();
    assert!(open.is_open && moving.len() == 2, "{open:?}");
    let mut episodes = vec![kept, open];
    let before = episodes.clone();
    catch_up(&mut episodes, &pool.ledger, 90_000, Scope::All);
    assert_eq!(episodes, before, "the history has what the ledger has");
    let _ = pool.acknowledge();
    pool.desired.jobs =
        jobs(["a", "b", "c", "d"].into_iter().filter(|it| *it != moving[0].as_str())).unwrap();
    catch_up(&mut episodes, &pool.ledger, 90_000, Scope::All);
    let ends: Vec<_> = moving.iter().map(|job| format!("{job} w-0 w-1 balance runs")).collect();
    assert_eq!(moves(&episodes), ends, "the reason is known");
    assert!(!episodes[1].is_open && episodes[1].is_cut);
    assert!(episodes[2].counts.is_empty(), "these moves are counted already");
    let mut later = episodes.clone();
    for _ in 0..4 {
        let _ = pool.acknowledge();
    }
    catch_up(&mut later, &pool.ledger, 91_000, Scope::All);
    assert_eq!(moves(&later), [format!("{} w-1 - removed waits", moving[0])]);
}
