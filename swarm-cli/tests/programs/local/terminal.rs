//! Tests `swarm local` on a real terminal: a pseudo terminal that controls its session.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::local::operator::{Machine, signal, until, until_handled};

pub(crate) const OPERATOR: &str = env!("CARGO_BIN_EXE_swarm");

/// A terminal and the operator on it.
pub(crate) struct Tty<'a> {
    machine: &'a Machine,
    keyboard: File,
    /// The other side, kept open to check its final state.
    line: File,
    /// The modes before the operator started.
    modes: LocalModes,
    pub(crate) screen: Arc<Mutex<Screen>>,
    pub(crate) child: Child,
}

/// The screen of a terminal after the output so far.
pub(crate) struct Screen {
    parser: vt100::Parser,
    pub(crate) written: Vec<u8>,
}

impl<'a> Tty<'a> {
    pub(crate) fn start(machine: &'a Machine, args: &[&str], envs: &[(&str, &str)]) -> Self {
        let mut words = vec![machine.file().into_os_string()];
        words.extend(args.iter().map(OsString::from));
        Self::start_with(machine, &words, envs, "")
    }

    /// The same with any words of the command line, on a terminal on which `before` was written.
    fn start_with(
        machine: &'a Machine,
        words: &[OsString],
        envs: &[(&str, &str)],
        before: &str,
    ) -> Self {
        let mut program: Vec<OsString> = vec![OPERATOR.into(), "local".into()];
        program.extend_from_slice(words);
        program.extend(["--dir".into(), machine.state().into_os_string()]);
        Self::run(machine, &program, envs, before)
    }

    /// The same with any program.
    pub(crate) fn run(
        machine: &'a Machine,
        program: &[OsString],
        envs: &[(&str, &str)],
        before: &str,
    ) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let line = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let (keyboard, mut line) = (File::from(keyboard), File::from(line));
        line.write_all(before.as_bytes()).unwrap();
        tcsetwinsize(&line, size(24, 80)).unwrap();
        let modes = tcgetattr(&line).unwrap().local_modes;
        // Makes it the terminal of a new session; the tests' own is not affected.
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(program);
        command.env("XDG_STATE_HOME", machine.home());
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR").envs(envs.iter().copied());
        let side = || line.try_clone().unwrap();
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let parser = vt100::Parser::new(some(24), some(80), 0);
        let screen = Arc::new(Mutex::new(Screen { parser, written: Vec::new() }));
        let (mut written, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        // The read fails when the other side is closed everywhere.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = written.read(&mut bytes) {
                let mut seen = seen.lock().unwrap();
                seen.parser.process(&bytes[..length]);
                seen.written.extend_from_slice(&bytes[..length]);
            }
        });
        Self { machine, keyboard, line, modes, screen, child }
    }

    pub(crate) fn shown(&self) -> String {
        self.screen.lock().unwrap().parser.screen().contents()
    }

    /// Waits until the terminal shows these words.
    pub(crate) fn shows(&self, words: &str) -> String {
        until(&format!("{words:?} on the terminal"), || {
            Some(self.shown()).filter(|shown| shown.contains(words))
        })
    }

    pub(crate) fn type_in(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().parser.screen_mut().set_size(some(rows), some(columns));
        tcsetwinsize(&self.line, size(rows, columns)).unwrap();
    }

    /// Whether the program uses the full screen of the terminal.
    ///
    /// The program hides the cursor after it has shown the words, so this waits until the screen has
    /// both.
    pub(crate) fn is_taken(&self) -> bool {
        until("the cursor is hidden on the full screen only", || {
            let seen = self.screen.lock().unwrap();
            let screen = seen.parser.screen();
            let taken = screen.alternate_screen();
            (taken == screen.hide_cursor()).then_some(taken)
        })
    }

    /// Waits until the operator has ended, and until the screen has all of its output.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let status = until("the operator ended", || self.child.try_wait().unwrap());
        // A NUL draws nothing, and it comes after what the operator wrote.
        self.line.write_all(b"\0").unwrap();
        until("the screen has all output", || {
            self.screen.lock().unwrap().written.pop_if(|last| *last == 0)
        });
        status
    }

    /// Waits for the end and checks that the terminal is restored.
    fn ends_well(&mut self) {
        assert_eq!(self.ended().code(), Some(0));
        let shown = self.shows("no process is left");
        assert!(shown.contains("streams: 27 jobs for 3 workers on this machine"), "{shown}");
        assert!(!self.is_taken());
        assert_eq!(tcgetattr(&self.line).unwrap().local_modes, self.modes);
        assert_eq!(self.machine.processes(), []);
    }
}

impl Drop for Tty<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn some(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn a_terminal_shows_the_state_of_the_pool_follows_keys_and_is_given_back() {
    let machine = Machine::new();
    let mut tty = Tty::start(&machine, &[], &[]);
    assert!(tty.modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    let shown = tty.shows("27 jobs on 3 workers, 27 new");
    assert!(shown.starts_with(" streams  ● Settled"), "{shown}");
    assert!(shown.contains("jobs of swarm-worker-0 ") && tty.is_taken(), "{shown}");
    tty.type_in(b"\x1b[B");
    tty.shows("jobs of swarm-worker-1 ");
    machine.edit("replicas: 3", "replicas: 4");
    tty.shows("27 jobs on 4 workers, 6 moved");
    tty.resize(40, 80);
    until("all moves are listed", || {
        (tty.shown().matches(" → swarm-worker-3").count() == 6).then_some(())
    });
    machine.edit("  jobs:", "  jbos:");
    tty.shows("did you mean `jobs`?");
    tty.shows(" ✗ ");
    tty.resize(8, 50);
    until("drawn in eight rows", || {
        let shown = tty.shown();
        let last = shown.lines().nth(7).is_some_and(|line| line.starts_with(" q end"));
        (last && shown.lines().count() == 8).then_some(())
    });
    tty.type_in(b"qy");
    tty.ends_well();
}

#[test]
fn interrupts_and_signals_give_the_terminal_back() {
    let machine = Machine::new();
    let mut tty = Tty::start(&machine, &[], &[]);
    tty.shows("settled in");
    tty.type_in(b"\x03");
    tty.ends_well();
    let mut tty = Tty::start(&machine, &[], &[]);
    tty.shows("settled in");
    signal(i32::try_from(tty.child.id()).unwrap(), Signal::TERM);
    tty.ends_well();
}

#[test]
fn a_terminal_that_goes_away_ends_everything() {
    let machine = Machine::new();
    let mut tty = Tty::start(&machine, &[], &[]);
    tty.shows("settled in");
    // Closing a window has the same effect: the system sends SIGHUP to the programs on it.
    signal(i32::try_from(tty.child.id()).unwrap(), Signal::HUP);
    tty.ended();
    until("no process is left", || machine.processes().is_empty().then_some(()));
}

#[test]
fn what_others_left_on_the_terminal_is_cleared_at_the_start_and_by_ctrl_l() {
    let machine = Machine::new();
    // A program that was killed in full screen leaves this output.
    let left = "\x1b[?1049h\x1b[?25l\x1b[23;1H left by a killed program";
    let words = [machine.file().into_os_string()];
    let mut tty = Tty::start_with(&machine, &words, &[], left);
    let shown = tty.shows("settled in");
    assert!(!shown.contains("killed program"), "{shown}");
    tty.line.write_all(b"\x1b[20;1H written by another program").unwrap();
    tty.shows("another program");
    tty.type_in(b"\x0c");
    until("the terminal is drawn again", || {
        let shown = tty.shown();
        (!shown.contains("another program") && shown.contains("settled in")).then_some(())
    });
    tty.type_in(b"qy");
    assert_eq!(tty.ended().code(), Some(0));
}

#[test]
fn a_manifest_that_is_typed_in_is_waited_for_until_a_signal() {
    let machine = Machine::new();
    let mut tty = Tty::start_with(&machine, &["-".into()], &[], "");
    tty.type_in(b"apiVersion: swarm.k8slab.info/v1alpha1\n");
    tty.shows("apiVersion");
    until_handled(&tty.child, Signal::INT);
    tty.type_in(b"\x03");
    assert_eq!(tty.ended().code(), Some(1));
    tty.shows("before FILE was read");
    let mut tty = Tty::start_with(&machine, &["-".into()], &[], "");
    let manifest = std::fs::read(machine.file()).unwrap();
    tty.type_in(&manifest);
    tty.type_in(b"\x04");
    let shown = tty.shows("27 jobs on 3 workers, 27 new");
    assert!(shown.starts_with(" streams  ● Settled"), "{shown}");
    tty.type_in(b"qy");
    assert_eq!(tty.ended().code(), Some(0));
}

#[test]
fn lines_are_printed_where_that_is_asked_for_or_nothing_else_can_be() {
    for (args, term) in [(vec!["--plain"], "xterm"), (vec![], "dumb")] {
        let machine = Machine::new();
        let mut tty = Tty::start(&machine, &args, &[("TERM", term)]);
        tty.shows("settled in");
        tty.type_in(b"\x03");
        assert_eq!(tty.ended().code(), Some(0));
        tty.shows("no process is left");
        assert!(!tty.screen.lock().unwrap().written.contains(&0x1b));
    }
}

#[test]
fn no_colour_is_used_where_none_is_wanted() {
    let has_colours = |envs: &[(&str, &str)]| {
        let machine = Machine::new();
        let mut tty = Tty::start(&machine, &[], envs);
        tty.shows("settled in");
        tty.type_in(b"qy");
        tty.ended();
        let written = tty.screen.lock().unwrap().written.clone();
        String::from_utf8_lossy(&written).contains("38;5;")
    };
    assert!(has_colours(&[]));
    assert!(!has_colours(&[("NO_COLOR", "1")]));
}
