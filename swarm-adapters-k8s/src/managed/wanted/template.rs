//! Pod template of a managed pool: the operator's part, with the user's template merged over it.
//! The user's template must not remove anything that the workers need.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec, Volume};
use serde_json::{Value, json};
use swarm_client::annotations::SWARM_LABEL;
use swarm_core::handover::LeaseTerms;
use swarm_spec::spec::{ProtocolSpec, RunnerSpec, SESSION_CLOSE};

use super::{ManagedError, Pool, digest, files_of, hex, private};
use crate::annotations::{ACCOUNT_ANNOTATION, FILES_ANNOTATION};
use crate::pool::fit::{Times, grace_for, grace_of, is_enough};

/// The name of the worker's container.
const WORKER: &str = "worker";
/// The directory of `swarm-worker` in a container with the user's own image.
const INSTALLED_AT: &str = "/swarm";
/// The directory in which a worker of a session keeps its record.
const STATE_DIR: &str = "/var/lib/swarm";
/// The directory in which plain workers read their jobs.
const VIEW_DIR: &str = "/app/config";
/// Memory for the worker itself, in MiB. It uses 11 MiB with some dozens of jobs.
const WORKER_MIB: u32 = 64;
/// Memory for a command, in MiB: twice the use of ffmpeg when it records 1080p without encoding.
const JOB_MIB: u32 = 128;
/// Bounds of the number of jobs that the memory limit counts.
const JOBS_LEAST: u32 = 16;
const JOBS_MOST: u32 = 512;
/// The user and group of the workers, unless the template says otherwise.
const USER: i64 = 65_532;
/// The JSON pointer to the account annotation in a workload.
pub(super) const ACCOUNT_AT: &str =
    "/spec/template/metadata/annotations/swarm.k8slab.info~1account";
/// The variables with the worker's container and image.
const CONTAINER_VARIABLE: &str = "SWARM_CONTAINER";
const IMAGE_VARIABLE: &str = "SWARM_IMAGE";
/// The variable with the termination grace.
const GRACE: &str = "SWARM_GRACE";

/// The pod template.
pub(super) fn pod_template(pool: &Pool<'_>) -> Result<Value, ManagedError> {
    let ours = ours(pool)?;
    let mut merged = ours.clone();
    if let Some(theirs) = &pool.managed.pod_template {
        merged.merge_from(parsed(theirs)?);
        check(pool, &ours, &merged)?;
    }
    set_grace(&mut merged);
    check_times(pool, &merged)?;
    serde_json::to_value(merged).map_err(|error| ManagedError(error.to_string()))
}

/// Parses the user's template as a Kubernetes object. Refuses unknown fields, which would otherwise
/// silently be missing.
fn parsed(theirs: &Value) -> Result<PodTemplateSpec, ManagedError> {
    let at = "spec.pool.managed.podTemplate";
    let parsed: PodTemplateSpec = serde_path_to_error::deserialize(theirs).map_err(|error| {
        let (path, why) = (error.path().to_string(), error.into_inner());
        ManagedError(format!("{at}.{path}: {why}"))
    })?;
    let kept = serde_json::to_value(&parsed).map_err(|error| ManagedError(error.to_string()))?;
    match lost(theirs, &kept) {
        None => Ok(parsed),
        Some(path) => Err(ManagedError(format!(
            "{at}{path} is not a field of a pod template that this operator knows: correct its \
             name, or leave it out until the operator is newer"
        ))),
    }
}

/// The path of the first field of `given` that `kept` lacks. It begins with a dot.
fn lost(given: &Value, kept: &Value) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            given.iter().find_map(|(name, value)| match kept.get(name) {
                Some(kept) => Some(format!(".{name}{}", lost(value, kept)?)),
                // Empty values may be missing.
                None if is_empty(value) => None,
                None => Some(format!(".{name}")),
            })
        }
        (Value::Array(given), Value::Array(kept)) => {
            let mut pairs = given.iter().zip(kept).enumerate();
            pairs.find_map(|(n, (given, kept))| Some(format!("[{n}]{}", lost(given, kept)?)))
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The pod template that follows from the fields of `pool.managed` alone.
fn ours(pool: &Pool<'_>) -> Result<PodTemplateSpec, ManagedError> {
    let managed = pool.managed;
    let is_session = pool.swarm.protocol() == ProtocolSpec::Session;
    let account = managed.service_account_name.clone().unwrap_or_else(|| pool.name.clone());
    let mut metadata = json!({"labels": pool.labels()});
    if let Some((files, _)) = files_of(managed) {
        metadata["annotations"][FILES_ANNOTATION] = hex(digest(&files.data)).into();
    }
    if is_session && managed.service_account_name.is_none() {
        // The UID is written here once the account exists.
        metadata["annotations"][ACCOUNT_ANNOTATION] = "".into();
    }
    let mut spec = json!({
        "serviceAccountName": account,
        // A worker writes its Lease with this token. Other workers never call the API.
        "automountServiceAccountToken": is_session,
        "terminationGracePeriodSeconds": grace_seconds(pool),
        // The pods spread over nodes, so that the loss of one node is not the loss of all workers.
        // The constraint is soft, so that pods of a lost node start on the remaining nodes.
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": pool.selector()},
        }],
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [worker(pool)?],
        "volumes": volumes(pool),
    });
    if is_installed(pool) {
        spec["initContainers"] = json!([installer(pool)]);
    }
    let template = json!({"metadata": metadata, "spec": spec});
    serde_json::from_value(template)
        .map_err(|error| ManagedError(format!("spec.pool.managed: {error}")))
}

/// Whether `swarm-worker` is installed into a container of another image.
fn is_installed(pool: &Pool<'_>) -> bool {
    pool.managed.image.is_some() && pool.managed.runs_our_worker(pool.swarm.protocol())
}

/// The security context of every container.
fn restricted(is_ours: bool) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
    });
    if is_ours {
        context["readOnlyRootFilesystem"] = true.into();
    }
    context
}

/// The default resources of a container with this memory limit in MiB.
fn default_resources(memory: u32) -> Value {
    let limit = format!("{memory}Mi");
    json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": limit}})
}

/// The memory limit of the worker's container in MiB. It is [`WORKER_MIB`], plus the memory for
/// files, plus [`JOB_MIB`] for each job if the image is the user's own. The number of jobs is rounded
/// up to a power of two, so that few of its changes replace pods. The limit does not depend on the
/// command, which may change while workers run.
fn memory_limit(pool: &Pool<'_>) -> u32 {
    let least = WORKER_MIB + private::memory(pool);
    if pool.managed.image.is_none() {
        return least;
    }
    let worker = pool.swarm.spec.worker.as_ref();
    let of_some = worker.iter().flat_map(|it| it.capacity.iter().flatten());
    let counts = of_some.filter_map(|it| it.max_jobs).chain(worker.and_then(|it| it.max_jobs));
    let jobs = counts.max().map_or(0, |count| u32::try_from(count).unwrap_or_default());
    least + JOB_MIB * jobs.clamp(JOBS_LEAST, JOBS_MOST).next_power_of_two()
}

fn installer(pool: &Pool<'_>) -> Value {
    json!({
        "name": "install-worker",
        "image": pool.worker_image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["install", INSTALLED_AT],
        "resources": default_resources(WORKER_MIB),
        "securityContext": restricted(true),
        "volumeMounts": [{"name": "swarm", "mountPath": INSTALLED_AT}],
    })
}

fn worker(pool: &Pool<'_>) -> Result<Value, ManagedError> {
    let managed = pool.managed;
    let runs_ours = managed.runs_our_worker(pool.swarm.protocol());
    let resources = match &managed.resources {
        Some(written) => quantities(written),
        None => default_resources(memory_limit(pool)),
    };
    let mut worker = json!({
        "name": WORKER,
        "image": managed.image.as_deref().unwrap_or(pool.worker_image),
        // A node may use an image that was loaded into it by hand.
        "imagePullPolicy": "IfNotPresent",
        "env": env(pool)?,
        "ports": [{"name": "http", "containerPort": managed.port(), "protocol": "TCP"}],
        "resources": resources,
        "securityContext": restricted(managed.image.is_none()),
        "volumeMounts": mounts(pool),
    });
    let installed = format!("{INSTALLED_AT}/swarm-worker");
    match (&managed.command, is_installed(pool)) {
        (Some(command), _) => worker["command"] = json!(command),
        (None, true) => worker["command"] = json!([installed]),
        (None, false) => {}
    }
    match &managed.args {
        Some(args) => worker["args"] = json!(args),
        None if runs_ours => worker["args"] = json!(["run"]),
        None => {}
    }
    if runs_ours {
        let get = |path: &str, period: i64| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": period});
        worker["readinessProbe"] = get("/internal/health", 1);
        // The probe does not ask for health: without an API server a session is unhealthy, and a
        // new process would not help.
        worker["livenessProbe"] = get("/ping", 10);
    }
    Ok(worker)
}

/// Converts quantities to the Kubernetes form, in which numbers are strings too.
fn quantities(resources: &swarm_spec::spec::ResourcesSpec) -> Value {
    use swarm_spec::spec::IntOrString;
    let texts = |all: &Option<BTreeMap<String, IntOrString>>| {
        let text = |of: &IntOrString| match of {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        };
        all.as_ref().map(|all| {
            all.iter().map(|(name, of)| (name.clone(), text(of))).collect::<BTreeMap<_, _>>()
        })
    };
    let mut all = serde_json::Map::new();
    let parts = [("requests", texts(&resources.requests)), ("limits", texts(&resources.limits))];
    for (name, part) in parts {
        all.extend(part.map(|part| (name.to_owned(), json!(part))));
    }
    Value::Object(all)
}

/// The variables that configure a worker, then the user's variables.
fn env(pool: &Pool<'_>) -> Result<Vec<Value>, ManagedError> {
    let managed = pool.managed;
    let mut ours = Vec::new();
    let mut set = |name: &str, value: String| ours.push(json!({"name": name, "value": value}));
    set("HTTP_ADDRESS", "0.0.0.0".into());
    set("HTTP_PORT", managed.port().to_string());
    let protocol = pool.swarm.protocol();
    if protocol == ProtocolSpec::Session && managed.runs_our_worker(protocol) {
        // The runner itself is in the views, so a new runner needs no new pods.
        set("RUNNER", "swarm".into());
    } else if let Some(runner) = pool.swarm.spec.worker.as_ref().and_then(|it| it.runner.as_ref()) {
        set("RUNNER", runner_text(runner));
    }
    ours.extend(private::variables(pool));
    if managed.runs_our_worker(protocol) {
        // The worker names them in its message about a missing program.
        let image = managed.image.as_deref().unwrap_or(pool.worker_image);
        for (name, value) in [(CONTAINER_VARIABLE, WORKER), (IMAGE_VARIABLE, image)] {
            ours.push(json!({"name": name, "value": value}));
        }
    }
    let mut set = |name: &str, value: String| ours.push(json!({"name": name, "value": value}));
    let handover = pool.swarm.spec.handover.clone().unwrap_or_default();
    if let Some(timeout) = handover.stop_timeout {
        set("STOP_TIMEOUT", text(timeout.into()));
    }
    if pool.swarm.protocol() == ProtocolSpec::Session {
        set("SWARM_PROTOCOL", "session".into());
        set("SWARM_STATE_DIR", STATE_DIR.into());
        if let Some(lease) = handover.lease {
            set("SWARM_LEASE", text(lease.into()));
        }
        // [`set_grace`] updates the variable after the merge of the user's template.
        set(GRACE, format!("{}s", grace_seconds(pool)));
        for (name, path) in [("POD_UID", "metadata.uid"), ("POD_NAMESPACE", "metadata.namespace")] {
            let value_from = json!({"fieldRef": {"fieldPath": path}});
            ours.push(json!({"name": name, "valueFrom": value_from}));
        }
    } else {
        set("CONFIG_PATH", VIEW_DIR.into());
    }
    let theirs = managed.env.iter().flatten();
    for theirs in theirs {
        if ours.iter().any(|ours| ours["name"] == theirs.name.as_str()) {
            return Err(ManagedError(format!(
                "spec.pool.managed.env: the operator sets `{}` itself; remove it",
                theirs.name
            )));
        }
        ours.push(json!(theirs));
    }
    Ok(ours)
}

/// Writes a runner for the worker's command line. A kubelet would read `$(` as the start of a
/// variable.
fn runner_text(runner: &RunnerSpec) -> String {
    runner.to_json().replace("$(", "$$(")
}

fn text(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn volumes(pool: &Pool<'_>) -> Vec<Value> {
    let mut volumes = Vec::new();
    if pool.swarm.protocol() == ProtocolSpec::Session {
        // The volume keeps the record of running jobs. A restarted container reads which of them
        // ended its previous process.
        volumes.push(json!({"name": "state", "emptyDir": {}}));
    } else {
        let view = pool.swarm.view_config_map();
        volumes.push(json!({"name": "config", "configMap": {"name": view}}));
    }
    if files_of(pool.managed).is_some() {
        let name = format!("{}-files", pool.name);
        volumes.push(json!({"name": "files", "configMap": {"name": name}}));
    }
    if is_installed(pool) {
        volumes.push(json!({"name": "swarm", "emptyDir": {}}));
    }
    volumes.extend(private::volumes(pool));
    volumes
}

fn mounts(pool: &Pool<'_>) -> Vec<Value> {
    let mut mounts = vec![if pool.swarm.protocol() == ProtocolSpec::Session {
        json!({"name": "state", "mountPath": STATE_DIR})
    } else {
        // The mount is the whole directory: a kubelet never updates a subPath mount.
        json!({"name": "config", "mountPath": VIEW_DIR, "readOnly": true})
    }];
    if let Some((_, path)) = files_of(pool.managed) {
        mounts.push(json!({"name": "files", "mountPath": path, "readOnly": true}));
    }
    if is_installed(pool) {
        mounts.push(json!({"name": "swarm", "mountPath": INSTALLED_AT, "readOnly": true}));
    }
    mounts.extend(private::mounts(pool));
    mounts
}

/// Checks that the user's template keeps everything that the workers need.
fn check(
    pool: &Pool<'_>,
    ours: &PodTemplateSpec,
    merged: &PodTemplateSpec,
) -> Result<(), ManagedError> {
    let refused = |field: &str, why: String| {
        Err(ManagedError(format!("spec.pool.managed.podTemplate.{field}: {why}")))
    };
    let labels = |of: &PodTemplateSpec| of.metadata.as_ref().and_then(|it| it.labels.clone());
    let (before, after) = (labels(ours).unwrap_or_default(), labels(merged).unwrap_or_default());
    if let Some((label, _)) = before.iter().find(|(label, value)| after.get(*label) != Some(value))
    {
        let why = if label == SWARM_LABEL { "to find the workers" } else { "itself" };
        return refused("metadata.labels", format!("the operator sets `{label}` {why}; remove it"));
    }
    let none = PodSpec::default();
    let (before, after) =
        (ours.spec.as_ref().unwrap_or(&none), merged.spec.as_ref().unwrap_or(&none));
    if before.service_account_name != after.service_account_name {
        let why = "write spec.pool.managed.serviceAccountName instead".to_owned();
        return refused("spec.serviceAccountName", why);
    }
    if pool.swarm.protocol() == ProtocolSpec::Session
        && after.automount_service_account_token != Some(true)
    {
        let why = "workers of sessions need their token; remove it".to_owned();
        return refused("spec.automountServiceAccountToken", why);
    }
    for volume in before.volumes.iter().flatten() {
        if !has_volume(after, volume) {
            let why =
                format!("the operator has volume `{}` itself; choose another name", volume.name);
            return refused("spec.volumes", why);
        }
    }
    for container in
        [&before.init_containers, &Some(before.containers.clone())].into_iter().flatten().flatten()
    {
        let mut all = after.containers.iter().chain(after.init_containers.iter().flatten());
        let found = all.find(|it| it.name == container.name);
        let Some(why) = found.and_then(|found| broken(container, found)) else { continue };
        return refused(&format!("spec.containers, container `{}`", container.name), why);
    }
    if let Some(why) = too_short(pool, after) {
        return refused("spec.terminationGracePeriodSeconds", why);
    }
    match port_twice(after) {
        Some(port) => refused("spec.containers", format!("port {port} occurs twice; remove one")),
        None => Ok(()),
    }
}

fn has_volume(spec: &PodSpec, volume: &Volume) -> bool {
    spec.volumes.iter().flatten().any(|it| it == volume)
}

/// The part of the operator's container that the merge has lost, if any.
fn broken(before: &Container, after: &Container) -> Option<String> {
    if before.image != after.image {
        return Some("write spec.pool.managed.image instead of its image".into());
    }
    let lost = |name: &EnvVar| !after.env.iter().flatten().any(|it| it == name);
    if let Some(it) = before.env.iter().flatten().find(|it| lost(it)) {
        return Some(format!("its variable `{}` is set already; remove it", it.name));
    }
    let mounts = after.volume_mounts.as_deref().unwrap_or_default();
    for ours in before.volume_mounts.iter().flatten() {
        if !mounts.contains(ours) {
            return Some(format!("`{}` is mounted there already; remove it", ours.mount_path));
        }
    }
    let ports = after.ports.as_deref().unwrap_or_default();
    let lost = before.ports.iter().flatten().find(|port| !ports.contains(port));
    lost.map(|port| format!("its port {} is needed; remove the change", port.container_port))
}

/// A port that the pod declares twice, in one or two containers.
fn port_twice(spec: &PodSpec) -> Option<i32> {
    let mut seen = BTreeSet::new();
    let ports = spec.containers.iter().flat_map(|it| it.ports.iter().flatten());
    let mut twice = ports.filter_map(|port| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        (!seen.insert((port.container_port, protocol))).then_some(port.container_port)
    });
    twice.next()
}

/// Termination grace of the pods of a pool, in seconds.
fn grace_seconds(pool: &Pool<'_>) -> i64 {
    grace_for(written_stop_timeout(pool).unwrap_or(LeaseTerms::default().stop_timeout))
}

/// The error if a termination grace is too short for the jobs.
fn too_short(pool: &Pool<'_>, pod: &PodSpec) -> Option<String> {
    let least = grace_seconds(pool);
    let grace = grace_of(pod.termination_grace_period_seconds.unwrap_or(least));
    let (protocol, written) = (pool.swarm.protocol(), written_stop_timeout(pool));
    let stop = match protocol {
        ProtocolSpec::Session => written.unwrap_or(LeaseTerms::default().stop_timeout),
        // Plain workers need no grace unless the Swarm writes a stop timeout.
        ProtocolSpec::Plain => written?,
    };
    if is_enough(grace, stop, protocol) {
        return None;
    }
    Some(match protocol {
        ProtocolSpec::Session => format!(
            "jobs may take {stop:?} to stop, and a worker needs {SESSION_CLOSE:?} more to close its \
             session; write {least}"
        ),
        ProtocolSpec::Plain => {
            format!("pods would be killed while jobs stop, which may take {stop:?}; write {least}")
        }
    })
}

/// Checks that the worker would start with the times in its variables and arguments.
fn check_times(pool: &Pool<'_>, merged: &PodTemplateSpec) -> Result<(), ManagedError> {
    let protocol = pool.swarm.protocol();
    if protocol != ProtocolSpec::Session || !pool.managed.runs_our_worker(protocol) {
        return Ok(());
    }
    let Some(spec) = &merged.spec else { return Ok(()) };
    let grace = grace_of(spec.termination_grace_period_seconds.unwrap_or_default());
    let worker = spec.containers.iter().find(|it| it.name == WORKER);
    match worker.and_then(Times::of) {
        Some(times) if !times.fit(grace) => {
            let Times { stop, given } = times;
            Err(ManagedError(format!(
                "spec.pool.managed: variables or arguments give the worker {given:?} to end \
                 (SWARM_GRACE, --grace) and its jobs {stop:?} to stop (STOP_TIMEOUT, \
                 --stop-timeout), in a pod that is killed after {grace:?}. These times do not fit: \
                 remove them, and write spec.handover.stopTimeout instead"
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// The stop timeout of jobs, if the Swarm writes it.
fn written_stop_timeout(pool: &Pool<'_>) -> Option<Duration> {
    let handover = pool.swarm.spec.handover.as_ref();
    handover.and_then(|handover| handover.stop_timeout).map(Into::into)
}

/// Writes the termination grace of the merged template into the variable of a session's worker.
fn set_grace(template: &mut PodTemplateSpec) {
    let Some(spec) = &mut template.spec else { return };
    let Some(seconds) = spec.termination_grace_period_seconds else { return };
    let grace = format!("{seconds}s");
    let variables = spec.containers.iter_mut().flat_map(|it| it.env.iter_mut().flatten());
    for variable in variables.filter(|it| it.name == GRACE) {
        variable.value = Some(grace.clone());
    }
}
