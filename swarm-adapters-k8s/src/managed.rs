//! Managed pools: the objects that the operator makes for a Swarm, as they should be and as they are.
//!
//! - [`wanted`]: which objects a pool is made of, and what each of them says. A pure function.
//! - `observed`: the objects as watches show them, and who has changed them.
//! - `keep`: writes the difference; `removal` removes what is not wanted any more.
//! - `rolls` and `rollouts`: how many pools get a newer template at a time.
//! - `events`: why pods are missing, as only Events say.

pub(crate) mod events;
pub(crate) mod keep;
pub(crate) mod observed;
mod removal;
mod rollouts;
mod rolls;
pub mod wanted;
