//! The conditions of a FabricDevice that follow from the notes of its driver.

use eno_schemas::{Item, Rejection, Rollback};

use super::DeviceTarget;
use crate::status::evaluation::Evaluation;
use crate::{ConditionReason, ConditionType};

/// Maximum bytes of notes of one kind that a condition shows.
const MAX_NOTE_BYTES: usize = 4000;

/// The kinds of a driver's notes that are conditions of the device, by the name of the condition.
const NOTED_CONDITIONS: [ConditionType; 10] = [
    ConditionType::ClusterIdClash,
    ConditionType::Drift,
    ConditionType::NoBgpState,
    ConditionType::NoConfirmedCommit,
    ConditionType::NoMacTable,
    ConditionType::NoRunningLock,
    ConditionType::OpenTrunk,
    ConditionType::StartupNotSaved,
    ConditionType::TrunkNotActive,
    ConditionType::VlanTakenOff,
];

impl DeviceTarget {
    /// The driver's message about another cluster with our cluster ID. While there is one, it removes nothing from
    /// the switch.
    pub fn clash(&self) -> Option<&str> {
        self.notes
            .iter()
            .find(|note| note.kind == ConditionType::ClusterIdClash.as_ref())
            .map(|note| note.message.as_str())
    }

    /// Adds the conditions of the device.
    pub fn note_conditions(&self, evaluation: &mut Evaluation) {
        if self.last_answered.is_some() {
            let failure = self.failure.as_ref().filter(|failure| failure.unreachable);
            let (reason, message) = failure.map_or((ConditionReason::Answers, ""), |failure| {
                (ConditionReason::Unreachable, &*failure.reason)
            });
            evaluation.note(ConditionType::Reachable, failure.is_none(), reason, message);
        }
        if let Some(rollback) = self.info.as_ref().and_then(|info| info.rollback) {
            let (reason, message) = rollback_reason(rollback);
            evaluation.note(ConditionType::CanRollBack, rollback != Rollback::None, reason, message);
        }
        if self.held {
            let message = "its change is held until every switch of the transaction has verified its own";
            evaluation.note(ConditionType::Held, true, ConditionReason::Transaction, message);
        }
        for kind in NOTED_CONDITIONS {
            let notes = self.notes.iter().filter(|note| note.kind == kind.as_ref());
            let notes: Vec<&str> = notes.map(|note| note.message.as_str()).collect();
            if !notes.is_empty() {
                let repaired = self.repaired.as_ref().filter(|_| kind == ConditionType::Drift);
                let when = repaired.map(|at| format!("; put right at {at}")).unwrap_or_default();
                evaluation.note(kind, true, ConditionReason::ReportedByDriver, listed(&notes) + &when);
            } else if kind == ConditionType::Drift && self.known {
                evaluation.note(kind, false, ConditionReason::AsWanted, "");
            }
        }
    }

    /// The rejections that concern the device as a whole. One of a VRF concerns the VRF.
    pub fn refusals(&self) -> impl Iterator<Item = &Rejection> {
        self.rejected.iter().filter(|rejection| {
            let item = &rejection.item;
            *item == Item::TARGET || (item.vlan.is_none() && item.vrf.is_none())
        })
    }
}

fn rollback_reason(rollback: Rollback) -> (ConditionReason, &'static str) {
    match rollback {
        Rollback::Persistent => (
            ConditionReason::Persistent,
            "the device takes a change back by itself unless it is confirmed in time; changes that touch several \
             devices are confirmed on all or taken back on all",
        ),
        Rollback::Session => (
            ConditionReason::Session,
            "the device takes a change back by itself when the session ends or it is not confirmed in time; changes \
             that touch several devices are confirmed on all or taken back on all",
        ),
        Rollback::None => (
            ConditionReason::NotSupported,
            "what was changed can't be taken back: a change that fails midway is undone or completed by later ones, \
             and one that touches several devices follows once those that can hold theirs have confirmed",
        ),
    }
}

/// Joins as many notes as a message has room for ([`MAX_NOTE_BYTES`]).
fn listed(notes: &[&str]) -> String {
    let mut text = String::new();
    for (index, note) in notes.iter().enumerate() {
        if text.len() + note.len() > MAX_NOTE_BYTES && index > 0 {
            text.push_str("; and ");
            text.push_str(&(notes.len() - index).to_string());
            text.push_str(" more");
            break;
        }
        if index > 0 {
            text.push_str("; ");
        }
        text.push_str(note.get(..note.floor_char_boundary(MAX_NOTE_BYTES)).unwrap_or_default());
    }
    text
}
