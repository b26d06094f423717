//! One test program, so that tests which wait overlap.

mod import;
mod kubectl;
mod live;
mod plan;
mod printable;
mod reference;
mod report;
mod shells;
