//! The operator as it runs, against an API server in memory: facts in, decisions and writes out.
//!
//! Each scenario can be read as a transcript. The module [`scenario`] shows how to write one.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may say what must be so")]

#[allow(dead_code, reason = "no scenario uses all of its methods")]
mod scenario;
#[allow(dead_code, reason = "the same")]
mod transcript;
#[allow(dead_code, reason = "the same")]
mod worker;

mod adoption;
mod autoscale;
mod events;
mod fairness;
mod faults;
mod health;
mod history;
mod hostports;
mod kstatus;
mod lists;
mod managed;
mod metrics;
mod not_ready;
mod parts;
mod plain;
mod protocol;
mod refusals;
mod release;
mod rollback;
mod rollout;
mod runners;
mod sessions;
mod sharing;
