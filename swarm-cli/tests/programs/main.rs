//! One test program, so that tests which wait overlap.

mod chaos;
mod commands;
mod import;
mod installed;
mod kubectl;
mod live;
mod local;
mod manual;
mod nightly;
mod own_program;
mod plan;
mod printable;
mod reference;
mod report;
mod troubleshooting;
mod tutorial;
mod verify;
