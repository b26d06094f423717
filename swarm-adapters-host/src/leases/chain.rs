//! The states of one lease as a chain of files, and how exactly one writer makes the next.
//!
//! File `n` is version `n`. A file is written under a hidden name and linked to its own, which
//! fails if that name is taken; so nobody sees half of a file, and no file is ever replaced. Each
//! has a random *mark* of its own and names the mark of the state it was made *after*. Old states
//! are removed, so a writer that was frozen for long can link its file into the gap they left. Such
//! a file is *stray*. The others are *true*: 1 if file 0 names it, and each that was linked while
//! the true one before it, the one it was made after, stood there.
//!
//! - **Create**: link 1, then 0, which names the mark of 1 and stays as long as the lease exists.
//! - **Write** `n + 1`: read `n` as below. Link `n + 1`. If `n` still stands there, it succeeded.
//! - **Clean up**, after success: remove the versions below `n` that are left, upwards, without 0.
//! - **Read** `n`: load it; see that `n + 1` is missing; then see that `n - 1`, with the mark that
//!   `n` was made after, still stands there (for `n` = 1: that 1 does, and that 0 names it).
//!
//! Anybody may be killed or frozen between any two of these steps. Why it holds:
//!
//! 1. *A true state is removed only after all true ones before it.* A clean-up walks down to the
//!    first that is missing, which is thus removed, as are all before it; it removes upwards, and
//!    stops if it cannot. It begins only after a true `n + 1` was made and removes below `n`. So
//!    the newest true state and the one before it always stand there.
//! 2. *While the true `n` stands there, `n + 1` was never removed* (1), so at most one file was
//!    ever linked under that name. Hence a writer that linked `n + 1` and finds `n` still there
//!    made the only true `n + 1`. Two writers never both succeed.
//! 3. *What a read returns is true and was the newest.* `n - 1` stood there at the end of the read,
//!    so `n`, loaded before, was linked while it stood there and is true. If `n + 1` had been made
//!    before it was found missing, it had been removed by then, and `n - 1` before it (1). For
//!    `n` = 1: it is the one that 0 names, and it is removed before 2 is.
//! 4. *Only true states have successors*, since a write begins with a read (3).
//! 5. *A lease is made once.* 0 is never removed before the lease is. A late creator finds it; the
//!    1 it linked was stray, since it came to be after the true 1 was removed.
//! 6. *A writer removes its own stray file only.* If it finds `n` gone, either its file is stray,
//!    or a true `n + 2` was made, without which nobody removes `n`. If that is missing now, it was
//!    removed, and `n + 1` before it; what stands under `n + 1` is stray. If it is there and was
//!    made after ours, ours was true and the write succeeded after all. Only if others have gone on
//!    further is a write that happened told as a conflict; nothing follows a final state, so this
//!    never befalls a revocation or a close.
//!
//! A listing is only a hint where to begin to read. It may miss what changes meanwhile.

use std::io;

use super::disk::Names;
use super::file_name;
use super::stored::Document;

/// How often a read begins anew. Each time the lease was written twice in between.
const READS_MAX: u32 = 100;

/// The file that says that the lease exists.
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
    /// Makes version 1, or nothing if the lease exists, was being made, or is.
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

    /// Makes the version after `state`, or nothing if another writer was faster.
    pub(super) fn append(&self, state: &State, next: Document) -> io::Result<Option<u64>> {
        let State { version, document: before } = state;
        let Some(made) = version.checked_add(1) else { return Ok(None) };
        let next = next.after(before);
        if !self.link(made, &next)? {
            return Ok(None);
        }
        if !self.stands(*version, &before.mark)? {
            let successor = made.checked_add(1).map(|version| self.load(version)).transpose()?;
            return match successor.flatten() {
                Some(successor) if successor.after == next.mark => Ok(Some(made)),
                Some(_) => Ok(None),
                None => self.unlink(made).map(|()| None),
            };
        }
        if let Err(error) = self.clean_up(*version) {
            // The write succeeded; the next one cleans up again.
            tracing::debug!(session = self.session, %error, "old states of a lease stay");
        }
        Ok(Some(made))
    }

    /// Removes what is left below `version`, upwards.
    fn clean_up(&self, version: u64) -> io::Result<()> {
        let mut lowest = version;
        while lowest > 1 && self.exists(lowest - 1)? {
            lowest -= 1;
        }
        (lowest..version).try_for_each(|version| self.unlink(version))
    }

    /// The newest state; the search begins at `hint`, if there is one.
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

    /// The newest state if it is found by going up from `version`.
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
                    && self.stands(1, &document.mark)?
            } else {
                self.stands(version - 1, &document.after)?
            };
            return Ok(is_true.then_some(State { version, document }));
        }
    }

    /// Removes all files. The lease is gone with the first.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.unlink(BIRTH)?;
        let mut versions = self.names.versions(self.session)?;
        versions.sort_unstable();
        versions.into_iter().try_for_each(|version| self.unlink(version))
    }

    /// Whether the file with this mark stands there.
    fn stands(&self, version: u64, mark: &str) -> io::Result<bool> {
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
