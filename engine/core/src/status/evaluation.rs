//! The findings about an object, from which its phase and conditions follow.

use crate::spec::Cause;
use crate::{ConditionState, ConditionType, Name};

/// The findings about an object, from which its phase and conditions follow.
#[derive(Debug, Default)]
pub(crate) struct Evaluation {
    /// The cause, if the spec can't be used.
    pub cause: Option<Cause>,
    /// The message of the target or check that refused it.
    pub refused: Option<String>,
    /// The error stays until the spec changes.
    pub permanent: bool,
    /// The message about the first hop that is not confirmed yet.
    pub waiting: Option<String>,
    /// The node of the first hop that is not confirmed yet.
    pub waits_on: Option<Name>,
    /// The message about a target that does not answer.
    pub unreachable: Option<String>,
    /// The message about drift on a switch port that is only reported.
    pub drifted: Option<String>,
    /// The hash of its inputs: a ready object goes back to pending only when it changes. `None` for objects that wait
    /// for nothing, and for those that are as ready as what they wait for.
    pub inputs: Option<u64>,
    /// Its endpoints can't reach each other.
    pub gap: bool,
    /// Further conditions.
    pub conditions: Vec<ConditionState>,
    /// The parts of its path, each with its condition type and what hinders it: whether it was refused, and the
    /// message.
    pub hops: Vec<(ConditionType, Option<(bool, String)>)>,
    /// The message when the object is gone, such as what may be left on nodes that are not ready.
    pub final_message: String,
}

impl Evaluation {
    /// The evaluation of a spec that can't be used.
    pub fn invalid(cause: Cause) -> Self {
        Self { cause: Some(cause), permanent: cause == Cause::Spec, ..Self::default() }
    }

    /// Refuses it with a transient error.
    pub fn refuse(&mut self, message: String) {
        self.reject(message, true);
    }

    /// Refuses it. `transient`: the error may pass while the spec stays as it is. The first message stays.
    pub fn reject(&mut self, message: String, transient: bool) {
        if self.refused.is_none() {
            (self.refused, self.permanent) = (Some(message), !transient);
        }
    }

    /// Waits. The first message stays.
    pub fn wait(&mut self, message: String) {
        self.wait_with(|| message);
    }

    /// Waits; the message is made only if it is the first.
    pub fn wait_with(&mut self, message: impl FnOnce() -> String) {
        self.waiting.get_or_insert_with(message);
    }

    /// Waits for a node. The object is evaluated again when the node reports.
    pub fn wait_for(&mut self, node: &Name, message: impl FnOnce() -> String) {
        if self.waits_on.is_none() {
            self.waits_on = Some(node.clone());
        }
        if self.waiting.is_none() {
            self.waiting = Some(message());
        }
    }

    /// Adds the findings about one part of the path.
    pub fn add_hop(&mut self, kind: ConditionType, part: Self) {
        let hindered = part.refused.clone().map(|message| (true, message));
        self.hops.push((kind, hindered.or_else(|| part.waiting.clone().map(|message| (false, message)))));
        part.refused.into_iter().for_each(|message| self.reject(message, !part.permanent));
        part.waiting.into_iter().for_each(|message| self.wait(message));
        self.waits_on = self.waits_on.take().or(part.waits_on);
        self.unreachable = self.unreachable.take().or(part.unreachable);
        self.drifted = self.drifted.take().or(part.drifted);
    }
}
