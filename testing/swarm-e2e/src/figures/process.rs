//! The cost of a process, from `/proc`.

use std::fs;

use anyhow::{Context as _, Result};

/// The clock tick of `/proc`, the same on every Linux that people run.
const TICKS_PER_SECOND: f64 = 100.0;

/// The cost of a process so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    /// Memory that is resident now, in MiB.
    pub(super) rss_mib: u64,
    /// The largest resident memory so far, in MiB.
    pub(super) peak_mib: u64,
    /// CPU time of all threads, in seconds.
    pub(super) cpu_seconds: f64,
}

/// Reads the cost of a running process.
pub(super) fn cost(pid: u32) -> Result<Cost> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
    parse(&read("status")?, &read("stat")?).with_context(|| format!("/proc/{pid} reads strangely"))
}

fn parse(status: &str, stat: &str) -> Option<Cost> {
    let mib = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
    };
    // The name of the program, in brackets, may hold anything. User and system time are fields 14
    // and 15 of the line, and the first after the brackets is field 3.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u32>().ok();
    let cpu_seconds = f64::from(ticks(14)? + ticks(15)?) / TICKS_PER_SECOND;
    Some(Cost { rss_mib: mib("VmRSS:")?, peak_mib: mib("VmHWM:")?, cpu_seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpu_are_read_whatever_the_program_is_called() {
        let stat = "7 (a) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0";
        let status = "Name:\tx\nVmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\n";
        let expected = Cost { rss_mib: 2, peak_mib: 4, cpu_seconds: 3.0 };
        assert_eq!(parse(status, stat), Some(expected));
        assert_eq!(parse("", stat), None);
    }

    #[test]
    fn this_process_has_a_cost() {
        let cost = cost(std::process::id()).unwrap();
        assert!(0 < cost.rss_mib && cost.rss_mib <= cost.peak_mib, "{cost:?}");
    }
}
