//! Runs scenarios one after another, or in parallel if they allow it. Each is bounded, and the
//! evidence of failed ones is kept.

mod evidence;

pub use evidence::{collect, component_logs};

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::operator;
use crate::output::{Laps, say};
use crate::until::DEADLINE;

/// The default bound on the time without a lap of a scenario. A wait that hangs reports first.
const WITHIN: Duration = Duration::from_secs(DEADLINE.as_secs() + 60);
/// The number of scenarios that run in parallel if they allow it. They mostly wait.
const SIDE_BY_SIDE: usize = 4;
/// The bound on the time until a fresh namespace accepts pods. After the API server was
/// unavailable, the controllers that fill the namespace retry after half a minute or more.
const NAMESPACE_WITHIN: Duration = Duration::from_secs(90);
/// The bound on collecting the evidence of one failure.
const EVIDENCE_WITHIN: Duration = Duration::from_mins(1);

/// The set of scenarios that run if none is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// All scenarios of the gate.
    Gate,
    /// The half of the gate for the first of two parallel clusters.
    First,
    /// The half of the gate for the second cluster.
    Second,
    /// Long scenarios that rarely fail. The gate leaves them out.
    Soak,
}

impl Set {
    fn includes(self, scenario: &Scenario) -> bool {
        self == scenario.set || self == Self::Gate && scenario.set != Self::Soak
    }
}

/// The future of a scenario being run.
pub type Run = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One end-to-end test.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The name: a sentence about behaviour, in snake case.
    pub name: &'static str,
    run: fn(Context) -> Run,
    within: Duration,
    needs_all: bool,
    in_parallel: bool,
    needs_previous: bool,
    set: Set,
}

impl Scenario {
    /// Makes a scenario in a fresh namespace, with at most six minutes without a lap.
    #[must_use]
    pub const fn new(name: &'static str, run: fn(Context) -> Run) -> Self {
        Self {
            name,
            run,
            within: WITHIN,
            needs_all: false,
            in_parallel: false,
            needs_previous: false,
            set: Set::First,
        }
    }

    /// Sets another bound on the time without a lap. It ends a scenario that hangs.
    #[must_use]
    pub const fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Runs the scenario only if all are run, because it judges the effects of the others.
    #[must_use]
    pub const fn after_all_others(mut self) -> Self {
        self.needs_all = true;
        self
    }

    /// Lets other scenarios run in parallel. Such a scenario must not affect shared parts, such as
    /// nodes and the operator, and must not judge times, which depend on the load of the machine.
    #[must_use]
    pub const fn in_parallel(mut self) -> Self {
        self.in_parallel = true;
        self
    }

    /// Gives the scenario the programs and images of the [previous version](crate::previous). They
    /// are built only for such a scenario.
    #[must_use]
    pub const fn after_previous(mut self) -> Self {
        self.needs_previous = true;
        self
    }

    /// Whether the scenario needs the previous version.
    #[must_use]
    pub const fn needs_previous(&self) -> bool {
        self.needs_previous
    }

    /// Puts the scenario into a set.
    #[must_use]
    pub const fn of(mut self, set: Set) -> Self {
        self.set = set;
        self
    }

    fn namespace(&self) -> String {
        // A namespace's name is a DNS label.
        let fresh = format!("scenario-{}", self.name.replace('_', "-"));
        let fresh = fresh.chars().take(63).collect::<String>();
        fresh.trim_end_matches('-').to_owned()
    }
}

/// The tools of a scenario.
#[derive(Clone)]
pub struct Context {
    /// The cluster: kubectl, pod access, processes to break.
    pub cluster: Arc<Cluster>,
    /// A client of the API server, as administrator.
    pub client: Client,
    /// The namespace of this scenario.
    pub namespace: String,
    /// Prints the progress of the scenario.
    pub laps: Laps,
}

impl Context {
    /// Makes the tools for `namespace`, which is created if it is missing.
    ///
    /// # Errors
    ///
    /// When the namespace does not come up.
    pub async fn new(cluster: &Arc<Cluster>, namespace: &str) -> Result<Self> {
        make_namespace(cluster, namespace).await.context("no namespace")?;
        Ok(Self {
            cluster: Arc::clone(cluster),
            client: cluster.client.clone(),
            namespace: namespace.to_owned(),
            laps: Laps::of(namespace),
        })
    }

    /// Runs kubectl in the scenario's namespace, and returns its output.
    ///
    /// # Errors
    ///
    /// When kubectl fails. The error has its stderr.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let args = [&["--namespace", self.namespace.as_str()], args].concat();
        self.cluster.kubectl(&args).await
    }

    /// Applies a manifest in the scenario's namespace.
    ///
    /// # Errors
    ///
    /// When the API server refuses the manifest.
    pub async fn apply(&self, manifest: &str) -> Result<()> {
        self.cluster.apply(&self.namespace, manifest).await
    }

    /// Reads and writes objects of one kind in the scenario's namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes sure that the operator runs. The first call installs it.
    ///
    /// # Errors
    ///
    /// When the operator does not come up, or the repository has no manifests of it.
    pub async fn operator(&self) -> Result<()> {
        if !operator::install_operator(&self.cluster).await? {
            bail!("no manifests in deploy/: the operator cannot be installed");
        }
        Ok(())
    }
}

/// The scenarios whose name contains one of `filters`, except scenarios that need all others.
/// Without any filter, all scenarios of the set.
#[must_use]
pub fn chosen(scenarios: &[Scenario], filters: &[String], set: Set) -> Vec<Scenario> {
    let is_named =
        |scenario: &Scenario| filters.iter().any(|filter| scenario.name.contains(filter));
    let is_chosen = |scenario: &&Scenario| match filters {
        [] => set.includes(scenario),
        _ => !scenario.needs_all && is_named(scenario),
    };
    scenarios.iter().filter(is_chosen).cloned().collect()
}

/// Runs `scenarios`, and returns the number of failures. The last two lines are for programs.
pub async fn run_all(
    cache: &Cache,
    cluster: &Arc<Cluster>,
    scenarios: &[Scenario],
    filtered_out: usize,
) -> usize {
    let start = Instant::now();
    let mut done = Vec::new();
    for group in scenarios.chunk_by(|one, next| one.in_parallel && next.in_parallel) {
        let runs = group.iter().map(|scenario| run_one(cache, cluster, scenario));
        let mut runs = stream::iter(runs).buffer_unordered(SIDE_BY_SIDE);
        while let Some(ended) = runs.next().await {
            done.push(ended);
        }
        if let Err(err) = cluster.mend().await {
            say(format_args!("the next scenario may suffer: {err:#}"));
        }
    }
    summary(&done, filtered_out, start.elapsed())
}

/// A scenario that has ended.
struct Ended {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

/// Runs one scenario.
async fn run_one(cache: &Cache, cluster: &Arc<Cluster>, scenario: &Scenario) -> Ended {
    say(format_args!("\nscenario {}", scenario.name));
    let start = Instant::now();
    let failure = bounded(cluster, scenario).await.err().map(|err| format!("{err:#}"));
    if let Some(failure) = &failure {
        say(format_args!("FAILED: {}: {failure}", scenario.name));
        keep_evidence(cache, cluster, scenario, failure).await;
    }
    // A failed scenario is tidied up, too: its objects would make others fail.
    if let Err(err) = tidy(cluster, scenario).await {
        say(format_args!("{}: its namespace stays: {err:#}", scenario.name));
    }
    Ended { name: scenario.name, took: start.elapsed(), failure }
}

fn summary(done: &[Ended], filtered_out: usize, took: Duration) -> usize {
    say("");
    for Ended { name, took, failure } in done {
        let outcome = if failure.is_none() { "ok" } else { "FAILED" };
        say(format_args!("scenario {name} ... {outcome} {:.2}s", took.as_secs_f64()));
    }
    // Failures are repeated here, since often only the end of a long output is kept.
    for Ended { name, failure, .. } in done {
        if let Some(failure) = failure {
            say(format_args!("\nFAILED: {name}: {failure}"));
        }
    }
    let passed = done.iter().filter(|it| it.failure.is_none()).count();
    let failed = done.len() - passed;
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    say(format_args!(
        "\ntest result: {outcome}. {passed} passed; {failed} failed; 0 ignored; 0 measured; \
         {filtered_out} filtered out; finished in {:.2}s",
        took.as_secs_f64()
    ));
    say(format_args!("scenarios: {passed} passed, {failed} failed"));
    failed
}

/// Runs one scenario in a separate task, so that its panic or hang does not affect others.
async fn bounded(cluster: &Arc<Cluster>, scenario: &Scenario) -> Result<()> {
    let namespace = scenario.namespace();
    let context = Context::new(cluster, &namespace).await?;
    let mut laps = context.laps.followed();
    let mut task = tokio::spawn((scenario.run)(context));
    let hangs = async {
        while let Ok(passed) = timeout(scenario.within, laps.changed()).await {
            if passed.is_err() {
                // Nothing can count laps any more, so the scenario is about to end.
                return sleep(scenario.within).await;
            }
        }
    };
    tokio::select! {
        biased;
        ended = &mut task => {
            ended.unwrap_or_else(|panic| Err(anyhow!("panicked: {}", panic_text(panic))))
        }
        () = hangs => {
            task.abort();
            Err(anyhow!("no lap within {} s", scenario.within.as_secs()))
        }
    }
}

/// Removes the namespace of a scenario.
async fn tidy(cluster: &Cluster, scenario: &Scenario) -> Result<()> {
    // The end of the namespace is not awaited: it takes seconds, and no other scenario uses it.
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    namespaces.delete(&scenario.namespace(), &DeleteParams::background()).await?;
    Ok(())
}

fn panic_text(panic: tokio::task::JoinError) -> String {
    let Ok(payload) = panic.try_into_panic() else { return "cancelled".to_owned() };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

async fn make_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    if namespaces.get_opt(name).await?.is_none() {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    cluster.namespace_ready(name, NAMESPACE_WITHIN).await
}

async fn keep_evidence(cache: &Cache, cluster: &Cluster, scenario: &Scenario, failure: &str) {
    let namespaces = [scenario.namespace(), operator::NAMESPACE.to_owned()];
    let collecting = collect(cache, cluster, scenario.name, failure, &namespaces);
    match timeout(EVIDENCE_WITHIN, collecting).await {
        Ok(Ok(folder)) => say(format_args!("evidence: {}", folder.display())),
        Ok(Err(err)) => say(format_args!("no evidence: {err:#}")),
        Err(_) => say("no more evidence: the cluster does not answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(name: &'static str) -> Scenario {
        Scenario::new(name, |_| Box::pin(async { Ok(()) }))
    }

    #[test]
    fn filters_choose_by_any_part_of_a_name() {
        let scenarios = ["one_pod", "two_pods", "no_node"].map(scenario);
        let names = |filters: &[&str]| {
            let filters: Vec<_> = filters.iter().map(|filter| (*filter).to_owned()).collect();
            chosen(&scenarios, &filters, Set::Gate)
                .iter()
                .map(|scenario| scenario.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["one_pod", "two_pods", "no_node"]);
        assert_eq!(names(&["pod"]), ["one_pod", "two_pods"]);
        assert_eq!(names(&["two", "node"]), ["two_pods", "no_node"]);
        assert_eq!(names(&["three"]), Vec::<&str>::new());
    }

    #[test]
    fn a_scenario_about_all_others_runs_only_with_all_of_them() {
        let scenarios = [scenario("one_pod"), scenario("every_pod").after_all_others()];
        assert_eq!(chosen(&scenarios, &[], Set::Gate).len(), 2);
        assert_eq!(chosen(&scenarios, &["pod".to_owned()], Set::Gate).len(), 1);
        assert!(chosen(&scenarios, &["every_pod".to_owned()], Set::Gate).is_empty());
    }

    #[test]
    fn a_scenario_runs_when_it_is_named_and_in_its_set() {
        let (second, long) =
            (scenario("node").of(Set::Second), scenario("ten_minutes").of(Set::Soak));
        let scenarios = [scenario("one_pod"), second, long];
        let names = |filters: &[String], set| {
            chosen(&scenarios, filters, set).iter().map(|it| it.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], Set::Gate), ["one_pod", "node"]);
        assert_eq!(names(&[], Set::First), ["one_pod"]);
        assert_eq!(names(&[], Set::Second), ["node"]);
        assert_eq!(names(&[], Set::Soak), ["ten_minutes"]);
        assert_eq!(names(&["ten".to_owned()], Set::Gate), ["ten_minutes"]);
    }

    #[test]
    fn the_namespace_of_a_scenario_is_a_dns_label() {
        assert_eq!(scenario("one_pod").namespace(), "scenario-one-pod");
        let long = "a_sentence_that_never_ends_because_its_author_was_paid_____by_the_word";
        let label = scenario(long).namespace();
        assert!(label.len() <= 63 && !label.ends_with('-'), "{label}");
    }
}
