//! Addresses that pods have and no node reports: those of another IPAM plugin, before the Subnet came to have Ipam eno.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::REPORT_DELAY;
use super::fixed::holder;
use super::plan::Plan;
use super::users::User;
use crate::kinds::Spec;
use crate::pods::ipam::blocks::Stage;
use crate::{Key, Kind, Name};

impl<'a> Plan<'a> {
    /// Takes the addresses that pods have otherwise into the list, until these pods are gone.
    pub fn settle_attached(&mut self) {
        let found = if self.source.is_some() { self.found_in_pods() } else { BTreeMap::new() };
        let gone: Vec<IpAddr> = {
            let is_gone = |(address, pod): &(&IpAddr, &Name)| {
                found.get(*address).is_none_or(|(other, _)| other != *pod)
            };
            self.leasing.attached.iter().filter(is_gone).map(|(address, _)| *address).collect()
        };
        for address in gone {
            self.leasing.attached.remove(&address);
            self.ipam.release(&self.pool, address);
        }
        self.leasing.unreported.retain(|(address, _), _| found.contains_key(address));
        for (address, (pod, node)) in found {
            if !self.leasing.attached.contains_key(&address) {
                self.take_attached(address, &pod, node.as_ref());
            }
        }
    }

    /// The addresses of the Subnet that pods have and no node reports, each with the pod and its node.
    fn found_in_pods(&self) -> BTreeMap<IpAddr, (Name, Option<Name>)> {
        let (leasing, users) = (&*self.leasing, self.users);
        let mut found = BTreeMap::new();
        let users = users.of(&leasing.attachments).into_iter();
        for user in users.filter(|user| !self.is_starting(user)) {
            let pod = Name::from(format!("{}/{}", user.namespace, user.name));
            for address in self.addresses_of(user, &pod) {
                let is_reported = self.shares.values().any(|share| share.user_of(address).is_some());
                let is_fixed = leasing.fixed.contains_key(&address);
                if self.is_host(address) && !is_reported && !is_fixed {
                    found.entry(address).or_insert((pod.clone(), user.node.clone()));
                }
            }
        }
        found
    }

    /// True while a pod waits for an address: its sandbox is new, and what Multus says is still of the former one.
    fn is_starting(&self, user: &User) -> bool {
        let share = user.node.as_ref().and_then(|node| self.shares.get(node));
        let waiting = share.and_then(|share| share.report).map_or(&[][..], |report| &report.waiting);
        waiting.iter().any(|one| (&*one.namespace, &*one.pod) == (&*user.namespace, &*user.name))
    }

    /// The addresses that a pod says it has by attachments that it may use: what others say would keep addresses from
    /// those who may. It keeps those that it has since it might.
    fn addresses_of(&self, user: &'a User, pod: &Name) -> impl Iterator<Item = IpAddr> {
        let by_these = user.attached.iter().filter_map(|one| {
            let (namespace, name) = &one.nad;
            let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
            let spec = self.store.effective(&key, Spec::attachment);
            let is_one = self.leasing.attachments.contains(&key);
            is_one.then(|| (&one.addresses, self.store.is_usable_from(&key, spec, &user.namespace)))
        });
        let is_known = |address: &IpAddr| self.leasing.attached.get(address) == Some(pod);
        by_these.flat_map(move |(addresses, is_usable)| {
            addresses.iter().copied().filter(move |address| is_usable || is_known(address))
        })
    }

    fn take_attached(&mut self, address: IpAddr, pod: &Name, node: Option<&Name>) {
        if let Some((_, block)) = self.ipam.block_of(&self.pool, address) {
            let (stage, part) = (block.stage, IpNet::from(address));
            if Some(&block.node) == node {
                // The node's report may be on its way.
                let since = *self.leasing.unreported.entry((address, pod.clone())).or_insert(self.now);
                if self.now < since + REPORT_DELAY {
                    return self.wake_at(since + REPORT_DELAY);
                }
            }
            match stage {
                Stage::Leased(_) => self.ipam.release_part(&self.pool, &part),
                Stage::Given => return self.ipam.set_stage(&self.pool, &part, self.taken()),
                Stage::Taken { .. } => return,
            }
        }
        if self.ipam.take(&self.pool, address, &holder(self.name, pod)) {
            self.leasing.attached.insert(address, pod.clone());
        }
    }
}
