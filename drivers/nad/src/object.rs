//! NetworkAttachmentDefinitions as Kubernetes objects: what is kept of one that was seen, and how one of ours is
//! written. Pure.

use eno_schemas::NadDesired;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::codec::Rendered;

/// The annotation by which Multus asks a device plugin's resource for a device.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";
/// Says who made an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on ours.
pub const ENO: &str = "eno";
/// `metadata.uid` of the L2ServiceAttachment that a NAD is for, so that it is known as ours even when its owner
/// references are taken away.
pub const ATTACHMENT_UID: &str = "eno.k8s.io/attachment-uid";
/// The CustomResourceDefinition that Multus brings.
pub const CRD: &str = "network-attachment-definitions.k8s.cni.cncf.io";

const GROUP: &str = "eno.k8s.io";
const KIND: &str = "L2ServiceAttachment";
const API_VERSION: &str = "eno.k8s.io/v1alpha1";

/// Where the API serves NetworkAttachmentDefinitions.
pub fn resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    ApiResource::from_gvk_with_plural(&gvk, "network-attachment-definitions")
}

/// A hash over all that we write into an object; equal exactly when nothing of it was changed.
pub type Content = [u8; 16];

/// What is kept of a NetworkAttachmentDefinition that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`, which orders the versions of an object; 0 when the server gives no number.
    pub version: u64,
    /// What it says, as far as that is ours to say.
    pub content: Content,
    /// Deleted, and kept by these finalizers.
    pub finalizers: Option<Box<str>>,
    standing: Standing,
}

/// Whose an object seems to be; whether that is the wanted attachment is asked with its uid.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// Controlled by the L2ServiceAttachment of the same name.
    Controlled { uid: Box<str>, labelled: bool },
    /// Nobody controls it, and it bears our label and this attachment's uid.
    Marked { uid: Box<str> },
    /// Somebody else's: who, in words.
    Foreign { holder: Box<str> },
}

impl Seen {
    /// Takes what matters from an object.
    pub fn of(object: &DynamicObject) -> Self {
        let metadata = &object.metadata;
        let labelled =
            metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == ENO);
        let annotation =
            |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        let name = metadata.name.as_deref().unwrap_or_default();
        let standing = match (controller, annotation(ATTACHMENT_UID)) {
            (Some(owner), _) if is_attachment(owner, name) => {
                Standing::Controlled { uid: owner.uid.as_str().into(), labelled }
            }
            (None, Some(uid)) if labelled => Standing::Marked { uid: uid.into() },
            _ => Standing::Foreign { holder: holder(object, controller).into() },
        };
        let content = content(
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
            standing,
        }
    }

    /// `None` when it may be written for the attachment `uid`; else whose it is, in words.
    ///
    /// A NAD that bears our label and is controlled by an attachment of the same name but with another uid is a
    /// leftover of an attachment that was deleted and made anew: it is taken over.
    pub fn foreign_to(&self, uid: &str) -> Option<String> {
        match &self.standing {
            Standing::Controlled { uid: owner, labelled } if *labelled || **owner == *uid => None,
            Standing::Controlled { uid: owner, .. } => {
                Some(format!("an earlier {KIND} of the same name (uid {owner})"))
            }
            Standing::Marked { uid: owner } if **owner == *uid => None,
            Standing::Marked { uid: owner } => Some(format!("an {KIND} with the uid {owner}")),
            Standing::Foreign { holder } => Some(holder.to_string()),
        }
    }

    /// It was made for the attachment `uid` and no other: it may be deleted with it.
    pub fn belongs_to(&self, uid: &str) -> bool {
        match &self.standing {
            Standing::Controlled { uid: owner, .. } | Standing::Marked { uid: owner } => **owner == *uid,
            Standing::Foreign { .. } => false,
        }
    }
}

/// A NetworkAttachmentDefinition as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    namespace: String,
    name: String,
    owner: String,
    rendered: Rendered,
}

impl Wanted {
    /// What `desired` asks for, with its rendered configuration.
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

    /// [`Seen::content`] of an object that says this.
    pub fn content(&self) -> Content {
        content(
            Some(&self.rendered.config),
            self.rendered.resource_name.as_deref(),
            true,
            Some(&self.owner),
            Some(&self.owner_reference()),
        )
    }

    /// The whole of what server-side apply is to own. `guard` ties it to the state that was planned for.
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
            Guard::Absent => metadata["resourceVersion"] = json!(NO_SUCH_VERSION),
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

    /// What apply can't do: the merge patch that takes away a resource name that another hand owns.
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

/// No object has this version: the store's revisions start above it. A patch that names it is refused as a conflict
/// when the object exists, and creates it otherwise.
const NO_SUCH_VERSION: &str = "1";

/// What has to be true for an apply to go through.
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

fn content(
    config: Option<&str>,
    resource_name: Option<&str>,
    labelled: bool,
    attachment: Option<&str>,
    owner: Option<&OwnerReference>,
) -> Content {
    let owner = owner.map(|owner| {
        (
            &owner.api_version,
            &owner.uid,
            owner.controller.unwrap_or_default(),
            owner.block_owner_deletion.unwrap_or_default(),
        )
    });
    let all = json!([config, resource_name, labelled, attachment, owner]);
    let mut content = Content::default();
    content.copy_from_slice(&Sha256::digest(all.to_string())[..16]);
    content
}
