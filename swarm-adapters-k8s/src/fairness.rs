//! Fairness between tenants: `slots` says whose turn is next, and large turns go on in the `background`.

pub(crate) mod background;
pub(crate) mod slots;
