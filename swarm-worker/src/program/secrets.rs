//! Values of params that are in Secrets.
//!
//! A value of all jobs is a variable of the worker. A value of each job is in a directory with a file
//! for each job, as the kubelet mounts a Secret, or in a file with a map. No message has a value.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;
use swarm_adapters_host::file::{ReadError, read_regular_text};
use swarm_spec::manifest::{SecretParam, is_secret_key, param_variable};
use swarm_spec::yaml;

/// The most bytes of a value.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a file with the values of all jobs.
const MAP_BYTES_MAX: u64 = 16 << 20;

/// Adds the values of `secrets` for `job` to its params.
///
/// # Errors
///
/// A sentence that names the source of the first missing value.
pub(super) fn add(
    params: &mut BTreeMap<String, String>,
    secrets: &[SecretParam],
    job: &str,
) -> Result<(), String> {
    for param in secrets {
        let value = if param.is_of_job {
            let sources = (env::var_os(param.dir_variable()), env::var_os(param.file_variable()));
            of_job(param, job, sources)
        } else {
            of_all_jobs(&param.name)
        };
        params.insert(param.name.clone(), value?);
    }
    Ok(())
}

/// Returns the value of a param from the worker's environment.
fn of_all_jobs(name: &str) -> Result<String, String> {
    let variable = param_variable(name);
    let value = env::var_os(&variable).ok_or_else(|| {
        format!(
            "the worker has no variable {variable}, in which the param `{name}` of \
             spec.worker.runner.paramsFrom reaches it; set it in the environment of the worker"
        )
    })?;
    value.into_string().map_err(|_| format!("the variable {variable} is not UTF-8 text"))
}

/// Returns the value of a param for one job, from a directory or a file.
fn of_job(
    param: &SecretParam,
    job: &str,
    sources: (Option<OsString>, Option<OsString>),
) -> Result<String, String> {
    let (dir, file) = (param.dir_variable(), param.file_variable());
    let value = match sources {
        (Some(path), None) => in_directory(param, job, Path::new(&path))?,
        (None, Some(path)) => in_map(job, Path::new(&path))?,
        (Some(_), Some(_)) => {
            return Err(format!("the worker has both variables {dir} and {file}; remove one"));
        }
        (None, None) => {
            let SecretParam { name, secret, .. } = param;
            return Err(format!(
                "the worker has neither {dir}, a directory with a file for each job, nor {file}, a \
                 YAML map from jobs to values; set one for the param `{name}` of Secret `{secret}`"
            ));
        }
    };
    if value.contains('\0') || VALUE_BYTES_MAX < value.len() {
        return Err(format!(
            "the value of `{}` for job `{job}` has a NUL or more than {VALUE_BYTES_MAX} bytes; write \
             another",
            param.name
        ));
    }
    Ok(value)
}

/// Reads the file of a job. A link counts as a part of the directory if it stays in there: the
/// kubelet makes such links.
fn in_directory(param: &SecretParam, job: &str, dir: &Path) -> Result<String, String> {
    let SecretParam { name, secret, .. } = param;
    let shown = dir.join(job);
    let shown = shown.display();
    if !is_secret_key(job) {
        return Err(format!(
            "job `{job}` cannot be a key of the Secret `{secret}`, from which it gets `{name}`; \
             rename the job"
        ));
    }
    let missing = || {
        format!(
            "the Secret `{secret}` of the param `{name}` has no key `{job}` for the job: {shown} does \
             not exist; add it"
        )
    };
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => missing(),
        _ => format!("{shown}, with `{name}` of job `{job}`, cannot be read: {error}"),
    };
    let real = fs::canonicalize(dir).map_err(|error| {
        format!("{} of {} cannot be read: {error}", dir.display(), param.dir_variable())
    })?;
    let found = fs::canonicalize(real.join(job)).map_err(failed)?;
    if !found.starts_with(&real) {
        return Err(format!("{shown} leads out of its directory; write the value itself there"));
    }
    let bytes_max = u64::try_from(VALUE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    match read_regular_text(&found, bytes_max) {
        Ok(text) => Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)),
        Err(ReadError::Missing) => Err(missing()),
        Err(error) => Err(format!("{shown}, with `{name}` of job `{job}`: {error}")),
    }
}

/// Reads the entry of a job in a YAML map.
fn in_map(job: &str, path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text =
        read_regular_text(path, MAP_BYTES_MAX).map_err(|error| format!("{shown}: {error}"))?;
    // A message of the parser has parts of the text.
    let documents = yaml::documents(&text).map_err(|error| match error.source.place() {
        Some(place) => {
            format!("{shown} is not YAML at line {} column {}", place.line, place.column)
        }
        None => format!("{shown} is not YAML"),
    })?;
    let [(_, Value::Object(map))] = documents.as_slice() else {
        return Err(format!("{shown} is not one map; write a line `JOB: VALUE` for each job"));
    };
    match map.get(job) {
        Some(Value::String(value)) => {
            Ok(value.strip_suffix('\n').map_or_else(|| value.clone(), str::to_owned))
        }
        Some(_) => {
            Err(format!("the value of `{job}` in {shown} is not a text; write it in quotes"))
        }
        None => Err(format!("{shown} has no value for job `{job}`; write a line `{job}: VALUE`")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn param() -> SecretParam {
        SecretParam { name: "pass".to_owned(), secret: "cams".to_owned(), is_of_job: true }
    }

    fn from_dir(job: &str, dir: &Path) -> Result<String, String> {
        of_job(&param(), job, (Some(dir.into()), None))
    }

    fn from_file(job: &str, file: &Path) -> Result<String, String> {
        of_job(&param(), job, (None, Some(file.into())))
    }

    #[test]
    fn a_directory_is_read_as_the_kubelet_mounts_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let mount = |generation: &str, value: &str| {
            fs::create_dir(dir.path().join(generation)).unwrap();
            fs::write(dir.path().join(generation).join("cam-1"), value).unwrap();
            symlink(generation, dir.path().join("..data_tmp")).unwrap();
            fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        };
        mount("..2026_1", "one\n");
        symlink("..data/cam-1", dir.path().join("cam-1")).unwrap();
        assert_eq!(from_dir("cam-1", dir.path()), Ok("one".to_owned()));
        // A changed Secret.
        mount("..2026_2", "two lines\nof it\n\n");
        assert_eq!(from_dir("cam-1", dir.path()), Ok("two lines\nof it\n".to_owned()));
        let missing = from_dir("cam-2", dir.path()).unwrap_err();
        let expected = "the Secret `cams` of the param `pass` has no key `cam-2` for the job: ";
        assert!(missing.starts_with(expected), "{missing}");
        for job in ["..data", "..", ".", "../x", "a/b", "", "a b", &"a".repeat(254)] {
            let error = from_dir(job, dir.path()).unwrap_err();
            assert!(error.contains("cannot be a key of the Secret `cams`"), "{error}");
        }
        let nowhere = from_dir("cam-1", &dir.path().join("none")).unwrap_err();
        assert!(nowhere.contains("none of SWARM_PARAM_PASS_DIR cannot be read"), "{nowhere}");
    }

    #[test]
    fn no_name_leads_out_of_the_directory_and_no_pipe_keeps_its_reader_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("in");
        fs::create_dir(&inner).unwrap();
        fs::write(dir.path().join("outside"), "hunter2").unwrap();
        for (job, target) in [("a", "../outside"), ("b", "/etc/passwd"), ("c", "a"), ("d", "..")] {
            symlink(target, inner.join(job)).unwrap();
            let error = from_dir(job, &inner).unwrap_err();
            assert!(error.contains("leads out of its directory"), "{error}");
        }
        fs::create_dir(inner.join("e")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, inner.join("f"), rustix::fs::Mode::RWXU).unwrap();
        for job in ["e", "f"] {
            let error = from_dir(job, &inner).unwrap_err();
            assert!(error.contains("it is not a regular file"), "{error}");
        }
        symlink("g", inner.join("g")).unwrap();
        assert!(from_dir("g", &inner).unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn a_value_has_a_limit_and_no_message_has_a_part_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let value = |bytes: &[u8]| {
            fs::write(dir.path().join("a"), bytes).unwrap();
            from_dir("a", dir.path())
        };
        assert_eq!(value(b""), Ok(String::new()));
        let longest = "x".repeat(VALUE_BYTES_MAX);
        assert_eq!(value(format!("{longest}\n").as_bytes()), Ok(longest.clone()));
        let long = format!("{longest}x");
        for bytes in [long.as_bytes(), b"hunter2\0", b"hunter2\xff", format!("{long}\n").as_bytes()]
        {
            let error = value(bytes).unwrap_err();
            assert!(!error.contains("hunter2") && error.contains("`pass`"), "{error}");
        }
    }

    #[test]
    fn a_map_has_an_entry_for_each_job() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("passwords.yaml");
        fs::write(&path, "cam-1: hunter2\n'a/../b': \"x: y\"\nno: 45678\nlines: |\n  a\n  b\n")
            .unwrap();
        assert_eq!(from_file("cam-1", &path), Ok("hunter2".to_owned()));
        assert_eq!(from_file("a/../b", &path), Ok("x: y".to_owned()));
        assert_eq!(from_file("lines", &path), Ok("a\nb".to_owned()));
        let error = from_file("no", &path).unwrap_err();
        assert!(error.contains("the value of `no` in ") && !error.contains("45678"), "{error}");
        let error = from_file("cam-2", &path).unwrap_err();
        assert!(
            error.contains("has no value for job `cam-2`; write a line `cam-2: VALUE`"),
            "{error}"
        );
        for text in [
            "hunter2",
            "- hunter2",
            "a: hunter2\n---\nb: hunter2\n",
            "a: [hunter2",
            "hunter2: a\nhunter2: b",
            "",
        ] {
            fs::write(&path, text).unwrap();
            let error = from_file("a", &path).unwrap_err();
            assert!(error.contains("passwords.yaml") && !error.contains("hunter2"), "{error}");
        }
        assert!(from_file("a", &dir.path().join("none")).unwrap_err().contains("does not exist"));
    }

    #[test]
    fn exactly_one_source_is_needed() {
        let both = of_job(&param(), "a", (Some("x".into()), Some("y".into()))).unwrap_err();
        assert!(both.contains("both variables SWARM_PARAM_PASS_DIR and SWARM_PARAM_PASS_FILE"));
        let none = of_job(&param(), "a", (None, None)).unwrap_err();
        assert!(none.contains("neither SWARM_PARAM_PASS_DIR, a directory"), "{none}");
        assert!(of_all_jobs("noSuch").unwrap_err().contains("no variable SWARM_PARAM_NOSUCH"));
    }
}
