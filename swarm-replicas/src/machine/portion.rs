//! Buckets by controller: the buckets that a member owns, gains or loses.

use std::collections::BTreeMap;

use super::{Bucket, Buckets, Controller};

/// Buckets of several controllers. Controllers without buckets are not in it, so equal portions
/// compare as equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Portion(BTreeMap<Controller, Buckets>);

impl Portion {
    /// Whether this bucket of this controller is in the portion.
    ///
    /// ```
    /// use swarm_replicas::machine::{Bucket, Portion};
    ///
    /// assert!(!Portion::default().contains(&"labels".parse()?, Bucket::of("6f1c")));
    /// # Ok::<(), swarm_replicas::machine::ControllerError>(())
    /// ```
    #[must_use]
    pub fn contains(&self, controller: &Controller, bucket: Bucket) -> bool {
        self.0.get(controller).is_some_and(|buckets| buckets.contains(bucket))
    }

    /// The buckets of one controller, if there are any.
    ///
    /// ```
    /// use swarm_replicas::machine::Portion;
    ///
    /// assert_eq!(Portion::default().get(&"labels".parse()?), None);
    /// # Ok::<(), swarm_replicas::machine::ControllerError>(())
    /// ```
    #[must_use]
    pub fn get(&self, controller: &Controller) -> Option<&Buckets> {
        self.0.get(controller)
    }

    /// Controllers with their buckets, by name.
    ///
    /// ```
    /// assert_eq!(swarm_replicas::machine::Portion::default().iter().count(), 0);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&Controller, &Buckets)> {
        self.0.iter()
    }

    /// The number of buckets: the sum over all controllers.
    ///
    /// ```
    /// use swarm_replicas::machine::{Buckets, Controller, Portion};
    ///
    /// let controllers: [Controller; 2] = ["labels".parse()?, "pools".parse()?];
    /// let all = Portion::from_iter(controllers.map(|controller| (controller, Buckets::all())));
    /// assert_eq!(all.len(), 8_192);
    /// # Ok::<(), swarm_replicas::machine::ControllerError>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.values().map(Buckets::len).sum()
    }

    /// Whether the portion has no buckets.
    ///
    /// ```
    /// assert!(swarm_replicas::machine::Portion::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The buckets that are not in `other`. O(controllers).
    ///
    /// ```
    /// use swarm_replicas::machine::{Buckets, Portion};
    ///
    /// let all = Portion::from_iter([("labels".parse()?, Buckets::all())]);
    /// assert!(all.without(&all).is_empty());
    /// # Ok::<(), swarm_replicas::machine::ControllerError>(())
    /// ```
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let rest = |buckets: &Buckets, controller| match other.0.get(controller) {
            Some(taken) => buckets.without(taken),
            None => buckets.clone(),
        };
        self.0.iter().map(|(name, buckets)| (name.clone(), rest(buckets, name))).collect()
    }

    /// The buckets in both portions. O(controllers).
    ///
    /// ```
    /// use swarm_replicas::machine::{Buckets, Portion};
    ///
    /// let all = Portion::from_iter([("labels".parse()?, Buckets::all())]);
    /// assert_eq!(all.and(&all), all);
    /// # Ok::<(), swarm_replicas::machine::ControllerError>(())
    /// ```
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let both = |(name, buckets): (&Controller, &Buckets)| {
            Some((name.clone(), buckets.and(other.0.get(name)?)))
        };
        self.0.iter().filter_map(both).collect()
    }

    /// Adds all of `other`. O(controllers).
    ///
    /// ```
    /// use swarm_replicas::machine::{Buckets, Portion};
    ///
    /// let all = Portion::from_iter([("labels".parse()?, Buckets::all())]);
    /// let mut both = Portion::default();
    /// both.add(&all);
    /// assert_eq!(both, all);
    /// # Ok::<(), swarm_replicas::machine::ControllerError>(())
    /// ```
    pub fn add(&mut self, other: &Self) {
        for (name, buckets) in &other.0 {
            let mine = self.0.entry(name.clone()).or_default();
            *mine = mine.or(buckets);
        }
    }
}

/// Leaves out controllers with an empty set.
impl FromIterator<(Controller, Buckets)> for Portion {
    fn from_iter<I: IntoIterator<Item = (Controller, Buckets)>>(all: I) -> Self {
        Self(all.into_iter().filter(|(_, buckets)| !buckets.is_empty()).collect())
    }
}
