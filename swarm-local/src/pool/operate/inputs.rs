//! The wishes of the user: the file with its edits, and the requests of a person.

use std::path::Path;
use std::time::Instant;

use swarm_adapters_host::clock::unix_s;
use swarm_spec::removal::Removal;
use swarm_terminal::hands::Request;
use swarm_view::status::InvalidFile;
use tokio::sync::mpsc;

use super::removed::Removed;
use crate::pool::by_hand::ByHand;
use crate::pool::outlets::Voice;
use crate::print::text;
use crate::settings::input::{Edit, Input, Wanted};

/// The sources of requests: the file, and a person.
pub(crate) struct Sources {
    pub(crate) input: Input,
    pub(crate) requests: mpsc::Receiver<Request>,
}

/// The sources, and the present wishes that follow from them.
pub(super) struct Inputs {
    pub(super) sources: Sources,
    pub(super) by_hand: ByHand,
    pub(super) wanted: Wanted,
    /// The edited fields of the file that the history does not have.
    pub(super) edits: Vec<String>,
    /// The error of the file, while it is invalid.
    pub(super) invalid_file: Option<InvalidFile>,
    /// The last edit that removed many jobs.
    pub(super) removed: Removed,
}

impl Inputs {
    /// Follows `sources` from the contents `wanted` of the file on. The suspensions by hand are in the
    /// state directory `dir`.
    pub(super) fn open(sources: Sources, mut wanted: Wanted, dir: &Path) -> anyhow::Result<Self> {
        let mut by_hand = ByHand::open(dir).map_err(anyhow::Error::msg)?;
        if let Some(sentence) = by_hand.apply(&mut wanted.desired.jobs) {
            tracing::warn!("{sentence}");
        }
        let (edits, invalid_file, removed) = (Vec::new(), None, Removed::open(dir));
        Ok(Self { sources, by_hand, wanted, edits, invalid_file, removed })
    }

    /// Takes over an edit of the file. Returns its time if the wishes are new. `diff` is the command
    /// that shows the added and removed jobs.
    pub(super) fn edit(&mut self, edit: Edit, diff: &str, voice: &Voice) -> Option<Instant> {
        let shown = self.sources.input.shown();
        match edit {
            Edit::Valid(wanted, noticed) => {
                let (before, after) = (&self.wanted.desired.jobs, &wanted.desired.jobs);
                let sentence = |it: Removal| it.sentence(shown, diff);
                if let Some(sentence) = self.removed.note(before, after, unix_s(), sentence) {
                    voice.complain(sentence);
                }
                self.edits.extend(wanted.fields.edits(&self.wanted.fields));
                self.wanted = *wanted;
                if let Some(sentence) = self.by_hand.apply(&mut self.wanted.desired.jobs) {
                    voice.complain(&sentence);
                }
                self.invalid_file = None;
                return Some(noticed);
            }
            Edit::Invalid(explained) => {
                voice.refuse(&explained);
                self.invalid_file = Some(InvalidFile::of(explained, unix_s()));
            }
            Edit::Waits(writer) => voice.complain(&text::waiting_edit(shown, &writer)),
        }
        None
    }
}
