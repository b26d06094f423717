//! Texts for a person: lines about a pool.

pub(crate) mod text;
