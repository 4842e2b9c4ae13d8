//! The object from which another one is to be isolated: of the same kind, at the same ConnectionPoint, with the nearest
//! VLAN.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use eno_engine::forecast::{Key, Kind, Name};
use eno_engine::resource;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, DynamicObject, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::ask::{api, explained, list};
/// Maximum objects for which it is asked whether they may be patched.
const MAX_REVIEWS: usize = 32;

/// What makes an object a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    key: Key,
    points: BTreeSet<String>,
    vlans: BTreeSet<u64>,
}

/// The object from which `key` is to be isolated; `name`: this one, as `NAME` or `NAMESPACE/NAME`.
pub(crate) async fn neighbour(client: &Client, key: &Key, name: Option<&str>) -> anyhow::Result<Key> {
    if let Some(name) = name {
        return named(key, name);
    }
    let object = api(client, key).get(&key.name).await.map_err(|error| explained(&error, "get", key))?;
    let vlans = vlans_of_services(client, key.kind).await?;
    let own = place(key.clone(), &object, &vlans);
    ensure!(!own.points.is_empty() && !own.vlans.is_empty(), "{key} has no VLAN at a ConnectionPoint");
    let objects = match list(client, key.kind, None).await {
        // A tenant sees its namespace.
        Err(_) if key.namespace().is_some() => list(client, key.kind, key.namespace()).await?,
        listed => listed?,
    };
    let is_usable = |object: &&DynamicObject| {
        object.metadata.deletion_timestamp.is_none()
            && object.data.pointer("/status/phase").is_some_and(|phase| phase == "ready")
    };
    let places = objects.iter().filter(is_usable).map(|object| {
        let name = Name::from(object.name_any());
        let other = match object.namespace() {
            Some(namespace) => Key::namespaced(key.kind, &namespace.into(), &name),
            None => Key::cluster(key.kind, &name),
        };
        place(other, object, &vlans)
    });
    for candidate in nearest(&own, places.collect()).into_iter().take(MAX_REVIEWS) {
        if may_patch(client, &candidate).await? {
            return Ok(candidate);
        }
    }
    bail!(
        "there is no other ready {} at the same ConnectionPoint, with another VLAN, that you may see and patch",
        key.kind.as_str()
    )
}

/// The object of this name.
fn named(key: &Key, name: &str) -> anyhow::Result<Key> {
    let other = match (key.namespace(), name.split_once('/')) {
        (None, None) => Key::cluster(key.kind, &name.into()),
        (Some(_), Some((namespace, name))) => Key::namespaced(key.kind, &namespace.into(), &name.into()),
        (Some(namespace), None) => Key::namespaced(key.kind, &namespace.into(), &name.into()),
        (None, Some(_)) => bail!("{} has no namespace: {name:?}", key.kind.as_str()),
    };
    ensure!(other != *key, "{key} can't be isolated from itself: name another one");
    Ok(other)
}

/// The VLAN of each L2Service.
async fn vlans_of_services(client: &Client, kind: Kind) -> anyhow::Result<BTreeMap<String, u64>> {
    let services = list(client, Kind::L2Service, None).await;
    let services = services.with_context(|| {
        let how = if kind == Kind::L2Service { "NAME" } else { "NAMESPACE/NAME" };
        format!("name the other object, as --isolation={how}: the VLANs of others can't be read")
    })?;
    let vlan = |service: &DynamicObject| Some((service.name_any(), vlan_of_service(service)?));
    Ok(services.iter().filter_map(vlan).collect())
}

fn vlan_of_service(service: &DynamicObject) -> Option<u64> {
    service.data.pointer("/spec/SegmentationID").and_then(Value::as_u64)
}

/// Where an object is, and with which VLANs.
fn place(key: Key, object: &DynamicObject, vlans: &BTreeMap<String, u64>) -> Place {
    let texts = |field: &str| -> BTreeSet<String> {
        let texts = match object.data.pointer(field) {
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        texts.into_iter().collect()
    };
    if key.kind == Kind::L2Service {
        let vlans = vlan_of_service(object).into_iter().collect();
        return Place { key, points: texts("/status/connectionPoints"), vlans };
    }
    let vlans = texts("/spec/L2Services").iter().filter_map(|name| vlans.get(name).copied()).collect();
    Place { key, points: texts("/spec/ConnectionPoint"), vlans }
}

/// The objects at a ConnectionPoint of `own` with another VLAN: the nearest one first.
fn nearest(own: &Place, others: Vec<Place>) -> Vec<Key> {
    let distance = |other: &Place| {
        let others = other.vlans.difference(&own.vlans);
        others.flat_map(|other| own.vlans.iter().map(move |vlan| vlan.abs_diff(*other))).min()
    };
    let is_near = |other: &Place| other.key != own.key && !other.points.is_disjoint(&own.points);
    let near = others.into_iter().filter(is_near);
    let mut near: Vec<(u64, Key)> = near.filter_map(|other| Some((distance(&other)?, other.key))).collect();
    near.sort();
    near.into_iter().map(|(_, key)| key).collect()
}

/// Whether the caller may patch an object.
async fn may_patch(client: &Client, key: &Key) -> anyhow::Result<bool> {
    let resource = resource(key.kind);
    let attributes = ResourceAttributes {
        namespace: key.namespace().map(str::to_owned),
        verb: Some("patch".into()),
        group: Some(resource.group),
        resource: Some(resource.plural),
        name: Some(key.name.to_string()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.with_context(|| format!("asking whether you may patch {key}"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(name: &str) -> Key {
        Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &name.into())
    }

    fn at(name: &str, points: &[&str], vlans: &[u64]) -> Place {
        let points = points.iter().map(|point| (*point).to_owned()).collect();
        Place { key: attachment(name), points, vlans: vlans.iter().copied().collect() }
    }

    #[test]
    fn nearest_other_vlan_at_the_same_point_comes_first() {
        let own = at("a", &["cp", "dp"], &[100, 110]);
        let others = vec![
            at("a", &["cp"], &[101]),
            at("far", &["cp"], &[300]),
            at("elsewhere", &["ep"], &[101]),
            at("same", &["cp"], &[100]),
            at("trunk", &["dp"], &[100, 113]),
            at("near", &["cp"], &[98]),
        ];
        let names: Vec<Key> = ["near", "trunk", "far"].map(attachment).into();
        // The trunk has VLAN 113 beside one that is no other VLAN.
        assert_eq!(nearest(&own, others)[..], names[..]);
        assert_eq!(nearest(&at("a", &["cp"], &[100]), vec![at("same", &["cp"], &[100])]), []);
    }

    #[test]
    fn other_object_can_be_named() {
        let own = attachment("a");
        assert_eq!(named(&own, "b").expect("a key"), attachment("b"));
        let elsewhere = Key::namespaced(Kind::L2ServiceAttachment, &"other".into(), &"a".into());
        assert_eq!(named(&own, "other/a").expect("a key"), elsewhere);
        assert!(named(&own, "a").is_err());
        let service = Key::cluster(Kind::L2Service, &"s".into());
        assert_eq!(named(&service, "t").expect("a key"), Key::cluster(Kind::L2Service, &"t".into()));
        assert!(named(&service, "ns/t").is_err());
    }

    #[test]
    fn place_is_read_of_both_kinds() {
        let object = |kind: &str, spec: Value, status: Value| -> DynamicObject {
            let object = serde_json::json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "a" },
                "spec": spec, "status": status });
            serde_json::from_value(object).expect("an object")
        };
        let vlans = BTreeMap::from([("s".to_owned(), 100), ("t".to_owned(), 200)]);
        let spec = serde_json::json!({ "ConnectionPoint": "cp", "L2Services": ["s", "t", "unknown"] });
        let found = place(attachment("a"), &object("L2ServiceAttachment", spec, Value::Null), &vlans);
        assert_eq!(found, at("a", &["cp"], &[100, 200]));
        let (spec, status) =
            (serde_json::json!({ "SegmentationID": 7 }), serde_json::json!({ "connectionPoints": ["cp"] }));
        let key = Key::cluster(Kind::L2Service, &"a".into());
        let found = place(key.clone(), &object("L2Service", spec, status), &vlans);
        assert_eq!(found, Place { key, ..at("a", &["cp"], &[7]) });
    }
}
