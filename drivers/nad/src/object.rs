//! NetworkAttachmentDefinitions as Kubernetes objects: the observed state of one, and the manifest of ours.
//! Pure.

use eno_schemas::NadDesired;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::codec::Rendered;

/// The annotation by which Multus requests a device of a device plugin's resource.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";
/// The label that names the creator of an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on our objects.
pub const ENO: &str = "eno";
/// The annotation with `metadata.uid` of the NAD's L2ServiceAttachment. It identifies the NAD as ours even
/// without its owner references.
pub const ATTACHMENT_UID: &str = "eno.k8s.io/attachment-uid";
/// The CustomResourceDefinition that is installed with Multus.
pub const CRD: &str = "network-attachment-definitions.k8s.cni.cncf.io";

const GROUP: &str = "eno.k8s.io";
const KIND: &str = "L2ServiceAttachment";
const API_VERSION: &str = "eno.k8s.io/v1alpha1";

/// The API resource of NetworkAttachmentDefinitions.
pub fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    ApiResource::from_gvk_with_plural(&gvk, "network-attachment-definitions")
}

/// Hash of all fields that we write; equal exactly when none of them differs.
pub type ContentHash = [u8; 16];

/// The observed state of a NetworkAttachmentDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNad {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`, which orders the versions of an object; 0 when the server gives no number.
    pub version: u64,
    /// Hash of the fields that we write.
    pub content: ContentHash,
    /// Set when the object is being deleted: the finalizers that keep it.
    pub finalizers: Option<Box<str>>,
    ownership: NadOwnership,
}

/// The apparent owner of an object. Its uid tells whether that is the desired attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NadOwnership {
    /// Controlled by the L2ServiceAttachment of the same name.
    Controlled { uid: Box<str>, labelled: bool },
    /// Without a controller, but with our label and this attachment's uid.
    Labelled { uid: Box<str> },
    /// Owned by somebody else; `holder` describes them.
    Foreign { holder: Box<str> },
}

impl ObservedNad {
    /// Extracts the observed state of an object.
    pub fn of(object: &DynamicObject) -> Self {
        let metadata = &object.metadata;
        let labelled =
            metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == ENO);
        let annotation =
            |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        let name = metadata.name.as_deref().unwrap_or_default();
        let ownership = match (controller, annotation(ATTACHMENT_UID)) {
            (Some(owner), _) if is_attachment(owner, name) => {
                NadOwnership::Controlled { uid: owner.uid.as_str().into(), labelled }
            }
            (None, Some(uid)) if labelled => NadOwnership::Labelled { uid: uid.into() },
            _ => NadOwnership::Foreign { holder: holder(object, controller).into() },
        };
        let content = content_hash(
            object.data.pointer("/spec/config").and_then(Value::as_str),
            annotation(RESOURCE_NAME),
            labelled,
            annotation(ATTACHMENT_UID),
            owners.iter().find(|owner| is_attachment(owner, name)),
        );
        let finalizers = metadata
            .deletion_timestamp
            .as_ref()
            .map(|_| metadata.finalizers.as_deref().unwrap_or_default().join(", ").into());
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            version: metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0),
            content,
            finalizers,
            ownership,
        }
    }

    /// `None` when the object may be written for the attachment `uid`; otherwise a description of its owner.
    ///
    /// A NAD with our label that an attachment of the same name but another uid controls is a leftover of a
    /// recreated attachment. It is adopted.
    pub fn foreign_owner(&self, uid: &str) -> Option<String> {
        match &self.ownership {
            NadOwnership::Controlled { uid: owner, labelled } if *labelled || **owner == *uid => None,
            NadOwnership::Controlled { uid: owner, .. } => {
                Some(format!("an earlier {KIND} of the same name (uid {owner})"))
            }
            NadOwnership::Labelled { uid: owner } if **owner == *uid => None,
            NadOwnership::Labelled { uid: owner } => Some(format!("an {KIND} with the uid {owner}")),
            NadOwnership::Foreign { holder } => Some(holder.to_string()),
        }
    }

    /// True when the object was created for the attachment `uid`, so that it is deleted with it.
    pub fn belongs_to(&self, uid: &str) -> bool {
        match &self.ownership {
            NadOwnership::Controlled { uid: owner, .. } | NadOwnership::Labelled { uid: owner } => {
                **owner == *uid
            }
            NadOwnership::Foreign { .. } => false,
        }
    }
}

/// The desired state of a NetworkAttachmentDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredNad {
    namespace: String,
    name: String,
    owner: String,
    rendered: Rendered,
}

impl DesiredNad {
    /// The desired state of `desired`, with its rendered configuration.
    pub fn new(desired: &NadDesired, rendered: Rendered) -> Self {
        Self {
            namespace: desired.namespace.clone(),
            name: desired.name.clone(),
            owner: desired.owner.uid.clone(),
            rendered,
        }
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// [`ObservedNad::content`] of an object in this state.
    pub fn content(&self) -> ContentHash {
        content_hash(
            Some(&self.rendered.config),
            self.rendered.resource_name.as_deref(),
            true,
            Some(&self.owner),
            Some(&self.owner_reference()),
        )
    }

    /// The manifest for server-side apply. `guard` ties it to the planned-for state.
    pub fn apply(&self, guard: Guard<'_>) -> Value {
        let mut annotations = json!({ ATTACHMENT_UID: self.owner });
        if let Some(resource_name) = &self.rendered.resource_name {
            annotations[RESOURCE_NAME] = json!(resource_name);
        }
        let mut metadata = json!({
            "name": self.name,
            "namespace": self.namespace,
            "labels": { MANAGED_BY: ENO },
            "annotations": annotations,
            "ownerReferences": [self.owner_reference()],
        });
        match guard {
            Guard::Absent => metadata["resourceVersion"] = json!(NONEXISTENT_VERSION),
            Guard::Uid(uid) => metadata["uid"] = json!(uid),
        }
        let resource = resource();
        json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": { "config": self.rendered.config },
        })
    }

    /// The merge patch that removes a resource name of another field manager, which apply can't do.
    pub fn without_foreign_resource_name(&self, seen: &DynamicObject) -> Option<Value> {
        let there = seen.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(RESOURCE_NAME));
        (there && self.rendered.resource_name.is_none()).then(
            || json!({ "metadata": { "uid": seen.metadata.uid, "annotations": { RESOURCE_NAME: null } } }),
        )
    }

    /// The garbage collector removes the NAD with its attachment. It doesn't block the attachment's deletion: in a
    /// foreground deletion the collector would otherwise delete the NAD again and again while pods still use it.
    fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
            name: self.name.clone(),
            uid: self.owner.clone(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        }
    }
}

/// A resource version that no object has: the store's revisions start above it. An apply with it is a
/// conflict when the object exists, and creates it otherwise.
const NONEXISTENT_VERSION: &str = "1";

/// The precondition of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard<'a> {
    /// No object of that name exists.
    Absent,
    /// The object is still the one with this uid.
    Uid(&'a str),
}

fn is_attachment(owner: &OwnerReference, name: &str) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    group == GROUP && owner.kind == KIND && owner.name == name
}

fn holder(object: &DynamicObject, controller: Option<&OwnerReference>) -> String {
    let metadata = &object.metadata;
    if let Some(owner) = controller.or_else(|| metadata.owner_references.iter().flatten().next()) {
        return format!("{} {}", owner.kind, owner.name);
    }
    if let Some(by) = metadata.labels.iter().flatten().find_map(|(key, by)| (key == MANAGED_BY).then_some(by))
    {
        return format!("{by} (by its label {MANAGED_BY})");
    }
    let mut managers: Vec<&str> =
        metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref()).collect();
    managers.dedup();
    if managers.is_empty() {
        "an unknown writer".into()
    } else {
        format!("field manager {}", managers.join(", "))
    }
}

fn content_hash(
    config: Option<&str>,
    resource_name: Option<&str>,
    labelled: bool,
    attachment: Option<&str>,
    owner: Option<&OwnerReference>,
) -> ContentHash {
    let owner = owner.map(|owner| {
        (
            &owner.api_version,
            &owner.uid,
            owner.controller.unwrap_or_default(),
            owner.block_owner_deletion.unwrap_or_default(),
        )
    });
    let all = json!([config, resource_name, labelled, attachment, owner]);
    let mut content = ContentHash::default();
    content.copy_from_slice(&Sha256::digest(all.to_string())[..16]);
    content
}
