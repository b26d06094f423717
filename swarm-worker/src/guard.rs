//! Ensures that no process of a job outlives its worker.
//!
//! A worker starts one guard, another process of the same program, and the guard starts all processes
//! of jobs. Worker and guard exchange JSON lines over the guard's standard input and output
//! ([`protocol`]). The guard kills every process of every job at once
//!
//! - when its standard input closes, that is, when the worker has ended for any reason;
//! - when the deadline until which jobs may act passes, that is, when the worker is frozen or cut off
//!   and no longer extends it. The deadline is a time of `CLOCK_BOOTTIME`, which includes
//!   suspensions.
//!
//! A job is reported as joined only when none of its processes is left, in its process group or
//! elsewhere. A process that left the group is still a descendant of the guard, which adopts orphans
//! (it is a "child subreaper"). The guard recognises it by its parents, now or at an earlier check, by
//! `SWARM_JOB` and `SWARM_SESSION` in its environment, by the output of the job that it has open, or by a
//! group that it shares with such a process.
//!
//! A process without any of these could belong to each job that is not younger than it. When one of
//! these is stopped, the process is terminated and killed with that job, and the job is joined only then.
//! Younger jobs do not wait for it. One that is older than all jobs is killed at once.
//!
//! Conversely, the worker watches the guard. If the guard has ended, or has not answered for some
//! seconds, the worker kills it and all processes that are left ([`sweep`](crate::sweep)), and only
//! then reports that the jobs have ended. The kernel kills a job's first process when the guard dies.
//!
//! Signals are no orders to a guard: a shutdown sends them to all processes, and jobs are to finalise. A
//! job that ends within [`STOPPED_WITHIN`](asked::STOPPED_WITHIN) of one is reported as stopped by it.
//!
//! Known limits: worker and guard can both be stopped (SIGSTOP) while the jobs are not. On one machine
//! the jobs then run until their operator kills and sweeps them. If the operator is stopped too, nothing
//! can act, but nothing else is started either, and the next start sweeps. In a pod nobody sweeps: the
//! lease expires, others get the jobs, and two run them until the guard goes on or is killed. If all
//! three were frozen and are thawed, a job may act before worker and guard do. A timer of the kernel
//! could not help: one that signals other processes does not exist, and one of a job's own process is
//! the job's to change. If worker and guard are both killed, children
//! of a job other than its first process run until the sweep. A process that changed its user, so
//! that the guard may not signal it, or that is in uninterruptible sleep, keeps its job from being
//! joined.

mod asked;
mod census;
mod client;
mod exec;
mod keeper;
mod launch;
mod lines;
mod meter;
mod needs;
mod oom;
mod outbox;
mod output;
pub(crate) mod protocol;
mod search;
mod serve;
mod tail;

pub(crate) use client::{AwaitedLine, Ended, Guard, GuardCommand, Identity, Start};
pub(crate) use exec::exec;
pub use keeper::KILLING;
pub(crate) use protocol::{End, OutputFormat};
pub(crate) use serve::serve;
