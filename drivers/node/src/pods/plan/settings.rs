//! The settings of a link's interface in the pod: the difference between what the link asks for and what is observed,
//! of an interface that exists as of one that this plan makes.

use eno_schemas::{AppliedLink, LinkKind, Master, PodLink};
use ipnet::IpNet;

use super::{Op, Planner, Setting, Step, desired_sysctls};
use crate::netlink::Link;
use crate::pods::check::{self, Refusal};
use crate::pods::kind::{self, Base};
use crate::pods::ownership::{self, Property};

/// The default MTU of Ethernet in bytes (`ETH_DATA_LEN`).
const ETHERNET_MTU: u32 = 1500;

/// The interface that gets the settings.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// This plan makes it, under this name: nothing is observed of it.
    New(&'a str),
    /// It exists.
    Found(&'a Link),
}

impl<'a> Target<'a> {
    fn name(self) -> &'a str {
        match self {
            Self::New(name) => name,
            Self::Found(link) => &link.name,
        }
    }

    /// The observed interface.
    pub(super) fn found(self) -> Option<&'a Link> {
        match self {
            Self::New(_) => None,
            Self::Found(link) => Some(link),
        }
    }
}

impl<'a> Planner<'a> {
    /// Plans all settings that differ, in the order in which the kernel has to get them.
    pub(super) fn plan_settings(&mut self, link: &'a PodLink, target: Target<'_>) -> Result<(), Refusal> {
        if self.must_be_read(link, target) {
            self.waiting.insert(link.id.clone());
            return Ok(());
        }
        match target {
            Target::New(_) => self.set(link, target, self.mark(link)),
            Target::Found(found) => {
                self.mac(link, found)?;
                self.mtu(link, found)?;
                self.membership(link, found)?;
                self.sysctls(link, found)?;
            }
        }
        let observed_alias = target.found().and_then(|found| found.alias.as_deref()).unwrap_or_default();
        let alias = link.alias.as_deref().unwrap_or_default();
        if alias != observed_alias {
            self.set(link, target, Setting::Alias(alias.to_owned()));
        }
        self.addresses(link, target)?;
        if let Target::Found(found) = target {
            self.restore_sysctls(link, found);
        }
        self.up(link, target);
        match target {
            Target::New(_) => Ok(()),
            Target::Found(found) => self.plan_dependents(link, found),
        }
    }

    /// Plans what refers to an existing interface: its routes and rules, and the host end of a veth pair.
    fn plan_dependents(&mut self, link: &'a PodLink, found: &Link) -> Result<(), Refusal> {
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
            && let Some(end) = self.host_end(link, found)
        {
            applied.host_name = Some(end.name.clone());
            self.plan_host_end(link, end, master.as_ref())?;
        }
        self.plan.applied.insert(link.id.clone(), applied);
        Ok(())
    }

    /// True when the interface has to be read before it gets its settings. Sysctls are read of marked interfaces only,
    /// and are set before addresses. For a new interface this includes settings whose original value is recorded, a
    /// master, and a lower interface in the pod, which may have to be set up first.
    fn must_be_read(&self, link: &PodLink, target: Target<'_>) -> bool {
        let has_sysctls = !desired_sysctls(link).is_empty();
        match target {
            Target::New(_) => {
                let has_original =
                    link.mac.is_some() || (link.mtu.is_some() && self.default_mtu(link).is_none());
                let is_on_another = matches!(kind::base(&link.kind), Base::Pod(_) | Base::Link(_));
                has_sysctls || has_original || link.member_of.is_some() || is_on_another
            }
            Target::Found(found) => {
                let key = ownership::altname(self.desired.cluster, self.desired.uid, &link.id);
                has_sysctls && !found.altnames.contains(&key)
            }
        }
    }

    /// Plans one setting. Those of a new interface come after all other steps.
    pub(super) fn set(&mut self, link: &PodLink, target: Target<'_>, setting: Setting) {
        match target {
            Target::New(name) => {
                self.push_for_new_link(link, Op::OnNewLink { name: name.to_owned(), setting });
            }
            Target::Found(found) => self.in_pod(link, setting.of(found)),
        }
    }

    /// Plans a step of an interface that this plan makes.
    pub(super) fn push_for_new_link(&mut self, link: &PodLink, op: Op) {
        self.new_link_settings.push(Step { link: Some(link.id.clone()), creates: false, op });
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
            self.in_pod(link, Setting::Mac(mac).of(found));
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
            self.in_pod(link, Setting::Mtu(mtu).of(found));
        } else if let Some(original) = original.filter(|_| link.mtu.is_none()) {
            self.forget_original(link, found, &original);
        }
        Ok(())
    }

    /// The kernel's default MTU for a new interface of that kind, in bytes. `None`: it can't be computed.
    pub(super) fn default_mtu(&self, link: &PodLink) -> Option<u32> {
        match &link.kind {
            LinkKind::Veth { .. } | LinkKind::Dummy {} | LinkKind::Tun(_) | LinkKind::Tap(_) => {
                Some(ETHERNET_MTU)
            }
            _ => self.made_on(link).map(|lower| lower.mtu),
        }
    }

    fn membership(&mut self, link: &'a PodLink, found: &Link) -> Result<(), Refusal> {
        match &link.member_of {
            Some(id) => {
                if let Some(master) = self.sibling_index(link, id)?
                    && found.master != Some(master)
                {
                    self.in_pod(link, Setting::Master(master).of(found));
                }
            }
            // A master that the pod's own processes have set stays.
            None if self.ours.values().any(|ours| found.master == Some(ours.index)) => {
                self.in_pod(link, Setting::Master(0).of(found));
            }
            None => {}
        }
        Ok(())
    }

    /// Plans the administrative state.
    fn up(&mut self, link: &'a PodLink, target: Target<'_>) {
        if link.up == target.found().is_some_and(|found| found.up) {
            return;
        }
        // A plan sets the host end up, and the next one the pod's end.
        let is_filtered =
            matches!(&link.kind, LinkKind::Veth { master: Some(Master::Bridge { vlans: Some(_), .. }) });
        let host_end = target.found().and_then(|found| self.host_end(link, found));
        if link.up && (is_filtered || link.anti_spoof) && host_end.is_none_or(|end| !end.up) {
            return;
        }
        if link.up && !self.plan.awaiting_port.contains(&link.id) {
            for op in announcements(link, &link.addresses, target.name()) {
                match target {
                    Target::New(_) => self.push_for_new_link(link, op),
                    Target::Found(_) => self.push(Some(&link.id), op),
                }
            }
        }
        self.set(link, target, Setting::Up(link.up));
    }

    /// True when an interface on Open vSwitch has to wait for its port to be open. Only then its addresses are added,
    /// so that the announcement gets through, and no packet is lost that the pod would resend after a second. The
    /// interface is up before: Open vSwitch drops packets to a port without a carrier, and notices the carrier with a
    /// delay.
    pub(super) fn waits_for_port(&self, link: &PodLink, target: Target<'_>) -> bool {
        let end = target.found().and_then(|found| self.host_end(link, found)).filter(|end| end.up);
        matches!(&link.kind, LinkKind::Veth { master: Some(Master::Ovs { .. }) })
            && end.is_none_or(|end| !self.desired.open_ports.contains(&end.name))
    }
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

pub(super) fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
