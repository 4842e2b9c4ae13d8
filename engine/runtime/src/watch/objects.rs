//! The last version of every object from the API server, stored as compact JSON for callbacks.

use std::collections::HashMap;
use std::sync::Arc;

use eno_core::{Key, Kind, Name, Status};
use eno_schemas::LeftOut;
use kube::api::{DynamicObject, TypeMeta};
use serde_json::Value;

use crate::api;
use crate::status::{bounds, convert};

/// An object without managed fields, large annotations and status.
#[derive(Debug)]
pub struct StoredObject {
    /// `metadata.uid`.
    pub uid: Name,
    /// `metadata.finalizers`.
    pub finalizers: Box<[Name]>,
    /// Hash of the status content that the API server holds, from [`convert::content`].
    pub status_content: Option<u64>,
    /// The status lacks fields, see [`convert::is_outdated`].
    pub status_is_outdated: bool,
    /// The status has the condition `Recorded`.
    pub is_unrecorded: bool,
    /// Resource version as a number, see [`api::version`].
    pub version: u64,
    /// The annotations that `json` lacks; `None`: it has all.
    pub left_out: Option<Box<LeftOut>>,
    /// Its kind.
    kind: Kind,
    /// The object as JSON.
    json: Box<[u8]>,
}

impl StoredObject {
    /// Keeps the needed parts of an object.
    pub fn new(key: &Key, mut object: DynamicObject) -> Self {
        object.types =
            Some(TypeMeta { api_version: api::api_version(key.kind).into(), kind: key.kind.as_str().into() });
        object.metadata.managed_fields = None;
        let left_out = object.metadata.annotations.as_mut().and_then(bounds::bound_annotations).map(Box::new);
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
            left_out,
            kind: key.kind,
            status_is_outdated: status.as_ref().is_some_and(|status| convert::is_outdated(key.kind, status)),
            is_unrecorded: status.as_ref().is_some_and(convert::is_unrecorded),
            status_content: status.filter(convert::is_observed).map(convert::content_of),
            version: api::version(&object.metadata),
            // Parsed JSON can always be serialised again.
            json: serde_json::to_vec(&object).unwrap_or_default().into_boxed_slice(),
        }
    }

    /// The object with this status, as subscribers get it.
    pub fn with_status(&self, now: &Status) -> Value {
        let mut object = serde_json::from_slice(&self.json).unwrap_or(Value::Null);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("status".into(), convert::to_json(self.kind, now));
        }
        object
    }
}

/// All objects.
#[derive(Debug, Default)]
pub struct Objects(HashMap<Key, Arc<StoredObject>>);

impl Objects {
    /// Stores an object that was created or changed.
    pub fn put(&mut self, key: Key, object: Arc<StoredObject>) {
        self.0.insert(key, object);
    }

    /// Removes a deleted object.
    pub fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// The last version of an object.
    pub fn get(&self, key: &Key) -> Option<&Arc<StoredObject>> {
        self.0.get(key)
    }
}
