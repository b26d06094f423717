//! The protocols in all states of small worlds, and in random runs of large worlds.

mod clocks;
mod digest;
mod extent;
mod fleet;
mod handover;
mod plain;
mod random;
mod replicas;
mod seeds;
