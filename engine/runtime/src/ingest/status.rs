//! A status as the engine wrote it, read back when an object is first seen.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use eno_core::spec::Spec;
use eno_core::{Condition, Kind, Name, Status};
use eno_nbi_crds as crds;
use eno_schemas::{DeviceInfo, Phase, VlanId};
use serde::Deserialize as _;
use serde_json::Value;

/// The core's status of an object of `kind`. What can't be read counts as never said.
pub fn status(kind: Kind, value: &Value) -> Option<Status> {
    let source = crds::Status::deserialize(value).ok()?;
    let device = DeviceInfo {
        dialect: source.dialect,
        capabilities: source.capabilities,
        host_key_fingerprint: source.host_key_fingerprint,
    };
    let conditions = source.conditions.into_iter().filter_map(|condition| {
        Some(Condition {
            kind: intern(&condition.type_)?,
            holds: condition.status == "True",
            reason: intern(&condition.reason)?,
            message: condition.message,
            since: Name::from(condition.last_transition_time.0.to_string()),
        })
    });
    Some(Status {
        phase: source.phase.map(phase),
        message: source.message.unwrap_or_default(),
        observed_generation: source.observed_generation.unwrap_or_default(),
        conditions: conditions.collect(),
        transitions: source.transitions.and_then(|count| u64::try_from(count).ok()).unwrap_or_default(),
        granted_id: source.granted_id.and_then(|id| VlanId::new(id).ok()),
        realized: source.realized.and_then(|value| Spec::from_json(kind, value).ok()).map(Arc::new),
        connection_points: source.connection_points.into_iter().map(Name::from).collect(),
        device: (device != DeviceInfo::default()).then_some(device),
    })
}

fn phase(source: crds::Phase) -> Phase {
    match source {
        crds::Phase::Pending => Phase::Pending,
        crds::Phase::Ready => Phase::Ready,
        crds::Phase::Error => Phase::Error,
        crds::Phase::Terminating => Phase::Terminating,
        crds::Phase::Deleted => Phase::Deleted,
    }
}

/// Condition types and reasons are a small fixed set of words, which the core holds as such. Words of other makers are
/// taken up to a bound, so that nothing grows without end.
fn intern(word: &str) -> Option<&'static str> {
    static WORDS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    const MOST: usize = 1024;
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let words = words.get_or_insert_default();
    if let Some(known) = words.get(word) {
        return Some(known);
    }
    if words.len() >= MOST || word.len() > 256 {
        return None;
    }
    let word: &'static str = Box::leak(word.to_owned().into_boxed_str());
    words.insert(word);
    Some(word)
}
