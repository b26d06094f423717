//! Tests of the worker as a program. They are one test program, so that tests which wait overlap.

mod guard;
mod help;
mod install;
mod worker;
