//! Settings of random runs: the same runs every time, unless the environment names another seed.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

use crate::extent::share_of;

/// A thousand cases, or a share of them, from `seed` by default. `PROPTEST_RNG_SEED=N` selects
/// other cases, and `just soak` runs many.
pub(crate) fn cases_of(seed: u64) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig {
        cases: share_of(1000),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        rng_seed: match asked.rng_seed {
            RngSeed::Random => RngSeed::Fixed(seed),
            RngSeed::Fixed(_) => asked.rng_seed,
        },
        ..asked
    }
}
