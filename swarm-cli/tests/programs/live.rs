//! Commands about a live cluster, with a scripted API server.

#![expect(clippy::unwrap_used, reason = "clippy allows it in test functions only")]

use std::ffi::OsString;
use std::fs;

use rustix::process::Signal;

use crate::local::operator::{Machine, signal, until};
use crate::local::terminal::Tty;
use crate::report::Cluster;

#[test]
fn a_signal_during_the_first_read_ends_the_proxy_as_well() {
    let machine = Machine::new();
    for verb in ["top", "status"] {
        for kind in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            let (cluster, _listener) = Cluster::silent();
            let temporary = tempfile::tempdir().unwrap();
            let program = [env!("CARGO_BIN_EXE_kubectl-swarm"), verb, "a", "-n", "media"];
            let path = format!("{}:/usr/bin:/bin", cluster.path().display());
            let envs = [("PATH", &*path), ("TMPDIR", temporary.path().to_str().unwrap())];
            let mut tty = Tty::run(&machine, &program.map(OsString::from), &envs, "");
            let proxy: u32 = until("the proxy has its socket", || {
                fs::read_dir(temporary.path())
                    .unwrap()
                    .flatten()
                    .find_map(|dir| fs::symlink_metadata(dir.path().join("socket")).ok())?;
                fs::read_to_string(cluster.path().join("kubectl.pid")).ok()?.trim().parse().ok()
            });
            signal(tty.child.id().cast_signed(), kind);
            assert!(!tty.ended().success());
            until("the proxy has ended", || {
                // A process that init has not reaped yet has no words.
                let words = fs::read(format!("/proc/{proxy}/cmdline")).unwrap_or_default();
                words.is_empty().then_some(())
            });
            let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().flatten().collect();
            assert!(left.is_empty(), "{verb}, {kind:?}: {left:?}");
        }
    }
}
