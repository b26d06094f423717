//! `kubectl swarm replicas`: lists the operators that share the Swarms, and their state, from their
//! Leases.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use swarm_terminal::output::{NO, Output, complain, print, print_json};
use swarm_view::replicas::{self, Evidence, Heard, RENEW, SILENT_AFTER};
use swarm_view::shell;
use swarm_view::table::{add_table, columns, row};

use crate::kubectl::{Cluster, OPERATOR_NAMESPACE, objects};

/// Resource name of Leases for kubectl.
const LEASES: &str = "leases.coordination.k8s.io";
/// Selects the Leases of the operator's replicas.
const SELECTOR: &str = "--selector=replicas.k8slab.info/group=swarm-operator";
/// Annotation with the status that a replica reports.
const STATUS: &str = "/metadata/annotations/replicas.k8slab.info~1status";
/// The API group of Swarms.
const SWARM_GROUP: &str = "swarm.k8slab.info";
/// Maximum number of namespaces in a message.
const NAMED_MAX: usize = 5;
/// Maximum size of all Leases: enough for thousands of replicas.
const BYTES_MAX: u64 = 64 << 20;

/// Arguments of `kubectl swarm replicas`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl swarm replicas                          the operators in swarm-system
  kubectl swarm replicas -n swarm --context prod  those of another namespace and cluster
  kubectl swarm replicas -a -o json               all that they say of themselves, with those that ended")]
pub(crate) struct ReplicasArgs {
    /// The namespace of the operator
    #[arg(long, short, value_name = "NS", default_value = OPERATOR_NAMESPACE)]
    namespace: String,
    /// List also replicas that have ended
    #[arg(long, short)]
    all: bool,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

/// Prints the replicas. Exit codes: 0, 1 if the cluster does not answer, 3 if no replica is alive.
pub(crate) fn run(args: &ReplicasArgs) -> ExitCode {
    let all = match judged(&args.cluster, &args.namespace) {
        Ok(all) => all,
        Err(sentence) => {
            complain(&sentence);
            return ExitCode::FAILURE;
        }
    };
    let silence = silence(&all);
    let (mut found, ended): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|it| it.is_held || args.all);
    found.sort_by(|a, b| (&a.name, &a.renewed).cmp(&(&b.name, &b.renewed)));
    if found.is_empty() {
        complain(&nobody(&args.cluster, &args.namespace, ended.len()));
        // A script that reads JSON gets an empty list.
        let is_json = args.output == Output::Json;
        let _ = if is_json { print_json("[]\n") } else { Ok(()) };
        return ExitCode::from(NO);
    }
    let printed = match args.output {
        Output::Text => print(&table(&found)),
        Output::Json => {
            let all: Vec<_> = found.iter().map(Replica::document).collect();
            print_json(&format!("{:#}\n", json!(all)))
        }
    };
    match printed {
        Ok(()) => match silence {
            None => ExitCode::SUCCESS,
            Some(sentence) => {
                complain(&sentence);
                ExitCode::from(NO)
            }
        },
        Err(error) => {
            complain(&format!("the replicas cannot be printed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the replicas in a namespace. The clock of this machine may differ from theirs, so
/// silent ones get the time of two renewals to show another one.
fn judged(cluster: &Cluster, namespace: &str) -> Result<Vec<Replica>, String> {
    let first = replicas(cluster, Some(namespace))?;
    if !first.iter().any(|it| it.is_held && it.silence().is_some()) {
        return Ok(first);
    }
    sleep(RENEW * 2);
    let mut second = replicas(cluster, Some(namespace))?;
    for replica in &mut second {
        let before = first.iter().find(|it| it.name == replica.name);
        replica.is_renewing = before.is_none_or(|before| before.renewed != replica.renewed);
    }
    Ok(second)
}

/// Returns a sentence if replicas hold their Leases, and none of them renews its Lease.
fn silence(all: &[Replica]) -> Option<String> {
    let mut held = all.iter().filter(|it| it.is_held).peekable();
    held.peek()?;
    if held.any(Replica::is_alive) {
        return None;
    }
    let least = all.iter().filter_map(Replica::silence).min()?;
    let evidence = Evidence { heard: Heard::Ago(least), ..Evidence::default() };
    evidence.out_of_date().map(|it| it.to_string())
}

/// Returns the replicas in a namespace, or in all namespaces.
fn replicas(cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<Replica>, String> {
    let mut words = vec!["get", LEASES, SELECTOR, "--output=json"];
    words.extend(namespace.is_none().then_some("--all-namespaces"));
    let text = cluster.ask(namespace, &words, BYTES_MAX)?;
    Ok(objects(&text, "Leases")?.iter().map(Replica::of).collect())
}

/// Builds the message for a namespace without operators: the cause, if the cluster shows it, and the
/// place to look.
fn nobody(cluster: &Cluster, namespace: &str, ended: usize) -> String {
    let quoted = shell::word(namespace);
    if 0 < ended {
        let (operators, have) =
            if ended == 1 { ("operator", "has") } else { ("operators", "have") };
        return format!(
            "{ended} {operators} in namespace `{namespace}` {have} ended, and no other runs there; --all \
             lists what has ended, and `kubectl get pods --namespace={quoted}` what runs"
        );
    }
    if cluster.has_group(SWARM_GROUP) == Some(false) {
        return format!(
            "swarm is not installed in this cluster: it has no kind of {SWARM_GROUP}; \
             `kubectl apply --server-side -k deploy/crds` adds them, and deploy/base the operator"
        );
    }
    let is_there = cluster.has_namespace(namespace) != Some(false);
    let here = if is_there {
        format!("no operator in namespace `{namespace}` has a Lease")
    } else {
        format!("namespace `{namespace}` does not exist")
    };
    match replicas(cluster, None).map(namespaces_of) {
        Ok(others) if !others.is_empty() => {
            let shown: Vec<_> = others.iter().take(NAMED_MAX).map(|it| format!("`{it}`")).collect();
            let more = if shown.len() < others.len() { ", …" } else { "" };
            let shown = shown.join(", ");
            format!("{here}; operators run in {shown}{more}: name their namespace with --namespace")
        }
        Ok(_) => format!(
            "{here}, and no other namespace has an operator's Lease: no operator runs, or it runs alone, \
             without --id; look for its pods: kubectl get pods --all-namespaces --selector=app=swarm-controller"
        ),
        Err(_) => format!(
            "{here}; name the operator's namespace with --namespace. One that runs alone, without --id, \
             has no Lease: look for its pods: kubectl get pods --namespace={quoted} \
             --selector=app=swarm-controller"
        ),
    }
}

/// Returns the namespaces with live replicas.
fn namespaces_of(replicas: Vec<Replica>) -> BTreeSet<String> {
    replicas.into_iter().filter(Replica::is_alive).map(|it| it.namespace).collect()
}

/// A replica and its Lease.
struct Replica {
    name: String,
    namespace: String,
    /// Whether it holds its Lease.
    is_held: bool,
    /// Whether its Lease was renewed during this command.
    is_renewing: bool,
    renewed: String,
    /// The status that the replica reports, or null.
    status: Value,
}

impl Replica {
    fn of(lease: &Value) -> Self {
        let text = |pointer: &str| {
            lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let name = text("/metadata/name");
        let is_held = !name.is_empty() && text("/spec/holderIdentity") == name;
        let status = serde_json::from_str(&text(STATUS)).unwrap_or_default();
        let namespace = text("/metadata/namespace");
        let (renewed, is_renewing) = (text("/spec/renewTime"), false);
        Self { name, namespace, is_held, is_renewing, renewed, status }
    }

    /// Returns the time since the last renewal of a replica that seems silent.
    fn silence(&self) -> Option<Duration> {
        let renewed: Timestamp = self.renewed.parse().ok()?;
        let ago = Duration::try_from(Timestamp::now().duration_since(renewed)).ok()?;
        Some(ago).filter(|ago| SILENT_AFTER <= *ago)
    }

    /// Whether it holds its Lease and renews it.
    fn is_alive(&self) -> bool {
        self.is_held && (self.is_renewing || self.silence().is_none())
    }

    fn document(&self) -> replicas::Replica {
        let said = self.status.as_object().cloned().unwrap_or_default();
        replicas::Replica::new(&self.name, self.is_alive(), &self.renewed, said)
    }

    /// Sums a number over all controllers, up to the largest number: any user who may write the Lease
    /// writes the numbers.
    fn sum(&self, pointer: &str) -> u64 {
        let controllers = self.status["controllers"].as_object();
        let all = controllers.into_iter().flat_map(|all| all.values());
        all.filter_map(|it| it.pointer(pointer)?.as_u64()).fold(0, u64::saturating_add)
    }

    fn row(&self) -> Vec<String> {
        let said = |field: &str| match &self.status[field] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.escape_default().to_string(),
            other => other.to_string(),
        };
        let state = match (self.is_alive(), &self.status["isHealthy"]) {
            (false, _) if self.is_held => "silent",
            (false, _) => "ended",
            (true, Value::Bool(false)) => "hangs",
            (true, _) => "alive",
        };
        vec![
            self.name.escape_default().to_string(),
            state.to_owned(),
            said("type"),
            said("objects"),
            self.sum("/buckets").to_string(),
            self.sum("/locked/buckets").to_string(),
            said("workers"),
            said("turnsWaiting"),
            said("turnsUnderWay"),
            said("turnsPerSecond"),
            said("version"),
            self.renewed.escape_default().to_string(),
        ]
    }
}

/// Formats the replicas as a table.
fn table(replicas: &[Replica]) -> String {
    let header = [
        "REPLICA",
        columns::STATE,
        "TYPE",
        "SWARMS",
        "BUCKETS",
        "LOCKED",
        "WORKERS",
        "WAITING",
        "TURNS",
        "TURNS/S",
        "VERSION",
        "RENEWED",
    ];
    let mut rows = vec![row(header)];
    rows.extend(replicas.iter().map(Replica::row));
    let mut text = String::new();
    add_table(&mut text, "", &rows, "replicas");
    text.trim_start_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time in the future, by a clock that is ahead.
    const RENEWED: &str = "2126-03-01T12:00:07.000000Z";

    #[test]
    fn a_replica_that_holds_its_lease_and_does_not_renew_it_is_silent() {
        let of = |seconds: u64, is_renewing| {
            let renewed = (Timestamp::now() - Duration::from_secs(seconds)).to_string();
            Replica { is_renewing, renewed, ..Replica::of(&lease("a", "a", &json!({}))) }
        };
        let state = |replica: &Replica| replica.row()[1].clone();
        assert_eq!(state(&of(9, false)), "alive");
        assert_eq!(state(&of(28, false)), "silent");
        assert!(!of(28, false).document().is_alive);
        // The clock of this machine is ahead.
        assert_eq!(state(&of(28, true)), "alive");
        assert_eq!(silence(&[of(9, false), of(28, false)]), None);
        let sentence = silence(&[of(40, false), of(28, false)]).unwrap();
        assert!(sentence.starts_with("NoOperator: as of 28 s ago; no operator"), "{sentence}");
        let ended = Replica::of(&lease("b", "", &json!({})));
        assert_eq!(silence(&[ended]), None, "another sentence is about them");
    }

    fn lease(name: &str, holder: &str, status: &Value) -> Value {
        let annotations = json!({"replicas.k8slab.info/status": status.to_string()});
        json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"holderIdentity": holder, "renewTime": RENEWED},
        })
    }

    #[test]
    fn a_replica_is_a_row_whatever_its_lease_says() {
        let status = json!({
            "version": "1.2.3", "objects": 7, "turnsUnderWay": 0, "turnsPerSecond": 3,
            "type": "default", "workers": 16, "turnsWaiting": 2, "isHealthy": true,
            "controllers": {
                "swarm": {"buckets": 2048},
                "other": {"buckets": 10, "locked": {"buckets": 4, "forSeconds": 2}},
            },
        });
        let alive = Replica::of(&lease("a-1", "a-1", &status));
        let ended = Replica::of(&lease("b-1", "", &json!("\u{1b}[31m")));
        let text = anstream::adapter::strip_str(&table(&[alive, ended])).to_string();
        let expected = "\
REPLICA  STATE  TYPE     SWARMS  BUCKETS  LOCKED  WORKERS  WAITING  TURNS  TURNS/S  VERSION  RENEWED
a-1      alive  default  7       2058     4       16       2        0      3        1.2.3    2126-03-01T12:00:07.000000Z
b-1      ended  -        -       0        0       -        -        -      -        -        2126-03-01T12:00:07.000000Z
";
        assert_eq!(text, expected);
        let most = json!({"controllers": {"a": {"buckets": u64::MAX}, "b": {"buckets": 1}}});
        let most = Replica::of(&lease("c-1", "c-1", &most));
        assert!(most.row().contains(&u64::MAX.to_string()));
        let broken = Replica::of(&json!({"metadata": {"name": "c"}}));
        let document = json!(broken.document());
        assert_eq!(document, json!({"id": "c", "isAlive": false, "renewed": ""}));
        let lies = json!({"id": "x", "isAlive": true, "objects": 7});
        let ended = Replica::of(&lease("d-1", "", &lies)).document();
        let document = json!(ended);
        assert_eq!((&document["id"], &document["isAlive"]), (&json!("d-1"), &json!(false)));
        assert_eq!(document["objects"], 7);
    }
}
