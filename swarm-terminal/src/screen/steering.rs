//! Actions on the selected job.

use swarm_view::action::Action;

use super::model::{Focus, Model, Page};
use super::questions::{Note, Question, Wish};
use super::window::Key;
use crate::hands::Answer;
use crate::scene::Ends;

impl Model {
    /// Answers the open question with a key; `None` without a question.
    pub(super) fn answered(&mut self, key: Key) -> Option<Wish> {
        let question = self.asks.take()?;
        Some(if key == Key::Char('y') { question.wish() } else { Wish::Nothing })
    }

    /// Acts on the selected job as a key says, after a question if a run of it stops. Returns `None`
    /// for other keys.
    pub(super) fn steered(&mut self, key: Key) -> Option<Wish> {
        let Key::Char(sign @ ('r' | 's' | 't')) = key else { return None };
        if self.ends == Ends::Reader {
            return None;
        }
        let Some(job) = self.steered_job() else {
            let text = "select a job first: Tab goes to the jobs".to_owned();
            self.note = Some(Note { text, is_problem: true });
            return Some(Wish::Nothing);
        };
        let action = match sign {
            'r' => Action::Restart,
            't' => Action::Retry,
            _ if self.is_suspended(&job) => Action::Resume,
            _ => Action::Suspend,
        };
        // A job that is resumed or retried has no run.
        if matches!(action, Action::Resume | Action::Retry) {
            return Some(Wish::Act(action, job));
        }
        self.asks = Some(Question::Act(action, job));
        Some(Wish::Nothing)
    }

    /// Returns the job whose page is open, or the selected job if the list has the focus.
    fn steered_job(&self) -> Option<String> {
        match &self.page {
            Page::Job(page) => Some(page.job.clone()),
            Page::Pool if self.focus == Focus::Jobs => {
                self.selected_job().map(|job| job.name.clone())
            }
            Page::Pool | Page::Help => None,
        }
    }

    fn is_suspended(&self, job: &str) -> bool {
        self.scene.job(job).is_some_and(|it| it.unassigned.as_deref() == Some("suspended"))
    }

    /// Shows the result of an action.
    pub(super) fn on_answer(&mut self, answer: Answer) {
        let is_problem = answer.is_err();
        let (Ok(text) | Err(text)) = answer;
        self.note = Some(Note { text, is_problem });
    }
}
