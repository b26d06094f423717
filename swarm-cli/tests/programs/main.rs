//! One test program, so that tests which wait overlap.

mod chaos;
mod commands;
mod export;
mod installed;
mod local;
mod manual;
mod nightly;
mod own_program;
mod reference;
mod troubleshooting;
mod tutorial;
mod verify;
