//! Processes that a pool may not end.

/// A process of another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    /// Its id.
    pub pid: i32,
    /// Its program, as `ps` shows it.
    pub program: &'a str,
    /// The name or number of its user.
    pub user: &'a str,
}

/// Returns a sentence about the processes that keep a job from ending, and the command that ends them.
/// `of` is the job with its worker, or another origin. `None` without a process.
///
/// ```
/// use swarm_view::held::{Held, sentence};
///
/// let process = Held { pid: 17_207, program: "tcpdump", user: "root" };
/// let sentence = sentence("capture on w-0", &[process]).unwrap();
/// assert_eq!(
///     sentence,
///     "capture on w-0 cannot be stopped: this user may not end its process 17207 (tcpdump) of user \
///      root; write `sudo kill 17207`"
/// );
/// ```
#[must_use]
pub fn sentence(of: &str, processes: &[Held<'_>]) -> Option<String> {
    let named = processes
        .iter()
        .map(|Held { pid, program, user }| format!("process {pid} ({program}) of user {user}"));
    let named = named.reduce(|all, next| format!("{all}, {next}"))?;
    let pids: Vec<_> = processes.iter().map(|process| process.pid.to_string()).collect();
    let pids = pids.join(" ");
    Some(format!(
        "{of} cannot be stopped: this user may not end its {named}; write `sudo kill {pids}`"
    ))
}
