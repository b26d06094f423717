//! What jobs inherit of the signals and limits of a guard's caller.

use std::fs;

use nix::sys::signal::SigSet;
use rustix::process::Signal;

use crate::line::Line;
use crate::machine::until;

/// The signals that a process blocks and ignores, by its status.
fn of_signals(status: &str) -> (u64, u64) {
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.split_once(name)).unwrap();
        u64::from_str_radix(line.1.trim(), 16).unwrap()
    };
    (of("SigBlk:"), of("SigIgn:"))
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

#[test]
fn a_job_starts_with_default_signals_and_the_limit_of_the_caller_whatever_that_has_set() {
    // A child inherits the mask of the thread that starts it.
    let mut blocked = SigSet::all();
    blocked.remove(nix::sys::signal::Signal::SIGCHLD);
    blocked.thread_block().unwrap();
    let mut guard = Line::start_from_shell("inherits", "trap '' HUP INT QUIT USR1; ulimit -Sn 100");
    SigSet::empty().thread_set_mask().unwrap();
    guard.start_job("j", "grep Sig /proc/self/status; ulimit -Sn; exec sleep 600");
    until("the limit", || guard.log().contains("j: 100\n").then_some(()));
    // Two belong to the C library, which lets nobody change them.
    let (blocks, ignores) = of_signals(&guard.log());
    assert_eq!((blocks, ignores & !(0b11 << 31)), (0, 0), "{}", guard.log());
    let own = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", guard.pid())).unwrap();
    let (blocks, ignores) = of_signals(&own("status"));
    let of_caller = bit(Signal::HUP) | bit(Signal::INT) | bit(Signal::QUIT);
    assert_eq!((blocks, ignores & of_caller), (0, of_caller));
    let limits = own("limits");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let words: Vec<_> = files.split_whitespace().collect();
    assert_eq!(words[0], words[1], "the soft one is the hard one");
    guard.send(r#"{"do":"stop","job":"j","grace_ms":5000}"#);
    let reply = guard.reply();
    assert!(reply.contains(r#""signal":15"#), "{reply}");
    guard.end();
}
