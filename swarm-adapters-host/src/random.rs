//! Random numbers for names that must never be used twice.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// A random number.
///
/// # Errors
///
/// If the system has none.
pub fn number() -> io::Result<u64> {
    let mut random = [0_u8; 8];
    // So few bytes are always returned at once, once the machine is up.
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(random))
}
