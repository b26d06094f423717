//! Carries out the protocol of [`machine`](crate::machine) for controllers made with kube-rs: Leases of
//! the API server, clocks, and a permit for each turn.

mod clock;
mod driver;
mod group;
mod held;
mod lease;
mod member;
mod registry;
mod share;

pub use group::Group;
pub use held::{Permit, PermitError};
pub use lease::{CARD_ANNOTATION, GROUP_LABEL};
pub use member::{End, JoinError, Member};
pub use registry::{Listed, STATUS_ANNOTATION};
pub use share::Share;
