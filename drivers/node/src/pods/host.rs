//! The host's side: what its interfaces are, which of them pods may be given interfaces of.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use eno_schemas::{HostNetwork, NodeDesired};

use super::check::Refusal;
use super::kind::{self, Base};
use super::ownership::{self, DELETION_GROUP, GROUP};
use crate::host::ownership::{OriginalSettings, group};
use crate::netlink::{Kind, Link, Links, Snapshot};

/// `RT_TABLE_MAIN`.
const TABLE_MAIN: u32 = 254;

/// What shows on an interface that a network of ours is made of it. A name that is commanded shows nothing: the interface
/// may be somebody else's.
#[derive(Clone, Copy, Debug)]
enum Evidence {
    /// The group that we give what we make.
    Group,
    /// The alternative name that we give a NIC before we use it.
    OriginalAltname,
    /// Nothing: an administrator may name an Open vSwitch bridge of his own.
    NameOnly,
}

/// What pods share of the host, as of the beginning of a reconcile.
#[derive(Clone, Debug, Default)]
pub struct Host {
    links: Arc<Links>,
    cluster: String,
    /// [`group`] of the cluster.
    group: u32,
    /// Interfaces with an address of the node, or a default route.
    used_by_node: BTreeMap<u32, &'static str>,
    /// What may be a parent whatever it is.
    allowed: BTreeSet<String>,
    bridges: BTreeSet<String>,
    /// Bridges of pods that are given addresses of their own.
    addressed: BTreeSet<String>,
    parents: BTreeMap<String, Evidence>,
}

fn foreign(name: &str) -> Refusal {
    Refusal::temporary(format!(
        "the host's interface {name} was not made by ENO, nor was it given to ENO to use"
    ))
}

/// True when something is to be made on an interface of the host: only then it counts what else that carries.
pub fn has_parents(desired: &NodeDesired) -> bool {
    let mut links = desired.pods.values().flat_map(|pod| &pod.links);
    links.any(|link| matches!(kind::base(&link.kind), Base::Host(_)))
}

impl Host {
    /// `allowed`: what may be a parent besides the networks that are ours. Addresses and routes are needed only if
    /// [`has_parents`].
    pub fn new(
        links: Arc<Links>,
        found: &Snapshot,
        desired: &NodeDesired,
        allowed: &BTreeSet<String>,
    ) -> Self {
        let mut used_by_node = BTreeMap::new();
        for address in &found.addresses {
            let local = match address.net.addr() {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            if !local {
                used_by_node.insert(address.index, "carries an address of the node");
            }
        }
        for route in
            found.routes.iter().filter(|route| route.prefix.prefix_len() == 0 && route.table == TABLE_MAIN)
        {
            if let Some(index) = route.index {
                used_by_node.insert(index, "carries the node's default route");
            }
        }
        let mut parents = BTreeMap::new();
        let mut bridges = BTreeSet::new();
        let mut addressed = BTreeSet::new();
        for (name, network) in &desired.networks {
            if matches!(network, HostNetwork::PodBridge { addresses, .. } if !addresses.is_empty()) {
                addressed.insert(name.clone());
            }
            let evidence = match network {
                HostNetwork::Master { bond, vlans, .. } => {
                    let subinterfaces = vlans.iter().map(|vlan| format!("{name}.{}", vlan.get()));
                    parents.extend(subinterfaces.map(|name| (name, Evidence::Group)));
                    if bond.is_empty() { Evidence::OriginalAltname } else { Evidence::Group }
                }
                HostNetwork::Ovs { .. } => Evidence::NameOnly,
                HostNetwork::Bridge { .. } | HostNetwork::PodBridge { .. } => Evidence::Group,
            };
            if !matches!(network, HostNetwork::Master { .. }) {
                bridges.insert(name.clone());
            }
            parents.insert(name.clone(), evidence);
        }
        let (cluster, allowed) = (desired.cluster.clone(), allowed.clone());
        Self { links, group: group(&cluster), cluster, used_by_node, allowed, bridges, addressed, parents }
    }

    fn has_evidence(&self, link: &Link, evidence: Evidence) -> bool {
        match evidence {
            Evidence::Group => link.group == self.group,
            Evidence::OriginalAltname => OriginalSettings::recorded(link, &self.cluster).is_some(),
            Evidence::NameOnly => true,
        }
    }

    /// The interface that macvlan, ipvlan and vlan interfaces of pods may be made on, if `name` is one.
    pub fn parent(&self, name: &str) -> Result<u32, Refusal> {
        let evidence = self.parents.get(name);
        if evidence.is_none() && !self.allowed.contains(name) {
            return Err(Refusal::permanent(format!(
                "the host's interface {name} is neither a network of ours nor on the agent's list of allowed ones"
            )));
        }
        if self.addressed.contains(name) {
            return Err(Refusal::permanent(format!(
                "the bridge {name} has addresses of its own, so nothing is made on it; make it a veth with master {name}"
            )));
        }
        let link = self
            .links
            .named(name)
            .ok_or_else(|| Refusal::temporary(format!("the host has no interface {name}")))?;
        if !self.allowed.contains(name)
            && !evidence.is_some_and(|evidence| self.has_evidence(link, *evidence))
        {
            return Err(foreign(name));
        }
        if link.group == GROUP || link.group == DELETION_GROUP {
            return Err(Refusal::permanent(format!("the host's interface {name} is the end of a pod's")));
        }
        match self.used_by_node.get(&link.index) {
            Some(why) => Err(Refusal::temporary(format!("the host's interface {name} {why}"))),
            None => Ok(link.index),
        }
    }

    /// Refuses a bridge that is no network of ours.
    pub fn check_bridge(&self, name: &str) -> Result<(), Refusal> {
        if self.bridges.contains(name) {
            Ok(())
        } else {
            Err(Refusal::permanent(format!("the bridge {name} is no network of this node")))
        }
    }

    /// The Linux bridge that ports are added to.
    pub fn bridge(&self, name: &str, filtering: bool) -> Result<u32, Refusal> {
        self.check_bridge(name)?;
        let link = self.links.named(name);
        match link.map(|link| (link, &link.kind)) {
            Some((link, _)) if !self.has_evidence(link, Evidence::Group) => Err(foreign(name)),
            Some((link, Kind::Bridge { vlan_filtering, .. })) if *vlan_filtering || !filtering => {
                Ok(link.index)
            }
            Some((_, Kind::Bridge { .. })) => {
                Err(Refusal::temporary(format!("the bridge {name} does not filter VLANs")))
            }
            Some(_) => Err(Refusal::temporary(format!("the host's interface {name} is not a bridge"))),
            None => Err(Refusal::temporary(format!("the host has no bridge {name}"))),
        }
    }

    /// Host ends of ours that nothing wants any more, with the pod that each was for.
    pub fn stale_ends<'a>(&'a self, desired: &'a NodeDesired) -> impl Iterator<Item = &'a Link> {
        self.links.iter().filter(|link| match (link.group, &link.kind) {
            (DELETION_GROUP, _) => true,
            (GROUP, Kind::Veth) => link
                .alias
                .as_deref()
                .and_then(|alias| ownership::read_alias(&desired.cluster, alias))
                .is_some_and(|(uid, id)| {
                    !desired.pods.get(uid).is_some_and(|pod| pod.links.iter().any(|link| link.id == id))
                }),
            _ => false,
        })
    }
}

/// The host as one pod's work sees it: what it changed itself is looked at anew.
#[derive(Clone, Debug)]
pub struct HostView<'a> {
    host: &'a Host,
    refreshed: BTreeMap<u32, Option<Link>>,
}

impl<'a> HostView<'a> {
    /// As at the beginning.
    pub fn new(host: &'a Host) -> Self {
        Self { host, refreshed: BTreeMap::new() }
    }

    /// The rules about parents and bridges.
    pub fn guard(&self) -> &'a Host {
        self.host
    }

    /// What is now at `index`.
    pub fn refresh(&mut self, index: u32, link: Option<Link>) {
        self.refreshed.insert(index, link);
    }

    /// All that was looked at anew, by its index.
    pub fn into_refreshed(self) -> BTreeMap<u32, Option<Link>> {
        self.refreshed
    }

    /// The interface of that index.
    pub fn link(&self, index: u32) -> Option<&Link> {
        match self.refreshed.get(&index) {
            Some(refreshed) => refreshed.as_ref(),
            None => self.host.links.get(index),
        }
    }

    /// The interface called that.
    pub fn named(&self, name: &str) -> Option<&Link> {
        let refreshed = self.refreshed.values().flatten().find(|link| link.name == name);
        refreshed
            .or_else(|| self.host.links.named(name).filter(|link| !self.refreshed.contains_key(&link.index)))
    }

    /// Host ends of that pod, with the ids of their links.
    pub fn ends<'b>(&'b self, cluster: &'b str, uid: &'b str) -> impl Iterator<Item = (&'b Link, &'b str)> {
        let old = self.host.links.iter().filter(|link| !self.refreshed.contains_key(&link.index));
        old.chain(self.refreshed.values().flatten()).filter(|link| link.group == GROUP).filter_map(
            move |link| {
                let (owner, id) = ownership::read_alias(cluster, link.alias.as_deref()?)?;
                (owner == uid).then_some((link, id))
            },
        )
    }
}
