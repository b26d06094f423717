//! `kubectl swarm replicas`: which operators share the Swarms, and how they do, by their Leases.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::Value;

use crate::kubectl::Cluster;
use crate::plan::table;
use crate::{complain, print, print_json};

/// The Leases of the operator's replicas.
const SELECTOR: &str = "--selector=replicas.k8slab.info/group=swarm-operator";
/// What a replica says of itself.
const STATUS: &str = "/metadata/annotations/replicas.k8slab.info~1status";
/// The most bytes of all Leases: thousands of replicas.
const BYTES_MAX: u64 = 64 << 20;

/// Which replicas to list, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplicasArgs {
    /// The namespace of the operator
    #[arg(long, short, value_name = "NS", default_value = "swarm-system")]
    namespace: String,
    /// List also replicas that have ended
    #[arg(long, short)]
    all: bool,
    #[command(flatten)]
    cluster: Cluster,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table
    #[default]
    Table,
    /// One JSON document: what each replica says of itself
    Json,
}

/// Prints the replicas. Exit codes: 0, 1 if the cluster did not answer, 3 if there is none.
pub(crate) fn run(args: &ReplicasArgs) -> ExitCode {
    let words = ["get", "leases.coordination.k8s.io", SELECTOR, "--output=json"];
    let listed = args.cluster.ask(Some(&args.namespace), &words, BYTES_MAX).and_then(|text| {
        serde_json::from_str::<Value>(&text)
            .map_err(|error| format!("kubectl printed no list of Leases: {error}"))
    });
    let leases = match listed {
        Ok(leases) => leases,
        Err(sentence) => {
            complain(&sentence);
            return ExitCode::FAILURE;
        }
    };
    let leases = leases["items"].as_array().into_iter().flatten().map(Replica::of);
    let mut found: Vec<_> = leases.filter(|it| it.is_alive || args.all).collect();
    found.sort_by(|a, b| (&a.name, &a.renewed).cmp(&(&b.name, &b.renewed)));
    if found.is_empty() {
        let namespace = &args.namespace;
        complain(&format!(
            "no operator in namespace `{namespace}` shares Swarms; name the operator's namespace with \
             --namespace, or start it with --id"
        ));
        return ExitCode::from(3);
    }
    let printed = match args.output {
        Output::Table => print(&table(&found)),
        Output::Json => {
            let all = Value::Array(found.iter().map(Replica::json).collect());
            print_json(&format!("{all:#}\n"))
        }
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("the replicas cannot be printed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A replica as its Lease shows it.
struct Replica {
    name: String,
    is_alive: bool,
    renewed: String,
    /// What it says of itself; null if it says nothing.
    status: Value,
}

impl Replica {
    fn of(lease: &Value) -> Self {
        let text = |pointer: &str| {
            lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let name = text("/metadata/name");
        let is_alive = !name.is_empty() && text("/spec/holderIdentity") == name;
        let status = serde_json::from_str(&text(STATUS)).unwrap_or_default();
        Self { is_alive, renewed: text("/spec/renewTime"), status, name }
    }

    /// The document, with what the Lease says beside what the replica says.
    fn json(&self) -> Value {
        let mut document = match &self.status {
            Value::Object(status) => Value::Object(status.clone()),
            _ => Value::Object(serde_json::Map::new()),
        };
        document["id"] = self.name.clone().into();
        document["isAlive"] = self.is_alive.into();
        document["renewed"] = self.renewed.clone().into();
        document
    }

    /// The sum of a number over all controllers.
    fn sum(&self, pointer: &str) -> u64 {
        let controllers = self.status["controllers"].as_object();
        let all = controllers.into_iter().flat_map(|all| all.values());
        all.filter_map(|it| it.pointer(pointer)?.as_u64()).sum()
    }

    fn row(&self) -> Vec<String> {
        let said = |field: &str| match &self.status[field] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.escape_default().to_string(),
            other => other.to_string(),
        };
        let state = match (self.is_alive, &self.status["isHealthy"]) {
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

/// The replicas as a table.
fn table(replicas: &[Replica]) -> String {
    let header = [
        "REPLICA", "STATE", "TYPE", "SWARMS", "BUCKETS", "LOCKED", "WORKERS", "WAITING", "TURNS",
        "TURNS/S", "VERSION", "RENEWED",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(replicas.iter().map(Replica::row));
    let mut text = String::new();
    table::add(&mut text, "", &rows, "replicas");
    text.trim_start_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(name: &str, holder: &str, status: &Value) -> Value {
        let annotations = json!({"replicas.k8slab.info/status": status.to_string()});
        json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"holderIdentity": holder, "renewTime": "2026-03-01T12:00:07.000000Z"},
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
a-1      alive  default  7       2058     4       16       2        0      3        1.2.3    2026-03-01T12:00:07.000000Z
b-1      ended  -        -       0        0       -        -        -      -        -        2026-03-01T12:00:07.000000Z
";
        assert_eq!(text, expected);
        let broken = Replica::of(&json!({"metadata": {"name": "c"}}));
        assert_eq!(broken.json(), json!({"id": "c", "isAlive": false, "renewed": ""}));
    }
}
