//! Texts for a person: tables, documents, lines and reports, and the terminal that shows them.

pub mod output;
pub mod report;
pub mod show;
pub(crate) mod terminal;
pub(crate) mod text;
