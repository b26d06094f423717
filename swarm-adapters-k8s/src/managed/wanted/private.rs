//! Private data of the jobs of a managed pool: params of Secrets, and rendered files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use swarm_spec::manifest::{SecretParam, param_variable};
use swarm_spec::spec::{ParamFromSpec, SecretKeyRefSpec};

use super::Pool;

/// The directory with a mounted Secret for each param that is different in each job.
const PARAMS_AT: &str = "/run/swarm/params";
/// The directory in which a worker makes the files of jobs, its volume, and its variable.
const FILES_AT: &str = "/run/swarm/files";
const FILES_VOLUME: &str = "job-files";
const FILES_VARIABLE: &str = "SWARM_FILES_DIR";
/// Memory for the files of jobs, in MiB.
const FILES_MIB: u32 = 64;
/// The mode of a mounted Secret. Its group is the group of the pod (`fsGroup`).
const SECRET_MODE: i32 = 0o440;

/// The variables that carry params of Secrets to a worker, which passes them to its jobs, and the
/// variable with the directory for files.
pub(super) fn variables(pool: &Pool<'_>) -> Vec<Value> {
    let of_all = params(pool).filter(|param| !is_of_job(param));
    let mut variables: Vec<_> = of_all
        .map(|ParamFromSpec { name, secret_key_ref: SecretKeyRefSpec { name: secret, key } }| {
            let value_from = json!({"secretKeyRef": {"name": secret, "key": key}});
            json!({"name": param_variable(name), "valueFrom": value_from})
        })
        .collect();
    let dirs = mounted(pool).into_values();
    variables.extend(dirs.map(|param| {
        let variable = SecretParam::of(param).dir_variable();
        json!({"name": variable, "value": directory(&param.name)})
    }));
    if has_files(pool) {
        variables.push(json!({"name": FILES_VARIABLE, "value": FILES_AT}));
    }
    variables
}

/// The volumes with Secrets, and the one for files. It is in memory, since files may have secrets.
pub(super) fn volumes(pool: &Pool<'_>) -> Vec<Value> {
    let mut volumes: Vec<_> = mounted(pool)
        .into_iter()
        .map(|(volume, param)| {
            let secret = &param.secret_key_ref.name;
            json!({"name": volume, "secret": {"secretName": secret, "defaultMode": SECRET_MODE}})
        })
        .collect();
    if has_files(pool) {
        let limit = format!("{FILES_MIB}Mi");
        let memory = json!({"medium": "Memory", "sizeLimit": limit});
        volumes.push(json!({"name": FILES_VOLUME, "emptyDir": memory}));
    }
    volumes
}

/// The mounts of the volumes in the worker's container.
pub(super) fn mounts(pool: &Pool<'_>) -> Vec<Value> {
    let mut mounts: Vec<_> = mounted(pool)
        .into_iter()
        .map(|(volume, param)| {
            json!({"name": volume, "mountPath": directory(&param.name), "readOnly": true})
        })
        .collect();
    if has_files(pool) {
        mounts.push(json!({"name": FILES_VOLUME, "mountPath": FILES_AT}));
    }
    mounts
}

/// Memory that files of jobs may need, in MiB. They count as memory of the container.
pub(super) fn memory(pool: &Pool<'_>) -> u32 {
    if has_files(pool) { FILES_MIB } else { 0 }
}

/// The params with a value for each job, by the names of their volumes. The order in the Swarm does
/// not matter.
fn mounted<'a>(pool: &'a Pool<'_>) -> BTreeMap<String, &'a ParamFromSpec> {
    let mut params: Vec<_> = params(pool).filter(|param| is_of_job(param)).collect();
    params.sort_by(|a, b| a.name.cmp(&b.name));
    params.into_iter().enumerate().map(|(n, param)| (format!("param-{n:02}"), param)).collect()
}

fn directory(param: &str) -> String {
    format!("{PARAMS_AT}/{param}")
}

fn is_of_job(param: &ParamFromSpec) -> bool {
    SecretParam::of(param).is_of_job
}

fn has_files(pool: &Pool<'_>) -> bool {
    pool.swarm.spec.written_runners().any(|(_, runner)| runner.files.is_some())
}

/// The params of all runners. Runners share a param only if it has the same source.
fn params<'a>(pool: &'a Pool<'_>) -> impl Iterator<Item = &'a ParamFromSpec> {
    let runners = pool.swarm.spec.written_runners();
    let params = runners.flat_map(|(_, runner)| runner.params_from.iter().flatten());
    let mut seen = BTreeSet::new();
    params.filter(move |param| seen.insert(param_variable(&param.name)))
}
