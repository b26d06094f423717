//! The state directory of a pool: its owner, its lock, and its place.

pub(crate) mod elsewhere;
mod path_lock;
mod private_dir;
pub(crate) mod room;
pub(crate) mod state;
