//! How random runs are made: the same every time, unless another seed is asked for.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

use crate::extent::share_of;

/// A thousand cases or a share of them, those of `seed` by default. `PROPTEST_RNG_SEED=N` makes others,
/// `just soak` many.
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
