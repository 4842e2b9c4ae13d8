//! A target that is confirmed or refused as a whole.

use eno_schemas::{Desired, Failure, Item, Note, Outcome, Rejection, Report};

use crate::status::hop::HopState;

/// The state of a target that is confirmed or refused as a whole.
#[derive(Debug, Default)]
pub struct WholeTarget {
    /// The hash of the desired state, to compare with that of a report.
    hash: Box<str>,
    /// The last report.
    reported: Option<LastReport>,
}

#[derive(Debug)]
struct LastReport {
    /// The hash of the reported state.
    hash: Box<str>,
    /// The rejections. A failure counts as one, since the target is all that the report is about.
    rejected: Vec<Rejection>,
    notes: Vec<Note>,
}

impl WholeTarget {
    /// Sets the desired state. Returns true when it is new.
    pub fn want(&mut self, desired: &Desired) -> bool {
        let hash = desired.hash().into_boxed_str();
        let is_new = hash != self.hash;
        self.hash = hash;
        is_new
    }

    /// The hash of the desired state.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The desired state could not be rendered, since a referenced object is gone. It counts as new when that is
    /// back.
    pub fn mark_unpublished(&mut self) {
        self.hash = "".into();
    }

    /// Processes a report of the driver.
    pub fn report(&mut self, report: Report) {
        let rejected = match report.outcome {
            Outcome::Held | Outcome::RolledBack { .. } | Outcome::Progress { .. } => return,
            Outcome::Failed(Failure { reason, retryable, unreachable }) => {
                vec![Rejection { item: Item::TARGET, reason, retryable, unreachable }]
            }
            Outcome::Applied => report.rejected,
        };
        let hash = report.generation.hash.into_boxed_str();
        self.reported = Some(LastReport { hash, rejected, notes: report.notes });
    }

    /// Its state.
    pub fn hop(&self) -> HopState<'_> {
        let last = self.last();
        HopState::of_report(last.into_iter().flat_map(|last| &last.rejected), last.is_some(), None)
    }

    /// What the driver says of it.
    pub fn notes(&self) -> impl Iterator<Item = &Note> {
        self.last().into_iter().flat_map(|last| &last.notes)
    }

    /// The last report, if it is about the desired state.
    fn last(&self) -> Option<&LastReport> {
        self.reported.as_ref().filter(|last| last.hash == self.hash)
    }
}
