//! The condition UnknownOpts: keys in `Opts` of a ConnectionPoint that have no effect. It is no error: the object is
//! as ready as without them.

use crate::{ConditionReason, ConditionState, ConditionType, Key};

use crate::engine::Engine;
use crate::status::evaluate::Evaluation;

impl Engine {
    /// Adds the condition if it holds.
    pub(crate) fn note_unknown_opts(&self, key: &Key, evaluation: &mut Evaluation) {
        let unknown = self.store.records.get(key).filter(|record| !record.deleting);
        if let Some(message) = unknown.and_then(|record| record.unknown_opts.as_deref()) {
            evaluation.conditions.push(ConditionState::new(
                ConditionType::UnknownOpts,
                true,
                ConditionReason::UnknownKey,
                message.to_owned(),
            ));
        }
    }
}
