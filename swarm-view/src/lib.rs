//! Answers about a pool, the same on one machine and on a cluster. Nothing here reads a clock, a file or
//! a socket.
//!
//! - [`status`] is the state of a pool: a document, its judgement and its text. [`overview`] lists several
//!   pools.
//! - [`jobs`] and [`workers`] have a line for each job or worker, and [`explain`] says where a job is
//!   and why. [`pool`] has the name of a pool in such lines.
//! - [`plan`] has the moves that an edit causes, [`starts`] the restarts, and [`check`] the parts of an installation.
//! - [`picture`] is what is known of a pool at a moment. It decides what a job waits for ([`waits`]), and
//!   why it is where it is.
//! - [`history`] shows the history of a pool, [`life`] the counts of a job, [`message`] what its operator says, and [`logs`] what is
//!   said about one job.
//! - [`action`] is what a person does with a job, and [`stop`] the end of a pool. [`verify`] has the
//!   judgement of run logs, and [`replicas`] the operators of a cluster.
//! - [`table`] makes tables and fields, and [`words`] numbers and quotes in sentences.
//! - [`mod@age`] formats times for people.
//! - [`mod@printable`] escapes text that could control a terminal. [`blank`] hides the passwords of
//!   addresses. [`shell`] quotes words for a shell.

pub mod action;
pub mod age;
pub mod blank;
pub mod check;
pub mod explain;
pub mod held;
pub mod history;
pub mod jobs;
pub mod life;
pub mod logs;
pub mod message;
pub mod overview;
pub mod picture;
pub mod plan;
pub mod pool;
pub mod printable;
pub mod replicas;
pub mod schema;
pub mod shell;
pub mod starts;
pub mod status;
pub mod stop;
pub mod table;
pub mod verify;
pub mod waits;
pub mod words;
pub mod workers;
