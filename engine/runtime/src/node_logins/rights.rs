//! What the agent of one node may do on NATS. Pure.

use eno_schemas::{Subject, SubjectKind, subject};
use serde::Serialize;

use crate::commands::NODE_DRIVER;

/// The program of the agents, which is the first part of the prefix of their inboxes.
const PROGRAM: &str = "eno-driver-node";

/// Subjects that a user may publish and subscribe to. All others are forbidden.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rights {
    /// To publish.
    #[serde(rename = "pub")]
    publish: Allowed,
    /// To subscribe.
    #[serde(rename = "sub")]
    subscribe: Allowed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Allowed {
    allow: Vec<String>,
}

/// The rights of the agent of a node: those of a driver in `deploy/nats/authorization.conf`, for its own target alone,
/// and visits in its own name.
pub(super) fn of_node(node: &str) -> Rights {
    let own = subject::key(NODE_DRIVER, node);
    let result = Subject::result(NODE_DRIVER, node).to_string();
    let owner = subject::of_bucket(subject::OWNERS, &own);
    let readable = [
        (subject::COMMANDS.to_owned(), Subject::command(NODE_DRIVER, node).to_string()),
        (subject::RESULTS.to_owned(), result.clone()),
        (subject::bucket_stream(subject::OWNERS), owner.clone()),
    ];
    let mut publish = vec![
        Subject::history(NODE_DRIVER, node).to_string(),
        SubjectKind::Answer.with_tokens(&format!("{own}.*")),
        subject::of_bucket(subject::DRIVERS, &own),
        result,
        owner,
    ];
    for (stream, subject) in readable {
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}.*.{subject}"));
        publish.push(format!("$JS.FC.{stream}.>"));
    }
    publish.push(SubjectKind::Visit.with_tokens(&format!("*.{}", subject::token(node))));
    let subscribe = vec![
        format!("_INBOX_{PROGRAM}.{}.>", subject::token(node)),
        Subject::forget(NODE_DRIVER).to_string(),
        Subject::preview(NODE_DRIVER, node).to_string(),
        SubjectKind::Visit.with_tokens(&format!("{}.*", subject::token(node))),
    ];
    Rights { publish: Allowed { allow: publish }, subscribe: Allowed { allow: subscribe } }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use eno_control_plane::AUTHORIZATION;

    use super::*;

    /// The quoted texts after `start` in the block of the driver nad.
    fn of_driver_nad(start: &str, end: &str) -> Vec<&'static str> {
        let block = AUTHORIZATION.split_once("nkey: $DRIVER_NAD_NKEY").expect("the block").1;
        let list = block.split_once(start).and_then(|(_, rest)| rest.split_once(end)).expect("a list").0;
        list.split('"').skip(1).step_by(2).collect()
    }

    #[test]
    fn rights_of_a_node_are_those_of_a_driver_for_its_target_alone() {
        let of_node = |subject: &str| {
            subject
                .replace("_INBOX_eno-driver-nad.", "_INBOX_eno-driver-node.n=2E1.")
                .replace(".nad.*", ".node.n=2E1")
                .replace(".nad", ".node")
        };
        let expected =
            |start, end| -> BTreeSet<String> { of_driver_nad(start, end).into_iter().map(of_node).collect() };
        let rights = super::of_node("n.1");
        let given = |mut allowed: Allowed| {
            assert!(matches!(
                allowed.allow.pop().as_deref(),
                Some("eno.v1.visit.*.n=2E1" | "eno.v1.visit.n=2E1.*")
            ));
            allowed.allow.into_iter().collect::<BTreeSet<_>>()
        };
        assert_eq!(given(rights.publish), expected("publish: [", "]"));
        assert_eq!(given(rights.subscribe), expected("subscribe: [", "]"));
    }
}
