//! A ledger survives the conversion to objects and back. An operator without support for parts
//! refuses a ledger with parts.

use super::*;
use swarm_core::stored::{StoredHolder, Waits};
use swarm_core::{Pool, jobs, plan};

fn claimant() -> Claimant {
    Claimant { kind: "K".into(), name: "n".into(), uid: "u".into() }
}

/// The name of job `n`.
fn name(n: usize) -> String {
    format!("stream:camera{n:05}:new")
}

fn ledger(jobs_wanted: usize, workers: u32, before: &Ledger) -> Ledger {
    let names: Vec<_> = (0..jobs_wanted).map(name).collect();
    let (jobs, pool) = (jobs(names.iter().map(String::as_str)).unwrap(), Pool::ready(workers));
    before.next(&plan(&jobs, &before.assignment(), &pool).assignment, &pool)
}

fn empty() -> Ledger {
    Ledger::new(1_790_000_000_000_000)
}

/// The head that is kept for an object with this spec.
fn head(spec: &SwarmLedgerSpec) -> Head {
    let mut object = SwarmLedger::new("statefulset.w", spec.clone());
    object.metadata.resource_version = Some("7".into());
    Head::of(spec, &object).unwrap()
}

/// The head of a ledger in 16 parts, and the contents of the parts.
fn divided(ledger: &Ledger) -> (SwarmLedgerSpec, Contents) {
    let split = Split::of(ledger, 16);
    let names = names(&split, &[], ledger.revision());
    let contents = new_contents(&split, &names, &[]).unwrap();
    (to_spec(split.head(), names, &claimant(), &claimant()), contents)
}

#[test]
fn a_ledger_survives_the_way_into_objects_and_back() {
    let longest_lease = std::time::Duration::from_secs(20);
    let ledger = Ledger { longest_lease, ..ledger(100, 3, &empty()) };
    let whole = to_spec(Stored::from(&ledger), Vec::new(), &claimant(), &claimant());
    assert_eq!(head(&whole).ledger(&Contents::new()).unwrap(), ledger);
    let (spec, contents) = divided(&ledger);
    assert_eq!(spec.holdings.parts.len(), 16);
    assert_eq!(head(&spec).ledger(&contents).unwrap(), ledger);
}

#[test]
fn in_one_piece_a_ledger_looks_as_it_always_did() {
    let ledger = ledger(1, 1, &empty());
    let spec = to_spec(Stored::from(&ledger), Vec::new(), &claimant(), &claimant());
    assert_eq!(
        serde_json::to_string(&spec.holdings).unwrap(),
        r#"{"incarnation":1790000000000000,"holders":[{"session":"plain/w-0","slot":0,"worker":"w-0","version":1,"jobs":{"stream:camera00000:new":1790000000000001}}]}"#
            .replace("w-0", &Pool::ready(1).0.values().next().unwrap().name)
    );
}

/// The holdings in the format without parts.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "what matters is what it refuses")]
struct HoldingsBefore {
    #[serde(default)]
    incarnation: u64,
    #[serde(default)]
    holders: Vec<StoredHolder>,
    #[serde(default)]
    waits: BTreeMap<String, Waits>,
    #[serde(default)]
    strikes: BTreeMap<String, u32>,
}

#[test]
fn an_operator_that_knows_of_no_parts_reads_one_piece_and_refuses_parts() {
    let read = |spec: SwarmLedgerSpec| {
        let text = serde_json::to_string(&spec.holdings).unwrap();
        serde_json::from_str::<HoldingsBefore>(&text).map_err(|error| error.to_string())
    };
    let ledger = ledger(100, 3, &empty());
    let whole = to_spec(Stored::from(&ledger), Vec::new(), &claimant(), &claimant());
    assert!(read(whole).is_ok());
    let refused = read(divided(&ledger).0).unwrap_err();
    // The message must not be "missing field", which would count as outdated CRDs.
    assert!(refused.starts_with("unknown field `parts`"), "{refused}");
}

#[test]
fn a_job_more_writes_one_part_and_a_worker_more_all() {
    let before = ledger(5_000, 4, &empty());
    let (spec, _) = divided(&before);
    let new = |next: &Ledger| {
        let split = Split::of(next, 16);
        let names = names(&split, &spec.holdings.parts, next.revision());
        new_contents(&split, &names, &spec.holdings.parts).unwrap().len()
    };
    assert_eq!(new(&ledger(5_001, 4, &before)), 1);
    assert_eq!(new(&ledger(5_000, 5, &before)), 16);
    assert_eq!(new(&before), 0);
}

#[test]
fn the_size_of_a_ledger_is_known_before_it_is_written() {
    for (jobs, workers) in [(1_000, 1), (20_000, 100), (1_000, 1_000)] {
        let ledger = ledger(jobs, workers, &empty());
        let spec = to_spec(Stored::from(&ledger), Vec::new(), &claimant(), &claimant());
        let (said, is) = (ledger.stored_bytes(), serde_json::to_vec(&spec).unwrap().len());
        assert!(is.abs_diff(said) <= is / 20, "{said} said, {is} bytes");
    }
}

#[test]
fn a_count_of_parts_that_is_no_power_of_two_is_unreadable() {
    let (mut spec, contents) = divided(&ledger(100, 3, &empty()));
    spec.holdings.parts.pop();
    let error = head(&spec).ledger(&contents).unwrap_err().to_string();
    assert!(error.contains("names 15 parts"), "{error}");
}
