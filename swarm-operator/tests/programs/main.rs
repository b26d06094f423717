//! The programs as people and scripts use them. One test program, so that tests which wait overlap.

mod chaos;
#[cfg(feature = "controller")]
mod crd;
mod import;
mod installed;
mod kubectl;
mod local;
mod manual;
mod own_program;
mod plan;
mod printable;
#[cfg(feature = "controller")]
mod reference;
mod verify;
