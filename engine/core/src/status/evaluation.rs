//! The findings about an object, from which its phase and conditions follow.

use crate::kinds::Cause;
use crate::status::hop::{Hop, HopState, Part, Wait};
use crate::{ConditionReason, ConditionState, ConditionType, Name};

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
    /// The switch of the first hop that is not confirmed yet, or not gone yet, if the message is about one.
    pub awaited: Option<Name>,
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
    /// What probes tell of it. `None`: it is not probed.
    pub verified: Option<Verified>,
    /// Further conditions.
    pub conditions: Vec<ConditionState>,
    /// The parts of its path, each with its condition type and what hinders it: whether it was refused, and the
    /// message.
    pub parts: Vec<(ConditionType, Option<(bool, String)>)>,
    /// The message when the object is gone, such as what may be left on nodes that are not ready.
    pub final_message: String,
}

/// What probes tell of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The condition.
    pub state: ConditionState,
    /// What the verdict waits for; `None`: it is there, or will never be.
    pub awaits: Option<Awaited>,
}

/// What a verdict waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The path of the VLANs.
    Path,
    /// The first answers.
    Answers,
}

impl Verified {
    /// A verdict.
    pub fn new(holds: bool, reason: ConditionReason, message: impl Into<String>) -> Self {
        let state = ConditionState::new(ConditionType::Verified, holds, reason, message);
        Self { state, awaits: None }
    }

    /// Nothing can be asked, for this reason.
    pub fn impossible(why: impl Into<String>) -> Self {
        Self::new(false, ConditionReason::CannotProbe, why)
    }

    /// Nothing is asked, for this reason. It may be later.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::new(false, ConditionReason::NotProbed, why)
    }

    /// The verdict is to come.
    pub fn awaited() -> Self {
        Self { awaits: Some(Awaited::Answers), ..Self::unknown("not probed yet") }
    }

    /// Nothing is asked until the path is confirmed.
    pub fn without_path() -> Self {
        Self { awaits: Some(Awaited::Path), ..Self::unknown("its path is not confirmed") }
    }

    /// Something is wrong.
    pub fn fails(&self) -> bool {
        !self.state.holds && !self.state.reason.is_unknown()
    }
}

impl Evaluation {
    /// The evaluation of a spec that can't be used.
    pub fn invalid(cause: Cause) -> Self {
        Self { cause: Some(cause), permanent: cause == Cause::Spec, ..Self::default() }
    }

    /// Adds a condition that does not change its phase.
    pub fn note(
        &mut self,
        kind: ConditionType,
        holds: bool,
        reason: ConditionReason,
        message: impl Into<String>,
    ) {
        self.conditions.push(ConditionState::new(kind, holds, reason, message));
    }

    /// Takes a hop of its path into account. The first messages stay.
    pub fn add(&mut self, hop: &Hop<'_>) {
        if self.unreachable.is_none() {
            self.unreachable = hop.unreachable_target();
        }
        match &hop.state {
            state if state.is_there() => {}
            HopState::Refused { retryable, .. } if !hop.is_retried() => {
                if self.refused.is_none() {
                    (self.refused, self.permanent) = (hop.message(), !retryable);
                }
            }
            state => {
                if self.waits_on.is_none() {
                    self.waits_on = hop.part.node().cloned();
                }
                if *state == HopState::Waiting(Wait::Drift) && self.drifted.is_none() {
                    self.drifted = hop.message();
                }
                if self.waiting.is_none() {
                    if let Part::Port { device, .. } = hop.part {
                        self.awaited = Some(device.clone());
                    }
                    self.waiting = hop.message();
                }
            }
        }
    }

    /// Adds the findings about one part of the path.
    pub fn add_part(&mut self, kind: ConditionType, part: Self) {
        self.parts.push((kind, part.hindrance()));
        if self.refused.is_none() && part.refused.is_some() {
            (self.refused, self.permanent) = (part.refused, part.permanent);
        }
        self.waiting = self.waiting.take().or(part.waiting);
        self.waits_on = self.waits_on.take().or(part.waits_on);
        self.unreachable = self.unreachable.take().or(part.unreachable);
        self.drifted = self.drifted.take().or(part.drifted);
    }

    /// What hinders it: whether it was refused, and the message.
    pub fn hindrance(&self) -> Option<(bool, String)> {
        let refused = self.refused.clone().map(|message| (true, message));
        refused.or_else(|| Some((false, self.waiting.clone()?)))
    }
}
