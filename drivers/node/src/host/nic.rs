//! NICs of the node: taken into use, and restored to their original settings afterwards. These are recorded on the NIC,
//! as an alternative name, before anything of it is changed.

use std::collections::BTreeSet;

use rtnetlink::packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute};

use super::guard::{self, NicUse, Refusal};
use super::ownership::OriginalSettings;
use super::plan::{ItemRef, Planner};
use super::state::ADDR_GEN_NONE;
use crate::netlink::{Link, Request};

impl<'a> Planner<'a> {
    /// The NICs with those names, without duplicates, if all of them may be used.
    pub(super) fn nics(
        &self,
        names: &[String],
        requested: Option<u32>,
        ovs: bool,
    ) -> Result<Vec<&'a Link>, Refusal> {
        let mut nics: Vec<&Link> = Vec::new();
        for name in names {
            let nic = guard::nic(self.state, name, NicUse { group: self.group, ovs })?;
            check_mtu(nic, requested)?;
            if nics.iter().all(|other| other.index != nic.index) {
                nics.push(nic);
            }
        }
        Ok(nics)
    }

    /// The settings of a NIC before it was used.
    pub(super) fn original(&self, nic: &Link) -> OriginalSettings {
        OriginalSettings::recorded(nic, self.cluster)
            .map_or_else(|| OriginalSettings::current(nic), |(original, _)| original)
    }

    /// Records a NIC's settings in an alternative name, unless they are recorded already.
    pub(super) fn record_original(&mut self, item: &ItemRef, nic: &Link) {
        if OriginalSettings::recorded(nic, self.cluster).is_none() {
            let altname = OriginalSettings::current(nic).altname(self.cluster, nic.index);
            let request = Request::add_altname(&nic.name, nic.index, &altname);
            self.step(item, request, format!("{} was not marked as used", nic.name));
        }
    }

    /// Takes a NIC into use: records its settings, sets a sufficient MTU, makes it a port of `master` and sets it up.
    pub(super) fn use_nic(
        &mut self,
        item: &ItemRef,
        nic: &Link,
        requested: Option<u32>,
        master: Option<u32>,
    ) {
        self.record_original(item, nic);
        let original = self.original(nic);
        if !original.up && nic.address_generation.is_some_and(|mode| mode != ADDR_GEN_NONE) {
            let attributes = vec![address_generation(ADDR_GEN_NONE)];
            let request = Request::set(&nic.name, nic.index, "IPv6 mode", attributes);
            self.step(item, request, format!("{} gave itself IPv6 addresses", nic.name));
        }
        let mtu = requested.unwrap_or(0).max(original.mtu);
        if nic.mtu != mtu {
            let request = Request::set(&nic.name, nic.index, "MTU", vec![LinkAttribute::Mtu(mtu)]);
            self.step(item, request, format!("{} had an MTU of {}", nic.name, nic.mtu));
        }
        if nic.master != master {
            let difference = match (nic.master, master) {
                (Some(other), _) => format!("{} was a member of {}", nic.name, self.state.name(other)),
                (None, _) => format!("{} was not a port of the bridge", nic.name),
            };
            self.step(item, Request::set_master(&nic.name, nic.index, master.unwrap_or(0)), difference);
        }
        if !nic.up {
            let request = Request::set_up(&nic.name, nic.index, true);
            self.step(item, request, format!("{} was down", nic.name));
        }
    }

    /// Restores the original settings of a NIC that no network uses. `gone`: indexes of interfaces that this plan
    /// deletes.
    pub(super) fn restore_nic(
        &mut self,
        item: &ItemRef,
        nic: &Link,
        original: OriginalSettings,
        altname: &str,
        gone: &BTreeSet<u32>,
    ) {
        let before = self.steps.len();
        let difference = format!("{} is not used any more", nic.name);
        let master = nic.master.and_then(|master| self.state.snapshot.link(master));
        // A NIC that another process has made a member of something keeps its settings.
        let foreign = master.is_some_and(|master| master.group != self.group);
        if !foreign {
            if master.is_some_and(|master| !gone.contains(&master.index)) {
                self.step(item, Request::set_master(&nic.name, nic.index, 0), difference.as_str());
            }
            if nic.mtu != original.mtu {
                let attributes = vec![LinkAttribute::Mtu(original.mtu)];
                self.step(item, Request::set(&nic.name, nic.index, "MTU", attributes), difference.as_str());
            }
            if nic.up != original.up {
                self.step(item, Request::set_up(&nic.name, nic.index, original.up), difference.as_str());
            }
            if let Some(mode) =
                original.address_generation.filter(|mode| nic.address_generation != Some(*mode))
            {
                let attributes = vec![address_generation(mode)];
                self.step(
                    item,
                    Request::set(&nic.name, nic.index, "IPv6 mode", attributes),
                    difference.as_str(),
                );
            }
        }
        // The record is deleted last, when everything is restored.
        if self.steps.len() == before && master.is_none_or(|master| !gone.contains(&master.index)) {
            self.step(item, Request::delete_altname(&nic.name, nic.index, altname), difference.as_str());
        }
    }
}

pub(super) fn address_generation(mode: u8) -> LinkAttribute {
    let setting = AfSpecInet6::AddrGenMode(In6AddrGenMode::from(mode));
    LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![setting])])
}

/// Refuses an MTU above the NIC's maximum.
pub(super) fn check_mtu(nic: &Link, requested: Option<u32>) -> Result<(), Refusal> {
    match requested {
        Some(requested) if nic.max_mtu != 0 && requested > nic.max_mtu => {
            Err(Refusal::Mtu { name: nic.name.clone(), requested, maximum: nic.max_mtu })
        }
        _ => Ok(()),
    }
}
