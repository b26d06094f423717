//! What one session is to run, with all that its worker has to know of the jobs.
//!
//! To the session's machine only the tokens matter: a [`WorkerView`] becomes a [`SessionView`].

use std::collections::BTreeMap;

use crate::handover::{SessionId, SessionView};
use crate::{JobName, Token};

/// What one session is to run, with all it needs to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// For whom it is.
    pub session: SessionId,
    /// The life of the ledger.
    pub incarnation: u64,
    /// The ledger's revision.
    pub revision: u64,
    /// What to run.
    pub jobs: BTreeMap<JobName, Granted>,
}

/// One granted job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The token to run it under.
    pub token: Token,
    /// Whether it is done once it has ended well.
    pub run_once: bool,
    /// What its user gave it.
    pub params: BTreeMap<String, String>,
}

/// Runs until it is stopped, without parameters.
impl From<Token> for Granted {
    fn from(token: Token) -> Self {
        Self { token, run_once: false, params: BTreeMap::new() }
    }
}

impl From<&WorkerView> for SessionView {
    fn from(view: &WorkerView) -> Self {
        let WorkerView { session, incarnation, revision, jobs } = view;
        Self {
            session: session.clone(),
            incarnation: *incarnation,
            revision: *revision,
            jobs: jobs.iter().map(|(job, granted)| (job.clone(), granted.token)).collect(),
        }
    }
}

/// Every job runs until it is stopped, without parameters.
impl From<SessionView> for WorkerView {
    fn from(view: SessionView) -> Self {
        let SessionView { session, incarnation, revision, jobs } = view;
        let jobs = jobs.into_iter().map(|(job, token)| (job, token.into())).collect();
        Self { session, incarnation, revision, jobs }
    }
}
