//! From what is wanted and what is there to what has to be done. Pure.
//!
//! A plan is about what can be done in one go. What depends on the number of an interface that is only made by it
//! follows in the next one, from what is there then; a plan without steps says that all is as wanted.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{HostNetwork, NodeDesired, Uplink, VlanId, VlanSet};
use rtnetlink::packet_route::link::{BondMode, LinkAttribute};
use rtnetlink::{LinkBond, LinkBridge, LinkMessageBuilder, LinkVlan};

use super::guard::{self, Refusal, User};
use super::mark::{self, Was};
use super::nic::{address_generation, can_carry};
use super::state::{NO_ADDRESSES, State, kind_name};
use crate::netlink::{Kind, Link, PortVlan, Request};

/// Milliseconds between looks at the carrier of a bond's members.
const MONITORING: u32 = 100;

/// What a step or a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// What is not wanted any more.
    Rest,
    /// A network.
    Network(String),
    /// One VLAN of it.
    Vlan(String, VlanId),
}

impl Spot {
    /// True when what is wrong there concerns `other` too.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Network(network), Self::Vlan(name, _)) => network == name,
            _ => self == other,
        }
    }
}

/// One thing to be done.
#[derive(Clone, Debug)]
pub struct Step {
    /// For what.
    pub spot: Spot,
    /// What the kernel is asked.
    pub request: Request,
    /// Why, in words: what differs from what is wanted.
    pub difference: String,
}

/// All that can be done now.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In this order.
    pub steps: Vec<Step>,
    /// What is left as it is.
    pub refused: BTreeMap<Spot, Refusal>,
}

/// Works it out. What has `failed` is left alone, and so is what it is made of.
pub fn plan(desired: &NodeDesired, state: &State, failed: &BTreeMap<Spot, Refusal>) -> Plan {
    let mut planner = Planner {
        cluster: &desired.cluster,
        group: mark::group(&desired.cluster),
        state,
        steps: Vec::new(),
        refused: failed.clone(),
        keep: BTreeSet::new(),
        users: BTreeMap::new(),
        addresses: Vec::new(),
        rules: Vec::new(),
    };
    let mut claims = BTreeMap::new();
    for (name, network) in &desired.networks {
        planner.keep_names(name, network);
        claims.insert(name, planner.claim(name, network));
    }
    for (name, network) in &desired.networks {
        let spot = Spot::Network(name.clone());
        if planner.refused.contains_key(&spot) {
            planner.keep_rules(name);
            continue;
        }
        let before = planner.steps.len();
        let done = claims.remove(name).unwrap_or(Ok(())).and_then(|()| planner.network(name, network));
        if let Err(refusal) = done {
            planner.steps.truncate(before);
            planner.keep_rules(name);
            planner.refused.insert(spot, refusal);
        }
    }
    let mut steps = planner.rest();
    steps.append(&mut planner.steps);
    Plan { steps, refused: planner.refused }
}

pub(super) struct Planner<'a> {
    pub(super) cluster: &'a str,
    pub(super) group: u32,
    pub(super) state: &'a State,
    pub(super) steps: Vec<Step>,
    refused: BTreeMap<Spot, Refusal>,
    /// Names of interfaces that a network consists of.
    keep: BTreeSet<String>,
    /// Which network uses a NIC, by the NIC's index.
    users: BTreeMap<u32, String>,
    /// Addresses of pod bridges, with the bridge.
    pub(super) addresses: Vec<(ipnet::IpNet, String)>,
    /// Rules of pod bridges that are wanted or kept.
    pub(super) rules: Vec<crate::netlink::Rule>,
}

impl<'a> Planner<'a> {
    pub(super) fn step(&mut self, spot: &Spot, request: Request, difference: impl Into<String>) {
        self.steps.push(Step { spot: spot.clone(), request, difference: difference.into() });
    }

    fn keep_names(&mut self, name: &str, network: &HostNetwork) {
        match network {
            HostNetwork::Ovs { .. } => {}
            HostNetwork::Bridge { uplink, .. } => {
                self.keep.insert(name.to_owned());
                if uplink.as_ref().is_some_and(|uplink| uplink.interfaces.len() > 1) {
                    self.keep.insert(Uplink::bond_name(name));
                }
            }
            HostNetwork::Master { bond, vlans, .. } => {
                if !bond.is_empty() {
                    self.keep.insert(name.to_owned());
                }
                self.keep.extend(vlans.iter().filter_map(|vlan| guard::subinterface(name, vlan).ok()));
            }
            HostNetwork::PodBridge { .. } => {
                self.keep.insert(name.to_owned());
            }
        }
    }

    /// Writes down which NICs a network uses: no other may, and they are not given back.
    fn claim(&mut self, network: &str, spec: &HostNetwork) -> Result<(), Refusal> {
        let own = [network.to_owned()];
        let nics: &[String] = match spec {
            HostNetwork::Ovs { uplink, .. } | HostNetwork::Bridge { uplink, .. } => {
                uplink.as_ref().map_or(&[], |uplink| &uplink.interfaces)
            }
            HostNetwork::Master { bond, .. } if bond.is_empty() => &own,
            HostNetwork::Master { bond, .. } => bond,
            HostNetwork::PodBridge { .. } => &[],
        };
        for name in nics {
            let Some(link) = self.state.named(name) else { continue };
            if let Some(other) = self.users.get(&link.index).filter(|other| *other != network) {
                return Err(Refusal::Taken { name: link.name.clone(), other: other.clone() });
            }
            self.users.insert(link.index, network.to_owned());
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
        }
    }

    /// Open vSwitch takes the NICs as its ports by itself; here they are made ready for it.
    fn ovs_uplink(&mut self, name: &str, uplink: &Uplink) -> Result<(), Refusal> {
        let spot = Spot::Network(name.to_owned());
        for link in self.nics(&uplink.interfaces, uplink.mtu, true)? {
            let ours =
                |master: u32| self.state.snapshot.link(master).is_some_and(|found| found.group == self.group);
            let master = link.master.filter(|master| !ours(*master));
            self.take(&spot, link, uplink.mtu, master);
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
        let spot = Spot::Network(name.to_owned());
        let asked = mtu.max(uplink.and_then(|uplink| uplink.mtu));
        let nics = match uplink {
            Some(uplink) => self.nics(&uplink.interfaces, asked, false)?,
            None => Vec::new(),
        };
        let found = self.made(&spot, name, |kind| matches!(kind, Kind::Bridge { .. }))?;
        let Some(bridge) = found else {
            let message =
                bridge_message(name, self.group, mtu).vlan_filtering(true).vlan_default_pvid(0).build();
            self.step(&spot, Request::add_link(name, message), format!("the bridge {name} was missing"));
            return Ok(());
        };
        if !matches!(bridge.kind, Kind::Bridge { vlan_filtering: true, default_pvid: 0 }) {
            let message = LinkMessageBuilder::<LinkBridge>::new(name)
                .index(bridge.index)
                .vlan_filtering(true)
                .vlan_default_pvid(0)
                .build();
            let request = Request::change_link(format!("have {name} filter VLANs"), message);
            self.step(&spot, request, format!("the bridge {name} did not filter VLANs"));
        }
        self.settle(&spot, bridge, mtu);
        let port = match nics.as_slice() {
            [] => None,
            [nic] => {
                self.take(&spot, nic, asked, Some(bridge.index));
                Some(*nic)
            }
            _ => self.bond(&spot, &Uplink::bond_name(name), &nics, asked, Some(bridge.index))?,
        };
        if let Some(port) = port.filter(|port| port.master == Some(bridge.index)) {
            self.port_vlans(&spot, port, vlans);
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
        let spot = Spot::Network(name.to_owned());
        let lower = if bond.is_empty() {
            let nic = guard::nic(self.state, name, User { group: self.group, ovs: false })?;
            can_carry(nic, mtu)?;
            self.take(&spot, nic, mtu, None);
            nic
        } else {
            let nics = self.nics(bond, mtu, false)?;
            let Some(bond) = self.bond(&spot, name, &nics, mtu, None)? else { return Ok(()) };
            bond
        };
        for vlan in vlans.iter() {
            let spot = Spot::Vlan(name.to_owned(), vlan);
            if self.refused.contains_key(&spot) {
                continue;
            }
            if let Err(refusal) = self.subinterface(&spot, name, lower, vlan, mtu) {
                self.refused.insert(spot, refusal);
            }
        }
        Ok(())
    }

    fn subinterface(
        &mut self,
        spot: &Spot,
        master: &str,
        lower: &Link,
        vlan: VlanId,
        mtu: Option<u32>,
    ) -> Result<(), Refusal> {
        let name = guard::subinterface(master, vlan)?;
        let found = self.made(spot, &name, |kind| matches!(kind, Kind::Vlan { .. }))?;
        let Some(link) = found else {
            let message = LinkVlan::new(&name, lower.index, vlan.get()).link_group(self.group).build();
            self.step(
                spot,
                Request::add_link(&name, message),
                format!("the VLAN subinterface {name} was missing"),
            );
            return Ok(());
        };
        if link.kind != (Kind::Vlan { vid: vlan.get() }) || link.parent != Some(lower.index) {
            let difference = format!("{name} was not VLAN {vlan} of {master}");
            self.step(spot, Request::delete_link(&name, link.index), difference);
            return Ok(());
        }
        self.settle(spot, link, mtu);
        Ok(())
    }

    /// A bond of ours, as `active-backup`, with these members; `None`: it is made first.
    fn bond(
        &mut self,
        spot: &Spot,
        name: &str,
        nics: &[&'a Link],
        asked: Option<u32>,
        master: Option<u32>,
    ) -> Result<Option<&'a Link>, Refusal> {
        let found = self.made(spot, name, |kind| matches!(kind, Kind::Bond { .. }))?;
        let Some(bond) = found else {
            let message =
                LinkBond::new(name).mode(BondMode::ActiveBackup).miimon(MONITORING).link_group(self.group);
            self.step(spot, Request::add_link(name, message.build()), format!("the bond {name} was missing"));
            return Ok(None);
        };
        if bond.kind != (Kind::Bond { active_backup: true }) {
            let difference = format!("the bond {name} was not of mode active-backup");
            self.step(spot, Request::delete_link(name, bond.index), difference);
            return Ok(None);
        }
        // Members take over the MTU of their bond, and none may get less than it had.
        let had = nics.iter().map(|nic| self.was(nic).mtu).max();
        self.settle(spot, bond, asked.max(had));
        for member in self.state.snapshot.links.iter().filter(|link| link.master == Some(bond.index)) {
            if nics.iter().all(|nic| nic.index != member.index) {
                let request = Request::set_master(&member.name, member.index, 0);
                self.step(spot, request, format!("{} was a member of {name}", member.name));
            }
        }
        for nic in nics {
            self.note_what_was(spot, nic);
            if nic.master != Some(bond.index) {
                if nic.up {
                    let request = Request::set_up(&nic.name, nic.index, false);
                    self.step(spot, request, format!("{} was not a member of {name}", nic.name));
                }
                let request = Request::set_master(&nic.name, nic.index, bond.index);
                self.step(spot, request, format!("{} was not a member of {name}", nic.name));
            } else if !nic.up {
                let request = Request::set_up(&nic.name, nic.index, true);
                self.step(spot, request, format!("{} was down", nic.name));
            }
        }
        if bond.master != master {
            let request = Request::set_master(name, bond.index, master.unwrap_or(0));
            self.step(spot, request, format!("{name} was a port of something else"));
        }
        Ok(Some(bond))
    }

    /// The interface of that name if it is ours. One of another kind is deleted first, and counts as missing.
    pub(super) fn made(
        &mut self,
        spot: &Spot,
        name: &str,
        right: impl Fn(&Kind) -> bool,
    ) -> Result<Option<&'a Link>, Refusal> {
        let Some(link) = self.state.named(name) else { return Ok(None) };
        if link.group != self.group {
            let kind = kind_name(&link.kind).to_owned();
            return Err(Refusal::Foreign { name: name.to_owned(), kind });
        }
        if right(&link.kind) {
            return Ok(Some(link));
        }
        let difference = format!("{name} was a {}", kind_name(&link.kind));
        self.step(spot, Request::delete_link(name, link.index), difference);
        Ok(None)
    }

    /// Alias, MTU, no addresses of its own accord, up: of an interface of ours.
    pub(super) fn settle(&mut self, spot: &Spot, link: &Link, mtu: Option<u32>) {
        let network = match spot {
            Spot::Network(name) | Spot::Vlan(name, _) => name.as_str(),
            Spot::Rest => "",
        };
        let (mut attributes, mut differences) = (Vec::new(), Vec::new());
        let alias = mark::alias(self.cluster, network);
        if link.alias.as_ref() != Some(&alias) {
            attributes.push(LinkAttribute::IfAlias(alias));
            differences.push(format!("{} had another alias", link.name));
        }
        if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu) {
            attributes.push(LinkAttribute::Mtu(mtu));
            differences.push(format!("{} had an MTU of {}", link.name, link.mtu));
        }
        if link.address_generation.is_some_and(|mode| mode != NO_ADDRESSES) {
            attributes.push(address_generation(NO_ADDRESSES));
            differences.push(format!("{} gave itself IPv6 addresses", link.name));
        }
        if !attributes.is_empty() {
            let request = Request::set(&link.name, link.index, "alias, MTU and IPv6 mode", attributes);
            self.step(spot, request, differences.join(", "));
        }
        if !link.up {
            let request = Request::set_up(&link.name, link.index, true);
            self.step(spot, request, format!("{} was down", link.name));
        }
    }

    /// The VLANs of an uplink: exactly these, tagged.
    fn port_vlans(&mut self, spot: &Spot, port: &Link, wanted: &VlanSet) {
        let (tagged, untagged) = self.state.uplink_vlans(port.index);
        let extra = tagged.union(&untagged).difference(wanted);
        let missing = wanted.difference(&tagged);
        let listed = |set: &VlanSet| -> Vec<PortVlan> {
            set.iter().map(|vlan| PortVlan { vid: vlan.get(), pvid: false, untagged: false }).collect()
        };
        if !extra.is_empty() {
            let request = Request::delete_port_vlans(&port.name, port.index, &listed(&extra));
            self.step(spot, request, format!("{} carried VLANs {extra} too", port.name));
        }
        if !missing.is_empty() {
            let request = Request::add_port_vlans(&port.name, port.index, &listed(&missing));
            self.step(spot, request, format!("{} did not carry VLANs {missing}", port.name));
        }
    }

    /// What is ours and no network consists of goes; what was used and is not is as it was before.
    fn rest(&mut self) -> Vec<Step> {
        let spot = Spot::Rest;
        if self.refused.contains_key(&spot) {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.steps);
        let state = self.state;
        let goes = |link: &Link| link.group == self.group && !self.keep.contains(&link.name);
        let gone: BTreeSet<u32> =
            state.snapshot.links.iter().filter(|link| goes(link)).map(|link| link.index).collect();
        for link in state.snapshot.links.iter().filter(|link| gone.contains(&link.index)) {
            let request = Request::delete_link(&link.name, link.index);
            self.step(&spot, request, format!("{} is not wanted", link.name));
        }
        for nic in &state.snapshot.links {
            if self.users.contains_key(&nic.index) {
                continue;
            }
            if let Some((was, written)) = Was::of(nic, self.cluster) {
                self.give_back(&spot, nic, was, written, &gone);
            }
        }
        self.stale_rules(&spot);
        std::mem::replace(&mut self.steps, before)
    }
}

/// A bridge of ours that is yet to be made. A bridge keeps to an MTU only once that was changed: one that is given at
/// its making follows its ports. So it is made with another one than the one that it is to have.
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
