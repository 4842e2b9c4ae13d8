//! Templates: the interfaces that an object gives to a pod, before they have addresses.

use std::fmt::Write as _;

use eno_schemas::{LinkKind, LinkName, Master, Parent, PodLink, PodRoute, PrimaryLink};
use ipnet::IpNet;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::kinds::{PodLinkSpec, PodLinksSpec};
use crate::pods::ipam::{PoolKey, Source};
use crate::{Key, Kind, Name};

/// An interface without its addresses.
#[derive(Clone, Debug)]
pub struct Template {
    /// The link's name in the spec, under which its addresses are recorded.
    pub name: Name,
    /// The interface, except for its addresses and revision.
    pub link: PodLink,
    /// The addresses that it needs.
    pub needs: Vec<AddressNeed>,
    /// The pod bridge that it is a port of, and its request to that.
    pub bridge: Option<(String, BridgeRequest)>,
}

/// The interfaces that an object gives to a pod, before they have addresses.
#[derive(Clone, Debug, Default)]
pub struct Interfaces {
    /// In the order in which they are made.
    pub templates: Vec<Template>,
    /// A change of the primary interface.
    pub primary: Option<PrimaryLink>,
}

/// The need of one address.
#[derive(Clone, Debug)]
pub struct AddressNeed {
    /// The pool in which it is unique.
    pub pool: PoolKey,
    /// The source that it is leased from.
    pub source: Source,
    /// The message when the source has none left.
    pub exhausted_message: String,
}

/// The request of a link to its pod bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BridgeRequest {
    /// The addresses of the bridge itself.
    pub addresses: Vec<IpNet>,
    /// Bytes.
    pub mtu: Option<u32>,
}

/// The settings of a pod bridge in the Bridge object of a namespace.
#[derive(Clone, Debug)]
pub struct BridgeSettings {
    /// Its networks.
    pub cidrs: Vec<IpNet>,
    /// Bytes.
    pub mtu: Option<u32>,
}

impl Template {
    /// Completes the interface with its addresses.
    pub fn with_addresses(self, addresses: Vec<IpNet>) -> PodLink {
        let mut link = PodLink { addresses, ..self.link };
        link.revision = revision(&link);
        link
    }
}

/// The id of a link of an object in a pod of a namespace. One of another namespace is named with its own.
pub fn link_id(key: &Key, namespace: &Name, link: &str) -> String {
    let Key { kind, namespace: own, name } = key;
    if own == namespace { format!("{kind}/{name}/{link}") } else { format!("{kind}/{own}:{name}/{link}") }
}

/// The inverse of [`link_id`], for a pod of that namespace: the object and the link's name.
pub fn owner_of(id: &str, namespace: &Name) -> Option<(Key, Name)> {
    let (kind, rest) = id.split_once('/')?;
    let (name, link) = rest.split_once('/')?;
    let kind = Kind::of_name(kind)?;
    let (namespace, name) =
        name.split_once(':').map_or((namespace.clone(), name), |(own, name)| (own.into(), name));
    Some((Key::namespaced(kind, &namespace, &name.into()), link.into()))
}

/// The templates of a configuration's links, and its change of the primary interface. `bridge` returns the settings
/// of a Bridge object.
pub fn templates_for(
    key: &Key,
    spec: &PodLinksSpec,
    bridge: impl Fn(&str) -> Option<BridgeSettings>,
) -> Interfaces {
    let templates = spec.links.iter().map(|link| template_for(key, link, &bridge)).collect();
    let primary = spec.primary.as_ref().map(|primary| {
        let mut link = PrimaryLink {
            id: link_id(key, &key.namespace, &primary.name),
            revision: String::new(),
            name: primary.name.clone(),
            mtu: primary.mtu,
        };
        link.revision = revision(&link);
        link
    });
    Interfaces { templates, primary }
}

fn template_for(key: &Key, spec: &PodLinkSpec, bridge: &impl Fn(&str) -> Option<BridgeSettings>) -> Template {
    let kind = match &spec.kind {
        LinkKind::Vlan { parent: Parent::Link(parent), vlan } => {
            LinkKind::Vlan { parent: Parent::Link(link_id(key, &key.namespace, parent)), vlan: *vlan }
        }
        kind => kind.clone(),
    };
    let master = pod_bridge(&kind).map(str::to_owned);
    let facts = master.as_deref().and_then(bridge);
    let cidrs =
        facts.as_ref().filter(|facts| !facts.cidrs.is_empty()).map_or(&spec.cidrs, |facts| &facts.cidrs);
    let pool = match &master {
        Some(bridge) => PoolKey::Bridge(key.namespace.clone(), bridge.clone()),
        None => PoolKey::Link(key.clone(), spec.name.clone()),
    };
    let sources: Vec<Source> = if spec.addresses.is_empty() {
        // One address of each network.
        cidrs.iter().map(|cidr| Source::Network { network: *cidr, bridged: master.is_some() }).collect()
    } else {
        let (v4, v6): (Vec<IpNet>, Vec<IpNet>) = spec.addresses.iter().partition(|ip| ip.addr().is_ipv4());
        [v4, v6].into_iter().filter(|list| !list.is_empty()).map(Source::List).collect()
    };
    let needs = sources.into_iter().map(|source| {
        let exhausted_message = match &source {
            Source::Network { network, .. } => {
                format!("link {}: no address of {network} is free; take a larger cidr", spec.name)
            }
            Source::List(_) | Source::Ranges { .. } => format!(
                "link {}: all of its addresses are taken by other pods; add one for each pod",
                spec.name
            ),
        };
        AddressNeed { pool: pool.clone(), source, exhausted_message }
    });
    let request = BridgeRequest {
        addresses: cidrs.iter().map(super::ipam::first_address).collect(),
        mtu: facts.as_ref().and_then(|facts| facts.mtu).or(spec.mtu),
    };
    Template {
        name: spec.name.clone(),
        needs: needs.collect(),
        bridge: master.map(|master| (master, request)),
        link: PodLink {
            id: link_id(key, &key.namespace, &spec.name),
            revision: String::new(),
            name: LinkName::WithPid(spec.name.to_string()),
            kind,
            member_of: spec.member_of.as_ref().map(|link| link_id(key, &key.namespace, link)),
            mtu: spec.mtu,
            mac: spec.mac.clone(),
            anti_spoof: false,
            parent_leads_to: None,
            alias: spec.alias.clone(),
            addresses: Vec::new(),
            routes: spec.routes.clone(),
            rules: spec.rules.clone(),
            sysctls: spec.sysctls.clone(),
            up: spec.up,
        },
    }
}

/// The pod bridge that a link is a port of.
pub fn pod_bridge(kind: &LinkKind) -> Option<&str> {
    match kind {
        LinkKind::Veth { master: Some(Master::Bridge { bridge, vlans: None }) } => Some(bridge),
        _ => None,
    }
}

/// The parent on the host of a link that is no port of a bridge.
pub fn host_parent(kind: &LinkKind) -> Option<&str> {
    match kind {
        LinkKind::Macvlan { master } | LinkKind::Ipvlan { master } => Some(master),
        LinkKind::Vlan { parent: Parent::Host(parent), .. } => Some(parent),
        _ => None,
    }
}

/// The master on the host that a link shares with links of other pods.
pub fn shared_master(kind: &LinkKind) -> Option<&str> {
    match kind {
        LinkKind::Veth { master: Some(master) } => Some(master.bridge()),
        LinkKind::Macvlan { master } => Some(master),
        _ => None,
    }
}

/// As `ip link add type …` calls it.
pub fn kind_name(kind: &LinkKind) -> &'static str {
    match kind {
        LinkKind::Veth { .. } => "veth",
        LinkKind::Macvlan { .. } => "macvlan",
        LinkKind::Ipvlan { .. } => "ipvlan",
        LinkKind::Vlan { .. } => "vlan",
        LinkKind::Bridge {} => "bridge",
        LinkKind::Vxlan { .. } => "vxlan",
        LinkKind::Geneve { .. } => "geneve",
        LinkKind::Gre(_) => "gre",
        LinkKind::Gretap(_) => "gretap",
        LinkKind::Ipip(_) => "ipip",
        LinkKind::Tun(_) => "tun",
        LinkKind::Tap(_) => "tap",
        LinkKind::Dummy {} => "dummy",
        LinkKind::Vrf { .. } => "vrf",
    }
}

/// The text of `ip route` for a route, without the interface.
pub fn route_text(route: &PodRoute) -> String {
    let mut text =
        if route.prefix.prefix_len() == 0 { "default".to_owned() } else { route.prefix.to_string() };
    // Writing to a string can't fail.
    let _ = route.next_hop.map(|hop| write!(text, " via {hop}"));
    let _ = route.source.map(|source| write!(text, " src {source}"));
    let _ = route.metric.map(|metric| write!(text, " metric {metric}"));
    let _ = route.table.map(|table| write!(text, " table {table}"));
    text
}

/// A short hash of a content, the same in every process.
fn revision(content: &impl Serialize) -> String {
    let json = serde_json::to_vec(content).unwrap_or_default();
    Sha256::digest(json).iter().take(6).fold(String::with_capacity(12), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
