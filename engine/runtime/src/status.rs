//! What the engine says of an object, as JSON. Pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use eno_core::Status;
use eno_schemas::Phase;
use serde_json::{Map, Value, json};

/// The `status` of an object. Absent fields are not in it, so that it is also the body of a server-side apply.
pub fn to_json(status: &Status) -> Value {
    let mut fields = Map::new();
    if let Some(phase) = status.phase {
        fields.insert("phase".into(), phase.to_string().into());
    }
    if !status.message.is_empty() {
        fields.insert("message".into(), status.message.as_str().into());
    }
    fields.insert("observedGeneration".into(), status.observed_generation.into());
    if !status.conditions.is_empty() {
        let conditions = status.conditions.iter().map(|condition| {
            json!({
                "type": condition.kind,
                "status": if condition.holds { "True" } else { "False" },
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": &*condition.since,
            })
        });
        fields.insert("conditions".into(), conditions.collect());
    }
    fields.insert("transitions".into(), status.transitions.into());
    if let Some(id) = status.granted_id {
        fields.insert("grantedID".into(), id.get().into());
    }
    if let Some(realized) = status.realized.as_deref().and_then(|spec| serde_json::to_value(spec).ok()) {
        fields.insert("realized".into(), realized);
    }
    if !status.connection_points.is_empty() {
        let names = status.connection_points.iter().map(|name| Value::from(&**name));
        fields.insert("connectionPoints".into(), names.collect());
    }
    if let Some(device) = &status.device
        && let Ok(Value::Object(device)) = serde_json::to_value(device)
    {
        fields.extend(device);
    }
    Value::Object(fields)
}

/// Names the content of a status: two are worth one write when this is equal. The number of transitions and the times
/// of conditions are no content, since they change when an object goes away from a phase and comes back to it.
pub fn content(status: &Status) -> u64 {
    let mut plain = status.clone();
    plain.transitions = 0;
    for condition in &mut plain.conditions {
        condition.since = "".into();
    }
    let mut hasher = DefaultHasher::new();
    to_json(&plain).to_string().hash(&mut hasher);
    hasher.finish()
}

/// A phase that often passes within a moment; it is told in the outbox at once, and in the status only if it lasts.
pub fn passes(phase: Option<Phase>) -> bool {
    matches!(phase, Some(Phase::Pending | Phase::Terminating))
}

/// The id of a transition: the same transition always has the same one.
pub fn transition_id(uid: &str, counter: u64) -> String {
    format!("{uid}-{counter}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eno_core::spec::{ServiceSpec, Spec};
    use eno_core::{Condition, Kind};
    use eno_schemas::{DeviceInfo, VlanId};

    use super::*;

    fn full() -> Status {
        let vid = VlanId::new(10).unwrap();
        Status {
            phase: Some(Phase::Ready),
            message: "all hops confirmed".into(),
            observed_generation: 3,
            conditions: vec![Condition {
                kind: "Ready",
                holds: true,
                reason: "Confirmed",
                message: String::new(),
                since: "2026-01-02T03:04:05Z".into(),
            }],
            transitions: 4,
            granted_id: Some(vid),
            realized: Some(Arc::new(Spec::Service(ServiceSpec {
                vid,
                subnets: vec!["sn".into()],
                physical_networks: vec![],
            }))),
            connection_points: vec!["cp".into()],
            device: Some(DeviceInfo { dialect: Some("openconfig".into()), ..DeviceInfo::default() }),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let json = to_json(&full());
        assert_eq!(crate::ingest::status(Kind::L2Service, &json), Some(full()));
        assert_eq!(json["grantedID"], 10);
        assert_eq!(json["dialect"], "openconfig");
        let empty = to_json(&Status::default());
        assert_eq!(empty, json!({ "observedGeneration": 0, "transitions": 0 }));
    }

    #[test]
    fn content_is_more_than_a_count() {
        let mut later = full();
        later.transitions = 6;
        later.conditions[0].since = "2026-01-02T03:04:06Z".into();
        assert_eq!(content(&full()), content(&later));
        later.message = "other".into();
        assert_ne!(content(&full()), content(&later));
    }
}
