//! Plans one link: made, replaced, or changed in place.

use eno_schemas::{AppliedLink, LinkKind, LinkName, Master, PodLink, PortVlans};
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};

use super::{Op, Planner, Setting, Step, paired};
use crate::netlink::{Kind, Link, PortVlan, Request};
use crate::pods::check::{self, Refusal};
use crate::pods::kind::{self, Base};
use crate::pods::ownership::{self, GROUP, Property};

/// One queue for each end of a veth pair. Without this the kernel makes a queue for every CPU, with its files in sysfs,
/// and then removes all but one after an RCU grace period.
const ONE_QUEUE: [LinkAttribute; 2] = [LinkAttribute::NumTxQueues(1), LinkAttribute::NumRxQueues(1)];

/// The default MTU of Ethernet in bytes (`ETH_DATA_LEN`).
const ETHERNET_MTU: u32 = 1500;

impl<'a> Planner<'a> {
    pub(super) fn plan_link(&mut self, at: usize, link: &'a PodLink) {
        let found = self.ours.get(link.id.as_str()).copied();
        let outcome = check::duplicate(&self.desired.pod.links, at)
            .and_then(|()| check::link(link, if found.is_some() { Some(0) } else { self.desired.pid }))
            .and_then(|()| match found {
                Some(found) if self.is_as_desired(link, found)? => self.plan_changes(link, found),
                Some(found) => {
                    self.delete_link(Some(&link.id), found);
                    Ok(())
                }
                None => self.plan_creation(link),
            });
        if let Err(refusal) = outcome {
            self.plan.refused.insert(link.id.clone(), refusal);
            for steps in [&mut self.plan.steps, &mut self.new_link_settings] {
                steps.retain(|step| step.link.as_deref() != Some(&link.id));
            }
        }
    }

    /// True when an interface has the desired kind and lower interface. Otherwise it has to be replaced.
    fn is_as_desired(&mut self, link: &'a PodLink, found: &Link) -> Result<bool, Refusal> {
        if !kind::matches(&link.kind, &found.kind) {
            return Ok(false);
        }
        if let LinkKind::Veth { .. } = link.kind {
            return Ok(self.host_end(found).is_some());
        }
        Ok(match kind::base(&link.kind) {
            Base::Nothing => true,
            Base::Host(name) => {
                found.parent_namespace.is_some()
                    && found.parent == Some(self.observed.host.guard().parent(name)?)
            }
            Base::Pod(name) => {
                let parent = self.observed.pod.named(name).map(|parent| parent.index);
                found.parent_namespace.is_none() && found.parent == parent
            }
            Base::Link(id) => {
                let parent = self.ours.get(id).map(|parent| parent.index);
                found.parent_namespace.is_none() && found.parent == parent
            }
        })
    }

    pub(super) fn host_end(&self, found: &Link) -> Option<&'a Link> {
        self.observed.host.link(found.parent?).filter(|end| paired(found, end))
    }

    fn plan_creation(&mut self, link: &'a PodLink) -> Result<(), Refusal> {
        let name = check::pod_name(&link.name, self.desired.pid)?;
        if !self.is_name_free(link, &name)? {
            return Ok(());
        }
        self.check_mtu(link)?;
        // Where the kernel's default MTU is unknown, it is read and recorded before it is changed.
        let mut message =
            kind::new_link_message(&name, link.mtu.filter(|_| self.default_mtu(link).is_some()));
        if let LinkKind::Veth { master } = &link.kind {
            return self.plan_pair(link, &name, message, master.as_ref());
        }
        let (LinkKind::Tun(device) | LinkKind::Tap(device)) = &link.kind else {
            let info = kind::info(&link.kind).unwrap_or_default();
            message.attributes.push(LinkAttribute::LinkInfo(info));
            let request = |message| Request::add_link(&name, message);
            match kind::base(&link.kind) {
                Base::Nothing => self.create(link, Op::Pod(request(message))),
                Base::Host(parent) => {
                    // One message makes it on the host's interface, in the pod and under its final name.
                    let parent = self.observed.host.guard().parent(parent)?;
                    message.attributes.push(LinkAttribute::Link(parent));
                    message.attributes.push(LinkAttribute::NetNsFd(self.observed.namespace));
                    self.create(link, Op::Host(request(message)));
                }
                Base::Pod(parent) => {
                    let parent =
                        self.observed.pod.named(parent).filter(|found| !self.deleted.contains(&found.index));
                    let parent = parent.ok_or_else(|| {
                        Refusal::temporary(format!("the pod has no interface {}", base_name(&link.kind)))
                    })?;
                    message.attributes.push(LinkAttribute::Link(parent.index));
                    self.create(link, Op::Pod(request(message)));
                }
                Base::Link(id) => {
                    let Some(parent) = self.sibling_index(link, id)? else { return Ok(()) };
                    message.attributes.push(LinkAttribute::Link(parent));
                    self.create(link, Op::Pod(request(message)));
                }
            }
            return self.plan_initial_settings(link, &name);
        };
        let tap = matches!(link.kind, LinkKind::Tap(_));
        let name = ownership::stable_name(self.desired.uid, &link.id);
        self.create(link, Op::Tun { name, tap, owner: device.owner, group: device.group });
        Ok(())
    }

    /// Plans both ends of a veth pair in one message in the host's namespace: the kernel takes a master only for the
    /// first end.
    fn plan_pair(
        &mut self,
        link: &'a PodLink,
        name: &str,
        mut peer: LinkMessage,
        master: Option<&Master>,
    ) -> Result<(), Refusal> {
        let host_name = match &link.name {
            LinkName::Fixed(_) => ownership::stable_name(self.desired.uid, &link.id),
            LinkName::WithPid(_) => format!("h{name}"),
        };
        check::interface_name(&host_name)?;
        if let Some(taken) = self.observed.host.named(&host_name) {
            let alias =
                taken.alias.as_deref().and_then(|alias| ownership::read_alias(self.desired.cluster, alias));
            if alias == Some((self.desired.uid, link.id.as_str())) {
                // The host end of an earlier pair, which this plan deletes.
                self.waiting.insert(link.id.clone());
                return Ok(());
            }
            return Err(Refusal::temporary(format!("the host has an interface {host_name} already")));
        }
        peer.attributes.push(LinkAttribute::NetNsFd(self.observed.namespace));
        let mut message = kind::new_link_message(&host_name, link.mtu);
        for end in [&mut peer, &mut message] {
            end.attributes.extend(ONE_QUEUE);
        }
        let mut open = true;
        match master {
            None => {}
            Some(Master::Ovs { bridge, .. }) => self.observed.host.guard().check_bridge(bridge)?,
            Some(Master::Bridge { bridge, vlans }) => {
                // A port with desired VLANs is set up only once it carries exactly those.
                open = vlans.is_none();
                let bridge = self.observed.host.guard().bridge(bridge, vlans.is_some())?;
                message.attributes.push(LinkAttribute::Controller(bridge));
            }
        }
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.create(link, Op::Host(Request::add_link(&host_name, message)));
        let alias = ownership::alias(self.desired.cluster, self.desired.uid, &link.id);
        let op = Op::Host(configure_host_end(&host_name, alias, open));
        self.new_link_settings.push(Step { link: Some(link.id.clone()), creates: false, op });
        self.plan_initial_settings(link, name)
    }

    /// Plans settings that follow the making of an interface without reading it. Not for interfaces with settings that
    /// come before addresses, with a master, or on another interface of the pod, which may have to be set up first.
    fn plan_initial_settings(&mut self, link: &PodLink, name: &str) -> Result<(), Refusal> {
        let on_another = matches!(kind::base(&link.kind), Base::Pod(_) | Base::Link(_));
        let filtered =
            matches!(&link.kind, LinkKind::Veth { master: Some(Master::Bridge { vlans: Some(_), .. }) });
        let up = link.up && !filtered;
        let chosen = link.mac.is_some() || (link.mtu.is_some() && self.default_mtu(link).is_none());
        if on_another || chosen || link.member_of.is_some() || !super::desired_sysctls(link).is_empty() {
            return Ok(());
        }
        link.addresses.iter().try_for_each(|net| self.check_address_free(*net, None))?;
        let addresses = if is_ovs_port(link) { &[][..] } else { &link.addresses };
        let altname = Setting::Altname(ownership::altname(self.desired.cluster, self.desired.uid, &link.id));
        let made = |setting| Op::OnNewLink { name: name.to_owned(), setting };
        let new_link_settings = std::iter::once(altname)
            .chain(link.alias.clone().map(Setting::Alias))
            .chain(addresses.iter().copied().map(Setting::Address));
        let announced = announcements(link, addresses, name).filter(|_| up);
        let ops = new_link_settings.map(made).chain(announced).chain(up.then(|| made(Setting::Up)));
        let step = |op| Step { link: Some(link.id.clone()), creates: false, op };
        self.new_link_settings.extend(ops.map(step));
        Ok(())
    }

    fn plan_changes(&mut self, link: &'a PodLink, found: &'a Link) -> Result<(), Refusal> {
        if !self.plan_name(link, found)? {
            return Ok(());
        }
        // Sysctls are read of marked interfaces only, and are set before addresses and before the interface is up.
        let key = ownership::altname(self.desired.cluster, self.desired.uid, &link.id);
        if !found.altnames.contains(&key) && !super::desired_sysctls(link).is_empty() {
            self.waiting.insert(link.id.clone());
            return Ok(());
        }
        self.mac(link, found)?;
        self.mtu(link, found)?;
        if link.alias.as_deref().unwrap_or_default() != found.alias.as_deref().unwrap_or_default() {
            let alias = link.alias.clone().unwrap_or_default();
            self.in_pod(link, super::set_alias(&found.name, found.index, alias));
        }
        self.membership(link, found)?;
        self.sysctls(link, found)?;
        if self.waits_for_port(link, found) {
            self.plan.awaiting_port.insert(link.id.clone());
        } else {
            self.addresses(link, found)?;
        }
        self.restore_sysctls(link, found);
        self.plan_up(link, found);
        if !self.plan.awaiting_port.contains(&link.id) {
            self.routes(link, found);
            self.rules(link);
        }
        let mut applied = AppliedLink {
            revision: link.revision.clone(),
            name: found.name.clone(),
            host_name: None,
            mac: found.mac.map(format_mac),
            mtu: found.mtu,
            path: self.path(link, found),
            addresses: link.addresses.clone(),
        };
        if let LinkKind::Veth { master } = &link.kind
            && let Some(end) = self.host_end(found)
        {
            applied.host_name = Some(end.name.clone());
            self.plan_host_end(link, end, master.as_ref())?;
        }
        self.plan.applied.insert(link.id.clone(), applied);
        Ok(())
    }

    /// True when an interface on Open vSwitch has to wait for its port to be open. Only then its addresses are added,
    /// so that the announcement gets through, and no packet is lost that the pod would resend after a second. The
    /// interface is up before: Open vSwitch drops packets to a port without a carrier, and notices the carrier with a
    /// delay.
    fn waits_for_port(&self, link: &PodLink, found: &Link) -> bool {
        let end = self.host_end(found).filter(|end| end.up);
        let has = |net: &IpNet| {
            let mut addresses = self.observed.pod.addresses.iter();
            addresses.any(|address| address.index == found.index && address.net == *net)
        };
        is_ovs_port(link)
            && end.is_none_or(|end| !self.desired.open_ports.contains(&end.name))
            && !link.addresses.iter().all(has)
    }

    /// Plans the administrative state.
    fn plan_up(&mut self, link: &'a PodLink, found: &'a Link) {
        if !link.up || found.up {
            if link.up != found.up {
                self.in_pod(link, Request::set_up(&found.name, found.index, false));
            }
            return;
        }
        // This plan sets the host end up, and the next one the pod's end.
        if let LinkKind::Veth { master: Some(Master::Bridge { vlans: Some(_), .. }) } = &link.kind
            && self.host_end(found).is_none_or(|end| !end.up)
        {
            return;
        }
        for op in announcements(link, &link.addresses, &found.name) {
            self.push(Some(&link.id), op);
        }
        self.in_pod(link, Request::set_up(&found.name, found.index, true));
    }

    fn mac(&mut self, link: &'a PodLink, found: &Link) -> Result<(), Refusal> {
        let original = self.original(link, found, &Property::Mac);
        let requested = link.mac.as_deref().map(check::parse_mac).transpose()?;
        let before = original.as_ref().and_then(|original| ownership::original_mac(&original.value));
        if let Some(mac) = requested.or(before).filter(|mac| found.mac != Some(*mac)) {
            if let Some(now) = found.mac {
                let now = now.map(|byte| format!("{byte:02x}")).concat();
                self.record_original(link, found, &Property::Mac, &now);
            }
            self.in_pod(link, set_mac(found, mac));
        } else if let Some(original) = original.filter(|_| requested.is_none()) {
            self.forget_original(link, found, &original);
        }
        Ok(())
    }

    fn mtu(&mut self, link: &'a PodLink, found: &Link) -> Result<(), Refusal> {
        let original = self.original(link, found, &Property::Mtu);
        let before = original.as_ref().and_then(|original| original.value.parse().ok());
        let default = self.default_mtu(link);
        if let Some(mtu) = link.mtu.or(before).or(default).filter(|mtu| *mtu != found.mtu) {
            self.check_mtu(link)?;
            if default.is_none() {
                self.record_original(link, found, &Property::Mtu, &found.mtu.to_string());
            }
            self.in_pod(link, Request::set(&found.name, found.index, "MTU", vec![LinkAttribute::Mtu(mtu)]));
        } else if let Some(original) = original.filter(|_| link.mtu.is_none()) {
            self.forget_original(link, found, &original);
        }
        Ok(())
    }

    /// The kernel's default MTU for a new interface of that kind, in bytes. `None`: it can't be computed.
    fn default_mtu(&self, link: &PodLink) -> Option<u32> {
        match &link.kind {
            LinkKind::Veth { .. } | LinkKind::Dummy {} | LinkKind::Tun(_) | LinkKind::Tap(_) => {
                Some(ETHERNET_MTU)
            }
            _ => self.made_on(link).map(|lower| lower.mtu),
        }
    }

    /// True when the interface has its desired name; otherwise a rename is planned.
    fn plan_name(&mut self, link: &'a PodLink, found: &Link) -> Result<bool, Refusal> {
        let name = match &link.name {
            LinkName::Fixed(name) => name.clone(),
            LinkName::WithPid(base) => {
                let pid = found.name.strip_prefix(base.as_str()).unwrap_or_default();
                if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Ok(true);
                }
                check::pod_name(&link.name, self.desired.pid)?
            }
        };
        if name == found.name {
            return Ok(true);
        }
        if self.is_name_free(link, &name)? {
            if found.up {
                self.in_pod(link, Request::set_up(&found.name, found.index, false));
            }
            self.in_pod(
                link,
                Request::set(&found.name, found.index, "name", vec![LinkAttribute::IfName(name)]),
            );
        }
        Ok(false)
    }

    /// True when the name is free. False when its present owner is about to give it up; refused otherwise.
    fn is_name_free(&mut self, link: &PodLink, name: &str) -> Result<bool, Refusal> {
        let Some(taken) = self
            .observed
            .pod
            .links
            .iter()
            .find(|found| found.name == name || found.altnames.iter().any(|altname| altname == name))
        else {
            return Ok(true);
        };
        let passing = self.deleted.contains(&taken.index)
            || self.ours.iter().any(|(id, ours)| ours.index == taken.index && !self.failed.contains_key(*id));
        if passing {
            self.waiting.insert(link.id.clone());
            return Ok(false);
        }
        Err(Refusal::temporary(format!("the pod has an interface {name} already, which is not ours")))
    }

    /// The index of another link's interface; `None` while that is being made.
    fn sibling_index(&mut self, link: &PodLink, id: &str) -> Result<Option<u32>, Refusal> {
        let desired = self.desired.pod.links.iter().any(|other| other.id == id);
        if !desired {
            return Err(Refusal::permanent(format!("the pod has no interface {id} of ours")));
        }
        match self.ours.get(id).filter(|found| !self.deleted.contains(&found.index)) {
            Some(found) => Ok(Some(found.index)),
            None if self.failed.contains_key(id) || self.plan.refused.contains_key(id) => {
                Err(Refusal::temporary(format!("the interface {id} of the pod is not there")))
            }
            None => {
                self.waiting.insert(link.id.clone());
                Ok(None)
            }
        }
    }

    fn membership(&mut self, link: &'a PodLink, found: &Link) -> Result<(), Refusal> {
        match &link.member_of {
            Some(id) => {
                if let Some(master) = self.sibling_index(link, id)?
                    && found.master != Some(master)
                {
                    self.in_pod(link, Request::set_master(&found.name, found.index, master));
                }
            }
            // A master that the pod's own processes have set stays.
            None if self.ours.values().any(|ours| found.master == Some(ours.index)) => {
                self.in_pod(link, Request::set_master(&found.name, found.index, 0));
            }
            None => {}
        }
        Ok(())
    }

    /// Plans the host end of a veth pair.
    fn plan_host_end(
        &mut self,
        link: &'a PodLink,
        end: &'a Link,
        master: Option<&'a Master>,
    ) -> Result<(), Refusal> {
        let alias = ownership::alias(self.desired.cluster, self.desired.uid, &link.id);
        if end.alias.as_ref() != Some(&alias) {
            self.on_host(link, super::set_alias(&end.name, end.index, alias));
        }
        if end.group != GROUP {
            self.on_host(link, super::set_group(end, GROUP));
        }
        if let Some(mtu) = link.mtu.or(self.default_mtu(link)).filter(|mtu| *mtu != end.mtu) {
            self.on_host(link, Request::set(&end.name, end.index, "MTU", vec![LinkAttribute::Mtu(mtu)]));
        }
        let rules = self.observed.host.guard();
        let port_of_linux_bridge = end
            .master
            .and_then(|index| self.observed.host.link(index))
            .is_some_and(|master| matches!(master.kind, Kind::Bridge { .. }));
        match master {
            Some(Master::Bridge { bridge, vlans }) => {
                let index = rules.bridge(bridge, vlans.is_some())?;
                if end.master != Some(index) {
                    if end.up && vlans.is_some() {
                        self.on_host(link, Request::set_up(&end.name, end.index, false));
                    }
                    self.on_host(link, Request::set_master(&end.name, end.index, index));
                    return Ok(());
                }
                if let Some(vlans) = vlans {
                    self.port_vlans(link, end, vlans);
                }
            }
            Some(Master::Ovs { bridge, vlans }) => {
                rules.check_bridge(bridge)?;
                if port_of_linux_bridge {
                    self.on_host(link, Request::set_master(&end.name, end.index, 0));
                }
                let port = (link.id.clone(), bridge.clone(), vlans.clone());
                self.plan.ovs.insert(end.name.clone(), port);
            }
            None if port_of_linux_bridge => {
                self.on_host(link, Request::set_master(&end.name, end.index, 0));
            }
            None => {}
        }
        if !end.up {
            self.on_host(link, Request::set_up(&end.name, end.index, true));
        }
        Ok(())
    }

    fn port_vlans(&mut self, link: &'a PodLink, end: &Link, vlans: &PortVlans) {
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

/// The settings of a new host end. It gets no link-local address, so that the host can't be reached over it; the kernel
/// has not given it one yet, since its peer is down. On a host without IPv6 the whole request fails. Then the next plan
/// sets the alias and sets the end up.
fn configure_host_end(name: &str, alias: String, up: bool) -> Request {
    let none = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    let mut message = LinkMessage::default();
    if up {
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
    }
    message.attributes.extend([
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::IfAlias(alias),
        LinkAttribute::AfSpecUnspec(vec![none]),
    ]);
    Request::set_link(format!("finish the end {name} of a pair"), message).tolerating(Errno::EAFNOSUPPORT)
}

/// Steps that have the kernel announce addresses when their interface comes up, or when its MAC address is set
/// (`arp_notify`, `ndisc_notify`). None for sysctls that the link itself sets.
pub(super) fn announcements(link: &PodLink, addresses: &[IpNet], name: &str) -> impl Iterator<Item = Op> {
    let families = [(false, "ipv4/conf/arp_notify"), (true, "ipv6/conf/ndisc_notify")];
    families
        .map(|(v6, key)| {
            let speaks =
                addresses.iter().any(|net| net.addr().is_ipv6() == v6) && !link.sysctls.contains_key(key);
            speaks.then(|| Op::Announce { name: name.to_owned(), v6 })
        })
        .into_iter()
        .flatten()
}

fn is_ovs_port(link: &PodLink) -> bool {
    matches!(&link.kind, LinkKind::Veth { master: Some(Master::Ovs { .. }) })
}

pub(super) fn set_mac(link: &Link, mac: [u8; 6]) -> Request {
    Request::set(&link.name, link.index, "MAC address", vec![LinkAttribute::Address(mac.to_vec())])
}

fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn base_name(kind: &LinkKind) -> &str {
    match kind::base(kind) {
        Base::Link(name) | Base::Pod(name) | Base::Host(name) => name,
        Base::Nothing => "",
    }
}
