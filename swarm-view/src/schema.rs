//! The JSON Schema of the documents that `-o json` prints.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::check::Check;
use crate::explain::Explanation;
use crate::history::{Difference, History, JobHistory, OneOrSeveral};
use crate::jobs::Jobs;
use crate::logs::LogLine;
use crate::overview::Overview;
use crate::plan::Plan;
use crate::replicas::Replica;
use crate::status::Status;
use crate::stop::Stopped;
use crate::verify::Verification;
use crate::workers::Workers;

/// Returns a JSON Schema (draft 2020-12) with one definition for the document of each command.
///
/// A document has all required fields. A later version may add fields, so a reader ignores fields that
/// it does not know.
#[must_use]
pub fn documents() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let commands = [
        ("check", of::<Check>(&mut generator)),
        ("diff", of::<Difference>(&mut generator)),
        ("explain", of::<Explanation>(&mut generator)),
        ("history", of::<OneOrSeveral<History>>(&mut generator)),
        ("history JOB", of::<OneOrSeveral<JobHistory>>(&mut generator)),
        ("jobs", of::<Jobs>(&mut generator)),
        ("logs", of::<LogLine<'_>>(&mut generator)),
        ("plan", of::<Plan>(&mut generator)),
        ("replicas", of::<Vec<Replica>>(&mut generator)),
        ("status", of::<Status>(&mut generator)),
        ("status -A", of::<Overview>(&mut generator)),
        ("stop", of::<Stopped>(&mut generator)),
        ("verify", of::<Verification>(&mut generator)),
        ("who", of::<Jobs>(&mut generator)),
        ("workers", of::<Workers>(&mut generator)),
    ];
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Documents of swarm and kubectl swarm",
        "description": "The property of a command has the document that its `-o json` prints. `logs` prints one for each line.",
        "type": "object",
        "properties": serde_json::Map::from_iter(commands.map(|(name, it)| (name.to_owned(), it))),
        "$defs": generator.take_definitions(true),
    })
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().into()
}
