//! Checks hand-written pages: names of metrics, examples with their output, and
//! links to other pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn page(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(file).unwrap()
}

/// All Markdown pages of the repository.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = ["", "docs", "docs/design", "docs/reference"].map(|folder| root.join(folder));
    let entries = folders.into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The anchors of the headings of a page, as on GitHub.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |heading: &str| heading.chars().filter(kept).collect::<String>();
    let anchors = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
    anchors.map(|anchor| anchor.to_lowercase().replace(' ', "-")).collect()
}

/// Returns the links of a page, except to other sites.
fn links(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter(|link| !link.contains("://")).map(str::to_owned).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    assert!(15 < pages.len(), "only {pages:?}");
    for page in pages {
        for link in links(&page) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(target.exists(), "{} links to {link}", page.display());
            if !anchor.is_empty() {
                let anchors = anchors(&std::fs::read_to_string(&target).unwrap());
                let is_there = anchors.iter().any(|it| it == anchor);
                assert!(is_there, "{} links to {link}", page.display());
            }
        }
    }
}

/// The book has only the files of `docs`, as `.html` pages, and `README.md` becomes `index.html`. A
/// link to another file, or to a folder's `README.md`, would be broken.
#[test]
fn the_book_has_every_page_and_can_follow_every_link() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").canonicalize().unwrap();
    let summary = docs.join("SUMMARY.md");
    let listed: BTreeSet<_> = links(&summary).into_iter().map(|link| docs.join(link)).collect();
    let pages = pages().into_iter().map(|page| page.canonicalize().unwrap());
    let pages: BTreeSet<_> = pages.filter(|page| page.starts_with(&docs)).collect();
    let own: BTreeSet<_> = pages.iter().filter(|page| **page != summary).cloned().collect();
    assert_eq!(listed, own, "docs/SUMMARY.md lists every page once");
    for page in own {
        for link in links(&page) {
            let file = link.split('#').next().unwrap();
            let target = page.with_file_name(file);
            let is_page = target.extension().is_some_and(|extension| extension == "md");
            let is_known = || listed.contains(&target.canonicalize().unwrap());
            let is_found = !is_page || is_known() && !file.ends_with("README.md");
            assert!(is_found, "the book cannot follow {link} in {}", page.display());
        }
    }
}

/// A test of `swarm-worker` compares the sentence with the written value.
#[test]
fn pages_agree_on_what_the_log_runner_writes() {
    let sentence = "the worker's log has a line when a job starts and one when it stops";
    for name in ["concepts.md", "reference/swarm.md"] {
        assert!(page(name).contains(sentence), "{name}");
    }
    assert!(
        page("local.md").contains("the logs of the workers, with a line for every start and stop")
    );
}

#[test]
fn alerts_and_dashboard_name_existing_metrics() {
    let reference = page("reference/metrics.md");
    for file in ["rules.yaml", "dashboard.json"] {
        let path = format!("{}/../deploy/components/monitoring/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<_> = names.filter(|name| name.starts_with("swarm_")).collect();
        assert!(10 < names.len(), "{file} has only {names:?}");
        for name in names {
            let stored = name.trim_end_matches("_bucket");
            assert!(
                reference.contains(&format!("`{stored}`")),
                "{file}: there is no metric {name}"
            );
        }
    }
}

/// An alert for a value that no metric has never fires, and its test by promtool does not notice.
#[test]
fn alerts_select_values_that_exist() {
    let reference = page("reference/metrics.md");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/components/monitoring/rules.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let mut known = 0;
    for (before, after) in text.match_indices('{').map(|(at, _)| text.split_at(at)) {
        let metric = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
        let row = format!("| `{}` |", metric.unwrap_or_default());
        let Some(row) = reference.lines().find(|line| line.starts_with(&row)) else { continue };
        let selector = after.trim_start_matches('{').split('}').next().unwrap_or_default();
        for (label, value) in selector.split(", ").filter_map(|it| it.split_once('"')) {
            let label = label.trim_end_matches(['=', '!', '~']);
            // The labels of the Swarm; Prometheus adds them to the metrics of a worker.
            if ["name", "namespace"].contains(&label) {
                continue;
            }
            let label = format!("`{label}`: ");
            let (_, values) = row.split_once(&label).unwrap_or_else(|| panic!("{row}: no {label}"));
            let values: Vec<_> = values.split([',', '|']).map(str::trim).collect();
            // The page has a placeholder where the values are not listed.
            if values[0].chars().all(|c| c.is_ascii_uppercase()) {
                continue;
            }
            for value in value.trim_end_matches('"').split('|') {
                assert!(values.contains(&value), "{row}: {label} is never {value}");
                known += 1;
            }
        }
    }
    assert!(10 <= known, "only {known} values were found");
}
