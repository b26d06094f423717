//! The rule of binding, by example and by simulated rollouts.

use proptest::prelude::*;

use super::*;

fn pod(uid: &str) -> Candidate {
    Candidate { created_s: Some(1_767_225_600), ..Candidate::ready(uid) }
}

fn leaving(uid: &str) -> Candidate {
    Candidate { is_leaving: true, ..pod(uid) }
}

fn unready(uid: &str) -> Candidate {
    Candidate { is_ready: false, ..pod(uid) }
}

fn bound(slots: &[(u32, &str)]) -> BTreeMap<Slot, String> {
    slots.iter().map(|(slot, uid)| (Slot(*slot), (*uid).to_owned())).collect()
}

/// Returns the binding as a text. Slots that are given up are in brackets, and empty slots have a
/// dash.
fn described(binding: &Binding) -> String {
    let slots: BTreeSet<_> = binding.wanted.iter().chain(binding.workers.keys()).collect();
    let one = |slot: &Slot| {
        let pod = binding.workers.get(slot).map_or("-", String::as_str);
        let text = format!("{slot}:{pod}");
        if binding.wanted.contains(slot) { text } else { format!("[{text}]") }
    };
    slots.into_iter().map(one).collect::<Vec<_>>().join(" ")
}

fn binds(slots: &[(u32, &str)], pods: &[Candidate], wanted: usize) -> String {
    described(&bind(&bound(slots), pods, wanted, None))
}

const ABC: [(u32, &str); 3] = [(0, "a"), (1, "b"), (2, "c")];

#[test]
fn free_slots_are_filled_by_the_ready_then_by_the_oldest_then_by_name() {
    let old = Candidate { created_s: Some(1_735_689_600), ..unready("z") };
    let pods = [unready("y"), pod("b"), old, pod("a")];
    assert_eq!(binds(&[], &pods, 5), "0:a 1:b 2:z 3:y 4:-");
    assert_eq!(binds(&[(1, "a")], &pods, 2), "0:b 1:a");
}

#[test]
fn with_surge_the_successor_takes_over_as_soon_as_the_old_pod_is_deleted() {
    let surging = [pod("a"), pod("b"), pod("c"), pod("d")];
    assert_eq!(binds(&ABC, &surging, 3), "0:a 1:b 2:c");
    let deleted = [pod("a"), leaving("b"), pod("c"), pod("d")];
    assert_eq!(binds(&ABC, &deleted, 3), "0:a 1:d 2:c");
}

#[test]
fn without_surge_a_slot_waits_for_a_successor_that_is_ready() {
    let starting = [leaving("a"), pod("b"), pod("c"), unready("d")];
    assert_eq!(binds(&ABC, &starting, 3), "0:a 1:b 2:c");
    let gone = [pod("b"), pod("c"), unready("d")];
    assert_eq!(binds(&ABC, &gone, 3), "0:d 1:b 2:c", "some are ready only once they have work");
    assert_eq!(binds(&ABC, &[pod("b"), pod("c")], 3), "0:- 1:b 2:c");
    let ready = [leaving("a"), pod("b"), pod("c"), pod("d")];
    assert_eq!(binds(&ABC, &ready, 3), "0:d 1:b 2:c");
}

#[test]
fn a_slot_with_jobs_is_filled_before_a_new_one() {
    let pods = [leaving("a"), pod("b"), pod("c"), pod("d")];
    assert_eq!(binds(&ABC, &pods, 4), "0:d 1:b 2:c 3:-");
}

#[test]
fn surplus_slots_are_given_up_and_those_of_living_pods_stay() {
    let announced = [pod("a"), pod("b"), pod("c")];
    assert_eq!(binds(&ABC, &announced, 2), "0:a 1:b [2:c]");
    let deleted = [leaving("a"), pod("b"), pod("c")];
    assert_eq!(binds(&ABC, &deleted, 2), "[0:a] 1:b 2:c");
    assert_eq!(binds(&ABC, &[pod("b"), pod("c")], 2), "1:b 2:c");
    assert_eq!(binds(&[(1, "b"), (2, "c")], &[pod("b"), pod("c"), pod("d")], 3), "0:d 1:b 2:c");
    assert_eq!(binds(&ABC, &[leaving("a")], 0), "[0:a]");
}

#[test]
fn where_slots_are_emptied_from_the_top_a_pod_left_above_moves_down() {
    let bind = |pods: &[Candidate], wanted| described(&bind(&bound(&ABC), pods, wanted, Some(2)));
    assert_eq!(bind(&[pod("a"), pod("b"), pod("c")], 3), "0:a 1:b 2:c", "being emptied");
    assert_eq!(bind(&[pod("a"), pod("b"), leaving("c")], 2), "0:a 1:b [2:c]");
    assert_eq!(bind(&[pod("b"), pod("c")], 2), "0:c 1:b", "another went than was meant");
    assert_eq!(bind(&[pod("b"), pod("c"), unready("d")], 2), "0:d 1:b [2:c]");
}

/// Generates a few pods and previous bindings.
fn scenes() -> impl Strategy<Value = (BTreeMap<Slot, String>, Vec<Candidate>, usize, Option<u32>)> {
    let any_pod = (0..12_u32, 0..3_i64, any::<bool>(), any::<bool>());
    let pods = prop::collection::vec(any_pod, 0..10);
    let bound = prop::collection::btree_map(0..8_u32, 0..12_u32, 0..8);
    (bound, pods, 0..8_usize, prop::option::of(0..8_u32)).prop_map(|(bound, pods, wanted, end)| {
        let bound = bound.into_iter().map(|(slot, uid)| (Slot(slot), format!("p{uid}")));
        let pods = pods.into_iter().map(|(uid, age, is_leaving, is_ready)| Candidate {
            created_s: Some(age).filter(|age| 0 < *age),
            is_leaving,
            is_ready,
            ..pod(&format!("p{uid}"))
        });
        let pods: BTreeMap<_, _> = pods.map(|pod| (pod.uid.clone(), pod)).collect();
        (bound.collect(), pods.into_values().collect(), wanted, end)
    })
}

proptest! {
    /// Scope: up to 10 pods in any state, up to 8 remembered slots, any number wanted.
    #[test]
    fn a_binding_is_a_function_of_sets_that_keeps_what_it_can(
        (bound, pods, wanted, end) in scenes(),
        seed in any::<prop::sample::Index>(),
    ) {
        let binding = bind(&bound, &pods, wanted, end);
        prop_assert_eq!(binding.wanted.len(), wanted);
        let uids: BTreeSet<_> = binding.workers.values().collect();
        prop_assert_eq!(uids.len(), binding.workers.len(), "a pod has one slot");

        let mut turned = pods.clone();
        turned.rotate_left(seed.index(pods.len().max(1)));
        turned.reverse();
        prop_assert_eq!(&bind(&bound, &turned, wanted, end), &binding);

        let is_full = binding.wanted.iter().all(|slot| binding.workers.contains_key(slot));
        let waits = pods.iter().filter(|pod| !pod.is_leaving && pod.is_ready);
        let idle = waits.filter(|pod| !uids.contains(&pod.uid)).count();
        prop_assert!(is_full || idle == 0, "a ready pod is idle while a slot is empty");

        let seen: BTreeSet<_> = bound.values().collect();
        for (slot, uid) in bound.iter().filter(|_| end.is_none() && seen.len() == bound.len()) {
            let is_living = pods.iter().any(|pod| pod.uid == *uid && !pod.is_leaving);
            prop_assert!(!is_living || binding.workers.get(slot) == Some(uid), "a living pod stays");
        }
        let again = bind(&binding.workers, &pods, wanted, end);
        prop_assert_eq!(again.workers, binding.workers, "nothing changes if nothing happens");
    }

    /// Scope: rollouts of up to 6 pods with any surge and unavailability, in which pods get ready
    /// and end at any time.
    #[test]
    fn in_a_rollout_every_slot_changes_hands_once(
        replicas in 1..6_usize,
        surge in 0..3_usize,
        unavailable in 0..3_usize,
        choices in prop::collection::vec(any::<prop::sample::Index>(), 400),
    ) {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        let mut rollout = Rollout::new(replicas, surge, unavailable);
        let mut history: BTreeMap<Slot, Vec<String>> = BTreeMap::new();
        let mut memory = BTreeMap::new();
        for choice in choices {
            let binding = bind(&memory, &rollout.pods, replicas, None);
            for (slot, uid) in &binding.workers {
                let past = history.entry(*slot).or_default();
                if past.last() != Some(uid) {
                    past.push(uid.clone());
                }
            }
            // The latest session of an empty slot stays in its record.
            memory.extend(binding.workers);
            rollout.step(choice);
        }
        prop_assert!(rollout.is_over(), "{:?}", rollout.pods);
        for (slot, past) in history {
            let generations: Vec<_> = past.iter().map(|uid| &uid[..3]).collect();
            prop_assert_eq!(generations, ["old", "new"], "{}: {:?}", slot, past);
        }
    }
}

/// A rollout as Kubernetes carries it out, one action at a time.
struct Rollout {
    pods: Vec<Candidate>,
    replicas: usize,
    surge: usize,
    unavailable: usize,
    made: usize,
}

impl Rollout {
    fn new(replicas: usize, surge: usize, unavailable: usize) -> Self {
        let pods = (0..replicas).map(|n| pod(&format!("old-{n}"))).collect();
        Self { pods, replicas, surge, unavailable, made: 0 }
    }

    /// Carries out one of the possible actions.
    fn step(&mut self, choice: prop::sample::Index) {
        let living = self.pods.iter().filter(|pod| !pod.is_leaving).count();
        let ready = self.pods.iter().filter(|pod| !pod.is_leaving && pod.is_ready).count();
        let mut may = Vec::new();
        if self.made < self.replicas && living < self.replicas + self.surge {
            may.push(None);
        }
        for (place, pod) in self.pods.iter().enumerate() {
            let is_old = pod.uid.starts_with("old");
            let may_go = self.replicas < ready + self.unavailable;
            if pod.is_leaving || !pod.is_ready || (is_old && may_go) {
                may.push(Some(place));
            }
        }
        if may.is_empty() {
            return;
        }
        match may[choice.index(may.len())] {
            None => {
                self.pods.push(unready(&format!("new-{}", self.made)));
                self.made += 1;
            }
            Some(place) if self.pods[place].is_leaving => drop(self.pods.remove(place)),
            Some(place) if !self.pods[place].is_ready => self.pods[place].is_ready = true,
            Some(place) => self.pods[place].is_leaving = true,
        }
    }

    fn is_over(&self) -> bool {
        self.pods.iter().all(|pod| pod.uid.starts_with("new") && pod.is_ready)
    }
}
