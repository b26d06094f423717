//! Lists of addresses: plain lines, playlists, and targets of Prometheus.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use swarm_spec::foreign::is_address;
use swarm_spec::hostport;
use swarm_spec::yaml;

use super::draft::{Draft, Job, Runner};

/// The program of a draft whose source names none. The user replaces it.
const PROGRAM: [&str; 3] =
    ["sh", "-c", r#"echo "reading $SWARM_PARAM_URL under token $SWARM_TOKEN"; exec sleep 1000000"#];

/// Maximum number of labels of a target that become params of its job.
const PARAMS_MAX: usize = 30;

/// The port that Prometheus asks if a target has none.
const PORT: &str = "80";

/// Reads addresses, one a line.
///
/// # Errors
///
/// A sentence with the line.
pub(super) fn addresses(text: &str) -> Result<Draft, String> {
    let lines: Vec<_> = hostport::lines(text).collect();
    if let Some((number, line)) = lines.iter().find(|(_, line)| !is_address(line)) {
        let shown = hostport::excerpt(line);
        return Err(format!(
            "line {number}: `{shown}` is not an address; write one address a line"
        ));
    }
    let job = |line: &str| hostport::job_of(line).unwrap_or_else(|| line.to_owned());
    let all: Vec<_> = lines.iter().map(|(_, line)| job(line)).collect();
    if all.iter().all(|it| hostport::parts(it).is_some()) {
        let mut draft = pinged();
        for address in all {
            draft.add(&address, Job::default())?;
        }
        return Ok(draft);
    }
    let mut draft = read_by_a_program(all.iter());
    for address in all {
        draft.add(&name_of(&address), of_url(&address))?;
    }
    Ok(draft)
}

/// Reads a playlist: each entry is a line with its title, and a line with its address.
///
/// # Errors
///
/// A sentence about too many entries.
pub(super) fn playlist(text: &str) -> Result<Draft, String> {
    let mut entries = Vec::new();
    let mut said = Entry::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(info) = line.strip_prefix("#EXTINF:") {
            let before = std::mem::take(&mut said.dropped);
            said = Entry::of(info);
            said.dropped.splice(..0, before);
        } else if let Some(tag) = line.strip_prefix('#') {
            let name = tag.split([':', ' ']).next().unwrap_or_default();
            if !matches!(name, "EXTM3U" | "PLAYLIST" | "EXTENC") && name.starts_with("EXT") {
                said.dropped.push(format!("#{name}"));
            }
        } else {
            entries.push((std::mem::take(&mut said), line.to_owned()));
        }
    }
    let mut draft = read_by_a_program(entries.iter().map(|(_, url)| url));
    for (Entry { name, title, dropped }, url) in entries {
        let mut job = of_url(&url);
        if !dropped.is_empty() {
            job.comments.push(format!("playlist: {} has no counterpart", dropped.join(", ")));
        }
        let name = name.or_else(|| title.clone()).unwrap_or_else(|| name_of(&url));
        job.title = title;
        draft.add(&name, job)?;
    }
    Ok(draft)
}

/// The tags before an address in a playlist.
#[derive(Debug, Default)]
struct Entry {
    name: Option<String>,
    title: Option<String>,
    /// Attributes and lines without a counterpart.
    dropped: Vec<String>,
}

impl Entry {
    /// Reads `DURATION ATTRIBUTE="VALUE" …,TITLE`.
    fn of(info: &str) -> Self {
        let mut entry = Self::default();
        let mut rest = info;
        // A comma in a value does not end the attributes.
        while let Some((before, after)) = rest.split_once("=\"") {
            if before.contains(',') {
                break;
            }
            let name = before.split_whitespace().next_back().unwrap_or_default().to_owned();
            let Some((value, after)) = after.split_once('"') else { break };
            if name == "tvg-id" && !value.is_empty() {
                entry.name = Some(value.to_owned());
            } else {
                entry.dropped.push(name);
            }
            rest = after;
        }
        let title = rest.split_once(',').map(|(_, title)| title.trim().to_owned());
        entry.title = title.filter(|title| !title.is_empty());
        entry
    }
}

/// Reads a list of targets, as JSON or YAML.
///
/// # Errors
///
/// A sentence with the place.
pub(super) fn file_sd(text: &str) -> Result<Draft, String> {
    let documents = yaml::documents(text).map_err(|error| swarm_spec::manifest::in_full(&error))?;
    let [(_, Value::Array(groups))] = documents.as_slice() else {
        return Err("write one list of groups, as in `- targets: [\"a.example:9090\"]`".to_owned());
    };
    let mut draft = pinged();
    for (number, group) in groups.iter().enumerate() {
        let wrong = |what: &str| format!("group {}: {what}", number + 1);
        let targets = group["targets"].as_array();
        let targets = targets.ok_or_else(|| wrong("`targets` is not a list"))?;
        let (params, dropped) = params_of(&group["labels"]);
        for target in targets {
            let target = target.as_str().ok_or_else(|| wrong("a target is not a text"))?;
            let mut job = Job { params: params.clone(), ..Job::default() };
            if !dropped.is_empty() {
                let names = dropped.join(", ");
                job.comments.push(format!("file_sd: these labels cannot be params: {names}"));
            }
            if hostport::parts(target).is_some() {
                draft.add(target, job)?;
                continue;
            }
            let said =
                "file_sd: the target has no port; Prometheus asks port 80 or 443 by its scheme";
            job.comments.push(said.to_owned());
            let with_port = format!("{target}:{PORT}");
            if hostport::parts(&with_port).is_none() {
                return Err(wrong(&format!("`{}` is not a target", hostport::excerpt(target))));
            }
            draft.add(&with_port, job)?;
        }
    }
    Ok(draft)
}

/// Makes params of labels. Returns the names of the other labels, too.
fn params_of(labels: &Value) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut params, mut dropped) = (BTreeMap::<String, String>::new(), Vec::new());
    for (name, value) in labels.as_object().into_iter().flatten() {
        let value = value.as_str().filter(|it| it.len() <= 4_096 && !it.contains(char::is_control));
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.len() <= 63
            && name.chars().all(is_inner);
        let is_new = !params.keys().any(|it| it.eq_ignore_ascii_case(name));
        match value.filter(|_| is_name && is_new && params.len() < PARAMS_MAX) {
            Some(value) => drop(params.insert(name.clone(), value.to_owned())),
            None => dropped.push(name.clone()),
        }
    }
    (params, dropped)
}

/// Makes a draft whose workers send requests to the names of the jobs.
fn pinged() -> Draft {
    let mut runner = Runner::default();
    runner.comment(
        "Each worker sends an HTTP request to the name of each of its jobs. To run a program for each, \
         write `command: [./probe.sh, \"{job}\"]` instead."
            .to_owned(),
    );
    runner.field("ping", json!({"interval": "30s"}));
    Draft { runner: Some(runner), ..Draft::default() }
}

/// Makes a draft whose jobs have an address as a param.
fn read_by_a_program<'a>(mut urls: impl Iterator<Item = &'a String>) -> Draft {
    let mut runner = Runner::default();
    runner.comment("Write your program here; it has the address in SWARM_PARAM_URL.".to_owned());
    runner.field("command", json!(PROGRAM));
    let mut draft = Draft { runner: Some(runner), ..Draft::default() };
    let has_password = |url: &String| {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    };
    if urls.any(has_password) {
        draft.comments.push(
            "Some addresses contain a password, which everybody who may read this file can read. To keep \
             passwords elsewhere, use `paramsFrom`."
                .to_owned(),
        );
    }
    draft
}

fn of_url(url: &str) -> Job {
    let params = BTreeMap::from([("url".to_owned(), url.to_owned())]);
    Job { params, ..Job::default() }
}

/// Returns the name for an address: its host and its path, without a password.
fn name_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = path.trim_end_matches('/');
    if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") }
}
