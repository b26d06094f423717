//! Sees to it that no job process outlives its worker.
//!
//! A worker starts one guard, which is the same program again, and the guard starts all job
//! processes. They talk in JSON lines over the guard's standard input and output
//! ([`protocol`]). The guard ends every process of every job at once
//!
//! - when its standard input closes, that is, when the worker ends, however it does;
//! - when the time until which jobs may act passes without being moved, that is, when the worker
//!   is frozen or cut off. That time is counted by `CLOCK_BOOTTIME`, through suspensions too.
//!
//! A job is told as joined only when no process of it is left: neither in its process group nor
//! elsewhere. A process that left the group is still a descendant of the guard, which adopts
//! orphans (it is a "child subreaper"), and it is known by its parents, or by `SWARM_JOB` and
//! `SWARM_SESSION` in its environment. One that hid from all of these is ended with the next job
//! that ends.
//!
//! The other way round, the worker watches the guard. When the guard ended, or has not answered for
//! some seconds, the worker kills it, ends whatever is left ([`sweep`](crate::sweep)), and only
//! then says that the jobs have ended. The kernel kills a job's first process when the guard dies.
//!
//! What stays possible: if worker and guard are both stopped (SIGSTOP) at the same moment, jobs run
//! on until their operator kills and sweeps; if the operator is stopped too, nothing can act,
//! and nothing else is started either: the next start sweeps. If worker and guard are both killed,
//! children of a job that are not its first process run until the sweep. A process that became
//! another user, so that the guard may not signal it, or that the kernel holds in uninterruptible
//! sleep, keeps its job from being joined.

mod census;
mod client;
mod exec;
mod keeper;
mod outbox;
mod output;
pub mod protocol;
mod serve;

pub use client::{Guard, GuardCommand, Identity, Start};
pub use exec::exec;
pub use protocol::End;
pub use serve::serve;
