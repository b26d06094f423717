//! Keeps a history within a number of bytes.

use super::{Episode, JobEdit, JobMove};
use crate::JobName;

/// An upper bound of the bytes of an episode in JSON, without texts and moves.
pub(super) const EPISODE: usize = 370;

/// An upper bound of the bytes of an edit of jobs in JSON, without texts.
const EDIT: usize = 65;

/// The edits of an episode have at most the bytes of the history divided by this.
pub(super) const EDITS_SHARE: usize = 8;

/// An upper bound of the bytes of a move in JSON, without texts.
const MOVE: usize = 240;

/// Shortens a history until its JSON has at most about `bytes_max` bytes. The newest episodes come
/// last.
///
/// Edits of an episode beyond an eighth of the room are only counted. The oldest episodes go first,
/// until all others need half of the room without their moves. Then the newest moves keep their
/// details, and older ones are only counted. O(episodes + moves + edits).
///
/// ```
/// use swarm_core::history::{Episode, fit};
///
/// let mut episodes = vec![Episode::default(); 1_000];
/// fit(&mut episodes, 16 * 1024);
/// assert!(20 < episodes.len() && episodes.len() < 100);
/// ```
pub fn fit(episodes: &mut Vec<Episode>, bytes_max: usize) {
    for episode in &mut *episodes {
        fit_edits(episode, bytes_max / EDITS_SHARE);
    }
    let mut left = bytes_max / 2;
    let newest = episodes.iter().rev().map(header).take_while(|size| {
        let fits = *size <= left;
        left = left.saturating_sub(*size);
        fits
    });
    let kept = newest.count();
    episodes.drain(..episodes.len() - kept);
    let headers: usize = episodes.iter().map(header).sum();
    let mut left = bytes_max.saturating_sub(headers);
    for episode in episodes.iter_mut().rev() {
        let fitting = episode.moves.iter().take_while(|it| {
            let size = size(it);
            let fits = size <= left;
            left = if fits { left - size } else { 0 };
            fits
        });
        let kept = fitting.count();
        let omitted = (episode.moves.len() - kept) as u64;
        episode.omitted = episode.omitted.saturating_add(omitted);
        episode.moves.truncate(kept);
    }
}

/// Leaves out edited jobs of an episode until its edits have at most `bytes_max` bytes. The newest ones
/// are kept.
pub(super) fn fit_edits(episode: &mut Episode, bytes_max: usize) {
    let mut left = bytes_max;
    episode.keep_edited(|edit| {
        let fits = |size: usize| {
            let fits = size <= left;
            left = if fits { left - size } else { 0 };
            fits
        };
        let sizes = edit.jobs.iter().map(|job| text(job.as_str()) + 1);
        let head = EDIT + edit.fields.iter().map(|it| text(it) + 1).sum::<usize>();
        // The head counts with the first job, since no edit is kept without a job.
        let sizes = sizes.enumerate().map(|(n, size)| if n == 0 { head + size } else { size });
        sizes.map(fits).take_while(|fits| *fits).count()
    });
}

/// Returns an upper bound of the bytes of an episode with its details.
#[cfg(feature = "serde")]
pub(super) fn whole(episode: &Episode) -> usize {
    header(episode) + episode.moves.iter().map(size).sum::<usize>()
}

fn header(episode: &Episode) -> usize {
    let causes: usize = episode.causes.iter().map(|it| text(it) + 1).sum();
    let counts: usize = episode.counts.keys().map(|it| text(it) + 22).sum();
    let edits: usize = episode.edits.iter().map(edit).sum();
    EPISODE + causes + counts + edits
}

fn edit(it: &JobEdit) -> usize {
    let names = it.jobs.iter().map(JobName::as_str);
    EDIT + it.fields.iter().map(String::as_str).chain(names).map(|it| text(it) + 1).sum::<usize>()
}

fn size(it: &JobMove) -> usize {
    let workers = [&it.from, &it.to].into_iter().flatten();
    MOVE + text(it.job.as_str()) + text(&it.reason) + workers.map(|it| text(it)).sum::<usize>()
}

/// Returns the bytes of a string in JSON.
pub(crate) fn text(text: &str) -> usize {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 | 0x7f => 6,
        _ => 1,
    };
    2 + text.bytes().map(byte).sum::<usize>()
}
