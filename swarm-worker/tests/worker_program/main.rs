//! The worker as a program. One test program, so that tests which wait overlap.

mod guard;
mod help;
mod install;
mod worker;
