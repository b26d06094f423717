//! A mutex whose holder panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The content of a mutex whatever became of its last holder: what the controller keeps in one is
/// never left half changed.
pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
