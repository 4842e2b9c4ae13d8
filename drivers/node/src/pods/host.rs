//! The interfaces of the host, and the rules which of them pods' interfaces may be attached to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use eno_schemas::{HostNetwork, LinkKind, Master, NodeDesired, NodePod, OvsDatapath, PortVlans};

use super::check::Refusal;
use super::kind::{self, Base};
use super::ownership::{self, DELETION_GROUP, GROUP};
use crate::host::ownership::{OriginalSettings, group};
use crate::host::state::TABLE_MAIN;
use crate::netlink::{Kind, Link, Links, Snapshot};

/// The ownership mark that an interface of a network must carry. A matching name alone is not enough: the interface may
/// belong to someone else.
#[derive(Clone, Copy, Debug)]
enum Evidence {
    /// The group of interfaces that ENO makes.
    Group,
    /// The alternative name that ENO gives a NIC before it uses the NIC.
    OriginalAltname,
    /// No mark: an Open vSwitch bridge may be an administrator's own.
    NameOnly,
}

/// The state of the host that all pods share, as of the start of a reconcile.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Interfaces of the host.
    links: Arc<Links>,
    /// The cluster's name in ownership marks.
    cluster: String,
    /// [`group`] of the cluster's host networks.
    group: u32,
    /// Interfaces with an address of the node or a default route, by index, with the reason as a message.
    used_by_node: BTreeMap<u32, &'static str>,
    /// Interfaces that may be parents without an ownership mark, by name.
    allowed: BTreeSet<String>,
    /// Names of bridge networks.
    bridges: BTreeSet<String>,
    /// Names of pod bridges with addresses.
    addressed: BTreeSet<String>,
    /// Interfaces of networks, by name, with the mark that they must carry.
    parents: BTreeMap<String, Evidence>,
    /// Open vSwitch bridges whose packets pass the kernel's filters.
    kernel_datapaths: BTreeSet<String>,
}

fn foreign(name: &str) -> Refusal {
    Refusal::temporary(format!(
        "the host's interface {name} was not made by ENO, nor was it given to ENO to use"
    ))
}

/// True when any desired interface is made on an interface of the host. Only then addresses and routes of the host are
/// needed.
pub fn has_parents(desired: &NodeDesired) -> bool {
    let mut links = desired.pods.values().flat_map(|pod| &pod.links);
    links.any(|link| matches!(kind::base(&link.kind), Base::Host(_)))
}

impl Host {
    /// `allowed`: names of interfaces that may be parents besides those of networks. `found`: the host's addresses and
    /// routes, needed only if [`has_parents`]. `datapath`: that of Open vSwitch bridges that ask for none in particular.
    pub fn new(
        links: Arc<Links>,
        found: &Snapshot,
        desired: &NodeDesired,
        allowed: &BTreeSet<String>,
        datapath: OvsDatapath,
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
        let mut kernel_datapaths = BTreeSet::new();
        // Interfaces of the host are no place for pods.
        let networks = desired.networks.iter();
        for (name, network) in networks.filter(|(_, found)| !matches!(found, HostNetwork::Interface { .. })) {
            if let HostNetwork::Ovs { datapath: own, .. } = network
                && own.unwrap_or(datapath) == OvsDatapath::System
            {
                kernel_datapaths.insert(name.clone());
            }
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
                _ => Evidence::Group,
            };
            if !matches!(network, HostNetwork::Master { .. }) {
                bridges.insert(name.clone());
            }
            parents.insert(name.clone(), evidence);
        }
        let (cluster, allowed) = (desired.cluster.clone(), allowed.clone());
        Self {
            links,
            group: group(&cluster),
            cluster,
            used_by_node,
            allowed,
            bridges,
            addressed,
            parents,
            kernel_datapaths,
        }
    }

    fn has_evidence(&self, link: &Link, evidence: Evidence) -> bool {
        match evidence {
            Evidence::Group => link.group == self.group,
            Evidence::OriginalAltname => OriginalSettings::recorded(link, &self.cluster).is_some(),
            Evidence::NameOnly => true,
        }
    }

    /// The index of the interface `name`, if macvlan, ipvlan and vlan interfaces of pods may be made on it.
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

    /// True for an Open vSwitch bridge whose packets pass the kernel's filters.
    pub fn has_kernel_datapath(&self, bridge: &str) -> bool {
        self.kernel_datapaths.contains(bridge)
    }

    /// Refuses a bridge that is no network of this node.
    pub fn check_bridge(&self, name: &str) -> Result<(), Refusal> {
        if self.bridges.contains(name) {
            Ok(())
        } else {
            Err(Refusal::permanent(format!("the bridge {name} is no network of this node")))
        }
    }

    /// The index of the Linux bridge `name`, if ports may be added to it. `filtering`: it must filter VLANs.
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

    /// ENO's host ends of veth pairs that are not desired.
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

    /// The ports of Open vSwitch that the host ends of a desired pod are to be: link id, bridge and VLANs, by the name of
    /// the host end. They are known without the pod's namespace.
    pub fn ovs_ports(&self, uid: &str, pod: &NodePod) -> BTreeMap<String, (String, String, PortVlans)> {
        let port = |end: &Link| {
            let (owner, id) = ownership::read_alias(&self.cluster, end.alias.as_deref()?)?;
            let link = pod.links.iter().find(|link| owner == uid && link.id == id)?;
            let LinkKind::Veth { master: Some(Master::Ovs { bridge, vlans }) } = &link.kind else {
                return None;
            };
            self.check_bridge(bridge).ok()?;
            Some((end.name.clone(), (link.id.clone(), bridge.clone(), vlans.clone())))
        };
        let is_end = |link: &&Link| link.group == GROUP && link.kind == Kind::Veth;
        self.links.iter().filter(is_end).filter_map(port).collect()
    }
}

/// The host as seen by the work on one pod: interfaces that this work changes are read again.
#[derive(Clone, Debug)]
pub struct HostView<'a> {
    host: &'a Host,
    refreshed: BTreeMap<u32, Option<Link>>,
}

impl<'a> HostView<'a> {
    /// The host as of the start of the reconcile.
    pub fn new(host: &'a Host) -> Self {
        Self { host, refreshed: BTreeMap::new() }
    }

    /// The rules for parents and bridges.
    pub fn guard(&self) -> &'a Host {
        self.host
    }

    /// Sets the present state of the interface `index`; `None`: it does not exist.
    pub fn refresh(&mut self, index: u32, link: Option<Link>) {
        self.refreshed.insert(index, link);
    }

    /// All interfaces that were read again, by index.
    pub fn into_refreshed(self) -> BTreeMap<u32, Option<Link>> {
        self.refreshed
    }

    /// The interface with that index.
    pub fn link(&self, index: u32) -> Option<&Link> {
        match self.refreshed.get(&index) {
            Some(refreshed) => refreshed.as_ref(),
            None => self.host.links.get(index),
        }
    }

    /// The interface with that name.
    pub fn named(&self, name: &str) -> Option<&Link> {
        let refreshed = self.refreshed.values().flatten().find(|link| link.name == name);
        refreshed
            .or_else(|| self.host.links.named(name).filter(|link| !self.refreshed.contains_key(&link.index)))
    }

    /// The host ends of a pod's veth pairs, each with the id of its link.
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
