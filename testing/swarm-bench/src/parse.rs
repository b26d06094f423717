//! Measures the reader with lists of jobs as ConfigMaps hold them, and with hostile texts. Each
//! text runs in four sizes, and the result shows the power of the size with which time grows. Some
//! texts also run in four depths, with the power of the depth.

use std::error::Error;

use serde_json::{Value, json};
use swarm_spec::manifest::{SourceError, SourceRecord, jobs_in_namespace};
use swarm_spec::spec::SwarmSpec;
use swarm_spec::yaml::documents;

use crate::cliffs::Sizes;

/// The sizes of a text, in bytes. A ConfigMap has at most a million.
const SIZES: [u32; 4] = [125_000, 250_000, 500_000, 1_000_000];

/// A text: its description, its beginning, and the part that is repeated after the beginning.
type Text = (&'static str, &'static str, &'static str);

/// The texts whose last part is repeated up to the size.
const REPEATED: [Text; 12] = [
    ("a list of names", "", "- stream:camera00001:new\n"),
    ("a list of maps", "", "- {name: \"stream:camera00001:new\", params: {url: x}}\n"),
    ("a list in brackets", "[", "a,"),
    ("lists in a list", "[", "[],"),
    ("quoted names", "[", "\"a\","),
    ("dashes in a line", "", "- "),
    ("question marks in a line", "", "? "),
    ("colons in a line", "", ": "),
    ("documents", "", "---\n"),
    ("comments", "", "# \n"),
    ("one long text", "a", " a"),
    ("anchors", "[", "&a a,"),
];

/// The parts that are repeated at the beginning, to each depth, before `a,` is repeated up to the
/// size.
const DEEP: [(&str, &str); 2] = [("brackets", "["), ("maps in brackets", "{a: ")];
/// The depths: the numbers of repetitions at the beginning.
const DEPTHS: [u32; 4] = [30, 100, 1_000, 10_000];

/// All texts.
pub(crate) fn all() -> Result<(), Box<dyn Error>> {
    println!("| text | CPU time, median | allocated at most | read |");
    println!("|---|---|---|---|");
    for (what, begins, repeated) in REPEATED {
        measure(what, |size| text(begins, repeated, size));
    }
    for (what, begins) in DEEP {
        for depth in DEPTHS {
            let begins = begins.repeat(usize::try_from(depth)?);
            measure(&format!("{depth} {what}, then a list"), |size| text(&begins, "a,", size));
        }
        deeper(what, begins);
    }
    sources("stream:camera-with-a-long-name:0000001")?;
    sources("")?;
    measure("directives", |size| lines(size / 17, |n| format!("%TAG !{n:07}! x\n")));
    Ok(())
}

/// Measures the largest text with each depth, and the power of the depth with which time grows.
fn deeper(what: &str, begins: &str) {
    let (mut depths, size) = (Sizes::default(), SIZES[SIZES.len() - 1]);
    for depth in DEPTHS {
        let begins = begins.repeat(usize::try_from(depth).unwrap_or(usize::MAX));
        let text = text(&begins, "a,", size);
        let what = format!("{depth} {what}, {size} bytes");
        depths.measure(depth, &what, &outcome(&text), || documents(&text));
    }
    depths.growth_with("depth");
}

/// The result of reading a text.
fn outcome(text: &str) -> String {
    match documents(text) {
        Ok(documents) => format!("{} documents", documents.len()),
        Err(error) => error.source.to_string().chars().take(60).collect(),
    }
}

/// Measures sources of one Swarm, a megabyte each, with names that begin with `begins`.
fn sources(begins: &str) -> Result<(), Box<dyn Error>> {
    let mut sizes = Sizes::default();
    for count in [1, 2, 4, 8] {
        let named = |n: u32| json!({"configMap": {"name": format!("list-{n}"), "key": "jobs"}});
        let named: Vec<_> = (0..count).map(named).collect();
        let pool = json!({"statefulSet": {"name": "w"}});
        let spec: SwarmSpec = serde_json::from_value(json!({"pool": pool, "jobSources": named}))?;
        let maps: Vec<_> = (0..count).map(|n| config_map(begins, n)).collect();
        let read = || jobs_in_namespace("s", &spec, maps.iter().cloned(), &SourceRecord::default());
        let came_to = match read() {
            Ok(gathered) => format!("{} jobs", gathered.jobs.len()),
            Err(SourceError::TooLarge(why)) => why.chars().take(80).collect(),
            Err(other) => format!("{other:?}"),
        };
        let what = format!("{count} sources of 1 MB, names begin with {begins:?}");
        sizes.measure(count, &what, &came_to, read);
    }
    sizes.growth();
    Ok(())
}

/// A ConfigMap with a list of a megabyte. Its names differ from the names in other lists.
fn config_map(begins: &str, number: u32) -> Value {
    let bytes = u32::try_from(begins.len() + 10).unwrap_or(u32::MAX);
    let text = lines(999_990 / bytes, |n| format!("- {begins}{:07}\n", number * 200_000 + n));
    let metadata = json!({"name": format!("list-{number}")});
    json!({"kind": "ConfigMap", "metadata": metadata, "data": {"jobs": text}})
}

fn lines(count: u32, line: impl Fn(u32) -> String) -> String {
    (0..count).map(line).collect::<Vec<_>>().concat()
}

fn text(begins: &str, repeated: &str, size: u32) -> String {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let count = size.saturating_sub(begins.len()) / repeated.len();
    format!("{begins}{}", repeated.repeat(count))
}

fn measure(what: &str, text: impl Fn(u32) -> String) {
    let mut sizes = Sizes::default();
    for size in SIZES {
        let text = text(size);
        let what = format!("{what}, {size} bytes");
        sizes.measure(size, &what, &outcome(&text), || documents(&text));
    }
    sizes.growth();
}
