//! Sessions in a pod where the feature `kubernetes` is off: there are none.

use std::convert::Infallible;

use crate::Failure;
use crate::args::RunArgs;
use crate::jobs::Tools;
use crate::session::{Shared, Shutdown};

/// A pod that this program has no client for.
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
