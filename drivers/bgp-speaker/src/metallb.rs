//! The objects of MetalLB: `BGPPeer` (`metallb.io/v1beta2`), `BFDProfile` and `BGPAdvertisement` (`metallb.io/v1beta1`).
//! Pure.

use eno_schemas::{Bfd, SpeakerDesired, SpeakerSessions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

/// The label that names the creator of an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on our objects.
pub const ENO: &str = "eno";

const OWNER_KIND: &str = "BGPSessionGroup";
const OWNER_VERSION: &str = "eno.k8s.io/v1alpha1";
/// The fields of a BGPPeer that change its session, and that we may leave out.
const OPTIONAL: [&str; 11] = [
    "bfdProfile",
    "dynamicASN",
    "enableGracefulRestart",
    "interface",
    "keepaliveTime",
    "localASN",
    "password",
    "passwordSecret",
    "routerID",
    "sourceAddress",
    "vrf",
];

/// The kinds of objects that the driver writes, in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A BFDProfile, which BGPPeers name.
    BfdProfile,
    /// A BGPPeer.
    BgpPeer,
}

impl Kind {
    /// All, in their order.
    pub const ALL: [Self; 2] = [Self::BfdProfile, Self::BgpPeer];

    /// Its name on the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BfdProfile => "BFDProfile",
            Self::BgpPeer => "BGPPeer",
        }
    }

    /// Its API resource.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::BfdProfile => resource("v1beta1", self.as_str(), "bfdprofiles"),
            Self::BgpPeer => resource("v1beta2", self.as_str(), "bgppeers"),
        }
    }
}

/// The API resource of BGPAdvertisements, which the driver only reads.
pub fn advertisements() -> ApiResource {
    resource("v1beta1", "BGPAdvertisement", "bgpadvertisements")
}

fn resource(version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("metallb.io", version, kind), plural)
}

/// An object as it is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Its kind.
    pub kind: Kind,
    /// `metadata.name`.
    pub name: String,
    /// `spec`.
    pub spec: Value,
}

/// The objects of a group, in the order in which they are written.
pub fn wanted(sessions: &SpeakerSessions, namespace: &str) -> Vec<Wanted> {
    let profiles = sessions.bfd.iter().flat_map(|bfd| {
        sessions.peers.keys().map(|name| Wanted {
            kind: Kind::BfdProfile,
            name: name.clone(),
            spec: bfd_profile(*bfd),
        })
    });
    let peers = sessions.peers.iter().map(|(name, address)| {
        let mut spec = json!({
            "myASN": sessions.local_as,
            "peerASN": sessions.peer_as,
            "peerAddress": address,
            "holdTime": format!("{}s", sessions.hold_time),
            "nodeSelectors": [{
                "matchExpressions": [{
                    "key": "kubernetes.io/hostname", "operator": "In", "values": sessions.hostnames,
                }],
            }],
        });
        // The native mode of MetalLB takes a third of the hold time, and refuses the field.
        if sessions.keepalive_time != sessions.hold_time / 3 {
            spec["keepaliveTime"] = json!(format!("{}s", sessions.keepalive_time));
        }
        if sessions.bfd.is_some() {
            spec["bfdProfile"] = json!(name);
        }
        if sessions.graceful_restart {
            spec["enableGracefulRestart"] = json!(true);
        }
        if let Some(secret) = &sessions.password {
            spec["passwordSecret"] = json!({ "name": secret, "namespace": namespace });
        }
        Wanted { kind: Kind::BgpPeer, name: name.clone(), spec }
    });
    profiles.chain(peers).collect()
}

fn bfd_profile(bfd: Bfd) -> Value {
    json!({
        "receiveInterval": bfd.receive_interval,
        "transmitInterval": bfd.transmit_interval,
        "detectMultiplier": bfd.detect_multiplier,
    })
}

impl Wanted {
    /// The manifest for server-side apply. `uid`: that of the object which it changes; `None`: it creates one.
    pub fn manifest(&self, group: &SpeakerDesired, uid: Option<&str>) -> Value {
        let resource = self.kind.resource();
        let mut metadata = json!({
            "name": self.name,
            "labels": { MANAGED_BY: ENO },
            "ownerReferences": [{
                "apiVersion": OWNER_VERSION, "kind": OWNER_KIND, "name": group.name, "uid": group.uid,
                "controller": true, "blockOwnerDeletion": false,
            }],
        });
        match uid {
            Some(uid) => metadata["uid"] = json!(uid),
            // A version that no object has: the apply is a conflict when one appears first.
            None => metadata["resourceVersion"] = json!("1"),
        }
        json!({ "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": self.spec })
    }

    /// True when an object has all of it, and nothing that changes its session.
    pub fn is_met(&self, group: &SpeakerDesired, object: &DynamicObject) -> bool {
        let spec = object.data.get("spec").unwrap_or(&Value::Null);
        let has_all = |fields: &Value| {
            fields.as_object().into_iter().flatten().all(|(key, value)| spec.get(key) == Some(value))
        };
        let has_more = OPTIONAL.iter().any(|key| spec.get(key).is_some() && self.spec.get(key).is_none());
        let is_owned = owner(object).is_some_and(|(name, uid)| name == group.name && uid == group.uid);
        has_all(&self.spec) && !has_more && is_owned && is_labelled(object)
    }
}

/// The name of the group that an object is of. `None`: it is not ours.
pub fn group_of(object: &DynamicObject) -> Option<&str> {
    owner(object).map(|(name, _)| name).filter(|_| is_labelled(object))
}

fn is_labelled(object: &DynamicObject) -> bool {
    object.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == ENO)
}

/// The name and the uid of the group that controls an object.
fn owner(object: &DynamicObject) -> Option<(&str, &str)> {
    let mut owners = object.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let is_group = owner.kind == OWNER_KIND && owner.api_version.starts_with("eno.k8s.io/");
    is_group.then_some((owner.name.as_str(), owner.uid.as_str()))
}

/// The BGPAdvertisements that name no peers: they announce their addresses to all.
pub fn announced_to_all(advertisements: &[DynamicObject]) -> Vec<&str> {
    let names_none = |one: &&DynamicObject| {
        one.data.pointer("/spec/peers").and_then(Value::as_array).is_none_or(Vec::is_empty)
    };
    advertisements.iter().filter(names_none).filter_map(|one| one.metadata.name.as_deref()).collect()
}
