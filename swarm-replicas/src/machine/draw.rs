//! Draws of rendezvous hashing with weights, in integers.
//!
//! Every member draws for every bucket. The smallest draw, divided by the member's weight, wins. If
//! draws are exponentially distributed, the chance to win is exactly proportional to the weight
//! (Schindelhauer, Schomaker, 2005). A draw is -log2(u) of a uniform `u`, in fixed point. Floats
//! may differ between machines, and two machines that disagree would both own a bucket, or neither
//! would.

use super::mix::mix;

/// The bits behind the point.
const POINT: u32 = 40;

/// log2(1 + i / 256).
const LOG2: [u64; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < table.len() {
        table[i] = log2_slow((256 + i as u64) << 55);
        i += 1;
    }
    table
};

/// The logarithm of a number in 1..2 with 63 bits behind the point, bit by bit: a square that reaches
/// two is a one.
#[expect(clippy::cast_possible_truncation, reason = "a number in 1..2 has 64 bits")]
const fn log2_slow(mut number: u64) -> u64 {
    let (mut log, mut bit) = (0, 0);
    while bit < POINT {
        let square = (number as u128 * number as u128) >> 63;
        let is_two = square >> 64 & 1;
        log = log << 1 | is_two as u64;
        number = (square >> is_two) as u64;
        bit += 1;
    }
    log
}

/// 1 / ln 2, with 30 bits behind the point.
const PER_LN2: u64 = 1_549_082_005;

/// -log2(`hash` / 2^64): at most 64, with [`POINT`] bits behind the point. The error is below 2^-34.
#[inline]
fn neg_log2(hash: u64) -> u64 {
    let hash = hash | 1;
    let zeros = hash.leading_zeros();
    let number = hash << zeros;
    let high = number >> 55 & 0xff;
    // The distance above the entry of the table, as a fraction of that entry: below 2^-8.
    let above = (number & ((1 << 55) - 1)) >> 15;
    let above = above / (256 + high);
    let square = (above * above) >> POINT;
    let cube = (square * above) >> POINT;
    let ln = above - square / 2 + cube / 3;
    let log = u64::from(63 - zeros) << POINT;
    let index = usize::try_from(high).unwrap_or_default();
    (64 << POINT) - (log + LOG2[index] + ((ln * PER_LN2) >> 30)).min(64 << POINT)
}

/// The draw of a member for one bucket, and the member's weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    drawn: u64,
    weight: u64,
}

impl Draw {
    /// The draw of the member with this seed, for a bucket with this [salt](salt).
    #[inline]
    pub(super) fn new(seed: u64, salt: u64, weight: u8) -> Self {
        Self { drawn: neg_log2(mix(seed ^ salt)), weight: u64::from(weight) }
    }

    /// Whether this draw wins over `other`. Of two equal draws, neither wins.
    #[inline]
    pub(super) fn beats(self, other: Self) -> bool {
        // The product fits 64 bits: a weight has 7 bits and a draw 46.
        self.drawn * other.weight < other.drawn * self.weight
    }
}

/// The number that a bucket adds to all draws for it.
#[inline]
pub(super) fn salt(bucket: u16) -> u64 {
    mix(u64::from(bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_frozen() {
        let found = [0, 1 << 63, 3 << 62, u64::MAX, 0x0123_4567_89ab_cdef].map(neg_log2);
        assert_eq!(found[..2], [64 << POINT, 1 << POINT]);
        let golden = [456_338_556_420, 0, 8_591_343_276_640];
        for (found, golden) in found[2..].iter().zip(golden) {
            assert!(found.abs_diff(golden) <= 1 << 8, "{found} is not near {golden}");
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an error of 2^-52 is none here")]
    #[test]
    fn logarithms_never_grow_with_the_number_and_are_precise() {
        let mut last = u64::MAX;
        for n in 0..100_000_u64 {
            let hash = n * (u64::MAX / 100_000);
            let (found, exact) = (neg_log2(hash), 64.0 - ((hash | 1) as f64).log2());
            assert!(found <= last, "{hash}");
            assert!((found as f64 / 2_f64.powi(40) - exact).abs() < 1e-9, "{hash}: {exact}");
            last = found;
        }
    }
}
