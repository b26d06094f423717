//! The stub of sessions in a pod for builds without the feature `kubernetes`.

use std::convert::Infallible;

use crate::Failure;
use crate::args::RunArgs;
use crate::jobs::Tools;
use crate::session::{Shared, Shutdown};

/// An uninhabited type: this program has no client for a pod.
pub(crate) struct Pod(Infallible);

impl Pod {
    pub(crate) fn new(_: &RunArgs) -> Result<Self, Failure> {
        let sentence = "this program was built without the feature `kubernetes` and opens no session \
                        in a cluster; use swarm-worker, or --protocol plain";
        Err(Failure::Usage(sentence.to_owned()))
    }

    #[expect(clippy::unused_async, reason = "the signature is that of sessions in a pod")]
    pub(crate) async fn run_sessions(
        &self,
        _: &Tools,
        _: &Shared,
        _: &Shutdown,
    ) -> Result<(), Failure> {
        match self.0 {}
    }
}
