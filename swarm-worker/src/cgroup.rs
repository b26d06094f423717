//! The memory control group of this process, in both versions of control groups.
//!
//! It counts the processes that the kernel has killed in the group because memory ran out, and it
//! has the limit of memory.

use std::fs;
use std::path::{Path, PathBuf};

/// Limits of this size and above mean "no limit": version 1 reports the largest multiple of a page.
const UNLIMITED: u64 = 1 << 62;

/// A memory control group, as a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cgroup {
    version: Version,
    dir: PathBuf,
    /// The mount point of its hierarchy, which is the outermost group that this process can see.
    mount: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Cgroup {
    /// Returns the group of this process, or `None` if the kernel has no such groups or hides them.
    pub(crate) fn own() -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).ok();
        Self::find(&read("cgroup")?, &read("mountinfo")?)
    }

    /// Finds the group that `/proc/PID/cgroup` names, below one of the mounts in
    /// `/proc/PID/mountinfo`. At most one version has the memory controller: if it is in version 1,
    /// it is not in version 2.
    fn find(groups: &str, mounts: &str) -> Option<Self> {
        let lines = || groups.lines().filter_map(group_of_line);
        let is_memory = |names: &str| names.split(',').any(|name| name == "memory");
        let of_one = lines().find(|(names, _)| is_memory(names));
        let (version, path) = match of_one {
            Some((_, path)) => (Version::One, path),
            None => (Version::Two, lines().find(|(names, _)| names.is_empty())?.1),
        };
        let mut mounts = mounts.lines().filter_map(|line| Mount::parse(line, version));
        let Mount { root, point } = mounts.next()?;
        let dir = below(&root, &point, path);
        Some(Self { version, dir, mount: point.into() })
    }

    /// Returns the number of processes that the kernel has killed because memory ran out, in this
    /// group or in an enclosing group. `None` means that the kernel does not count them.
    pub(crate) fn kills(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.dir.join(file)).ok()?;
        let mut counts = text.lines().filter_map(|line| line.strip_prefix("oom_kill "));
        counts.next()?.trim().parse().ok()
    }

    /// Returns the memory that the group may use, in bytes: the lowest of its own limit and of the
    /// limits of the enclosing groups that are visible. `None` means unlimited.
    pub(crate) fn limit(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        let around = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.mount));
        let limits = around.filter_map(|dir| {
            let text = fs::read_to_string(dir.join(file)).ok()?;
            // `max` means no limit.
            text.trim().parse::<u64>().ok()
        });
        limits.filter(|limit| *limit < UNLIMITED).min()
    }
}

/// Parses a line such as `4:memory:/a` or `0::/a` into its controllers and its path.
pub(crate) fn group_of_line(line: &str) -> Option<(&str, &str)> {
    line.split_once(':')?.1.split_once(':')
}

/// Returns the folder of the group `path` below a mount of the group `root`. A container without
/// its own cgroup namespace sees its own group as the root of the mount.
fn below(root: &str, point: &str, path: &str) -> PathBuf {
    let named = Path::new(point).join(Path::new(path).strip_prefix(root).unwrap_or(Path::new("")));
    if named.is_dir() { named } else { PathBuf::from(point) }
}

/// Returns the folder of the group `path`, if a line of `mountinfo` is the mount of version 2.
pub(crate) fn folder_of_version_2(line: &str, path: &str) -> Option<PathBuf> {
    Mount::parse(line, Version::Two).map(|Mount { root, point }| below(&root, &point, path))
}

/// A mount of a hierarchy: its mount point, and the group at the root of the mount.
struct Mount {
    root: String,
    point: String,
}

impl Mount {
    /// Parses a line of `mountinfo`, if it is the mount of the hierarchy with the memory
    /// controller.
    fn parse(line: &str, version: Version) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1).unwrap_or_default());
        let is_meant = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|it| it == "memory"),
            Version::Two => kind == "cgroup2",
        };
        is_meant.then(|| Self { root: root.to_owned(), point: point.replace("\\040", " ") })
    }
}

/// Formats a number of bytes in the notation of Kubernetes: `64Mi`.
pub(crate) fn quantity(bytes: u64) -> String {
    let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
    let unit = units.into_iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates files below `root` that look like the kernel's.
    pub(crate) fn fake(root: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    pub(crate) fn of_version_2(root: &Path, group: &str) -> Option<Cgroup> {
        let mounts = format!("31 23 0:28 / {} rw,nosuid - cgroup2 cgroup2 rw", root.display());
        Cgroup::find(&format!("0::{group}\n"), &mounts)
    }

    #[test]
    fn of_version_2_kills_and_the_least_limit_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fake(
            dir.path(),
            &[
                ("pool/memory.max", "1073741824\n"),
                ("pool/worker/memory.max", "max\n"),
                ("pool/worker/memory.events", "low 0\nhigh 0\nmax 41\noom 3\noom_kill 2\n"),
            ],
        );
        let group = of_version_2(dir.path(), "/pool/worker").unwrap();
        assert_eq!((group.kills(), group.limit()), (Some(2), Some(1 << 30)));
        fs::write(dir.path().join("pool/worker/memory.max"), "67108864\n").unwrap();
        assert_eq!(group.limit(), Some(64 << 20));
        // In a container with its own cgroup namespace, the group is the root.
        fake(dir.path(), &[("memory.events", "oom_kill 7\n")]);
        let root = of_version_2(dir.path(), "/").unwrap();
        assert_eq!((root.kills(), root.limit()), (Some(7), None));
    }

    #[test]
    fn of_version_1_kills_and_the_limit_are_read_also_below_a_mount_of_a_container() {
        let dir = tempfile::tempdir().unwrap();
        let memory = dir.path().join("memory");
        fake(
            &memory,
            &[
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("pod/c/memory.limit_in_bytes", "67108864\n"),
                ("pod/c/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
            ],
        );
        let groups = "5:devices:/pod/c\n4:cpuset,memory:/pod/c\n0::/\n";
        let unified = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw", dir.path().display());
        let host = format!(
            "{unified}\n33 31 0:33 / /x rw - cgroup cgroup rw,devices\n35 31 0:32 / {} rw - cgroup \
             cgroup rw,memory\n",
            memory.display()
        );
        let group = Cgroup::find(groups, &host).unwrap();
        assert_eq!((group.kills(), group.limit()), (Some(1), Some(64 << 20)));
        let inner = memory.join("pod/c");
        let inside = format!("35 31 0:32 /pod/c {} rw - cgroup cgroup rw,memory", inner.display());
        let group = Cgroup::find(groups, &inside).unwrap();
        assert_eq!((group.kills(), group.limit()), (Some(1), Some(64 << 20)));
    }

    #[test]
    fn a_kernel_without_any_shows_nothing() {
        assert_eq!(Cgroup::find("", ""), None);
        assert_eq!(Cgroup::find("0::/\n", "31 23 0:28 / / rw - ext4 /dev/vda rw"), None);
        let dir = tempfile::tempdir().unwrap();
        let group = of_version_2(dir.path(), "/gone").unwrap();
        assert_eq!((group.kills(), group.limit()), (None, None));
    }

    #[test]
    fn bytes_are_written_as_in_a_pod() {
        let all = [64 << 20, 2 << 30, 3 << 10, 1_000, 0].map(quantity);
        assert_eq!(all, ["64Mi", "2Gi", "3Ki", "1000 bytes", "0 bytes"]);
    }
}
