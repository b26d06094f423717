//! The terminal of both programs, of one machine and of a cluster.
//!
//! - [`output`] prints answers and messages, [`show`] the answers about a live pool in each format.
//! - [`mod@screen`] draws a pool on the whole terminal. [`scene`] is what it draws: documents, messages
//!   and logs.
//! - [`hands`] passes actions of a person on, and [`shutdown`] requests to end.
//! - [`report`] writes the zip file for a bug report.
//! - [`times`] reads times of the command line.

pub mod hands;
pub mod output;
pub mod report;
pub mod scene;
#[cfg_attr(not(feature = "screen"), path = "screen/no_screen.rs")]
pub mod screen;
pub mod show;
pub mod shutdown;
mod terminal;
pub mod times;

pub use terminal::{can_draw, columns};
