//! A store with a few objects, for the tests of the parts.

use std::sync::Arc;

use serde_json::Value;

use crate::kinds::Spec;
use crate::work::Work;
use crate::{Config, Key, Kind, Labels, Name, Object};

use super::Store;
use super::record::Record;

/// The configuration of an engine with agents.
pub fn config() -> Config {
    Config {
        cluster: "lab".into(),
        cluster_uid: None,
        bridge_domains: false,
        nodes: true,
        verify: true,
        observes: false,
    }
}

/// The key of an object; the namespace of namespaced ones is `ns`.
pub fn key(kind: Kind, name: &str) -> Key {
    match kind {
        Kind::L2ServiceAttachment | Kind::Bridge | Kind::PodNetworkConfig | Kind::PodConfig => {
            Key::namespaced(kind, &"ns".into(), &name.into())
        }
        _ => Key::cluster(kind, &name.into()),
    }
}

/// An object that carries the finalizer. Its creation time is `created`, its uid its name.
pub fn object(kind: Kind, name: &str, created: i64, spec: Value) -> Object {
    Object {
        key: key(kind, name),
        uid: name.into(),
        generation: 1,
        created,
        deleting: false,
        finalized: true,
        forget: false,
        verify: None,
        generated: false,
        labels: Labels::new(),
        unknown_opts: None,
        spec: Ok(Spec::from_json(kind, spec).expect("a spec")),
        status: None,
    }
}

/// A store with these objects, all realised; the earlier ones are older.
pub fn store(objects: impl IntoIterator<Item = (Kind, &'static str, Value)>) -> Store {
    let mut store = Store::default();
    for (created, (kind, name, spec)) in (0..).zip(objects) {
        let (key, mut record) = Record::new(object(kind, name, created, spec));
        record.effective = record.spec.clone().ok();
        store.insert(key.clone(), record);
        store.update_references(&key, &mut Work::default());
    }
    store
}

/// Marks an object as deleted, without a realised spec.
pub fn delete(store: &mut Store, key: &Key) {
    if let Some(record) = store.get_mut(key) {
        (record.deleting, record.effective) = (true, None::<Arc<Spec>>);
        record.status.phase = Some(eno_schemas::Phase::Deleted);
    }
}

/// A switch with one port to a PhysicalNetwork.
pub fn switch(network: &str) -> Value {
    let device = serde_json::json!({ "address": "192.0.2.1:830", "drift": "repair" });
    serde_json::json!({
        "Driver": "netconf", "Device": device,
        "Ports": [{ "Name": "eth1", "Mode": "keep", "LeadsTo": { "PhysicalNetwork": Name::from(network) } }],
    })
}
