//! The leases of a pool on one machine: the last acknowledgement of each session, and whether the
//! session still holds its lease.
//!
//! `DIR/leases/` has one file for each stored state, `SESSION.VERSION`. A write creates the next
//! version from one that was read, and only one writer succeeds. The algorithm is lock-free: a
//! process that is frozen while it holds a lock would block all others. The module `chain`
//! describes the algorithm and its proof.
//!
//! No write waits for the disk. A lease describes a process, and no process survives a loss of
//! power.
//!
//! Each state has the boot id of the machine at the time of the write. A state from before a reboot
//! reads as [`Holder::Closed`], even if it was revoked, and no grace period has to elapse. `Closed`
//! promises that no job of the session runs, and that the session never writes again. The promise
//! holds because a directory belongs to one machine.
//!
//! A frozen or killed writer can leave two kinds of files behind. Hidden files were never linked;
//! [`sweep`](Leases::sweep) removes them. Old states are not accepted by any reader;
//! [`remove`](Leases::remove) removes them with the lease.

mod chain;
mod disk;
mod follow;
mod stored;

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use swarm_core::handover::{Holder, Lease, LeaseVersion, LeaseWrite, SessionId};

use self::chain::{Chain, State};
use self::disk::{Disk, Names as _};
use self::stored::Document;
use crate::clock;

pub use follow::LeaseFollower;

/// The length limit of a session's name, so that a file name has room for a version after it.
const NAME_BYTES_MAX: usize = 200;

/// The leases in a directory. Clones share their hints. All calls block, for microseconds unless the
/// disk is slow.
#[derive(Clone, Debug)]
pub struct Leases {
    disk: Disk,
    /// The boot id of the machine.
    boot: Arc<str>,
    /// The latest known versions, so that a read seldom lists the directory. Wrong hints do no
    /// harm.
    hints: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// The reason why a lease was not written.
#[derive(Debug, thiserror::Error)]
pub enum LeaseWriteError {
    /// The lease changed since it was read, or is final. Read it, then decide again.
    #[error("the lease changed since it was read; read it again")]
    Conflict,
    /// The system reported an error. The write may have happened.
    #[error("the lease cannot be written: {0}")]
    Failed(#[from] io::Error),
}

impl Leases {
    /// Opens the leases in `DIR/leases`, and creates a missing directory.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created, or the [boot id](clock::boot_id) cannot be read.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let disk = Disk::open(&dir.join("leases"))?;
        Ok(Self { disk, boot: clock::boot_id()?.into(), hints: Arc::default() })
    }

    /// Removes the hidden files of killed writers. The operator calls it when it starts. If the
    /// hidden file of a live writer is removed, the write fails without an effect.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read, or a file cannot be removed.
    pub fn sweep(&self) -> io::Result<()> {
        self.disk.sweep()
    }

    /// Writes the lease of `session` for the session itself, or creates it. At most one write from
    /// each version succeeds.
    ///
    /// # Errors
    ///
    /// [`LeaseWriteError::Conflict`] if the lease is not the expected one, or has no holder. Nothing
    /// was written, unless this writer was frozen after its write and others wrote after it.
    pub fn write(
        &self,
        session: &SessionId,
        write: &LeaseWrite,
    ) -> Result<LeaseVersion, LeaseWriteError> {
        self.replace(session, write.expected, |stored, version| {
            write.onto(stored, version).map_err(|_| LeaseWriteError::Conflict)
        })
    }

    /// Revokes the lease of `session` if it is still in the state that was `seen`. Success proves
    /// that the session has written nothing since, and never will again.
    ///
    /// # Errors
    ///
    /// [`LeaseWriteError::Conflict`] if the lease changed, is missing, or has no holder. This call
    /// does not revoke it then.
    pub fn revoke(
        &self,
        session: &SessionId,
        seen: LeaseVersion,
    ) -> Result<LeaseVersion, LeaseWriteError> {
        self.replace(session, Some(seen), |stored, version| {
            let stored = stored.ok_or(LeaseWriteError::Conflict)?;
            let revoked = stored.revoke(seen, version);
            revoked.map_err(|_| LeaseWriteError::Conflict)
        })
    }

    fn replace(
        &self,
        session: &SessionId,
        expected: Option<LeaseVersion>,
        next: impl FnOnce(Option<&Lease>, LeaseVersion) -> Result<Lease, LeaseWriteError>,
    ) -> Result<LeaseVersion, LeaseWriteError> {
        let name = name(session)?;
        let chain = Chain { names: &self.disk, session: &name };
        let written = match expected {
            None => {
                let lease = next(None, LeaseVersion(1))?;
                let birth = Document::new(&lease, &self.boot)?;
                chain.create(birth, &Document::new(&lease, &self.boot)?)
            }
            Some(LeaseVersion(version)) => {
                let state = chain.at(version)?.filter(|state| state.version == version);
                let state = state.ok_or(LeaseWriteError::Conflict)?;
                let stored = self.lease(&name, &state)?;
                let after = version.checked_add(1).ok_or(LeaseWriteError::Conflict)?;
                if stored.holder != Holder::Session {
                    return Err(LeaseWriteError::Conflict);
                }
                let lease = next(Some(&stored), LeaseVersion(after))?;
                chain.append(&state, Document::new(&lease, &self.boot)?)
            }
        }?;
        let version = written.ok_or(LeaseWriteError::Conflict)?;
        self.hint(&name, Some(version));
        Ok(LeaseVersion(version))
    }

    /// Reads the lease of `session`. The result was the newest state at some time during this call.
    /// `None` means that the lease was never created, or was removed.
    ///
    /// # Errors
    ///
    /// If a file cannot be read; the error names it.
    pub fn read(&self, session: &SessionId) -> io::Result<Option<Lease>> {
        let name = name(session)?;
        let chain = Chain { names: &self.disk, session: &name };
        let hint = self.hints.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
        let state = chain.newest(hint)?;
        self.hint(&name, state.as_ref().map(|state| state.version));
        state.map(|state| self.lease(&name, &state)).transpose()
    }

    /// Returns the sessions that have a lease or leftover files of one, in order.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<SessionId>> {
        let sessions: BTreeSet<_> = self.versions()?.into_keys().collect();
        Ok(sessions.into_iter().collect())
    }

    /// Removes the lease of a session that has ended and that nothing refers to any more. A concurrent
    /// write may still succeed, without effect.
    ///
    /// # Errors
    ///
    /// If a file cannot be removed; call it again.
    pub fn remove(&self, session: &SessionId) -> io::Result<()> {
        let name = name(session)?;
        self.hint(&name, None);
        Chain { names: &self.disk, session: &name }.remove()
    }

    /// Returns the sessions in the directory with their highest versions. A state that is added
    /// while the directory is read may be missing.
    fn versions(&self) -> io::Result<BTreeMap<SessionId, u64>> {
        let mut versions = BTreeMap::new();
        for (session, version) in self.disk.list()?.iter().filter_map(|name| parse_name(name)) {
            let highest = versions.entry(session).or_insert(version);
            *highest = version.max(*highest);
        }
        Ok(versions)
    }

    fn lease(&self, name: &str, state: &State) -> io::Result<Lease> {
        let State { version, document } = state;
        let lease = document.lease(LeaseVersion(*version), &self.boot);
        lease.map_err(|reason| self.disk.unreadable(&file_name(name, *version), &reason))
    }

    fn hint(&self, name: &str, version: Option<u64>) {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        match version {
            Some(version) => _ = hints.insert(name.to_owned(), version),
            None => _ = hints.remove(name),
        }
    }
}

/// Returns the name of a session for the names of its files.
pub(crate) fn name(session: &SessionId) -> io::Result<String> {
    let name = session.to_string();
    let refuse = |reason: &str| {
        let reason = format!("session `{}` has no lease: {reason}", name.escape_debug());
        Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
    };
    if session.is_plain() {
        return refuse("a plain worker does not speak the protocol");
    }
    if name.len() > NAME_BYTES_MAX {
        return refuse("its name is longer than 200 bytes");
    }
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.starts_with(['.', '-']) || !name.bytes().all(is_safe) {
        return refuse(
            "its name must be letters, digits, `-`, `_` and `.`, a letter or digit first",
        );
    }
    Ok(name)
}

/// Returns the name of the file of one state.
fn file_name(session: &str, version: u64) -> String {
    format!("{session}.{version}")
}

/// Parses the name of a state's file into its session and version; `None` for any other file.
fn parse_name(file: &str) -> Option<(SessionId, u64)> {
    let (session, digits) = file.rsplit_once('.')?;
    let version = digits.parse::<u64>().ok()?;
    let id = SessionId::from_stored(session);
    let is_ours = name(&id).ok()? == session && file_name(session, version) == file;
    is_ours.then_some((id, version))
}
