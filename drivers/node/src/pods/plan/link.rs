//! One link: made, made anew, or changed in place.

use eno_schemas::{AppliedLink, LinkKind, LinkName, Master, PodLink, PortVlans};
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};

use super::{Op, Part, Planner, Step, paired};
use crate::netlink::{Kind, Link, PortVlan, Request};
use crate::pods::check::{self, Refusal};
use crate::pods::kind::{self, Base};
use crate::pods::mark::{self, GROUP, Property};

/// The end of a pair has one queue in use whatever it is asked for. Unless it is asked for one, the kernel makes one
/// for every CPU first, with its files in sysfs, waits until nobody can be using them, and takes them away again.
const ONE_QUEUE: [LinkAttribute; 2] = [LinkAttribute::NumTxQueues(1), LinkAttribute::NumRxQueues(1)];

/// The MTU of Ethernet (`ETH_DATA_LEN` of the kernel), in bytes.
const ETHERNET: u32 = 1500;

impl<'a> Planner<'a> {
    pub(super) fn consider(&mut self, at: usize, link: &'a PodLink) {
        let found = self.ours.get(link.id.as_str()).copied();
        let outcome = check::duplicate(&self.wanted.pod.links, at)
            .and_then(|()| check::link(link, if found.is_some() { Some(0) } else { self.wanted.pid }))
            .and_then(|()| match found {
                Some(found) if self.stays(link, found)? => self.change(link, found),
                Some(found) => {
                    self.doom(Some(&link.id), found);
                    Ok(())
                }
                None => self.make(link),
            });
        if let Err(refusal) = outcome {
            self.plan.refused.insert(link.id.clone(), refusal);
            for steps in [&mut self.plan.steps, &mut self.parts] {
                steps.retain(|step| step.link.as_deref() != Some(&link.id));
            }
        }
    }

    /// It is of the wanted kind, and made on what it is to be made on.
    fn stays(&mut self, link: &'a PodLink, found: &Link) -> Result<bool, Refusal> {
        if !kind::fits(&link.kind, &found.kind) {
            return Ok(false);
        }
        if let LinkKind::Veth { .. } = link.kind {
            return Ok(self.host_end(found).is_some());
        }
        Ok(match kind::base(&link.kind) {
            Base::Nothing => true,
            Base::Host(name) => {
                found.parent_namespace.is_some() && found.parent == Some(self.seen.host.rules().parent(name)?)
            }
            Base::Pod(name) => {
                let parent = self.seen.pod.named(name).map(|parent| parent.index);
                found.parent_namespace.is_none() && found.parent == parent
            }
            Base::Link(id) => {
                let parent = self.ours.get(id).map(|parent| parent.index);
                found.parent_namespace.is_none() && found.parent == parent
            }
        })
    }

    pub(super) fn host_end(&self, found: &Link) -> Option<&'a Link> {
        self.seen.host.link(found.parent?).filter(|end| paired(found, end))
    }

    fn make(&mut self, link: &'a PodLink) -> Result<(), Refusal> {
        let name = check::pod_name(&link.name, self.wanted.pid)?;
        if !self.free(link, &name)? {
            return Ok(());
        }
        self.fits(link)?;
        // What the kernel chooses of the rest is looked at before it is changed.
        let mut message = kind::message(&name, link.mtu.filter(|_| self.usual_mtu(link).is_some()));
        if let LinkKind::Veth { master } = &link.kind {
            return self.make_pair(link, &name, message, master.as_ref());
        }
        let (LinkKind::Tun(device) | LinkKind::Tap(device)) = &link.kind else {
            let info = kind::info(&link.kind).unwrap_or_default();
            message.attributes.push(LinkAttribute::LinkInfo(info));
            let request = |message| Request::add_link(&name, message);
            match kind::base(&link.kind) {
                Base::Nothing => self.create(link, Op::Pod(request(message))),
                Base::Host(parent) => {
                    // Made on the host's interface and born in the pod, under its final name, in one message.
                    let parent = self.seen.host.rules().parent(parent)?;
                    message.attributes.push(LinkAttribute::Link(parent));
                    message.attributes.push(LinkAttribute::NetNsFd(self.seen.namespace));
                    self.create(link, Op::Host(request(message)));
                }
                Base::Pod(parent) => {
                    let parent =
                        self.seen.pod.named(parent).filter(|found| !self.doomed.contains(&found.index));
                    let parent = parent.ok_or_else(|| {
                        Refusal::for_now(format!("the pod has no interface {}", described(&link.kind)))
                    })?;
                    message.attributes.push(LinkAttribute::Link(parent.index));
                    self.create(link, Op::Pod(request(message)));
                }
                Base::Link(id) => {
                    let Some(parent) = self.another(link, id)? else { return Ok(()) };
                    message.attributes.push(LinkAttribute::Link(parent));
                    self.create(link, Op::Pod(request(message)));
                }
            }
            return self.fill(link, &name);
        };
        let tap = matches!(link.kind, LinkKind::Tap(_));
        let name = mark::stable_name(self.wanted.uid, &link.id);
        self.create(link, Op::Tun { name, tap, owner: device.owner, group: device.group });
        Ok(())
    }

    /// Both ends in one message, from the host's side: the kernel makes only the first end a port of something.
    fn make_pair(
        &mut self,
        link: &'a PodLink,
        name: &str,
        mut peer: LinkMessage,
        master: Option<&Master>,
    ) -> Result<(), Refusal> {
        let host_name = match &link.name {
            LinkName::Fixed(_) => mark::stable_name(self.wanted.uid, &link.id),
            LinkName::WithPid(_) => format!("h{name}"),
        };
        check::interface_name(&host_name)?;
        if let Some(taken) = self.seen.host.named(&host_name) {
            let alias = taken.alias.as_deref().and_then(|alias| mark::read_alias(self.wanted.cluster, alias));
            if alias == Some((self.wanted.uid, link.id.as_str())) {
                // The end of an earlier pair, which goes with this plan.
                self.waiting.insert(link.id.clone());
                return Ok(());
            }
            return Err(Refusal::for_now(format!("the host has an interface {host_name} already")));
        }
        peer.attributes.push(LinkAttribute::NetNsFd(self.seen.namespace));
        let mut message = kind::message(&host_name, link.mtu);
        for end in [&mut peer, &mut message] {
            end.attributes.extend(ONE_QUEUE);
        }
        let mut open = true;
        match master {
            None => {}
            Some(Master::Ovs { bridge, .. }) => self.seen.host.rules().known_bridge(bridge)?,
            Some(Master::Bridge { bridge, vlans }) => {
                // A port that is to carry some VLANs is up only when it carries those and no others.
                open = vlans.is_none();
                let bridge = self.seen.host.rules().bridge(bridge, vlans.is_some())?;
                message.attributes.push(LinkAttribute::Controller(bridge));
            }
        }
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.create(link, Op::Host(Request::add_link(&host_name, message)));
        let alias = mark::alias(self.wanted.cluster, self.wanted.uid, &link.id);
        let op = Op::Host(finished(&host_name, alias, open));
        self.parts.push(Step { link: Some(link.id.clone()), creates: false, op });
        self.fill(link, name)
    }

    /// What an interface can be given as soon as it is made. It is looked at before if something of it is changed that
    /// comes before addresses; if it has a master; and on another interface of the pod, which may have to be set up first.
    fn fill(&mut self, link: &PodLink, name: &str) -> Result<(), Refusal> {
        let on_another = matches!(kind::base(&link.kind), Base::Pod(_) | Base::Link(_));
        let filtered =
            matches!(&link.kind, LinkKind::Veth { master: Some(Master::Bridge { vlans: Some(_), .. }) });
        let up = link.up && !filtered;
        let chosen = link.mac.is_some() || (link.mtu.is_some() && self.usual_mtu(link).is_none());
        if on_another || chosen || link.member_of.is_some() || !super::wanted_sysctls(link).is_empty() {
            return Ok(());
        }
        link.addresses.iter().try_for_each(|net| self.not_elsewhere(*net, None))?;
        let addresses = if is_ovs_port(link) { &[][..] } else { &link.addresses };
        let mark = Part::Altname(mark::altname(self.wanted.cluster, self.wanted.uid, &link.id));
        let made = |part| Op::Made { name: name.to_owned(), part };
        let parts = std::iter::once(mark)
            .chain(link.alias.clone().map(Part::Alias))
            .chain(addresses.iter().copied().map(Part::Address));
        let announced = announcements(link, addresses, name).filter(|_| up);
        let ops = parts.map(made).chain(announced).chain(up.then(|| made(Part::Up)));
        let step = |op| Step { link: Some(link.id.clone()), creates: false, op };
        self.parts.extend(ops.map(step));
        Ok(())
    }

    fn change(&mut self, link: &'a PodLink, found: &'a Link) -> Result<(), Refusal> {
        if !self.called(link, found)? {
            return Ok(());
        }
        // Settings are read of marked interfaces, and come before it is up and has addresses.
        let key = mark::altname(self.wanted.cluster, self.wanted.uid, &link.id);
        if !found.altnames.contains(&key) && !super::wanted_sysctls(link).is_empty() {
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
            self.plan.held.insert(link.id.clone());
        } else {
            self.addresses(link, found)?;
        }
        self.former_sysctls(link, found);
        self.raise(link, found);
        if !self.plan.held.contains(&link.id) {
            self.routes(link, found);
            self.rules(link);
        }
        let mut applied = AppliedLink {
            revision: link.revision.clone(),
            name: found.name.clone(),
            host_name: None,
            mac: found.mac.map(written),
            mtu: found.mtu,
            path: self.path(link, found),
            addresses: link.addresses.clone(),
        };
        if let LinkKind::Veth { master } = &link.kind
            && let Some(end) = self.host_end(found)
        {
            applied.host_name = Some(end.name.clone());
            self.far_end(link, end, master.as_ref())?;
        }
        self.plan.applied.insert(link.id.clone(), applied);
        Ok(())
    }

    /// On Open vSwitch an interface gets its addresses when its port carries traffic: then the announcement gets through,
    /// and no packet is lost for which the pod would wait a second. It is up before, since Open vSwitch drops what goes to
    /// a port without a carrier, and learns of one a moment after it is there.
    fn waits_for_port(&self, link: &PodLink, found: &Link) -> bool {
        let end = self.host_end(found).filter(|end| end.up);
        let has = |net: &IpNet| {
            let mut addresses = self.seen.pod.addresses.iter();
            addresses.any(|address| address.index == found.index && address.net == *net)
        };
        is_ovs_port(link)
            && end.is_none_or(|end| !self.wanted.plugged.contains(&end.name))
            && !link.addresses.iter().all(has)
    }

    /// One that is up stays so.
    fn raise(&mut self, link: &'a PodLink, found: &'a Link) {
        if !link.up || found.up {
            if link.up != found.up {
                self.in_pod(link, Request::set_up(&found.name, found.index, false));
            }
            return;
        }
        // The steps that bring its end up are in this plan, and this one in the next.
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
        let former = self.former(link, found, &Property::Mac);
        let asked = link.mac.as_deref().map(check::parse_mac).transpose()?;
        let before = former.as_ref().and_then(|former| mark::former_mac(&former.value));
        if let Some(mac) = asked.or(before).filter(|mac| found.mac != Some(*mac)) {
            if let Some(now) = found.mac {
                let now = now.map(|byte| format!("{byte:02x}")).concat();
                self.remember(link, found, &Property::Mac, &now);
            }
            self.in_pod(link, set_mac(found, mac));
        } else if let Some(former) = former.filter(|_| asked.is_none()) {
            self.given_back(link, found, &former);
        }
        Ok(())
    }

    fn mtu(&mut self, link: &'a PodLink, found: &Link) -> Result<(), Refusal> {
        let former = self.former(link, found, &Property::Mtu);
        let before = former.as_ref().and_then(|former| former.value.parse().ok());
        let usual = self.usual_mtu(link);
        if let Some(mtu) = link.mtu.or(before).or(usual).filter(|mtu| *mtu != found.mtu) {
            self.fits(link)?;
            if usual.is_none() {
                self.remember(link, found, &Property::Mtu, &found.mtu.to_string());
            }
            self.in_pod(link, Request::set(&found.name, found.index, "MTU", vec![LinkAttribute::Mtu(mtu)]));
        } else if let Some(former) = former.filter(|_| link.mtu.is_none()) {
            self.given_back(link, found, &former);
        }
        Ok(())
    }

    /// The MTU that the kernel gives to a new interface of that kind, in bytes. `None`: it depends on more than is known
    /// here.
    fn usual_mtu(&self, link: &PodLink) -> Option<u32> {
        match &link.kind {
            LinkKind::Veth { .. } | LinkKind::Dummy {} | LinkKind::Tun(_) | LinkKind::Tap(_) => {
                Some(ETHERNET)
            }
            _ => self.made_on(link).map(|lower| lower.mtu),
        }
    }

    /// False while it is being renamed.
    fn called(&mut self, link: &'a PodLink, found: &Link) -> Result<bool, Refusal> {
        let name = match &link.name {
            LinkName::Fixed(name) => name.clone(),
            LinkName::WithPid(base) => {
                let pid = found.name.strip_prefix(base.as_str()).unwrap_or_default();
                if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Ok(true);
                }
                check::pod_name(&link.name, self.wanted.pid)?
            }
        };
        if name == found.name {
            return Ok(true);
        }
        if self.free(link, &name)? {
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

    /// The name can be had: `false` when what has it is on its way out.
    fn free(&mut self, link: &PodLink, name: &str) -> Result<bool, Refusal> {
        let Some(taken) = self
            .seen
            .pod
            .links
            .iter()
            .find(|found| found.name == name || found.altnames.iter().any(|altname| altname == name))
        else {
            return Ok(true);
        };
        let passing = self.doomed.contains(&taken.index)
            || self.ours.iter().any(|(id, ours)| ours.index == taken.index && !self.failed.contains_key(*id));
        if passing {
            self.waiting.insert(link.id.clone());
            return Ok(false);
        }
        Err(Refusal::for_now(format!("the pod has an interface {name} already, which is not ours")))
    }

    /// The index of another link of the pod; `None` while it is being made.
    fn another(&mut self, link: &PodLink, id: &str) -> Result<Option<u32>, Refusal> {
        let wanted = self.wanted.pod.links.iter().any(|other| other.id == id);
        if !wanted {
            return Err(Refusal::never(format!("the pod has no interface {id} of ours")));
        }
        match self.ours.get(id).filter(|found| !self.doomed.contains(&found.index)) {
            Some(found) => Ok(Some(found.index)),
            None if self.failed.contains_key(id) || self.plan.refused.contains_key(id) => {
                Err(Refusal::for_now(format!("the interface {id} of the pod is not there")))
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
                if let Some(master) = self.another(link, id)?
                    && found.master != Some(master)
                {
                    self.in_pod(link, Request::set_master(&found.name, found.index, master));
                }
            }
            // What the pod's own processes made it a port of is their business.
            None if self.ours.values().any(|ours| found.master == Some(ours.index)) => {
                self.in_pod(link, Request::set_master(&found.name, found.index, 0));
            }
            None => {}
        }
        Ok(())
    }

    /// The host's end of a pair.
    fn far_end(
        &mut self,
        link: &'a PodLink,
        end: &'a Link,
        master: Option<&'a Master>,
    ) -> Result<(), Refusal> {
        let alias = mark::alias(self.wanted.cluster, self.wanted.uid, &link.id);
        if end.alias.as_ref() != Some(&alias) {
            self.on_host(link, super::set_alias(&end.name, end.index, alias));
        }
        if end.group != GROUP {
            self.on_host(link, super::set_group(end, GROUP));
        }
        if let Some(mtu) = link.mtu.or(self.usual_mtu(link)).filter(|mtu| *mtu != end.mtu) {
            self.on_host(link, Request::set(&end.name, end.index, "MTU", vec![LinkAttribute::Mtu(mtu)]));
        }
        let rules = self.seen.host.rules();
        let port_of_linux_bridge = end
            .master
            .and_then(|index| self.seen.host.link(index))
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
                rules.known_bridge(bridge)?;
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
        let wanted: Vec<PortVlan> = match vlans {
            PortVlans::Access(vid) => vec![PortVlan { vid: vid.get(), pvid: true, untagged: true }],
            PortVlans::Trunk(vids) => {
                vids.iter().map(|vid| PortVlan { vid: vid.get(), pvid: false, untagged: false }).collect()
            }
        };
        let seen = self.seen.vlans.get(&end.index).map(Vec::as_slice).unwrap_or_default();
        let extra: Vec<PortVlan> =
            seen.iter().filter(|have| wanted.iter().all(|want| want.vid != have.vid)).copied().collect();
        let missing: Vec<PortVlan> = wanted.into_iter().filter(|want| !seen.contains(want)).collect();
        if !extra.is_empty() {
            self.on_host(link, Request::delete_port_vlans(&end.name, end.index, &extra));
        }
        if !missing.is_empty() {
            self.on_host(link, Request::add_port_vlans(&end.name, end.index, &missing));
        }
    }
}

/// What the host's end is given as soon as it is made. No link-local address: nothing of the host is to be reached
/// there, and there is none yet since the other end is not up. Where the host has no IPv6 nothing of this is done; what
/// counts then comes when the end was looked at.
fn finished(name: &str, alias: String, up: bool) -> Request {
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

/// What has the kernel announce addresses when their interface comes up, or gets a hardware address (`arp_notify`,
/// `ndisc_notify`), unless the link has settings of its own for that.
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

fn written(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn described(kind: &LinkKind) -> &str {
    match kind::base(kind) {
        Base::Link(name) | Base::Pod(name) | Base::Host(name) => name,
        Base::Nothing => "",
    }
}
