//! The host end of a veth pair.

use std::collections::BTreeMap;

use eno_schemas::{LinkKind, Master, Parent, PodLink, PortVlans, VlanId};
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};

use super::{Planner, Setting, is_pair};
use crate::netlink::{IngressProgram, Instruction, Kind, Link, PortVlan, Request};
use crate::pods::anti_spoof;
use crate::pods::check::{self, Refusal};
use crate::pods::ownership::{self, GROUP};

/// What a host end is to be.
pub(super) struct WantedHostEnd<'a> {
    /// Its alias, the ownership mark.
    alias: String,
    /// Its MTU, in bytes.
    pub mtu: Option<u32>,
    /// The index of the Linux bridge that it is a port of.
    pub bridge: Option<u32>,
    /// Its VLANs as a port of that bridge. It is set up only once it carries exactly those.
    vlans: Option<&'a PortVlans>,
    /// The Open vSwitch bridge that it is a port of, and its VLANs there.
    ovs: Option<(&'a str, &'a PortVlans)>,
    /// The program for packets that enter the host by it. It is set up only once it has that.
    program: Option<Vec<Instruction>>,
}

impl WantedHostEnd<'_> {
    /// The settings of a host end that was just made with its group, MTU and bridge. It gets no link-local address, so
    /// that the host can't be reached over it; the kernel has not given it one yet, since its peer is down. On a host
    /// without IPv6 the whole request fails. Then the next plan sets the alias and sets the end up.
    pub(super) fn first_settings(self, name: &str) -> Request {
        let none = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
        let mut message = LinkMessage::default();
        if self.vlans.is_none() && self.program.is_none() {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        }
        message.attributes.extend([
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::IfAlias(self.alias),
            LinkAttribute::AfSpecUnspec(vec![none]),
        ]);
        Request::set_link(format!("finish the end {name} of a pair"), message).tolerating(Errno::EAFNOSUPPORT)
    }
}

impl<'a> Planner<'a> {
    /// The host's end of a veth pair, whoever made it. Only to look at.
    pub(super) fn peer_on_host(&self, found: &Link) -> Option<&'a Link> {
        let is_peer = |end: &&Link| is_pair(found, end, self.observed.pod_number);
        self.observed.host.link(found.parent?).filter(is_peer)
    }

    /// The host end of a link's veth pair, if it is this link's by its own marks. The agent may have died before it set
    /// the alias.
    pub(super) fn host_end(&self, link: &PodLink, found: &Link) -> Option<&'a Link> {
        let alias = ownership::alias(self.desired.cluster, self.desired.uid, &link.id);
        let is_ours =
            |end: &&Link| end.group == GROUP && end.alias.as_ref().is_none_or(|found| *found == alias);
        self.peer_on_host(found).filter(is_ours)
    }

    /// What the host end of a link is to be. Refused when the bridge can't have ports.
    pub(super) fn wanted_host_end(
        &self,
        link: &PodLink,
        master: Option<&'a Master>,
    ) -> Result<WantedHostEnd<'a>, Refusal> {
        let mut wanted = WantedHostEnd {
            alias: ownership::alias(self.desired.cluster, self.desired.uid, &link.id),
            mtu: link.mtu.or(self.default_mtu(link)),
            bridge: None,
            vlans: None,
            ovs: None,
            program: self.wanted_program(link)?,
        };
        let rules = self.observed.host.guard();
        match master {
            None => {}
            Some(Master::Bridge { bridge, vlans }) => {
                wanted.bridge = Some(rules.bridge(bridge, vlans.is_some())?);
                wanted.vlans = vlans.as_ref();
            }
            Some(Master::Ovs { bridge, vlans }) => {
                rules.check_bridge(bridge)?;
                if link.anti_spoof && !rules.has_kernel_datapath(bridge) {
                    return Err(user_space_datapath(bridge));
                }
                wanted.ovs = Some((bridge, vlans));
            }
        }
        Ok(wanted)
    }

    /// Plans the settings of an existing host end that differ.
    pub(super) fn plan_host_end(
        &mut self,
        link: &PodLink,
        end: &Link,
        master: Option<&'a Master>,
    ) -> Result<(), Refusal> {
        let wanted = self.wanted_host_end(link, master)?;
        if end.alias.as_ref() != Some(&wanted.alias) {
            self.on_host(link, Setting::Alias(wanted.alias).of(end));
        }
        if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != end.mtu) {
            self.on_host(link, Setting::Mtu(mtu).of(end));
        }
        let is_port_of_linux_bridge = matches!(self.master_of(end), Some(Kind::Bridge { .. }));
        match wanted.bridge {
            Some(bridge) if end.master != Some(bridge) => {
                if end.up && wanted.vlans.is_some() {
                    self.on_host(link, Setting::Up(false).of(end));
                }
                // A later plan sets its VLANs, and sets it up.
                self.on_host(link, Setting::Master(bridge).of(end));
                return Ok(());
            }
            None if is_port_of_linux_bridge => self.on_host(link, Setting::Master(0).of(end)),
            _ => {}
        }
        if !self.plan_program(link, end, wanted.program.as_deref()) {
            // A later plan sets it up.
            return Ok(());
        }
        if let Some(vlans) = wanted.vlans {
            self.port_vlans(link, end, vlans);
        }
        let is_in_kernel = matches!(self.master_of(end), Some(Kind::Other(kind)) if kind == "openvswitch");
        if wanted.ovs.is_some()
            && link.anti_spoof
            && self.desired.open_ports.contains(&end.name)
            && !is_in_kernel
        {
            return Err(user_space_datapath(&end.name));
        }
        if let Some((bridge, vlans)) = wanted.ovs {
            let port = (link.id.clone(), bridge.to_owned(), vlans.clone());
            self.plan.ovs.insert(end.name.clone(), port);
        }
        if !end.up {
            self.on_host(link, Setting::Up(true).of(end));
        }
        Ok(())
    }

    pub(super) fn master_of(&self, end: &Link) -> Option<&'a Kind> {
        Some(&self.observed.host.link(end.master?)?.kind)
    }

    /// The program of the host end of a link.
    fn wanted_program(&self, link: &PodLink) -> Result<Option<Vec<Instruction>>, Refusal> {
        if !link.anti_spoof {
            return Ok(None);
        }
        let mac = link.mac.as_deref().ok_or_else(|| Refusal::permanent("AntiSpoof needs a MAC address"))?;
        let mut tagged: BTreeMap<VlanId, Vec<IpNet>> = BTreeMap::new();
        for other in &self.desired.pod.links {
            if let LinkKind::Vlan { parent: Parent::Link(parent), vlan } = &other.kind
                && *parent == link.id
            {
                tagged.entry(*vlan).or_default().extend(&other.addresses);
            }
        }
        anti_spoof::program(check::parse_mac(mac)?, &link.addresses, &tagged).map(Some)
    }

    /// Plans the program of a host end. True: it is as desired. Otherwise the end is not up without any.
    fn plan_program(&mut self, link: &PodLink, end: &Link, wanted: Option<&[Instruction]>) -> bool {
        let found = self.observed.programs.get(&end.index);
        match wanted {
            None if found.is_some_and(IngressProgram::is_set) => {
                self.on_host(link, Request::delete_ingress_program(&end.name, end.index));
            }
            Some(wanted) if found.is_none_or(|found| !found.is(wanted)) => {
                if end.up && found.is_none_or(|found| !found.is_set()) {
                    self.on_host(link, Setting::Up(false).of(end));
                }
                self.on_host(link, Request::add_clsact(&end.name, end.index));
                self.on_host(link, Request::set_ingress_program(&end.name, end.index, wanted));
                return false;
            }
            _ => {}
        }
        true
    }

    fn port_vlans(&mut self, link: &PodLink, end: &Link, vlans: &PortVlans) {
        let desired: Vec<PortVlan> = match vlans {
            PortVlans::Access(vid) => vec![PortVlan { vid: vid.get(), pvid: true, untagged: true }],
            PortVlans::Trunk(vids) => {
                vids.iter().map(|vid| PortVlan { vid: vid.get(), pvid: false, untagged: false }).collect()
            }
        };
        let observed = self.observed.vlans.get(&end.index).map(Vec::as_slice).unwrap_or_default();
        let extra: Vec<PortVlan> =
            observed.iter().filter(|have| desired.iter().all(|want| want.vid != have.vid)).copied().collect();
        let missing: Vec<PortVlan> = desired.into_iter().filter(|want| !observed.contains(want)).collect();
        if !extra.is_empty() {
            self.on_host(link, Request::delete_port_vlans(&end.name, end.index, &extra));
        }
        if !missing.is_empty() {
            self.on_host(link, Request::add_port_vlans(&end.name, end.index, &missing));
        }
    }
}

fn user_space_datapath(place: &str) -> Refusal {
    Refusal::permanent(format!(
        "AntiSpoof can't be enforced on {place}: Open vSwitch's datapath in user space takes packets before the kernel can check them"
    ))
}
