//! The objects as the API server sent them last, kept as compact text for the bodies of callbacks.

use std::collections::HashMap;
use std::sync::Arc;

use eno_core::{Key, Kind, Name, Status};
use kube::api::{DynamicObject, TypeMeta};
use serde_json::Value;

use crate::{api, ingest, status};

/// An object without its managed fields and its status.
#[derive(Debug)]
pub struct StoredObject {
    /// `metadata.uid`.
    pub uid: Name,
    /// `metadata.finalizers`.
    pub finalizers: Box<[Name]>,
    /// Names the content of the status that the API server holds, as [`status::content`] does.
    pub status_content: Option<u64>,
    /// As [`status::is_outdated`] has it, of that status.
    pub status_is_outdated: bool,
    /// As [`api::version`] has it.
    pub version: u64,
    kind: Kind,
    json: Box<[u8]>,
}

impl StoredObject {
    /// Keeps what is needed of an object.
    pub fn new(key: &Key, mut object: DynamicObject) -> Self {
        object.types =
            Some(TypeMeta { api_version: api::api_version(key.kind), kind: key.kind.as_str().into() });
        object.metadata.managed_fields = None;
        let status = object.data.as_object_mut().and_then(|fields| fields.remove("status"));
        Self {
            uid: object.metadata.uid.as_deref().unwrap_or_default().into(),
            finalizers: object
                .metadata
                .finalizers
                .iter()
                .flatten()
                .map(|one| Name::from(one.as_str()))
                .collect(),
            kind: key.kind,
            status_is_outdated: status.as_ref().is_some_and(|status| status::is_outdated(key.kind, status)),
            status_content: status.filter(ingest::is_observed).map(status::content_of),
            version: api::version(&object.metadata),
            // An object that came as JSON goes as JSON.
            json: serde_json::to_vec(&object).unwrap_or_default().into_boxed_slice(),
        }
    }

    /// The whole object with this status, as a subscriber sees it.
    pub fn with_status(&self, now: &Status) -> Value {
        let mut object = serde_json::from_slice(&self.json).unwrap_or(Value::Null);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("status".into(), status::to_json(self.kind, now));
        }
        object
    }
}

/// All objects.
#[derive(Debug, Default)]
pub struct Objects(HashMap<Key, Arc<StoredObject>>);

impl Objects {
    /// An object is there, new or changed.
    pub fn put(&mut self, key: Key, object: Arc<StoredObject>) {
        self.0.insert(key, object);
    }

    /// An object is gone.
    pub fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// An object as last seen.
    pub fn get(&self, key: &Key) -> Option<&Arc<StoredObject>> {
        self.0.get(key)
    }
}
