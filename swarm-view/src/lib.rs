//! Answers about a pool, the same on one machine and on a cluster. Nothing here reads a clock, a file or
//! a socket.
//!
//! - [`waits`] has what a job waits for.
//! - [`mod@age`] formats times for people.
//! - [`mod@printable`] escapes text that could control a terminal. [`shell`] quotes words for a shell.

pub mod age;
pub mod printable;
pub mod shell;
pub mod waits;
