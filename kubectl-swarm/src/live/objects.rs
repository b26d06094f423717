//! The objects of a Swarm on a cluster, with the fields that commands show. Fields of later versions
//! are ignored.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::GzDecoder;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use swarm_core::handover::{LeaseTerms, SessionId, TWO_CLOCKS_MARGIN};
use swarm_core::parts::{Part, StoredPart, join};
use swarm_core::stored::{Stored, StoredHolder, Waits};
use swarm_core::{Failing, Ledger, Timing};
use swarm_spec::convert::{Home, release_timeout};
use swarm_spec::spec::ProtocolSpec;
use swarm_terminal::times::time;
use swarm_view::status::{Condition, UnassignedRow};

/// Maximum size of a decompressed part. The operator writes about a tenth of it.
const PART_BYTES_MAX: u64 = 1_200_000;
/// Maximum number of failing jobs of a worker that are shown.
const FAILING_MAX: usize = 3;

/// The annotation with the state of an operator.
const OPERATOR_STATUS: &str = "replicas.k8slab.info/status";
/// Maximum number of lines of an operator that are shown, and of characters of each.
const REFUSED_MAX: usize = 10;
const REFUSED_CHARS_MAX: usize = 300;

/// The annotation with the acknowledgement of a session.
const ACK: &str = "swarm.k8slab.info/ack";
/// The annotation with the failing jobs of a session.
const FAILING: &str = "swarm.k8slab.info/failing";
/// The label of a Lease with the name of its worker.
const WORKER: &str = "swarm.k8slab.info/worker";
/// The annotation of a Lease with the jobs that its session still stops.
const STOPPING: &str = "swarm.k8slab.info/stopping";

/// The metadata of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) generation: i64,
    pub(super) resource_version: String,
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) deletion_timestamp: Option<Timestamp>,
    pub(super) annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    managed_fields: Vec<ManagedFields>,
}

/// The last change of an object by one writer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    subresource: String,
    time: Option<Timestamp>,
}

impl Metadata {
    /// Returns the time of the newest write of the object, in milliseconds of Unix time; 0 if the API
    /// server does not say.
    pub(super) fn written_ms(&self) -> u64 {
        let newest = self.managed_fields.iter().filter_map(|it| it.time).max();
        newest.and_then(|time| u64::try_from(time.as_millisecond()).ok()).unwrap_or_default()
    }
}

/// A Swarm.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SwarmObject {
    pub(super) metadata: Metadata,
    /// The spec as written: an operator of another version may know other fields.
    #[serde(default)]
    pub(super) spec: Value,
    #[serde(default)]
    pub(super) status: Status,
}

/// The status of a Swarm.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    pub(super) observed_generation: i64,
    pub(super) workers_ready: u32,
    pub(super) workers_desired: u32,
    pub(super) unassigned: BTreeMap<String, u64>,
    /// The first of these jobs, by name. An older operator names none.
    pub(super) unassigned_jobs: Vec<UnassignedRow>,
    pub(super) jobs: u64,
    pub(super) running: u64,
    pub(super) suspended: u64,
    pub(super) moving: u64,
    pub(super) failing: u64,
    /// Workers that are not ready. An older operator names none.
    pub(super) missing_workers: Vec<MissingWorker>,
    /// Time of the last write. An older operator does not say it.
    pub(super) as_of: Option<Timestamp>,
    pub(super) conditions: Vec<Condition>,
}

/// A worker that is not ready.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct MissingWorker {
    /// Its name; empty if no worker has filled the slot.
    #[serde(default)]
    pub(super) worker: String,
    pub(super) slot: u32,
    pub(super) since: Timestamp,
}

impl Status {
    /// Whether the operator names every job without a worker.
    pub(super) fn names_all_unassigned(&self) -> bool {
        let count = u64::try_from(self.unassigned_jobs.len()).unwrap_or(u64::MAX);
        self.unassigned.values().sum::<u64>() == count
    }

    /// Returns the reason for which a job has no worker, if the operator names the job. O(log jobs).
    pub(super) fn reason_of(&self, job: &str) -> Option<&str> {
        let at = self.unassigned_jobs.binary_search_by(|it| it.job.as_str().cmp(job)).ok()?;
        Some(&self.unassigned_jobs.get(at)?.reason)
    }
}

impl SwarmObject {
    /// Returns the condition of this type.
    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|it| it.kind == kind)
    }

    /// Whether the condition of this type is true.
    pub(super) fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|it| it.status == "True")
    }

    /// Returns the time of the last edit, if no operator has seen the newest spec.
    pub(super) fn unseen_edit(&self) -> Option<Timestamp> {
        let Metadata { generation, creation_timestamp, managed_fields, .. } = &self.metadata;
        let is_deleted = self.metadata.deletion_timestamp.is_some();
        if is_deleted || self.status.observed_generation == *generation {
            return None;
        }
        let edits = managed_fields.iter().filter(|it| it.subresource.is_empty());
        edits.filter_map(|it| it.time).max().or(*creation_timestamp)
    }

    /// Returns the inline jobs by name, as their author wrote them. O(jobs).
    pub(super) fn inline_jobs(&self) -> BTreeMap<&str, &Value> {
        let jobs = self.spec["jobs"].as_array().into_iter().flatten();
        jobs.filter_map(|job| Some((job["name"].as_str()?, job))).collect()
    }

    /// Returns the policy for the end of an ownership, `handover.policy`.
    pub(super) fn policy(&self) -> &str {
        self.spec["handover"]["policy"].as_str().unwrap_or("AtLeastOnce")
    }

    /// Whether only a proof ends an ownership.
    pub(super) fn is_exclusive(&self) -> bool {
        self.policy() == "Exclusive"
    }

    /// Returns the longest time for a release.
    pub(super) fn release_timeout(&self) -> Duration {
        release_timeout(self.lease_terms().duration, self.stop_timeout())
    }

    /// Returns the duration of a worker's Lease, `handover.lease`.
    pub(super) fn lease_duration(&self) -> &str {
        self.spec["handover"]["lease"].as_str().unwrap_or("20s")
    }

    /// Returns the time after which a worker kills a job that it stops, `handover.stopTimeout`.
    pub(super) fn stop_timeout(&self) -> Duration {
        self.handover_time("stopTimeout").unwrap_or(LeaseTerms::default().stop_timeout)
    }

    /// Returns the time for which jobs wait for a worker that is away, `rebalance.returnGrace`.
    pub(super) fn return_grace(&self) -> Duration {
        let grace = self.spec["rebalance"]["returnGrace"].as_str();
        let grace = grace.and_then(|grace| time(grace).ok());
        grace.unwrap_or(Timing::default().return_grace)
    }

    /// Returns the time after which a session without a renewal is silent.
    pub(super) fn silent_after(&self) -> Duration {
        self.lease_terms().silent_after(TWO_CLOCKS_MARGIN)
    }

    /// Returns the timing of the workers' Leases.
    fn lease_terms(&self) -> LeaseTerms {
        let duration = time(self.lease_duration()).unwrap_or(LeaseTerms::default().duration);
        LeaseTerms::derived(duration, self.stop_timeout(), Home::Cluster.renew_min())
    }

    /// Returns a time of `handover`, if the spec has it.
    fn handover_time(&self, field: &str) -> Option<Duration> {
        time(self.spec["handover"][field].as_str()?).ok()
    }

    /// Returns the time from the last renewal of a Lease until its worker has certainly stopped its
    /// jobs; see [`LeaseTerms::fence_wait`].
    pub(super) fn fence_wait(&self) -> Duration {
        self.lease_terms().fence_wait()
    }

    /// Whether workers get their jobs by sessions, and so confirm them.
    pub(super) fn has_sessions(&self) -> bool {
        let (managed, worker) = (&self.spec["pool"]["managed"], &self.spec["worker"]);
        if let Some(protocol) = worker["protocol"].as_str() {
            return protocol == "Session";
        }
        let is_ours = managed.is_object() && managed["image"].is_null();
        let named = worker["runners"].as_object().is_some_and(|it| !it.is_empty());
        let has_runner = named || worker["runner"].is_object();
        let has_view = self.spec["view"].is_object();
        ProtocolSpec::following(is_ours, has_runner, has_view) == ProtocolSpec::Session
    }
}

/// The main object of a ledger.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LedgerObject {
    #[serde(default)]
    pub(super) metadata: Metadata,
    pub(super) spec: LedgerSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LedgerSpec {
    pool: Claimant,
    #[serde(default)]
    pub(super) writer: Option<Writer>,
    pub(super) revision: u64,
    pub(super) version: u64,
    pub(super) first_token: u64,
    #[serde(default)]
    pub(super) holdings: Holdings,
}

#[derive(Clone, Debug, Deserialize)]
struct Claimant {
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Writer {
    pub(super) member: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Holdings {
    incarnation: u64,
    longest_lease_ms: u64,
    has_shares: bool,
    pub(super) parts: Vec<String>,
    holders: Vec<StoredHolder>,
    waits: BTreeMap<String, Waits>,
    strikes: BTreeMap<String, u32>,
}

/// A part of a ledger.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PartObject {
    spec: PartSpec,
}

#[derive(Clone, Debug, Deserialize)]
struct PartSpec {
    holdings: PartHoldings,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum PartHoldings {
    Compressed { gzip: String },
    // The form of earlier versions.
    Plain(StoredPart),
}

impl LedgerSpec {
    /// Joins the ledger with some or all of its parts.
    ///
    /// # Errors
    ///
    /// A sentence about contents that are not a ledger.
    pub(super) fn ledger(self, parts: Vec<PartObject>) -> Result<Ledger, String> {
        let pool = self.pool.name;
        let wrong = |why: &dyn std::fmt::Display| {
            format!("the ledger of pool `{pool}` cannot be read, perhaps by this version: {why}")
        };
        let Holdings {
            incarnation,
            longest_lease_ms,
            has_shares,
            parts: _,
            holders,
            waits,
            strikes,
        } = self.holdings;
        let head = Stored {
            incarnation,
            revision: self.revision,
            version: self.version,
            first_token: self.first_token,
            longest_lease_ms,
            has_shares,
            holders,
            waits,
            strikes,
        };
        if parts.is_empty() {
            return Ledger::try_from(head).map_err(|error| wrong(&error));
        }
        let read = |part: PartObject| {
            let stored = part.spec.holdings.read().map_err(|why| wrong(&why))?;
            Part::try_from(stored).map_err(|error| wrong(&error))
        };
        let parts: Vec<_> = parts.into_iter().map(read).collect::<Result<_, _>>()?;
        join(head, parts).map_err(|error| wrong(&error))
    }
}

impl PartHoldings {
    fn read(self) -> Result<StoredPart, String> {
        let gzip = match self {
            Self::Plain(part) => return Ok(part),
            Self::Compressed { gzip } => gzip,
        };
        let gzip = BASE64.decode(gzip).map_err(|error| error.to_string())?;
        let mut text = Vec::new();
        // A kilobyte of gzip may expand to a megabyte.
        let mut decoder = GzDecoder::new(gzip.as_slice()).take(PART_BYTES_MAX + 1);
        decoder.read_to_end(&mut text).map_err(|error| error.to_string())?;
        if u64::try_from(text.len()).is_ok_and(|length| PART_BYTES_MAX < length) {
            return Err(format!("a part has more than {PART_BYTES_MAX} bytes"));
        }
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

/// The view of a session: its jobs with the tokens of their grants.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ViewObject {
    pub(super) metadata: Metadata,
    pub(super) spec: ViewSpec,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ViewSpec {
    #[serde(default)]
    pub(super) incarnation: u64,
    pub(super) revision: u64,
    /// The name of the worker.
    #[serde(default)]
    pub(super) worker: String,
    #[serde(default)]
    pub(super) jobs: BTreeMap<String, ViewJob>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ViewJob {
    pub(super) token: u64,
}

/// The Lease of a session.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LeaseObject {
    metadata: Metadata,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<Timestamp>,
}

/// The acknowledgement in a Lease.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Ack {
    write: u64,
    pub(super) incarnation: u64,
    pub(super) revision: u64,
    pub(super) draining: bool,
}

/// The view that a session has carried out except for jobs that it still stops. It counts only as a
/// part of the write that it names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Stopping {
    write: u64,
    reads: u64,
    jobs: BTreeMap<String, u64>,
}

/// The report of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) ack: Ack,
    /// Whether the session lives: its Lease is neither closed nor revoked.
    pub(super) is_open: bool,
    /// Time of the last renewal, by the clock of the worker.
    pub(super) renewed: Option<Timestamp>,
    /// Time at which the session was opened.
    pub(super) opened: Option<Timestamp>,
    pub(super) failing: Failing,
    /// The name of the worker by the label, which the worker writes.
    pub(super) worker: Option<String>,
    stopping: Stopping,
}

impl Report {
    /// Whether the session has confirmed that it stops this job.
    pub(super) fn is_stopping(&self, job: &str) -> bool {
        self.stopping.write == self.ack.write && self.stopping.jobs.contains_key(job)
    }

    /// Whether the session has carried out this view, or the part of it that is about `job`.
    pub(super) fn has_read(&self, view: &ViewSpec, job: Option<&str>) -> bool {
        let Self { ack, stopping, .. } = self;
        let is_in_part = |job| stopping.write == ack.write && !stopping.jobs.contains_key(job);
        let reads = if job.is_some_and(is_in_part) { stopping.reads } else { 0 };
        ack.incarnation == view.incarnation && view.revision <= ack.revision.max(reads)
    }
}

/// The Lease of a replica of the operator.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OperatorLease {
    metadata: Metadata,
    #[serde(default)]
    spec: LeaseSpec,
}

impl OperatorLease {
    pub(super) fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns the time of the last renewal, by the clock of the operator.
    pub(super) fn renewed(&self) -> Option<Timestamp> {
        self.spec.renew_time
    }

    /// Returns the lines of an operator about the rights that it lacks. Any user who may write the Lease
    /// writes them, so they are printable and few.
    pub(super) fn refused(&self) -> Vec<String> {
        let status = self.metadata.annotations.get(OPERATOR_STATUS);
        let said: Value =
            status.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let lines = said["refusedWatches"].as_array().into_iter().flatten();
        let lines = lines.filter_map(Value::as_str).take(REFUSED_MAX);
        lines.map(|line| line.escape_debug().take(REFUSED_CHARS_MAX).collect()).collect()
    }
}

impl LeaseObject {
    pub(super) fn session(&self) -> SessionId {
        SessionId::from_stored(&self.metadata.name)
    }

    /// Reads the report. A part that cannot be read counts as missing.
    pub(super) fn report(&self) -> Report {
        let Metadata { name, annotations, labels, creation_timestamp, .. } = &self.metadata;
        let spec = &self.spec;
        let read = |name: &str| annotations.get(name);
        let ack = read(ACK).and_then(|text| serde_json::from_str(text).ok());
        let stopping = read(STOPPING).and_then(|text| serde_json::from_str(text).ok());
        let failing: Option<Failing> =
            read(FAILING).and_then(|text| serde_json::from_str(text).ok());
        Report {
            ack: ack.unwrap_or_default(),
            is_open: spec.holder_identity.as_ref() == Some(name),
            renewed: spec.renew_time,
            opened: *creation_timestamp,
            failing: failing.unwrap_or_default().limited(usize::MAX, FAILING_MAX),
            worker: labels.get(WORKER).cloned(),
            stopping: stopping.unwrap_or_default(),
        }
    }
}
