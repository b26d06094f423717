//! The names of the files: the job's name, with an escape for each character that a shell or a file
//! system reads otherwise.

use std::fmt::Write as _;

use swarm_core::{JobName, hash_job};

/// The maximum length of the escaped name of a job or worker. Two of them and the endings fit into
/// the 255 bytes of a file name.
const BYTES_MAX: usize = 110;
/// The length of the beginning that a shortened name keeps. The hash of the whole name follows.
const BEGINNING: usize = 90;

/// The ending of a file.
const ENDING: &str = ".log";

/// Returns the name of the file of a job. With a worker, it is the file of the job on that worker.
///
/// ```
/// use swarm_adapters_host::job_log::file_name;
///
/// let job = "rtsp://cam 1".replace(' ', "").parse()?;
/// assert_eq!(file_name(&job, None), "rtsp:%2F%2Fcam1.log");
/// assert_eq!(file_name(&job, Some("w-0")), "rtsp:%2F%2Fcam1@w-0.log");
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[must_use]
pub fn file_name(job: &JobName, worker: Option<&str>) -> String {
    let mut name = job_part(job);
    if let Some(worker) = worker {
        name.push('@');
        name.push_str(&escaped(worker));
    }
    name + ENDING
}

/// Returns the name of the growing file that `name` is, or from which `name` was rotated.
///
/// ```
/// use swarm_adapters_host::job_log::base_of;
///
/// assert_eq!(base_of("cam.log.1"), Some("cam.log"));
/// assert_eq!(base_of("cam.txt"), None);
/// ```
#[must_use]
pub fn base_of(name: &str) -> Option<&str> {
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|it| it.is_ascii_digit());
    let rotated = name.rsplit_once('.').filter(|(_, end)| is_number(end)).map(|(base, _)| base);
    rotated.into_iter().chain([name]).find(|it| it.ends_with(ENDING))
}

/// Returns whether the file `name` is a file of the job, on any worker.
#[must_use]
pub fn belongs_to(name: &str, job: &JobName) -> bool {
    base_of(name).is_some_and(|base| job_part_of(base) == job_part(job))
}

/// Returns the part of a file's name that is the same in all files of the job.
pub(super) fn job_part(job: &JobName) -> String {
    escaped(job.as_str())
}

/// Returns the [part](job_part) in the name of a growing file.
pub(super) fn job_part_of(base: &str) -> &str {
    let name = base.strip_suffix(ENDING).unwrap_or(base);
    // A name cannot have the separator, which is escaped.
    name.split_once('@').map_or(name, |(job, _)| job)
}

/// Returns the name of a job or worker as part of a file's name: without separators of paths and
/// `@`, not hidden, and at most 110 bytes long. Different names give different results.
///
/// ```
/// use swarm_adapters_host::job_log::escaped;
///
/// assert_eq!(escaped("../cam 1"), "%2E.%2Fcam%201");
/// ```
#[must_use]
pub fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_:+=,".contains(&byte);
        if is_plain || (byte == b'.' && 0 < at) {
            escaped.push(char::from(byte));
        } else {
            // Writing to memory does not fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    if BYTES_MAX < escaped.len() {
        escaped.truncate(BEGINNING);
        // `~` is escaped in other names. A name of a job or worker is a valid name of a job.
        let hash = JobName::new(name).map(|name| hash_job(&name)).unwrap_or_default();
        let _ = write!(escaped, "~{hash:016x}");
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> JobName {
        JobName::new(name).unwrap()
    }

    #[test]
    fn a_name_leads_out_of_no_directory_and_is_not_hidden() {
        for (name, expected) in [
            ("..", "%2E..log"),
            ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd.log"),
            ("a%2F", "a%252F.log"),
            ("a@w-0", "a%40w-0.log"),
            ("$(x)*'", "%24%28x%29%2A%27.log"),
            ("stream:cctv0:updated", "stream:cctv0:updated.log"),
        ] {
            assert_eq!(file_name(&job(name), None), expected);
        }
    }

    #[test]
    fn long_names_stay_apart_and_fit() {
        let long = "/".repeat(252);
        let [a, b] = ["a", "b"].map(|end| job(&format!("{long}{end}")));
        assert_ne!(file_name(&a, None), file_name(&b, None));
        let whole = file_name(&a, Some(&"w".repeat(253))) + ".1";
        assert!(whole.len() <= 255, "{}", whole.len());
        assert!(belongs_to(&whole, &a) && !belongs_to(&whole, &b));
    }

    #[test]
    fn the_files_of_a_job_are_recognised() {
        for name in ["cam.log", "cam.log.1", "cam.log.12", "cam@w-0.log", "cam@w-0.log.1"] {
            assert!(belongs_to(name, &job("cam")), "{name}");
        }
        for name in
            ["cam", "cam.log.x", "cam.log.", "cam.1", "cam2.log", "cam.log.log", "%63am.log"]
        {
            assert!(!belongs_to(name, &job("cam")), "{name}");
        }
        assert!(belongs_to(&file_name(&job("cam.log.1"), None), &job("cam.log.1")));
        assert!(!belongs_to(&file_name(&job("cam.log.1"), None), &job("cam")));
    }
}
