//! Memory and processor time of groups of processes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

/// Memory and processor time of all processes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The resident memory in bytes. Memory that several processes share counts for each.
    pub memory_bytes: u64,
    /// The processor time since the processes were started.
    pub cpu: Duration,
}

impl Usage {
    /// Measures all process groups of the machine, by group. O(processes).
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read.
    pub fn of_groups() -> io::Result<BTreeMap<i32, Self>> {
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
        let tick = Duration::from_secs(1)
            / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1);
        let mut groups = BTreeMap::<i32, Self>::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let is_process =
                entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
            // A process may end at any time.
            let Some(stat) = is_process.then(|| fs::read_to_string(entry.path().join("stat")).ok())
            else {
                continue;
            };
            let Some(Stat { group, ticks, pages }) = stat.as_deref().and_then(Stat::parse) else {
                continue;
            };
            let usage = groups.entry(group).or_default();
            usage.memory_bytes += pages.saturating_mul(page);
            usage.cpu += tick.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
        }
        Ok(groups)
    }
}

/// The fields of interest in `/proc/PID/stat`; see `proc_pid_stat(5)`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    group: i32,
    ticks: u64,
    pages: u64,
}

impl Stat {
    /// Parses the line. The name of the program may have spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(") ")?;
        // The first field is the third of the line, the state.
        let field = |number: usize| rest.split(' ').nth(number - 3);
        let ticks = field(14)?.parse::<u64>().ok()? + field(15)?.parse::<u64>().ok()?;
        Some(Self { group: field(5)?.parse().ok()?, ticks, pages: field(24)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_any_program_is_parsed() {
        let line = "7 (a) b) S 1 42 7 0 -1 4194560 1 2 3 4 50 8 0 0 20 0 1 0 99 4096 33 1844\n";
        assert_eq!(Stat::parse(line), Some(Stat { group: 42, ticks: 58, pages: 33 }));
        for text in ["", "7 (a)", "7 (a) S 1", "7 (a) S 1 x 7 0 -1 0 1 2 3 4 5 8 0 0 2 0 1 0 9 4 3"]
        {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_group_of_this_process_uses_memory() {
        let group = nix::unistd::getpgrp().as_raw();
        let usage = Usage::of_groups().unwrap()[&group];
        assert!(1 << 20 < usage.memory_bytes, "{usage:?}");
    }
}
