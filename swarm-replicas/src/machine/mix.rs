//! Mixes numbers, so that similar numbers lead to dissimilar draws.

/// Mixes 64 bits reversibly: the finalizer of SplitMix64 (Steele, Lea, Flood, 2014). Its results
/// decide the owner of a bucket, so every member has to compute the same results.
#[inline]
pub(super) const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_generator() {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let first = [0, STEP, STEP.wrapping_mul(2)].map(mix);
        assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }
}
