//! `swarm local` as a service: its reports to the service manager.

use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::Signal;

use crate::local::operator::{DEADLINE, Machine, until};

/// Lines that a service manager receives.
fn listen(machine: &Machine) -> (String, Receiver<String>) {
    let path = machine.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = socket.recv(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if !text.lines().all(|line| sender.send(line.to_owned()).is_ok()) {
                return;
            }
        }
    });
    (path.to_str().unwrap().to_owned(), lines)
}

#[test]
fn a_service_manager_learns_when_the_pool_runs_what_it_does_and_how_long_its_end_may_take() {
    let machine = Machine::new();
    let (path, lines) = listen(&machine);
    let mut operator = machine.started_in(&[("NOTIFY_SOCKET", &path)]);
    let mut seen = Vec::new();
    let mut says = |what: &str| {
        until(what, || {
            seen.extend(lines.try_iter());
            seen.iter().any(|line| line.starts_with(what)).then_some(())
        });
    };
    says("READY=1");
    says("STATUS=Settled; 27 jobs on 3 workers");
    operator.signal(Signal::TERM);
    assert_eq!(operator.ended().code(), Some(0));
    says("STOPPING=1");
    says("EXTEND_TIMEOUT_USEC=");
    says("STATUS=ended in ");
    let last = seen.iter().rfind(|line| line.starts_with("STATUS=")).unwrap();
    assert!(last.ends_with(" ms: 3 workers stopped, no process is left"), "{last}");
    assert_eq!(seen.iter().filter(|line| *line == "READY=1").count(), 1, "{seen:?}");
    assert_eq!(machine.processes(), []);
}

/// The unit in `deploy/systemd` starts this program without changes.
#[test]
fn the_unit_uses_options_that_exist() {
    let unit = include_str!("../../../../deploy/systemd/swarm@.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<_> = start.split_whitespace().collect();
    assert_eq!(words[..2], ["/usr/local/bin/swarm", "local"]);
    let machine = Machine::new();
    let options = words[2..].iter().filter(|word| word.starts_with("--")).map(|word| {
        let (name, _) = word.split_once('=').unwrap_or((word, ""));
        name
    });
    let help = machine.output(&["--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    for option in options {
        assert!(help.contains(option), "{option} in {help}");
    }
    for line in ["Type=notify", "KillMode=process", "Restart=on-failure"] {
        assert!(unit.lines().any(|it| it == line), "{line}");
    }
    assert!(unit.contains("\nTimeoutStopSec="), "{unit}");
}
