//! The wishes of the user: the file with its edits, and the requests of a person.

use std::path::Path;
use std::time::{Duration, Instant};

use swarm_adapters_host::clock::unix_s;
use swarm_spec::removal::SHOWN_FOR;
use swarm_terminal::hands::Request;
use swarm_view::status::InvalidFile;
use tokio::sync::mpsc;

use crate::pool::by_hand::ByHand;
use crate::pool::outlets::Voice;
use crate::print::text;
use crate::settings::input::{self, Edit, Input, Wanted};

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
    /// The last edit that removed many jobs: their number, a sentence, and its time.
    removal: Option<(usize, String, Instant)>,
}

impl Inputs {
    /// Follows `sources` from the contents `wanted` of the file on. The suspensions by hand are in the
    /// state directory `dir`.
    pub(super) fn open(sources: Sources, mut wanted: Wanted, dir: &Path) -> anyhow::Result<Self> {
        let mut by_hand = ByHand::open(dir).map_err(anyhow::Error::msg)?;
        if let Some(sentence) = by_hand.apply(&mut wanted.desired.jobs) {
            tracing::warn!("{sentence}");
        }
        let (edits, invalid_file, removal) = (Vec::new(), None, None);
        Ok(Self { sources, by_hand, wanted, edits, invalid_file, removal })
    }

    /// Takes over an edit of the file. Returns its time if the wishes are new. `diff` is the command
    /// that shows the added and removed jobs.
    pub(super) fn edit(&mut self, edit: Edit, diff: &str, voice: &Voice) -> Option<Instant> {
        let shown = self.sources.input.shown();
        match edit {
            Edit::Valid(wanted, noticed) => {
                if let Some((removed, sentence)) =
                    input::announced(shown, diff, &self.wanted, &wanted)
                {
                    voice.complain(&sentence);
                    self.removal = Some((removed, sentence, Instant::now()));
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

    /// Returns the sentence about an edit within the last hour that removed many jobs.
    pub(super) fn removal(&self) -> Option<&str> {
        self.removal.as_ref().map(|(_, sentence, _)| sentence.as_str())
    }

    /// Returns the number of jobs that this edit removed; 0 without one.
    pub(super) fn removed(&self) -> usize {
        self.removal.as_ref().map_or(0, |(removed, ..)| *removed)
    }

    /// Forgets that edit after its hour. Returns whether it did so just now.
    pub(super) fn forget_removal(&mut self) -> bool {
        self.removal.take_if(|(.., at)| SHOWN_FOR <= at.elapsed()).is_some()
    }

    /// Returns the time until that edit is forgotten.
    pub(super) fn forgets_in(&self) -> Option<Duration> {
        self.removal.as_ref().map(|(.., at)| SHOWN_FOR.saturating_sub(at.elapsed()))
    }
}
