//! Computes the changes that lead from the observed state to the desired one. Pure.
//!
//! A plan holds the changes that are possible at once. A change that needs the index of an interface which the plan
//! makes follows in the next plan. A plan without steps means that the observed state is as desired.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{HostNetwork, NodeDesired, Uplink, VlanId, VlanSet};
use rtnetlink::packet_route::link::{BondMode, LinkAttribute};
use rtnetlink::{LinkBond, LinkBridge, LinkMessageBuilder, LinkVlan};

use super::guard::{self, NicUse, Refusal};
use super::interface::Interface;
use super::kernel::Change;
use super::nic::{address_generation, check_mtu};
use super::ownership::{self, OriginalSettings};
use super::state::{ADDR_GEN_NONE, State, kind_name};
use crate::netlink::{Kind, Link, PortVlan, Request};

/// Milliseconds between link checks of a bond's members (`miimon`).
const MIIMON: u32 = 100;

/// The item of the desired state that a step or a refusal belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemRef {
    /// Interfaces that are not desired any more.
    Leftovers,
    /// A network.
    Network(String),
    /// One VLAN of a network.
    Vlan(String, VlanId),
}

impl ItemRef {
    /// True when a failure of this item affects `other` too.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Network(network), Self::Vlan(name, _)) => network == name,
            _ => self == other,
        }
    }
}

/// One change.
#[derive(Clone, Debug)]
pub struct Step {
    /// The item that it is for.
    pub item: ItemRef,
    /// The change of the kernel.
    pub change: Change,
    /// The difference from the desired state, as a message.
    pub difference: String,
}

/// The changes that are possible at once.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Changes, in the order of execution.
    pub steps: Vec<Step>,
    /// Items that are left as they are, and why.
    pub refused: BTreeMap<ItemRef, Refusal>,
}

/// Computes the plan. Items in `failed` are left alone, with the interfaces that they consist of.
pub fn plan(desired: &NodeDesired, state: &State, failed: &BTreeMap<ItemRef, Refusal>) -> Plan {
    let mut planner = Planner {
        cluster: &desired.cluster,
        group: ownership::group(&desired.cluster),
        state,
        networks: &desired.networks,
        steps: Vec::new(),
        refused: failed.clone(),
        desired_names: BTreeSet::new(),
        nic_users: BTreeMap::new(),
        addresses: Vec::new(),
        gateways: Vec::new(),
        rules: Vec::new(),
        chains: BTreeSet::new(),
    };
    let mut claims = BTreeMap::new();
    for (name, network) in &desired.networks {
        planner.collect_names(name, network);
        claims.insert(name, planner.claim(name, network));
    }
    // Interfaces are made on other networks.
    let (interfaces, others): (Vec<_>, Vec<_>) =
        desired.networks.iter().partition(|(_, network)| matches!(network, HostNetwork::Interface { .. }));
    for (name, network) in others.into_iter().chain(interfaces) {
        let item = ItemRef::Network(name.clone());
        if planner.refused.contains_key(&item) {
            planner.keep_rules(name);
            continue;
        }
        let before = planner.steps.len();
        let done = claims.remove(name).unwrap_or(Ok(())).and_then(|()| planner.network(name, network));
        if let Err(refusal) = done {
            planner.steps.truncate(before);
            planner.keep_rules(name);
            planner.refused.insert(item, refusal);
        }
    }
    let mut steps = planner.cleanup();
    steps.append(&mut planner.steps);
    Plan { steps, refused: planner.refused }
}

pub(super) struct Planner<'a> {
    /// The cluster's name in ownership marks.
    pub(super) cluster: &'a str,
    /// [`ownership::group`] of the cluster.
    pub(super) group: u32,
    /// The observed state.
    pub(super) state: &'a State,
    /// The desired networks.
    pub(super) networks: &'a BTreeMap<String, HostNetwork>,
    /// The steps so far.
    pub(super) steps: Vec<Step>,
    /// The refusals so far.
    pub(super) refused: BTreeMap<ItemRef, Refusal>,
    /// Names of the interfaces that desired networks consist of.
    desired_names: BTreeSet<String>,
    /// The network that uses a NIC, by the NIC's index.
    nic_users: BTreeMap<u32, String>,
    /// Addresses of pod bridges and interfaces, each with its network.
    pub(super) addresses: Vec<(ipnet::IpNet, String)>,
    /// Gateways of interfaces, each with its network.
    pub(super) gateways: Vec<(std::net::IpAddr, String)>,
    /// Policy rules of networks that are desired or kept.
    pub(super) rules: Vec<crate::netlink::Rule>,
    /// Names of the chains of networks that are desired or kept.
    pub(super) chains: BTreeSet<String>,
}

impl<'a> Planner<'a> {
    pub(super) fn step(&mut self, item: &ItemRef, change: impl Into<Change>, difference: impl Into<String>) {
        self.steps.push(Step { item: item.clone(), change: change.into(), difference: difference.into() });
    }

    fn collect_names(&mut self, name: &str, network: &HostNetwork) {
        match network {
            HostNetwork::Ovs { .. } => {}
            HostNetwork::Bridge { uplink, .. } => {
                self.desired_names.insert(name.to_owned());
                if uplink.as_ref().is_some_and(|uplink| uplink.interfaces.len() > 1) {
                    self.desired_names.insert(Uplink::bond_name(name));
                }
            }
            HostNetwork::Master { bond, vlans, .. } => {
                if !bond.is_empty() {
                    self.desired_names.insert(name.to_owned());
                }
                self.desired_names
                    .extend(vlans.iter().filter_map(|vlan| guard::subinterface(name, vlan).ok()));
            }
            HostNetwork::PodBridge { .. } => {
                self.desired_names.insert(name.to_owned());
            }
            HostNetwork::Interface { .. } => {
                self.desired_names.extend([name.to_owned(), ownership::port(name)]);
            }
        }
    }

    /// Registers the NICs that a network uses: no other network may use them, and they are not restored.
    fn claim(&mut self, network: &str, spec: &HostNetwork) -> Result<(), Refusal> {
        let own = [network.to_owned()];
        let nics: &[String] = match spec {
            HostNetwork::Ovs { uplink, .. } | HostNetwork::Bridge { uplink, .. } => {
                uplink.as_ref().map_or(&[], |uplink| &uplink.interfaces)
            }
            HostNetwork::Master { bond, .. } if bond.is_empty() => &own,
            HostNetwork::Master { bond, .. } => bond,
            HostNetwork::PodBridge { .. } | HostNetwork::Interface { .. } => &[],
        };
        for name in nics {
            let Some(link) = self.state.named(name) else { continue };
            if let Some(other) = self.nic_users.get(&link.index).filter(|other| *other != network) {
                return Err(Refusal::Taken { name: link.name.clone(), other: other.clone() });
            }
            self.nic_users.insert(link.index, network.to_owned());
        }
        Ok(())
    }

    fn network(&mut self, name: &str, network: &HostNetwork) -> Result<(), Refusal> {
        guard::name(name)?;
        match network {
            HostNetwork::Ovs { uplink, .. } => match uplink {
                Some(uplink) => self.ovs_uplink(name, uplink),
                None => Ok(()),
            },
            HostNetwork::Bridge { uplink, vlans, mtu } => self.bridge(name, uplink.as_ref(), vlans, *mtu),
            HostNetwork::Master { bond, vlans, mtu } => self.master(name, bond, vlans, *mtu),
            HostNetwork::PodBridge { addresses, mtu } => self.pod_bridge(name, addresses, *mtu),
            HostNetwork::Interface { network, vlan, addresses, gateways, prefixes, symmetric, mtu } => {
                let (vlan, symmetric, mtu) = (*vlan, *symmetric, *mtu);
                let wanted = Interface { network, vlan, addresses, gateways, prefixes, symmetric, mtu };
                self.interface(name, &wanted)
            }
        }
    }

    /// Prepares the NICs of an Open vSwitch uplink. Open vSwitch makes them its ports itself.
    fn ovs_uplink(&mut self, name: &str, uplink: &Uplink) -> Result<(), Refusal> {
        let item = ItemRef::Network(name.to_owned());
        for link in self.nics(&uplink.interfaces, uplink.mtu, true)? {
            let ours =
                |master: u32| self.state.snapshot.link(master).is_some_and(|found| found.group == self.group);
            let master = link.master.filter(|master| !ours(*master));
            self.use_nic(&item, link, uplink.mtu, master);
        }
        Ok(())
    }

    fn bridge(
        &mut self,
        name: &str,
        uplink: Option<&Uplink>,
        vlans: &VlanSet,
        mtu: Option<u32>,
    ) -> Result<(), Refusal> {
        let item = ItemRef::Network(name.to_owned());
        let requested = mtu.max(uplink.and_then(|uplink| uplink.mtu));
        let nics = match uplink {
            Some(uplink) => self.nics(&uplink.interfaces, requested, false)?,
            None => Vec::new(),
        };
        let found = self.owned_link(&item, name, |kind| matches!(kind, Kind::Bridge { .. }))?;
        let Some(bridge) = found else {
            let message =
                bridge_message(name, self.group, mtu).vlan_filtering(true).vlan_default_pvid(0).build();
            self.step(&item, Request::add_link(name, message), format!("the bridge {name} was missing"));
            return Ok(());
        };
        if !matches!(bridge.kind, Kind::Bridge { vlan_filtering: true, default_pvid: 0 }) {
            let message = LinkMessageBuilder::<LinkBridge>::new(name)
                .index(bridge.index)
                .vlan_filtering(true)
                .vlan_default_pvid(0)
                .build();
            let request = Request::change_link(format!("have {name} filter VLANs"), message);
            self.step(&item, request, format!("the bridge {name} did not filter VLANs"));
        }
        self.configure(&item, bridge, mtu);
        let port = match nics.as_slice() {
            [] => None,
            [nic] => {
                self.use_nic(&item, nic, requested, Some(bridge.index));
                Some(*nic)
            }
            _ => self.bond(&item, &Uplink::bond_name(name), &nics, requested, Some(bridge.index))?,
        };
        if let Some(port) = port.filter(|port| port.master == Some(bridge.index)) {
            self.port_vlans(&item, port, vlans);
        }
        Ok(())
    }

    fn master(
        &mut self,
        name: &str,
        bond: &[String],
        vlans: &VlanSet,
        mtu: Option<u32>,
    ) -> Result<(), Refusal> {
        let item = ItemRef::Network(name.to_owned());
        let lower = if bond.is_empty() {
            let nic = guard::nic(self.state, name, NicUse { group: self.group, ovs: false })?;
            check_mtu(nic, mtu)?;
            self.use_nic(&item, nic, mtu, None);
            nic
        } else {
            let nics = self.nics(bond, mtu, false)?;
            let Some(bond) = self.bond(&item, name, &nics, mtu, None)? else { return Ok(()) };
            bond
        };
        for vlan in vlans.iter() {
            let item = ItemRef::Vlan(name.to_owned(), vlan);
            if self.refused.contains_key(&item) {
                continue;
            }
            if let Err(refusal) = self.subinterface(&item, name, lower, vlan, mtu) {
                self.refused.insert(item, refusal);
            }
        }
        Ok(())
    }

    fn subinterface(
        &mut self,
        item: &ItemRef,
        master: &str,
        lower: &Link,
        vlan: VlanId,
        mtu: Option<u32>,
    ) -> Result<(), Refusal> {
        let name = guard::subinterface(master, vlan)?;
        let found = self.owned_link(item, &name, |kind| matches!(kind, Kind::Vlan { .. }))?;
        let Some(link) = found else {
            let message = LinkVlan::new(&name, lower.index, vlan.get()).link_group(self.group).build();
            self.step(
                item,
                Request::add_link(&name, message),
                format!("the VLAN subinterface {name} was missing"),
            );
            return Ok(());
        };
        if link.kind != (Kind::Vlan { vid: vlan.get() }) || link.parent != Some(lower.index) {
            let difference = format!("{name} was not VLAN {vlan} of {master}");
            self.step(item, Request::delete_link(&name, link.index), difference);
            return Ok(());
        }
        self.configure(item, link, mtu);
        Ok(())
    }

    /// Plans a bond of mode active-backup with these members. `None`: this plan makes the bond, the rest follows.
    fn bond(
        &mut self,
        item: &ItemRef,
        name: &str,
        nics: &[&'a Link],
        requested: Option<u32>,
        master: Option<u32>,
    ) -> Result<Option<&'a Link>, Refusal> {
        let found = self.owned_link(item, name, |kind| matches!(kind, Kind::Bond { .. }))?;
        let Some(bond) = found else {
            let message =
                LinkBond::new(name).mode(BondMode::ActiveBackup).miimon(MIIMON).link_group(self.group);
            self.step(item, Request::add_link(name, message.build()), format!("the bond {name} was missing"));
            return Ok(None);
        };
        if bond.kind != (Kind::Bond { active_backup: true }) {
            let difference = format!("the bond {name} was not of mode active-backup");
            self.step(item, Request::delete_link(name, bond.index), difference);
            return Ok(None);
        }
        // Members take over the MTU of their bond, and none may get a smaller one than it had.
        let largest = nics.iter().map(|nic| self.original(nic).mtu).max();
        self.configure(item, bond, requested.max(largest));
        for member in self.state.snapshot.links.iter().filter(|link| link.master == Some(bond.index)) {
            if nics.iter().all(|nic| nic.index != member.index) {
                let request = Request::set_master(&member.name, member.index, 0);
                self.step(item, request, format!("{} was a member of {name}", member.name));
            }
        }
        for nic in nics {
            self.record_original(item, nic);
            if nic.master != Some(bond.index) {
                if nic.up {
                    let request = Request::set_up(&nic.name, nic.index, false);
                    self.step(item, request, format!("{} was not a member of {name}", nic.name));
                }
                let request = Request::set_master(&nic.name, nic.index, bond.index);
                self.step(item, request, format!("{} was not a member of {name}", nic.name));
            } else if !nic.up {
                let request = Request::set_up(&nic.name, nic.index, true);
                self.step(item, request, format!("{} was down", nic.name));
            }
        }
        if bond.master != master {
            let request = Request::set_master(name, bond.index, master.unwrap_or(0));
            self.step(item, request, format!("{name} was a port of something else"));
        }
        Ok(Some(bond))
    }

    /// The interface with that name, if ENO made it. An interface of the wrong kind is deleted and counts as missing.
    pub(super) fn owned_link(
        &mut self,
        item: &ItemRef,
        name: &str,
        is_right_kind: impl Fn(&Kind) -> bool,
    ) -> Result<Option<&'a Link>, Refusal> {
        let Some(link) = self.state.named(name) else { return Ok(None) };
        if link.group != self.group {
            let kind = kind_name(&link.kind).to_owned();
            return Err(Refusal::Foreign { name: name.to_owned(), kind });
        }
        if is_right_kind(&link.kind) {
            return Ok(Some(link));
        }
        let difference = format!("{name} was a {}", kind_name(&link.kind));
        self.step(item, Request::delete_link(name, link.index), difference);
        Ok(None)
    }

    /// Plans the settings of an interface that ENO made: alias, MTU, no automatic IPv6 addresses, up.
    pub(super) fn configure(&mut self, item: &ItemRef, link: &Link, mtu: Option<u32>) {
        let network = match item {
            ItemRef::Network(name) | ItemRef::Vlan(name, _) => name.as_str(),
            ItemRef::Leftovers => "",
        };
        let (mut attributes, mut differences) = (Vec::new(), Vec::new());
        let alias = ownership::alias(self.cluster, network);
        if link.alias.as_ref() != Some(&alias) {
            attributes.push(LinkAttribute::IfAlias(alias));
            differences.push(format!("{} had another alias", link.name));
        }
        if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu) {
            attributes.push(LinkAttribute::Mtu(mtu));
            differences.push(format!("{} had an MTU of {}", link.name, link.mtu));
        }
        if link.address_generation.is_some_and(|mode| mode != ADDR_GEN_NONE) {
            attributes.push(address_generation(ADDR_GEN_NONE));
            differences.push(format!("{} gave itself IPv6 addresses", link.name));
        }
        if !attributes.is_empty() {
            let request = Request::set(&link.name, link.index, "alias, MTU and IPv6 mode", attributes);
            self.step(item, request, differences.join(", "));
        }
        if !link.up {
            let request = Request::set_up(&link.name, link.index, true);
            self.step(item, request, format!("{} was down", link.name));
        }
    }

    /// Plans the VLANs of an uplink: exactly these, tagged.
    fn port_vlans(&mut self, item: &ItemRef, port: &Link, wanted: &VlanSet) {
        let (tagged, untagged) = self.state.uplink_vlans(port.index);
        let extra = tagged.union(&untagged).difference(wanted);
        let missing = wanted.difference(&tagged);
        let listed = |set: &VlanSet| -> Vec<PortVlan> {
            set.iter().map(|vlan| PortVlan { vid: vlan.get(), pvid: false, untagged: false }).collect()
        };
        if !extra.is_empty() {
            let request = Request::delete_port_vlans(&port.name, port.index, &listed(&extra));
            self.step(item, request, format!("{} carried VLANs {extra} too", port.name));
        }
        if !missing.is_empty() {
            let request = Request::add_port_vlans(&port.name, port.index, &listed(&missing));
            self.step(item, request, format!("{} did not carry VLANs {missing}", port.name));
        }
    }

    /// Deletes ENO's interfaces that are not desired, and restores NICs that are no longer used.
    fn cleanup(&mut self) -> Vec<Step> {
        let item = ItemRef::Leftovers;
        if self.refused.contains_key(&item) {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.steps);
        let state = self.state;
        let goes = |link: &Link| link.group == self.group && !self.desired_names.contains(&link.name);
        let gone: BTreeSet<u32> =
            state.snapshot.links.iter().filter(|link| goes(link)).map(|link| link.index).collect();
        for link in state.snapshot.links.iter().filter(|link| gone.contains(&link.index)) {
            let request = Request::delete_link(&link.name, link.index);
            self.step(&item, request, format!("{} is not wanted", link.name));
        }
        for nic in &state.snapshot.links {
            if self.nic_users.contains_key(&nic.index) {
                continue;
            }
            if let Some((original, altname)) = OriginalSettings::recorded(nic, self.cluster) {
                self.restore_nic(&item, nic, original, altname, &gone);
            }
        }
        self.remove_stale_chains(&item);
        self.remove_stale_rules(&item);
        std::mem::replace(&mut self.steps, before)
    }
}

/// A message that makes a bridge. A bridge keeps an MTU only after a change of it; an MTU given when the bridge is made
/// follows those of its ports. So the bridge is made with another MTU than the desired one.
pub(super) fn bridge_message(name: &str, group: u32, mtu: Option<u32>) -> LinkMessageBuilder<LinkBridge> {
    let message = LinkMessageBuilder::<LinkBridge>::new(name).link_group(group);
    match mtu {
        Some(mtu) => message.mtu(mtu.saturating_sub(1)),
        None => message,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
