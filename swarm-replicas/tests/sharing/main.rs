//! Replicas that share objects through an API server in memory.

mod exclusion;
mod labels;
mod leader;
