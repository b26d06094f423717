//! Commands about a live cluster, with a scripted API server.

#![expect(clippy::unwrap_used, reason = "clippy allows it in test functions only")]

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::report::{Answers, Cluster, GROUP, table};

const SESSION: &str = "6f1c-0000000000000001";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/media/leases";

/// The objects of a Swarm with job `a` on worker `ingest-0`, whose view is confirmed.
fn answers() -> Answers {
    let at = |path: &str| format!("{GROUP}/{path}");
    let swarm = json!({
        "metadata": {"name": "cameras", "namespace": "media", "generation": 1},
        "spec": {
            "jobs": [{"name": "a"}],
            "worker": {"protocol": "Session"},
            "pool": {"statefulSet": {"name": "ingest"}},
        },
        "status": {"observedGeneration": 1, "workersReady": 1, "workersDesired": 1, "jobs": 1},
    });
    let holders =
        [json!({"session": SESSION, "slot": 0, "worker": "ingest-0", "jobs": {"a": 101}})];
    let ledger = json!({"metadata": {"name": "statefulset.ingest"}, "spec": {
        "swarm": {"kind": "Swarm", "name": "cameras", "uid": "1"},
        "pool": {"kind": "StatefulSet", "name": "ingest", "uid": "2"},
        "revision": 7, "version": 2, "firstToken": 100,
        "holdings": {"incarnation": 9, "holders": holders},
    }});
    let view = json!({"metadata": {"name": SESSION}, "spec": {"session": SESSION, "incarnation": 9,
        "revision": 7, "worker": "ingest-0", "jobs": {"a": {"token": 101}}}});
    let ack = r#"{"write":3,"durationMs":20000,"incarnation":9,"revision":7}"#;
    let lease = json!({
        "metadata": {"name": SESSION, "annotations": {"swarm.k8slab.info/ack": ack}},
        "spec": {"holderIdentity": SESSION, "renewTime": jiff::Timestamp::now().to_string()},
    });
    let history = json!({"metadata": {"name": "cameras"}, "spec": {"episodes": []}});
    let rows: &[&[&str]] = &[&["statefulset.ingest", "cameras"]];
    let answers = [
        (at("swarms as table"), table(&["Name"], &[&["cameras"]])),
        (at("swarms/cameras"), swarm),
        (at("swarmledgers as table"), table(&["Name", "Swarm"], rows)),
        (at("swarmledgers/statefulset.ingest"), ledger),
        (at("workerviews"), json!({"items": [view]})),
        (at(&format!("workerviews/{SESSION}")), view),
        (at("swarmhistories/cameras"), history),
        (LEASES.to_owned(), json!({"items": [lease]})),
        (format!("{LEASES}/{SESSION}"), lease),
    ];
    answers.into_iter().collect()
}

/// Returns the exit code of the plugin, and what it prints.
fn run(answers: Answers, args: &[&str]) -> (Option<i32>, String, String) {
    on(answers, &[args, &["-n", "media"]].concat())
}

/// The same in any namespace.
fn on(answers: Answers, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Cluster::new(answers).swarm(args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Starts the plugin on a terminal of its own, whose other side is returned, too.
fn on_a_terminal(args: &[&str], envs: &[(&str, &str)]) -> (File, Child) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let line = File::from(open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&line, size).unwrap();
    let mut command = Command::new("setsid");
    // The caller may ignore signals, as with `nohup cargo test`.
    command.args(["--ctty", "env", "--default-signal=HUP,INT,QUIT"]);
    command.arg(env!("CARGO_BIN_EXE_kubectl-swarm")).args(args);
    command.env("TERM", "xterm-256color").envs(envs.iter().copied());
    let tty = || line.try_clone().unwrap();
    let child = command.stdin(tty()).stdout(tty()).stderr(tty()).spawn().unwrap();
    (File::from(terminal), child)
}

/// Polls until there is an answer. A wait that hangs ends after five minutes.
fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(since.elapsed() < Duration::from_mins(5), "not within five minutes: {what}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_during_the_first_read_ends_the_proxy_as_well() {
    for verb in ["top", "status"] {
        for kind in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            let (cluster, _listener) = Cluster::silent();
            let temporary = tempfile::tempdir().unwrap();
            let path = format!("{}:/usr/bin:/bin", cluster.path().display());
            let envs = [("PATH", &*path), ("TMPDIR", temporary.path().to_str().unwrap())];
            let (_terminal, mut program) = on_a_terminal(&[verb, "a", "-n", "media"], &envs);
            let proxy: u32 = until("the proxy has its socket", || {
                fs::read_dir(temporary.path())
                    .unwrap()
                    .flatten()
                    .find_map(|dir| fs::symlink_metadata(dir.path().join("socket")).ok())?;
                fs::read_to_string(cluster.path().join("kubectl.pid")).ok()?.trim().parse().ok()
            });
            kill_process(Pid::from_child(&program), kind).unwrap();
            let ended = until("the program ended", || program.try_wait().unwrap());
            assert!(!ended.success());
            until("the proxy has ended", || {
                // A process that init has not reaped yet has no words.
                let words = fs::read(format!("/proc/{proxy}/cmdline")).unwrap_or_default();
                words.is_empty().then_some(())
            });
            let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().flatten().collect();
            assert!(left.is_empty(), "{verb}, {kind:?}: {left:?}");
        }
    }
}

#[test]
fn a_name_in_a_ledger_that_leads_elsewhere_is_not_asked_for() {
    let ledger = format!("{GROUP}/swarmledgers/statefulset.ingest");
    for (place, name, what) in [
        ("/spec/holdings/holders/0/session", "../x/y-0000000000000001", "a session"),
        ("/spec/holdings/parts", "a?b", "a part of a ledger"),
        ("/spec/holdings/parts", "a%2fb", "a part of a ledger"),
    ] {
        let mut answers = answers();
        answers.get_mut(&ledger).unwrap()["spec"]["holdings"]["parts"] = json!([]);
        let value = if what == "a session" { Value::from(name) } else { json!([name]) };
        *answers.get_mut(&ledger).unwrap().pointer_mut(place).unwrap() = value;
        let (code, _, said) = run(answers, &["who", "a"]);
        let sentence =
            format!("kubectl swarm: the ledger names {what} that cannot exist, `{name}`");
        assert!(code == Some(1) && said.starts_with(&sentence), "{said}");
    }
}

/// The answer of an API server to a user without the right to read these objects.
fn forbidden(resource: &str) -> Value {
    json!({"kind": "Status", "code": 403, "reason": "Forbidden",
        "message": format!("{resource} is forbidden: User \"ann\" cannot get it")})
}

#[test]
fn a_number_of_episodes_limits_every_format_of_a_history() {
    let episode = |job: &str, revision: u64| {
        let start = 1_764_300_000_000 + revision;
        let moved = json!({"job": job, "to": "ingest-0", "reason": "new", "revision": revision,
            "grantedMs": 0, "runningMs": 900});
        json!({"startMs": start, "endMs": start + 900, "causes": ["it is new"],
            "firstRevision": revision - 1, "lastRevision": revision, "counts": {"new": 1},
            "moves": [moved]})
    };
    let shown = |words: &[&str]| {
        let episodes = json!([episode("a", 1), episode("a", 2), episode("b", 3)]);
        let mut answers = answers();
        let history = json!({"metadata": {"name": "cameras"}, "spec": {"episodes": episodes}});
        answers.insert(format!("{GROUP}/swarmhistories"), json!({"items": [history]}));
        let (code, printed, said) = run(answers, &[&["history"], words].concat());
        assert_eq!(code, Some(0), "{said}");
        printed
    };
    let count = |words: &[&str], list: &str| {
        let printed = shown(&[&["-o", "json"], words].concat());
        let document: Value = serde_json::from_str(&printed).unwrap();
        document[list].as_array().unwrap().len()
    };
    assert_eq!((count(&[], "episodes"), count(&["--last", "1"], "episodes")), (3, 1));
    assert_eq!((count(&["a"], "moves"), count(&["a", "--last", "1"], "moves")), (2, 1));
    assert_eq!(shown(&["-o", "name"]), "a\nb\n");
    assert_eq!(shown(&["-o", "name", "--last", "1"]), "b\n");
    assert!(shown(&["a", "--last", "1"]).starts_with("… 1 older moves; `--last 2` shows"));
}

#[test]
fn a_move_is_in_the_answers_before_the_history_has_it() {
    let came = json!({"job": "a", "to": "ingest-1", "reason": "new", "revision": 1,
        "grantedMs": 0, "runningMs": 900});
    let episode = json!({"startMs": 1_764_300_000_000_u64, "endMs": 1_764_300_000_900_u64,
        "causes": ["the pool is new"], "firstRevision": 0, "lastRevision": 1, "counts": {"new": 1},
        "moves": [came]});
    let ledger = format!("{GROUP}/swarmledgers/statefulset.ingest");
    let with_ledger = |revision: u64, answer: Option<Value>| {
        let mut answers = answers();
        let history = json!({"metadata": {"name": "cameras"}, "spec": {"episodes": [episode]}});
        answers.insert(format!("{GROUP}/swarmhistories"), json!({"items": [history]}));
        answers.insert(format!("{GROUP}/swarmhistories/cameras"), history);
        let row: &[&str] = &["statefulset.ingest", "cameras", ""];
        let mut rows = table(&["Name", "Swarm", "Revision"], &[row]);
        rows["rows"][0]["cells"][2] = revision.into();
        answers.insert(format!("{GROUP}/swarmledgers as table"), rows);
        let written = json!([{"time": "2025-11-28T04:00:00Z"}]);
        answers.get_mut(&ledger).unwrap()["metadata"]["managedFields"] = written;
        if let Some(answer) = answer {
            answers.insert(ledger.clone(), answer);
        }
        answers
    };
    let late = with_ledger(7, None);
    let (_, printed, said) = run(late.clone(), &["history", "a"]);
    let last = printed.lines().last().unwrap();
    let expected = "2025-11-28T04:00:00Z  ingest-1  ingest-0  recent ";
    assert!(last.starts_with(expected) && said.is_empty(), "{printed}{said}");
    let (_, printed, _) = run(late.clone(), &["history"]);
    assert!(printed.contains("recent 1") && printed.contains("1-7"), "{printed}");
    // The same of all namespaces.
    let mut of_all = late.clone();
    let mut history = late[&format!("{GROUP}/swarmhistories/cameras")].clone();
    history["metadata"]["namespace"] = "media".into();
    let all = GROUP.strip_suffix("/namespaces/media").unwrap();
    of_all.insert(format!("{all}/swarmhistories"), json!({"items": [history]}));
    let (_, printed_of_all, said) = on(of_all, &["history", "-A"]);
    assert_eq!((printed_of_all, &*said), (printed, ""));
    let (_, printed, _) = run(late.clone(), &["diff", "1"]);
    let expected = "ingest-0\n  + a  from ingest-1, recent\ningest-1\n  - a  to ingest-0, recent\n";
    assert_eq!(anstream::adapter::strip_str(&printed).to_string(), expected);
    let (_, printed, _) = run(late, &["explain", "a"]);
    assert!(printed.contains("from ingest-1, 2025-11-28T04:00:00Z"), "{printed}");
    // The ledger is not read while the history has its revision.
    let at_rest = with_ledger(1, Some(forbidden("swarmledgers.swarm.k8slab.info")));
    let (_, printed, said) = run(at_rest, &["history", "a"]);
    assert!(printed.ends_with("the pool is new\n") && said.is_empty(), "{printed}{said}");
    let hidden = with_ledger(7, Some(forbidden("swarmledgers.swarm.k8slab.info")));
    let (_, _, said) = run(hidden, &["history", "a"]);
    let expected =
        "note: the history of `media/cameras` ends at revision 1, and the present one is 7;";
    assert!(said.contains(expected) && said.contains("the ledger was not read"), "{said}");
}

#[test]
fn histories_of_many_swarms_say_which_of_them_may_be_late() {
    let names: Vec<_> = (0..101).map(|n| format!("s-{n:03}")).collect();
    let rows = names.iter().map(|name| json!({"cells": [name, 7]}));
    let columns = json!([{"name": "Swarm"}, {"name": "Revision"}]);
    let ledgers = json!({"columnDefinitions": columns, "rows": rows.collect::<Vec<_>>()});
    let history = |name| json!({"metadata": {"namespace": "media", "name": name}, "spec": {}});
    let histories = names.iter().map(history).collect::<Vec<_>>();
    let all = GROUP.strip_suffix("/namespaces/media").unwrap();
    let answers = [
        (format!("{all}/swarmhistories"), json!({"items": histories})),
        (format!("{GROUP}/swarmledgers as table"), ledgers),
    ];
    let (_, _, said) = on(answers.into_iter().collect(), &["history", "-A"]);
    assert!(said.contains("media/s-100") && said.contains("revision 0"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_failing_job_that_moved_fails_in_every_answer_until_the_operator_counts_it_no_more() {
    let fails = json!({"sinceMs": 1_000, "ranMs": 0, "worker": "ingest-9", "exit": "ended with exit code 3"});
    let life = json!({"sinceMs": 1, "restarts": 4, "counts": {"crash": 4}, "events": [], "failing": fails});
    let lives = json!([{"sinceMs": 1, "jobs": {"a": life}, "taken": {}}]);
    let history =
        json!({"metadata": {"name": "cameras"}, "spec": {"episodes": [], "lives": lives}});
    let counted = |count: u64| {
        let mut answers = answers();
        answers.insert(format!("{GROUP}/swarmhistories/cameras"), history.clone());
        let swarm = answers.get_mut(&format!("{GROUP}/swarms/cameras")).unwrap();
        swarm["status"]["failing"] = count.into();
        answers
    };
    for (words, count) in
        [(&["jobs"][..], "jobs"), (&["explain", "a"], ""), (&["who", "a"], "jobs")]
    {
        let entry = |answers| {
            let (_, printed, said) = run(answers, &[words, &["-o", "json"]].concat());
            let document: Value =
                serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{said}"));
            if count.is_empty() { document } else { document[count][0].clone() }
        };
        let (fails, runs) = (entry(counted(1)), entry(counted(0)));
        assert_eq!((&fails["phase"], &runs["phase"]), (&json!("failing"), &json!("running")));
        assert_eq!((&fails["worker"], fails["failing"].is_null()), (&json!("ingest-0"), false));
        assert!(runs["failing"].is_null(), "{runs:#}");
    }
    let (code, printed, _) = run(counted(1), &["status", "-o", "json"]);
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &document["jobs"]["failing"]), (Some(3), &json!(1)));
    let row = &document["failing"][0];
    assert_eq!((&row["lastExit"], &row["restarts"]), (&json!("ended with exit code 3"), &json!(4)));
    assert_eq!(
        (&document["lives"][0]["crashes"], &document["workers"][0]["failing"]),
        (&json!(4), &json!(1))
    );
}

#[test]
fn explain_names_the_right_that_is_missing_instead_of_an_answer_without_it() {
    let history = format!("{GROUP}/swarmhistories/cameras");
    let refused = forbidden("swarmhistories.swarm.k8slab.info");
    let with = |path: &str, answer: &Value| {
        let mut answers = answers();
        answers.insert(path.to_owned(), answer.clone());
        answers
    };
    let role = "ClusterRoles `view`, `edit`";
    let (code, printed, _) = run(with(&history, &refused), &["explain", "a"]);
    let expected =
        "Came:       the history is not visible to you: the cluster refuses this: swarmhi";
    assert!(code == Some(0) && printed.contains(expected) && printed.contains(role), "{printed}");
    assert!(!printed.contains("the history is empty"), "{printed}");
    let (_, printed, _) = run(with(&history, &refused), &["explain", "a", "-o", "json"]);
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert!(document["unread"][0].as_str().unwrap().starts_with("the history is not visible"));
    // A job that was removed is only in the history.
    let (code, _, said) = run(with(&history, &refused), &["explain", "b"]);
    assert!(code == Some(3) && said.contains("it may have been removed: the history"), "{said}");

    let refused = forbidden("leases.coordination.k8s.io");
    let mut hidden = with(&format!("{LEASES}/{SESSION}"), &refused);
    hidden.insert(LEASES.to_owned(), refused);
    let (code, printed, _) = run(hidden, &["explain", "a"]);
    let expected = "Reports:    not visible to you";
    assert!(code == Some(0) && printed.contains(expected) && printed.contains(role), "{printed}");
    assert!(!printed.contains("Waits for:"), "{printed}");
    let (_, printed, _) = run(answers(), &["explain", "a"]);
    assert!(printed.contains("Phase:      running") && !printed.contains("Reports:"), "{printed}");

    let refused = forbidden("swarmledgers.swarm.k8slab.info");
    let ledger = format!("{GROUP}/swarmledgers/statefulset.ingest");
    let (code, _, said) = run(with(&ledger, &refused), &["explain", "a"]);
    assert!(code == Some(1) && said.contains("swarmledgers") && said.contains(role), "{said}");
}

#[test]
fn a_log_that_is_followed_ends_once_its_output_has_no_reader() {
    let cluster = Cluster::new(answers());
    let mut command = cluster.command(&["logs", "a", "-f", "-n", "media"]);
    let mut logs = command.stdout(Stdio::piped()).spawn().unwrap();
    until("the log is read", || fs::metadata(cluster.path().join("kubectl.log.asked")).ok());
    drop(logs.stdout.take());
    let ended = until("the command ended", || logs.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn the_log_of_a_pod_with_several_containers_is_read_without_a_remark() {
    let containers = json!([{"name": "proxy"}, {"name": "worker"}]);
    for (mark, expected) in [("worker", "worker"), ("gone", "proxy")] {
        let annotations = json!({"kubectl.kubernetes.io/default-container": mark});
        let pod = json!({"metadata": {"name": "ingest-0", "annotations": annotations},
            "spec": {"containers": containers}});
        let mut answers = answers();
        answers.insert("/api/v1/namespaces/media/pods/ingest-0".to_owned(), pod);
        let cluster = Cluster::new(answers);
        let output = cluster.swarm(&["logs", "a", "-n", "media"]);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
        let asked = fs::read_to_string(cluster.path().join("kubectl.log.asked")).unwrap();
        assert!(asked.contains(&format!(" --container={expected} ")), "{asked}");
    }
}

#[test]
fn the_status_has_all_states_that_need_a_person() {
    let mut answers = answers();
    let swarm = answers.get_mut(&format!("{GROUP}/swarms/cameras")).unwrap();
    swarm["metadata"]["generation"] = json!(2);
    swarm["status"]["failing"] = json!(1);
    swarm["status"]["conditions"] = json!([
        {"type": "Ready", "status": "False", "reason": "JobsUnassigned", "message": "1 of 2"},
        {"type": "Degraded", "status": "True", "reason": "WriteRefused",
         "message": "WriteRefused: a quota\nJobsUnassigned: 1 of 2\nRefreshBlocked: a budget"}]);
    let list = json!({"items": [swarm.clone()]});
    answers.insert(format!("{GROUP}/swarms"), list.clone());
    answers.insert("/apis/swarm.k8slab.info/v1alpha1/swarms".to_owned(), list);
    let expected = "JobsUnassigned; JobsFailing; Unseen";
    let (code, printed, _) = run(answers.clone(), &["status", "cameras"]);
    assert!(code == Some(3) && printed.contains("cameras: JobsUnassigned: 1 of 2\n"), "{printed}");
    for problem in [
        "✗ JobsFailing: 1 job of ",
        "✗ Unseen: ",
        "✗ WriteRefused: a quota\n",
        "✗ RefreshBlocked: a budget\n",
    ] {
        assert!(printed.contains(problem), "{problem}: {printed}");
    }
    assert_eq!(printed.matches("JobsUnassigned: 1 of 2").count(), 1, "{printed}");
    let output = Cluster::new(answers).swarm(&["status", "-A"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(&format!("cameras  {expected}  1 ")), "{printed}");
}

#[test]
fn an_edit_that_removed_many_jobs_ends_status_with_3_and_no_wait() {
    let status = |conditions: Value, words: &[&str]| {
        let mut answers = answers();
        let swarm = answers.get_mut(&format!("{GROUP}/swarms/cameras")).unwrap();
        swarm["status"]["conditions"] = conditions;
        let list = json!({"items": [swarm.clone()]});
        answers.insert("/apis/swarm.k8slab.info/v1alpha1/swarms".to_owned(), list);
        let output = Cluster::new(answers).swarm(words);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let ready = json!({"type": "Ready", "status": "True", "reason": "Settled", "message": "it is",
        "observedGeneration": 1});
    let sentence = "30 of 39 jobs are removed";
    let removed = json!({"type": "JobsRemoved", "status": "True", "reason": "JobsRemoved",
        "message": sentence});
    let one = ["status", "cameras", "-n", "media"];
    assert_eq!(status(json!([ready]), &one).0, Some(0));
    let (code, printed) = status(json!([ready, removed]), &one);
    assert!(code == Some(3) && printed.contains(sentence), "{printed}");
    assert_eq!(status(json!([ready, removed]), &["status", "-A"]).0, Some(3));
    let (code, printed) = status(json!([ready, removed]), &[&one[..], &["--wait"]].concat());
    assert_eq!(code, Some(0), "{printed}");
}

#[test]
fn every_verb_takes_the_swarm_by_an_option_and_the_answer_lists_several_with_commands() {
    for verb in ["jobs", "workers"] {
        let (code, printed, said) = run(answers(), &[verb, "--swarm", "cameras"]);
        assert_eq!(code, Some(0), "{verb}: {printed}{said}");
        let mut several = answers();
        let names = table(&["Name"], &[&["cameras"], &["doors"]]);
        several.insert(format!("{GROUP}/swarms as table"), names);
        let (code, _, said) = run(several, &[verb]);
        let command = |name: &str| format!("\n  kubectl swarm {verb} -n media --swarm {name}");
        let choice = format!("name one of them:{}{}\n", command("cameras"), command("doors"));
        assert!(code == Some(3) && said.ends_with(&choice), "{said}");
    }
}
