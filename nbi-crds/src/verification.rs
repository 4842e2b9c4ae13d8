//! New probes on request: the annotation that asks for them, and the answer in the status.

use eno_schemas::ProbeOutcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::schema;

/// The annotation that asks for new probes of an object's VLANs: the JSON of a [`VerifyRequest`].
pub const VERIFY_ANNOTATION: &str = "eno.k8s.io/verify";

/// The value of [`VERIFY_ANNOTATION`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyRequest {
    /// Identifies the request: 1 to 64 characters of `[A-Za-z0-9-]`. Another one asks again.
    pub nonce: String,
    /// Packets of the network's MTU must reach the next node too.
    #[serde(default)]
    pub mtu: bool,
    /// The object whose VLANs must not be reached: one of the same kind, `NAME` or `NAMESPACE/NAME`. It has effect when that
    /// object's annotation has the same nonce, and names this object.
    pub isolation_from: Option<String>,
}

impl VerifyRequest {
    /// Reads the value of the annotation. `None`: it is none, and has no effect.
    pub fn parse(text: &str) -> Option<Self> {
        let request: Self = serde_json::from_str(text).ok()?;
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        ((1..=64).contains(&request.nonce.len()) && request.nonce.bytes().all(is_good)).then_some(request)
    }
}

/// The answer to a [`VerifyRequest`].
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// The nonce of the request.
    #[schemars(length(min = 1, max = 64))]
    pub nonce: String,
    /// Each node that probes has a result on each VLAN of the object. Nothing is written before.
    pub complete: bool,
    /// What was found, at most 64 results. Those that failed come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<VerificationResult, 64>")]
    pub results: Vec<VerificationResult>,
    /// How many results are left out.
    #[schemars(range(min = 1))]
    pub left_out: Option<i64>,
}

/// What a probe found.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerificationResult {
    /// The node that asked.
    #[schemars(length(max = 253))]
    pub from: String,
    /// The node, or the address of the gateway, that was asked; absent: nobody.
    #[schemars(length(max = 253))]
    pub to: Option<String>,
    /// The VLAN ID.
    #[schemars(schema_with = "schema::vlan_id")]
    pub vlan: u16,
    /// The VLAN ID on which the next node was, where that is another one.
    #[schemars(range(min = 1, max = 4094))]
    pub other: Option<u16>,
    /// What came of it: passed, lost, too-big or unasked of a node, isolated or leaking of a node
    /// on another VLAN, answered or silent of a gateway.
    pub outcome: ProbeOutcome,
    /// The MAC addresses that answered for a gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(max = 17)), extend("x-kubernetes-list-type" = "set"))]
    pub macs: Vec<String>,
    /// Why the node was not asked.
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_with_another_value_has_no_effect() {
        let nonce = |text: &str| VerifyRequest::parse(text).map(|request| request.nonce);
        let long = |length| format!(r#"{{"nonce": "{}"}}"#, "x".repeat(length));
        assert_eq!(nonce(r#"{"nonce": "a-Z9"}"#).as_deref(), Some("a-Z9"));
        assert!(nonce(&long(64)).is_some());
        for text in [
            "",
            "1",
            "{}",
            r#"{"nonce": ""}"#,
            r#"{"nonce": "a b"}"#,
            r#"{"nonce": 1}"#,
            r#"{"nonce": "a", "Mtu": true}"#,
            &long(65),
        ] {
            assert_eq!(nonce(text), None, "{text}");
        }
    }
}
