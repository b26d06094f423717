//! Checks of the committed chart, by the programs of Helm 4 and Helm 3.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::compare::{self, Pair};
use super::template::NAMESPACE;
use super::{FOLDER, Files, fields};
use crate::repository::root;

/// The values files of the comparison.
const VALUES: &str = "testing/swarm-release/chart-values";

/// A version of Kubernetes. Helm assumes one of 2020 if it was not built for a release of Helm.
const KUBERNETES: &str = "--kube-version=1.34.0";

/// Values that the chart refuses, and a part of the sentence that says so.
const REFUSED: [(&str, &str); 11] = [
    ("replica=3", "'replica' not allowed"),
    ("image.tags=dev", "'tags' not allowed"),
    ("replicas=two", "at '/replicas': got string, want integer"),
    ("image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of"),
    ("image.repository=", "at '/image/repository': minLength"),
    ("image.repository=localhost:5000/swarm-operator:dev", "into image.tag or image.digest"),
    ("workerImage.digest=sha256:12", "workerImage.digest is sha256:12, which is no digest"),
    ("podLabels.app=other", "podLabels has `app`"),
    ("namespaces={Streams}", "at '/namespaces/0'"),
    ("managedPools.enabled=maybe", "at '/managedPools/enabled': got string, want boolean"),
    ("managedPools.enabled=true,namespaces={streams}", "Leave namespaces empty"),
];

/// Compares the committed chart with `files`, and runs Helm on it.
///
/// # Errors
///
/// When a file differs, Helm refuses the chart, or an object differs from its kustomization.
pub(super) fn run(files: &Files) -> Result<()> {
    same_files(files)?;
    let current = Helm::of("HELM")?;
    for pair in compare::PAIRS {
        let mut lint = ["lint", "--strict", FOLDER].map(str::to_owned).to_vec();
        lint.extend(words(&pair));
        current.ok(&lint)?;
    }
    for helm in [&current, &Helm::of("HELM3")?] {
        for pair in compare::PAIRS {
            let rendered = helm.template(&words(&pair))?;
            compare::same(&pair, &rendered)
                .with_context(|| format!("{}, {}", helm.version, pair.values.join(" and ")))?;
        }
        refused(helm)?;
    }
    every_value_has_an_effect(&current)?;
    println!("the chart is that of the kustomizations, for Helm 4 and Helm 3");
    Ok(())
}

/// Checks that each file is as `just chart` writes it, and that the folder has no other files.
fn same_files(files: &Files) -> Result<()> {
    let folder = root().join(FOLDER);
    for (name, text) in files {
        let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        ensure!(committed == *text, "{FOLDER}/{name} is not up to date: run `just chart`");
    }
    for sub in ["", "templates"] {
        let entries = std::fs::read_dir(folder.join(sub)).context("no chart: run `just chart`")?;
        for entry in entries {
            let path = entry?.path();
            let name = path.strip_prefix(&folder)?.display().to_string();
            let is_known = path.is_dir() || files.contains_key(&name);
            ensure!(is_known, "{FOLDER}/{name} belongs to no object: run `just chart`");
        }
    }
    Ok(())
}

/// The words of Helm for the values files of a pair.
fn words(pair: &Pair) -> Vec<String> {
    pair.values.iter().map(|name| format!("--values={VALUES}/{name}.yaml")).collect()
}

fn refused(helm: &Helm) -> Result<()> {
    for (values, sentence) in REFUSED {
        let set = [format!("--set={values}")];
        match helm.template(&set) {
            Ok(_) => bail!("{} takes {values}", helm.version),
            Err(error) => {
                let error = format!("{error:#}");
                ensure!(error.contains(sentence), "{} about {values}: {error}", helm.version);
            }
        }
    }
    let own = ["template", "swarm", FOLDER, "--namespace=kube-system", KUBERNETES];
    let sentence = helm.ok(&own).err().map(|error| format!("{error:#}")).unwrap_or_default();
    let is_refused = sentence.contains("the namespace kube-system belongs to the cluster itself");
    ensure!(is_refused, "{} in the namespace kube-system: {sentence}", helm.version);
    Ok(())
}

/// Checks that the example of each value is accepted, and changes what is rendered.
fn every_value_has_an_effect(helm: &Helm) -> Result<()> {
    let usual = helm.template::<&str>(&[])?;
    for field in fields::all() {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("values.yaml");
        let text = match field.key.split_once('.') {
            Some((group, key)) => format!("{group}: {{{key}: {}}}\n", field.example),
            None => format!("{}: {}\n", field.key, field.example),
        };
        std::fs::write(&file, &text)?;
        let changed = helm.template(&[format!("--values={}", file.display())])?;
        ensure!(changed != usual, "the value `{}` changes nothing", text.trim());
    }
    Ok(())
}

/// A program of Helm.
struct Helm {
    program: String,
    version: String,
}

impl Helm {
    /// The program that a variable names.
    fn of(variable: &str) -> Result<Self> {
        let program = std::env::var(variable)
            .with_context(|| format!("no {variable}: run `just chart-check`, which sets it"))?;
        let version = crate::repository::run(&program, &["version", "--short"])?;
        Ok(Self { program, version: format!("Helm {}", version.trim()) })
    }

    /// The objects of the chart with more words for `helm template`.
    fn template<Word: AsRef<str>>(&self, words: &[Word]) -> Result<String> {
        let namespace = format!("--namespace={NAMESPACE}");
        let mut all = vec!["template", "swarm", FOLDER, &namespace, KUBERNETES];
        all.extend(words.iter().map(AsRef::as_ref));
        self.ok(&all)
    }

    /// The output of Helm in the top folder, without the settings of the person who runs it.
    fn ok<Word: AsRef<str>>(&self, words: &[Word]) -> Result<String> {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        let mut command = Command::new(&self.program);
        command.args(&words).current_dir(root()).stdin(Stdio::null());
        let output = command.env("KUBECONFIG", Path::new("/dev/null")).output()?;
        let quoted = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if !output.status.success() {
            let (stderr, stdout) = (quoted(&output.stderr), quoted(&output.stdout));
            bail!("`helm {}` failed: {stderr} {stdout}", words.join(" "));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
