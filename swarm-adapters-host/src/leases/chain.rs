//! The states of one lease as a chain of files. Exactly one writer creates the next file.
//!
//! File `n` is version `n`. A file is written under a hidden name and then linked to its final
//! name. The link fails if that name exists. So readers see only complete files, and no file is
//! ever replaced.
//!
//! Each file has a random *mark*, and the mark of the state it was made *after*. Old states are
//! removed, so a writer that was frozen for long can link its file into the gap that they left.
//! Such a file is *stray*. All other files are *true*. File 1 is true if file 0 has its mark. A
//! later file is true if it was linked while the previous true file, whose mark it has, still
//! existed.
//!
//! - **Create**: link 1, then 0, which has the mark of 1 and exists as long as the lease does.
//! - **Write** `n + 1`: read `n` as below. Link `n + 1`. If `n` still exists, the write succeeded.
//! - **Clean up**, after success: remove the remaining versions below `n`, upwards, except 0.
//! - **Read** `n`: load it; check that `n + 1` is missing; then check that `n - 1`, with the mark
//!   that `n` was made after, still exists (for `n` = 1: that 1 does, and that 0 has its mark).
//!
//! Any process may be killed or frozen between any two of these steps. Why the algorithm is correct:
//!
//! 1. *A true state is removed only after all true states before it.* A clean-up walks down to the
//!    first version that is missing, which has thus been removed, as have all before it; it removes
//!    upwards, and stops if it cannot. It begins only after a true `n + 1` was made, and removes
//!    versions below `n`. So the newest true state and the one before it always exist.
//! 2. *While the true `n` exists, `n + 1` was never removed* (1), so at most one file was ever linked
//!    under that name. Hence a writer that linked `n + 1` and finds that `n` still exists made the
//!    only true `n + 1`. Two writers never both succeed.
//! 3. *A state that a read returns is true and was the newest.* `n - 1` existed at the end of the
//!    read, so `n`, which was loaded before, was linked while `n - 1` existed and is true. If `n + 1`
//!    had been made before it was found missing, it had been removed by then, and `n - 1` before it
//!    (1). For `n` = 1: 0 has its mark, and it is removed before 2 is.
//! 4. *Only true states have successors*, since a write begins with a read (3).
//! 5. *A lease is created once.* 0 is never removed before the lease is. A late creator finds 0; the
//!    1 that it linked is stray, since it was linked after the true 1 was removed.
//! 6. *A writer removes only its own file, and only if it is stray.* If the writer finds `n` gone,
//!    either its file is stray, or a true `n + 2` was made: before that, `n` is not removed. If
//!    `n + 2` is missing now, it was removed, and `n + 1` before it; so the file named `n + 1` is
//!    stray. If `n + 2` exists and was made after the writer's file, that file was true and the write
//!    succeeded after all. Only if others have written further versions is a successful write
//!    reported as a conflict; nothing follows a final state, so this never happens to a revocation or
//!    a close.
//!
//! A listing is only a hint where a read begins. It may miss concurrent changes.

use std::io;

use super::disk::Names;
use super::file_name;
use super::stored::Document;

/// The maximum number of repeated reads. A read is repeated if the lease was written twice
/// meanwhile.
const READS_MAX: u32 = 100;

/// The version whose file marks the existence of the lease.
const BIRTH: u64 = 0;

/// The chain of one lease.
#[derive(Clone, Copy)]
pub(super) struct Chain<'a, N> {
    pub(super) names: &'a N,
    pub(super) session: &'a str,
}

/// A true state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) version: u64,
    pub(super) document: Document,
}

impl<N: Names> Chain<'_, N> {
    /// Creates version 1. Returns `None` if the lease exists, or another writer is creating it.
    pub(super) fn create(&self, birth: Document, first: &Document) -> io::Result<Option<u64>> {
        if self.exists(BIRTH)? || !self.link(1, first)? {
            return Ok(None);
        }
        let birth = birth.after(first);
        let is_made = self.link(BIRTH, &birth);
        if !matches!(is_made, Ok(true)) {
            self.unlink(1)?;
        }
        Ok(is_made?.then_some(1))
    }

    /// Creates the version after `state`. Returns `None` if another writer was faster.
    pub(super) fn append(&self, state: &State, next: Document) -> io::Result<Option<u64>> {
        let State { version, document: before } = state;
        let Some(made) = version.checked_add(1) else { return Ok(None) };
        let next = next.after(before);
        if !self.link(made, &next)? {
            return Ok(None);
        }
        if !self.has_mark(*version, &before.mark)? {
            let successor = made.checked_add(1).map(|version| self.load(version)).transpose()?;
            return match successor.flatten() {
                Some(successor) if successor.after == next.mark => Ok(Some(made)),
                Some(_) => Ok(None),
                None => self.unlink(made).map(|()| None),
            };
        }
        if let Err(error) = self.clean_up(*version) {
            // The write succeeded, and the next one cleans up again.
            tracing::debug!(session = self.session, %error, "old states of a lease cannot be removed yet");
        }
        Ok(Some(made))
    }

    /// Removes the remaining versions below `version`, upwards.
    fn clean_up(&self, version: u64) -> io::Result<()> {
        let mut lowest = version;
        while lowest > 1 && self.exists(lowest - 1)? {
            lowest -= 1;
        }
        (lowest..version).try_for_each(|version| self.unlink(version))
    }

    /// Returns the newest state. The search begins at `hint`, if there is one.
    pub(super) fn newest(&self, mut hint: Option<u64>) -> io::Result<Option<State>> {
        for _ in 0..READS_MAX {
            if !self.exists(BIRTH)? {
                return Ok(None);
            }
            let from = match hint.take() {
                Some(version) => Some(version),
                None => self.names.newest(self.session)?,
            };
            let state = from.map(|version| self.at(version)).transpose()?.flatten();
            if state.is_some() {
                return Ok(state);
            }
        }
        let reason = format!(
            "lease {} cannot be read: a state of it was removed by hand, or it changes too fast",
            self.session
        );
        Err(io::Error::other(reason))
    }

    /// Returns the newest state, if a search upwards from `version` finds it.
    pub(super) fn at(&self, mut version: u64) -> io::Result<Option<State>> {
        if version == BIRTH {
            return Ok(None);
        }
        loop {
            let Some(document) = self.load(version)? else { return Ok(None) };
            if let Some(next) = version.checked_add(1)
                && self.exists(next)?
            {
                version = next;
                continue;
            }
            let is_true = if version == 1 {
                let birth = self.load(BIRTH)?;
                birth.is_some_and(|birth| birth.after == document.mark)
                    && self.has_mark(1, &document.mark)?
            } else {
                self.has_mark(version - 1, &document.after)?
            };
            return Ok(is_true.then_some(State { version, document }));
        }
    }

    /// Removes all files. The lease no longer exists once the first file is removed.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.unlink(BIRTH)?;
        let mut versions = self.names.versions(self.session)?;
        versions.sort_unstable();
        versions.into_iter().try_for_each(|version| self.unlink(version))
    }

    /// Returns whether the file of this version exists and has this mark.
    fn has_mark(&self, version: u64, mark: &str) -> io::Result<bool> {
        Ok(self.load(version)?.is_some_and(|document| document.mark == mark))
    }

    fn load(&self, version: u64) -> io::Result<Option<Document>> {
        self.names.load(&file_name(self.session, version))
    }

    fn exists(&self, version: u64) -> io::Result<bool> {
        self.names.exists(&file_name(self.session, version))
    }

    fn link(&self, version: u64, document: &Document) -> io::Result<bool> {
        self.names.link(&file_name(self.session, version), document)
    }

    fn unlink(&self, version: u64) -> io::Result<()> {
        self.names.unlink(&file_name(self.session, version))
    }
}
