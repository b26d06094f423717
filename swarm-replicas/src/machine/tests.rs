//! Properties of the parts together: shares, single members, and small random worlds.

mod member;
mod random;
mod shares;
mod wire;
mod world;

use super::*;

fn controller(name: &str) -> Controller {
    name.parse().unwrap()
}

fn id(n: u64) -> MemberId {
    MemberId::new(&format!("swarm-{n}"), n).unwrap()
}

fn hosts(all: &[(&str, u8)]) -> Hosts {
    all.iter().map(|(name, weight)| (controller(name), Weight::new(*weight).unwrap())).collect()
}
