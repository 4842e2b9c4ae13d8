//! What an object shows of a request for new probes.

use eno_nbi_crds::{VERIFY_ANNOTATION, Verification, VerifyRequest};
use kube::api::DynamicObject;
use serde::Deserialize as _;
use serde_json::Value;

use crate::inspect::status::{Condition, conditions};

/// The condition that says whether packets pass.
const VERIFIED: &str = "Verified";
/// Its reason where nothing can be probed.
const CANNOT_PROBE: &str = "CannotProbe";
/// Its message before the first results.
const NOT_YET: &str = "not probed yet";

/// What an object shows of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    /// The answer, and what the condition says of packets that are lost.
    Answer(Verification, String),
    /// No answer can come, for this reason.
    Never(String),
    /// Somebody else asked for new probes, or took the annotation away.
    Replaced,
    /// An answer is to come. It has not come for this reason, as far as is known.
    NotYet(String),
    /// The answer can't be read.
    Unreadable(String),
}

/// Tells what an object shows of the request with this nonce.
pub(super) fn seen(object: &DynamicObject, nonce: &str) -> Seen {
    let status = |field: &str| object.data.pointer(&format!("/status/{field}"));
    let verified = verified(object);
    if let Some(answer) = status("verification").filter(|answer| answer["nonce"] == nonce) {
        match Verification::deserialize(answer) {
            Ok(answer) if answer.complete => {
                let lost = verified.filter(|verified| verified.status == "False");
                return Seen::Answer(answer, lost.map(|lost| lost.message).unwrap_or_default());
            }
            Ok(_) => {}
            Err(error) => return Seen::Unreadable(format!("this eno does not know the answer: {error}")),
        }
    }
    if requested(object).is_none_or(|request| request.nonce != nonce) {
        return Seen::Replaced;
    }
    match why_never(object) {
        Some(why) => Seen::Never(why),
        None => Seen::NotYet(why_not_yet(object)),
    }
}

/// The request of an object.
fn requested(object: &DynamicObject) -> Option<VerifyRequest> {
    VerifyRequest::parse(object.metadata.annotations.as_ref()?.get(VERIFY_ANNOTATION)?)
}

/// The condition Verified.
pub(super) fn verified(object: &DynamicObject) -> Option<Condition> {
    conditions(object).into_iter().find(|condition| condition.kind == VERIFIED)
}

/// Why nothing can be probed for an attachment or service. `None`: it can, or may be later. ConnectionPoints don't show it.
pub(super) fn why_never(object: &DynamicObject) -> Option<String> {
    let text = |field: &str| object.data.pointer(&format!("/status/{field}")).and_then(Value::as_str);
    let phase = text("phase")?;
    match verified(object) {
        Some(verified) => (verified.reason == CANNOT_PROBE).then_some(verified.message),
        None if is_point(object) => None,
        None if phase == "ready" => Some(
            "nothing is probed: no attachment uses it, Verify.Mode of its ConnectionPoint is None, the cluster has no \
             agents, or its installation has verify: false"
                .into(),
        ),
        None if matches!(phase, "error" | "terminating" | "deleted") => {
            Some(format!("it is {phase}: {}", text("message").unwrap_or_default()))
        }
        None => None,
    }
}

/// Why an answer has not come.
fn why_not_yet(object: &DynamicObject) -> String {
    let text = |field: &str| object.data.pointer(&format!("/status/{field}")).and_then(Value::as_str);
    let Some(phase) = text("phase") else {
        return "the engine has not reported on it: eno check tells whether it runs".into();
    };
    let verified = verified(object).filter(|verified| verified.status == "Unknown");
    let silent = "an agent of its nodes has not reported: eno check tells which run";
    match verified {
        _ if !matches!(phase, "ready") => {
            format!("it is {phase}, so its path is not confirmed: {}", text("message").unwrap_or_default())
        }
        Some(verified) if verified.message != NOT_YET => verified.message,
        Some(_) => format!("{NOT_YET}: its path is not confirmed, or {silent}"),
        None => silent.into(),
    }
}

fn is_point(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == "ConnectionPoint")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(annotation: &str, status: &Value) -> DynamicObject {
        let object = json!({
            "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2ServiceAttachment",
            "metadata": { "name": "a", "namespace": "ns", "annotations": { (VERIFY_ANNOTATION): annotation } },
            "status": status,
        });
        serde_json::from_value(object).expect("an object")
    }

    fn condition(status: &str, reason: &str, message: &str) -> Value {
        json!({ "type": "Verified", "status": status, "reason": reason, "message": message })
    }

    fn answer(nonce: &str, outcome: &str) -> Value {
        let result = json!({ "from": "node1", "to": "node2", "vlan": 100, "outcome": outcome });
        json!({ "nonce": nonce, "complete": true, "results": [result] })
    }

    #[test]
    fn answer_is_that_of_the_nonce() {
        let ask = r#"{"nonce": "mine"}"#;
        let lost = condition("False", "Lost", "leaf1 Ethernet1");
        let with = |answer: Value| json!({ "phase": "ready", "conditions": [lost], "verification": answer });
        let Seen::Answer(found, message) = seen(&object(ask, &with(answer("mine", "lost"))), "mine") else {
            panic!("no answer")
        };
        assert_eq!((found.results.len(), &*message), (1, "leaf1 Ethernet1"));
        // Another nonce's answer is none; nor is one that this program does not know.
        assert!(matches!(seen(&object(ask, &with(answer("before", "lost"))), "mine"), Seen::NotYet(_)));
        assert!(matches!(seen(&object(ask, &with(answer("mine", "new"))), "mine"), Seen::Unreadable(_)));
        // The annotation may be gone once the answer is there.
        assert!(matches!(seen(&object("", &with(answer("mine", "lost"))), "mine"), Seen::Answer(..)));
        assert_eq!(
            seen(&object(r#"{"nonce": "other"}"#, &json!({ "phase": "ready" })), "mine"),
            Seen::Replaced
        );
        assert_eq!(seen(&object("no JSON", &json!({ "phase": "ready" })), "mine"), Seen::Replaced);
    }

    #[test]
    fn reason_tells_whether_an_answer_can_come() {
        let ask = r#"{"nonce": "mine"}"#;
        let unknown = |reason, message| json!({ "phase": "ready", "conditions": [condition("Unknown", reason, message)] });
        let never = |text: &str| Seen::Never(text.into());
        let not_yet = |text: &str| Seen::NotYet(text.into());
        for (status, expected) in [
            (unknown("CannotProbe", "br0 has no uplink"), never("br0 has no uplink")),
            (
                unknown("NotProbed", "no agent of its nodes is alive"),
                not_yet("no agent of its nodes is alive"),
            ),
            (json!({ "phase": "error", "message": "no" }), never("it is error: no")),
            (
                json!({ "phase": "pending", "message": "waits for leaf1" }),
                not_yet("it is pending, so its path is not confirmed: waits for leaf1"),
            ),
        ] {
            assert_eq!(seen(&object(ask, &status), "mine"), expected, "{status}");
        }
        for (status, text) in [
            (json!({}), "the engine has not reported"),
            (unknown("NotProbed", NOT_YET), "its path is not confirmed, or an agent"),
            (
                json!({ "phase": "ready", "conditions": [condition("True", "Answered", "")] }),
                "an agent of its nodes",
            ),
        ] {
            let Seen::NotYet(why) = seen(&object(ask, &status), "mine") else { panic!("{status}") };
            assert!(why.contains(text), "{why}");
        }
        assert!(matches!(seen(&object(ask, &json!({ "phase": "ready" })), "mine"), Seen::Never(_)));
    }
}
