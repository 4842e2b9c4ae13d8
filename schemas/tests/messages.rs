//! The committed schemas match the types, and invalid messages are refused with the path of the violation.

use eno_schemas::{
    CallbackAnswer, CallbackRequest, Command, DeadLetter, Delivery, DriverHello, Head, Message, MessageError,
    Part, Preview, Report, Transition, Visit, decode, encode, schema_of,
};
use serde_json::{Value, json};

fn fresh<T: Message>() {
    let path = format!("{}/v1/{}.json", env!("CARGO_MANIFEST_DIR"), T::NAME);
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(committed, schema_of::<T>(), "{path} is stale: cargo run -p eno-schemas --bin eno-schemas");
}

#[test]
fn committed_schemas_are_current() {
    fresh::<Command>();
    fresh::<Head>();
    fresh::<Part>();
    fresh::<Report>();
    fresh::<Transition>();
    fresh::<DriverHello>();
    fresh::<Delivery>();
    fresh::<Preview>();
    fresh::<DeadLetter>();
    fresh::<CallbackRequest>();
    fresh::<CallbackAnswer>();
    fresh::<Visit>();
}

fn command() -> Value {
    json!({
        "driver": "netconf", "target": "leaf1",
        "generation": { "term": 1, "sequence": 2, "hash": "00" },
        "desired": {
            "kind": "fabric", "cluster": "lab",
            "device": { "address": "127.0.0.1:830", "drift": "repair" },
            "vlans": ["100 L2Service/a"],
            "ports": [{ "name": "Ethernet1", "mode": "keep", "vlans": "100-101" }]
        }
    })
}

#[test]
fn valid_command_round_trips() {
    let read: Command = decode(&serde_json::to_vec(&command()).unwrap()).unwrap();
    let back: Value = serde_json::from_slice(&encode(&read).unwrap()).unwrap();
    assert_eq!(back, command());
}

#[test]
fn invalid_command_is_refused_with_its_json_path() {
    for (pointer, bad, path) in [
        ("/desired/vlans/0", json!("100  L2Service/a"), "/desired"),
        ("/desired/vlans/0", json!("4095 L2Service/a"), "/"),
        ("/desired/ports/0/vlans", json!("1-x"), "/desired"),
        ("/generation/term", json!(-1), "/generation/term"),
        ("/driver", json!(null), "/driver"),
        ("/desired/vlans", json!(["100", "100 L2Service/a"]), "/"),
        ("/desired/vlans", json!(["101", "100"]), "/"),
    ] {
        let mut message = command();
        *message.pointer_mut(pointer).unwrap() = bad;
        let error = decode::<Command>(&serde_json::to_vec(&message).unwrap()).unwrap_err();
        let MessageError::Schema { path: seen, .. } = &error else { panic!("{error}") };
        assert!(seen.starts_with(path), "{error}");
    }
    assert!(matches!(decode::<Command>(b"{"), Err(MessageError::Json { .. })));
}
