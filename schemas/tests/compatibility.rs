//! Compatibility of versions: stored messages in `golden` stay readable, additions of later versions are
//! ignored, and another major version is refused with a clear message.

use std::fmt::Debug;

use eno_schemas::{
    CallbackAnswer, CallbackRequest, Command, DeadLetter, Delivery, DriverHello, Head, Message, MessageError,
    Part, Preview, Report, Transition, Visit, decode, encode,
};
use serde_json::{Value, json};

/// Fields that are maps by any name, where an additional field would be an additional entry.
const MAPS: [&str; 7] = ["blocks", "settings", "ports", "carried", "networks", "pods", "sysctls"];
/// Enums that are written with their variant's name: `{"access": 100}`.
const CHOICES: [&str; 3] = ["vlans", "name", "parent"];

fn golden<T: Message>() -> Vec<Value> {
    let path = format!("{}/tests/golden/{}.json", env!("CARGO_MANIFEST_DIR"), T::NAME);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let all: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(!all.is_empty(), "{path} is empty");
    all
}

fn read<T: Message>(message: &Value) -> Result<T, MessageError> {
    decode(&serde_json::to_vec(message).unwrap())
}

/// Adds an unknown field of a later version wherever there can be one. `field` is the parent field; `map`:
/// its fields are entries.
fn later(value: &mut Value, field: &str, map: bool) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| later(one, "", false)),
        // A stored custom resource.
        Value::Object(_) if field == "object" => {}
        Value::Object(fields) => {
            let entries = map || MAPS.contains(&field);
            for (name, value) in fields.iter_mut() {
                // The applied state of a pod is a map of its interfaces.
                let links = field == "pods" && value.get("links").is_none() && value.get("name").is_none();
                later(value, if entries { "" } else { name }, links);
            }
            if !entries && !CHOICES.contains(&field) {
                fields.insert("fieldOfALaterVersion".into(), json!({"a": [1, {"b": null}]}));
            }
        }
        _ => {}
    }
}

fn holds<T: Message + Debug + PartialEq>() {
    for message in golden::<T>() {
        let known: T = read(&message).unwrap_or_else(|error| panic!("{error}: {message}"));
        let written: Value = serde_json::from_slice(&encode(&known).unwrap()).unwrap();
        assert_eq!(written, message, "it is not written as it was");

        let mut newer = message.clone();
        later(&mut newer, "", false);
        assert_ne!(newer, message);
        let understood: T = read(&newer).unwrap_or_else(|error| panic!("{error}: {newer}"));
        assert_eq!(understood, known, "what is not known has a meaning");

        let of_version = |version: Value| {
            let mut message = message.clone();
            message["schemaVersion"] = version;
            read::<T>(&message)
        };
        assert_eq!(of_version(json!(T::VERSION)).unwrap(), known);
        for other in [json!(3 - T::VERSION), json!(3), json!("1"), json!(null)] {
            let error = of_version(other).unwrap_err();
            assert!(matches!(error, MessageError::Version { .. }), "{error}");
            assert!(error.to_string().contains("upgrade the older side"), "{error}");
        }
    }
}

#[test]
fn messages_of_other_versions_decode() {
    holds::<Command>();
    holds::<Head>();
    holds::<Part>();
    holds::<Report>();
    holds::<Transition>();
    holds::<DriverHello>();
    holds::<Delivery>();
    holds::<Preview>();
    holds::<DeadLetter>();
    holds::<CallbackRequest>();
    holds::<CallbackAnswer>();
    holds::<Visit>();
}
