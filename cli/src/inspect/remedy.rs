//! Where an object that is not ready stops, and what helps.

use eno_engine::forecast::Kind;
use serde::Serialize;

use super::status::Condition;

/// The part of a path that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// The object's own spec, or what it names.
    Object,
    /// The switches.
    Fabric,
    /// The nodes.
    Nodes,
    /// The NetworkAttachmentDefinition.
    Nad,
    /// The pods.
    Pods,
    /// The switch that the object is.
    Device,
}

/// The first part that is not done, and the reason.
pub(crate) fn stage(kind: Kind, conditions: &[Condition]) -> (Stage, String) {
    let failing = |kind: &str| conditions.iter().find(|one| one.kind == kind && one.status == "False");
    let ready = failing("Ready").map(|ready| ready.reason.clone()).unwrap_or_default();
    if kind == Kind::FabricDevice {
        let reachable = failing("Reachable").map(|condition| condition.reason.clone());
        return (Stage::Device, reachable.unwrap_or(ready));
    }
    if conditions.iter().any(|one| one.kind == "Degraded" && one.status == "True") {
        return (Stage::Fabric, ready);
    }
    // Of these nothing but devices can wait or refuse.
    if matches!(kind, Kind::VRF | Kind::VRFAttachment) && matches!(ready.as_str(), "Waiting" | "Refused") {
        return (Stage::Fabric, ready);
    }
    // A part waits without end while the object itself is in error.
    if !matches!(ready.as_str(), "" | "Waiting" | "Refused" | "Terminating") {
        return (Stage::Object, ready);
    }
    let stages = [
        ("FabricReady", Stage::Fabric),
        ("NodesReady", Stage::Nodes),
        ("NADReady", Stage::Nad),
        ("PodsReady", Stage::Pods),
    ];
    let found = stages.into_iter().find_map(|(kind, stage)| Some((stage, failing(kind)?.reason.clone())));
    found.unwrap_or((Stage::Object, ready))
}

/// What helps, by the reason of a condition.
pub(crate) fn remedy(stage: Stage, reason: &str) -> &'static str {
    match (stage, reason) {
        (_, "Invalid") => "Change the field of its spec that the message names.",
        (_, "Incompatible") => "Change its spec, or the object that it does not fit.",
        (_, "ReferenceNotFound") => "Create the object that it names, or correct the name.",
        (_, "ReferenceNotReady") => "Mend the object that it names first.",
        (_, "ReferenceTerminating") => {
            "Wait until the object that it names is gone, and create that again, or name another."
        }
        (_, "IDConflict") => "Choose another VLAN ID, or delete the object that holds this one.",
        (_, "NameConflict") => "Rename it, or delete what has its name.",
        (_, "NotPermitted") => "Ask the owner of the network to admit this namespace.",
        (_, "NoneLeft") => "Widen the pool of the Subnet, or free addresses.",
        (Stage::Device, "Unreachable") => {
            "Check the switch, its address and the network to it. The driver tries again by itself."
        }
        (_, "Unreachable") => {
            "Check the switch or node that the message names. Its driver tries again by itself."
        }
        (Stage::Fabric | Stage::Device, "Refused") => {
            "Correct on the switch what the message names; eno blame shows who wants what on a port."
        }
        (Stage::Nodes | Stage::Pods, "Refused") => "Correct on the node what the message names.",
        (Stage::Nad, "Refused") => "Remove or rename what the message names in the namespace.",
        (_, "NoFabricDevice") => "List the ports of the nodes in a FabricDevice.",
        (_, "Terminating") => "Wait; if it stays, look at what still uses it.",
        (_, "Waiting" | "") => "Wait a moment; if it stays, eno check shows what does not answer.",
        _ => "Follow the message; the reference of conditions has the reason.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, reason: &str) -> Condition {
        Condition {
            kind: kind.into(),
            status: "False".into(),
            reason: reason.into(),
            message: String::new(),
            since: String::new(),
        }
    }

    #[test]
    fn stage_is_the_first_part_that_is_not_done() {
        for (kind, conditions, expected) in [
            (
                Kind::L2ServiceAttachment,
                vec![("Ready", "Waiting"), ("NADReady", "Waiting")],
                (Stage::Nad, "Waiting"),
            ),
            (
                Kind::L2ServiceAttachment,
                vec![("Ready", "Refused"), ("NADReady", "Waiting"), ("FabricReady", "Refused")],
                (Stage::Fabric, "Refused"),
            ),
            (
                Kind::L2Service,
                vec![("Ready", "IDConflict"), ("FabricReady", "Waiting")],
                (Stage::Object, "IDConflict"),
            ),
            (
                Kind::FabricDevice,
                vec![("Ready", "Waiting"), ("Reachable", "Unreachable")],
                (Stage::Device, "Unreachable"),
            ),
            (Kind::VRFAttachment, vec![("Ready", "Refused")], (Stage::Fabric, "Refused")),
            (Kind::VRF, vec![("Ready", "NameConflict")], (Stage::Object, "NameConflict")),
            (Kind::Route, vec![], (Stage::Object, "")),
        ] {
            let conditions: Vec<_> =
                conditions.into_iter().map(|(kind, reason)| condition(kind, reason)).collect();
            let (stage, reason) = stage(kind, &conditions);
            assert_eq!((stage, reason.as_str()), expected);
        }
    }

    /// The reasons of errors are in the book.
    #[test]
    fn every_reason_of_an_error_has_a_remedy() {
        let text = include_str!("../../../docs/src/reference/conditions.md");
        let (_, reasons) = text.split_once("## Reasons of errors").expect("the section");
        let reasons: Vec<_> =
            reasons.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert!(reasons.len() > 5, "{reasons:?}");
        let general = remedy(Stage::Object, "no reason");
        for reason in reasons {
            assert!(remedy(Stage::Fabric, reason) != general, "{reason}");
        }
    }
}
