//! One test program, so that tests which wait overlap.

mod crd;
mod reference;
mod verbs;
