//! Ensures that no process of a job outlives its worker.
//!
//! A worker starts one guard, another process of the same program, and the guard starts all
//! processes of jobs. Worker and guard exchange JSON lines over the guard's standard input and
//! output ([`protocol`]). The guard kills every process of every job at once in two cases:
//!
//! - Its standard input closes. Then the worker has ended.
//! - The deadline until which jobs may act passes. Then the worker is frozen or cut off and no
//!   longer extends the deadline, a time of `CLOCK_BOOTTIME`, which includes suspensions.
//!
//! A job is reported as joined only when none of its processes is left, in its process group or
//! elsewhere. A process that left the group is still a descendant of the guard, which adopts
//! orphans (it is a "child subreaper"). The guard recognises such a process by any of these:
//!
//! - its parents, now or at an earlier check;
//! - `SWARM_JOB` and `SWARM_SESSION` in its environment;
//! - the output pipe of the job, if the process has it open;
//! - a process group that it shares with a recognised process.
//!
//! A process without any of these could belong to any job that is at least as old as the process.
//! When the guard stops one of these jobs, it also terminates and kills the process, and the job is
//! joined only then. Younger jobs do not wait for the process. A process that is older than all
//! jobs is killed at once.
//!
//! Conversely, the worker watches the guard. If the guard has ended, or has not answered for some
//! seconds, the worker kills it and the remaining processes ([`sweep`](crate::sweep)). Only then the
//! worker reports that the jobs have ended. The kernel kills a job's first process when the guard
//! dies.
//!
//! The guard does not obey signals: a shutdown sends them to all processes, and jobs have to
//! finalise. A job that ends within [`STOPPED_WITHIN`](asked::STOPPED_WITHIN) of a signal is
//! reported as stopped by that signal.
//!
//! Known limits:
//!
//! - Worker and guard can both be stopped (SIGSTOP) while the jobs are not. On one machine the jobs
//!   then run until their operator kills and sweeps them. If the operator is stopped too, it starts
//!   nothing else either, and its next start sweeps.
//! - In a pod the operator cannot sweep. If worker and guard are stopped there, the lease
//!   expires and other workers get the jobs. Two workers run these jobs until the guard continues
//!   or is killed.
//! - If operator, worker and guard were all frozen and are thawed, a job may act before worker and
//!   guard do. A kernel timer could not help: no timer signals other processes, and a job can
//!   change a timer of its own process.
//! - If worker and guard are both killed, the children of a job's first process run until the
//!   sweep.
//! - A process that changed its user, so that the guard may not signal it, keeps its job from being
//!   joined. So does a process in uninterruptible sleep.

mod asked;
mod census;
mod client;
mod exec;
mod keeper;
mod launch;
mod lines;
mod lost;
mod meter;
mod needs;
mod nice;
mod oom;
mod outbox;
mod output;
pub(crate) mod protocol;
mod search;
mod serve;
mod tail;

pub(crate) use client::{AwaitedLine, Ended, Guard, GuardCommand, Identity, Start, Stop};
pub(crate) use exec::exec;
pub use keeper::KILLING;
pub(crate) use protocol::{End, Limits, OutputFormat, StopWay};
pub(crate) use serve::serve;
