//! The reasons of Events, in one list.

use kube::runtime::events::EventType;

/// Makes the enum, its list and its words from one table.
macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident: $type:ident,)+) => {
        /// Reason of an Event that does not come from the condition `Ready`, whose reasons are
        /// [`Reason`](super::Reason).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventReason {
            $($(#[$doc])+ $name,)+
        }

        impl EventReason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The word in the Event.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            pub(super) const fn type_(self) -> EventType {
                match self {
                    $(Self::$name => EventType::$type,)+
                }
            }
        }
    };
}

reasons! {
    /// The first ledger was made from the view of another program.
    Adopted: Normal,
    /// The condition `Degraded` has this reason: `autoscale` cannot have what it needs.
    AutoscaleLimited: Warning,
    /// No replica of the operator hosts a controller.
    ControllerNotHosted: Warning,
    /// Jobs lost their workers to more important ones.
    JobsDisplaced: Normal,
    /// Jobs kept failing and try other workers.
    JobsFailedOver: Normal,
    /// The condition `Healthy` is false with this reason: jobs fail.
    JobsFailing: Warning,
    /// The pool is settled again, and jobs have other workers.
    JobsMoved: Normal,
    /// Jobs crashed several workers, and get none for a while.
    JobsQuarantined: Warning,
    /// An edit removed many jobs. The condition of this name is true for an hour.
    JobsRemoved: Warning,
    /// Workers are not ready for too long.
    NotReadyTooLong: Warning,
    /// Nothing could be decided for a while: the API server took no write, or no operator ran.
    Outage: Warning,
    /// The operator could not remove the objects of a managed pool.
    PoolLeft: Warning,
    /// The condition `Degraded` has this reason: pods do not suit the Swarm.
    PoolMisconfigured: Warning,
    /// Another client scaled the pool, and it has its size again.
    ScaleTakenOver: Warning,
    /// The condition `Degraded` has this reason: a policy is missing.
    SessionsUnprotected: Warning,
    /// A worker's Lease was revoked.
    WorkerFenced: Warning,
    /// The API server refuses a write, and the turn went on without it.
    WriteRefused: Warning,
}
