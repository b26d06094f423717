//! The extent of the checks: a part of them in `cargo test`, all of them in the gate.

use std::num::NonZeroUsize;

/// The depth of the short check in steps. The whole check is about 30 steps deep.
pub(crate) const SHORT: NonZeroUsize = NonZeroUsize::new(12).unwrap();

/// Whether everything is checked, which takes three minutes on two cores: `SWARM_TESTS=full`.
pub(crate) fn is_full() -> bool {
    std::env::var_os("SWARM_TESTS").is_some_and(|extent| extent == "full")
}

/// Returns the number of random runs: `all` in the full check, a tenth in the short one.
pub(crate) fn share_of(all: u32) -> u32 {
    if is_full() { all } else { all.div_ceil(10) }
}
