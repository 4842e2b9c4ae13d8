//! NICs of the node: they are used, and given back as they were before. What that was is written on them, as an
//! alternative name, before anything of them is changed.

use std::collections::BTreeSet;

use rtnetlink::packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute};

use super::guard::{self, Refusal, User};
use super::mark::Was;
use super::plan::{Planner, Spot};
use super::state::NO_ADDRESSES;
use crate::netlink::{Link, Request};

impl<'a> Planner<'a> {
    /// The NICs of those names, once each, if all of them may be used.
    pub(super) fn nics(
        &self,
        names: &[String],
        asked: Option<u32>,
        ovs: bool,
    ) -> Result<Vec<&'a Link>, Refusal> {
        let mut nics: Vec<&Link> = Vec::new();
        for name in names {
            let nic = guard::nic(self.state, name, User { group: self.group, ovs })?;
            can_carry(nic, asked)?;
            if nics.iter().all(|other| other.index != nic.index) {
                nics.push(nic);
            }
        }
        Ok(nics)
    }

    /// What a NIC was like before it was used.
    pub(super) fn was(&self, nic: &Link) -> Was {
        Was::of(nic, self.cluster).map_or_else(|| Was::now(nic), |(was, _)| was)
    }

    pub(super) fn note_what_was(&mut self, spot: &Spot, nic: &Link) {
        if Was::of(nic, self.cluster).is_none() {
            let written = Was::now(nic).written(self.cluster, nic.index);
            let request = Request::add_altname(&nic.name, nic.index, &written);
            self.step(spot, request, format!("{} was not marked as used", nic.name));
        }
    }

    /// Uses a NIC: marked, up, with an MTU that suffices, a port of `master`.
    pub(super) fn take(&mut self, spot: &Spot, nic: &Link, asked: Option<u32>, master: Option<u32>) {
        self.note_what_was(spot, nic);
        let was = self.was(nic);
        if !was.up && nic.address_generation.is_some_and(|mode| mode != NO_ADDRESSES) {
            let attributes = vec![address_generation(NO_ADDRESSES)];
            let request = Request::set(&nic.name, nic.index, "IPv6 mode", attributes);
            self.step(spot, request, format!("{} gave itself IPv6 addresses", nic.name));
        }
        let mtu = asked.unwrap_or(0).max(was.mtu);
        if nic.mtu != mtu {
            let request = Request::set(&nic.name, nic.index, "MTU", vec![LinkAttribute::Mtu(mtu)]);
            self.step(spot, request, format!("{} had an MTU of {}", nic.name, nic.mtu));
        }
        if nic.master != master {
            let difference = match (nic.master, master) {
                (Some(other), _) => format!("{} was a member of {}", nic.name, self.state.name(other)),
                (None, _) => format!("{} was not a port of the bridge", nic.name),
            };
            self.step(spot, Request::set_master(&nic.name, nic.index, master.unwrap_or(0)), difference);
        }
        if !nic.up {
            let request = Request::set_up(&nic.name, nic.index, true);
            self.step(spot, request, format!("{} was down", nic.name));
        }
    }

    pub(super) fn give_back(
        &mut self,
        spot: &Spot,
        nic: &Link,
        was: Was,
        written: &str,
        gone: &BTreeSet<u32>,
    ) {
        let before = self.steps.len();
        let difference = format!("{} is not used any more", nic.name);
        let master = nic.master.and_then(|master| self.state.snapshot.link(master));
        // What another hand made it a part of meanwhile is not undone.
        let theirs = master.is_some_and(|master| master.group != self.group);
        if !theirs {
            if master.is_some_and(|master| !gone.contains(&master.index)) {
                self.step(spot, Request::set_master(&nic.name, nic.index, 0), difference.as_str());
            }
            if nic.mtu != was.mtu {
                let attributes = vec![LinkAttribute::Mtu(was.mtu)];
                self.step(spot, Request::set(&nic.name, nic.index, "MTU", attributes), difference.as_str());
            }
            if nic.up != was.up {
                self.step(spot, Request::set_up(&nic.name, nic.index, was.up), difference.as_str());
            }
            if let Some(mode) = was.address_generation.filter(|mode| nic.address_generation != Some(*mode)) {
                let attributes = vec![address_generation(mode)];
                self.step(
                    spot,
                    Request::set(&nic.name, nic.index, "IPv6 mode", attributes),
                    difference.as_str(),
                );
            }
        }
        // The mark goes last, when there is nothing left to remember.
        if self.steps.len() == before && master.is_none_or(|master| !gone.contains(&master.index)) {
            self.step(spot, Request::delete_altname(&nic.name, nic.index, written), difference.as_str());
        }
    }
}

pub(super) fn address_generation(mode: u8) -> LinkAttribute {
    let setting = AfSpecInet6::AddrGenMode(In6AddrGenMode::from(mode));
    LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![setting])])
}

pub(super) fn can_carry(nic: &Link, asked: Option<u32>) -> Result<(), Refusal> {
    match asked {
        Some(asked) if nic.max_mtu != 0 && asked > nic.max_mtu => {
            Err(Refusal::Mtu { name: nic.name.clone(), asked, most: nic.max_mtu })
        }
        _ => Ok(()),
    }
}
