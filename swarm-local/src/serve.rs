//! Answers to other programs: the HTTP server, and the reports to a service manager.

pub(crate) mod screen;
pub(crate) mod service;
pub(crate) mod web;
