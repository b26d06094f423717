//! Access to a mutex after a panic of its holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex even if its last holder panicked. The controller never leaves the content of such
/// a mutex half changed.
pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
