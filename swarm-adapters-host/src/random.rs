//! Random numbers for names that must never repeat.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a random number.
///
/// # Errors
///
/// If the system cannot provide one.
pub fn number() -> io::Result<u64> {
    let mut random = [0_u8; 8];
    // A read of so few bytes never waits or returns fewer, once the machine has booted.
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(random))
}
