use proptest::prelude::*;

use super::*;

proptest! {
    /// The pauses between renewals, and the time after the last of them, are in milliseconds.
    #[test]
    fn a_silence_begins_at_its_bound_and_ends_with_the_second_renewal_after_it(
        pauses in prop::collection::vec(prop_oneof![1_u64..5_000, 10_000_u64..30_000], 0..20),
        after in prop_oneof![0_u64..5_000, 10_000_u64..30_000],
        bound in 12_000_u64..18_000,
    ) {
        let at = |ms| Moment(Duration::from_millis(ms));
        let mut renewals = Renewals::first(at(0));
        // The second renewal of a silence is the first one that another came shortly before.
        let (mut now, mut needed) = (0, 0);
        for pause in &pauses {
            now += pause;
            renewals.renewed(at(now));
            needed = if bound <= *pause { 1_u32 } else { needed.saturating_sub(1) };
            prop_assert_eq!(renewals.is_heard(at(now), Duration::from_millis(bound)), needed == 0);
        }
        let is_heard = renewals.is_heard(at(now + after), Duration::from_millis(bound));
        prop_assert_eq!(is_heard, needed == 0 && after < bound);
        // Nothing turns good by the passing of time.
        let later = renewals.is_heard(at(now + after + 1), Duration::from_millis(bound));
        prop_assert!(is_heard || !later);
    }
}
