//! Runs Vale on pages and reads its alerts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::page::Page;

/// The command that installs Vale, as [`alerts`] and the gate want it.
const INSTALL: &str = "go install github.com/vale-cli/vale/v3/cmd/vale@v3.21.0";

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alert {
    pub file: String,
    pub line: usize,
    /// The rule's style and name, such as `House.Opening`.
    pub rule: String,
    pub message: String,
}

/// Judges the pages by the rules of the file `config`. The alerts are sorted by file and line.
pub(crate) fn alerts(vale: &Path, config: &Path, pages: &[Page]) -> Result<Vec<Alert>> {
    if pages.is_empty() {
        return Ok(Vec::new());
    }
    let folder = tempfile::tempdir().context("cannot create a folder for the pages")?;
    for page in pages {
        let path = folder.path().join(page.path());
        let parent = path.parent().unwrap_or(folder.path());
        std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, page.markdown()))?;
    }
    let mut command = Command::new(vale);
    command.args(["--no-global", "--no-exit", "--output=JSON", "--config"]).arg(config);
    // The variable would name another folder of rules.
    command.env_remove("VALE_STYLES_PATH").current_dir(folder.path());
    let output = command.args(pages.iter().map(Page::path)).output();
    let output = output.with_context(|| {
        let vale = vale.display();
        format!("cannot run {vale}: install it with `{INSTALL}`, or name it with VALE=PATH")
    })?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{} failed: {}", vale.display(), String::from_utf8_lossy(&said).trim());
    }
    parse(&output.stdout, pages).with_context(|| format!("{} gave another JSON", vale.display()))
}

/// Reads Vale's JSON: a map from the path of a page to its alerts.
fn parse(json: &[u8], pages: &[Page]) -> Result<Vec<Alert>> {
    let found: BTreeMap<String, Vec<Value>> = serde_json::from_slice(json)?;
    let pages: BTreeMap<_, _> = pages.iter().map(|page| (page.path(), page)).collect();
    let mut alerts = Vec::new();
    for (path, found) in found {
        let page = pages.get(&path).with_context(|| format!("alerts for {path}"))?;
        for alert in found {
            alerts.push(one(page, &alert).with_context(|| format!("the alert {alert}"))?);
        }
    }
    alerts.sort();
    Ok(alerts)
}

fn one(page: &Page, alert: &Value) -> Option<Alert> {
    let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
    let (line, column) = (number(&alert["Line"])?, number(&alert["Span"][0])?);
    let message = alert["Message"].as_str()?.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(Alert {
        file: page.file.clone(),
        line: page.source(line, column),
        rule: alert["Check"].as_str()?.to_owned(),
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::{Alert, parse};
    use crate::page::{Line, Page};

    #[test]
    fn an_alert_names_the_line_of_the_file() {
        let mut line = Line::new(4, "made anew");
        line.push(5, " and anew");
        let pages = [Page::of_blocks("src/a.rs", vec![vec![line]])];
        let json = r#"{"src/a.rs.md": [{"Check": "House.Phrases", "Line": 1, "Span": [15, 18],
            "Message": "Write 'again'\n instead of 'anew'."}]}"#;
        let alert = Alert {
            file: "src/a.rs".to_owned(),
            line: 5,
            rule: "House.Phrases".to_owned(),
            message: "Write 'again' instead of 'anew'.".to_owned(),
        };
        assert_eq!(parse(json.as_bytes(), &pages).unwrap(), [alert]);
    }

    #[test]
    fn json_of_another_shape_is_an_error() {
        let pages = [Page::of_markdown("a.md", "a")];
        for json in [r#"{"Code": "E100"}"#, r#"{"a.md": [{"Check": 1}]}"#, r#"{"b.md": [{}]}"#] {
            assert!(parse(json.as_bytes(), &pages).is_err(), "{json}");
        }
        assert_eq!(parse(b"{}", &pages).unwrap(), []);
    }
}
