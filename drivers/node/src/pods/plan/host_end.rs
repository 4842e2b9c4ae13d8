//! The host end of a veth pair.

use eno_schemas::{Master, PodLink, PortVlans};
use nix::errno::Errno;
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};

use super::{Planner, Setting, is_pair};
use crate::netlink::{Kind, Link, PortVlan, Request};
use crate::pods::check::Refusal;
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
}

impl WantedHostEnd<'_> {
    /// The settings of a host end that was just made with its group, MTU and bridge. It gets no link-local address, so
    /// that the host can't be reached over it; the kernel has not given it one yet, since its peer is down. On a host
    /// without IPv6 the whole request fails. Then the next plan sets the alias and sets the end up.
    pub(super) fn first_settings(self, name: &str) -> Request {
        let none = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
        let mut message = LinkMessage::default();
        if self.vlans.is_none() {
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
        let is_port_of_linux_bridge = end
            .master
            .and_then(|index| self.observed.host.link(index))
            .is_some_and(|master| matches!(master.kind, Kind::Bridge { .. }));
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
        if let Some(vlans) = wanted.vlans {
            self.port_vlans(link, end, vlans);
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
