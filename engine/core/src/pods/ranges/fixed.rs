//! Addresses of single pods: those that pods ask for, and those that pods with an ordinal have again.

use std::net::IpAddr;

use eno_schemas::{WaitingPod, has_ordinal};
use ipnet::IpNet;

use super::plan::Plan;
use super::render::{FIXED_BYTES, MAX_LEASE_BYTES};
use super::settle::pod_on;
use super::share::is_fixed;
use super::{Fixed, Leasing};
use crate::pods::ipam::blocks::Stage;
use crate::pods::ipam::{Holder, PoolKey, Source};
use crate::{Key, Kind, Name};

impl Leasing {
    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }
}

/// The holder of an address that a pod of nodes has singly.
pub(super) fn holder(subnet: &Name, pod: &str) -> Holder {
    (Key::cluster(Kind::Subnet, subnet), pod.into(), "".into())
}

impl Plan<'_> {
    /// Moves the addresses of single pods on. Those of pods that are gone are taken back, and then kept or free.
    pub fn settle_fixed(&mut self) {
        let all: Vec<(IpAddr, Fixed)> =
            self.leasing.fixed.iter().map(|(address, fixed)| (*address, fixed.clone())).collect();
        for (address, fixed) in all {
            if fixed.stage.is_some() && self.is_gone_for_good(&fixed.node) {
                self.end_fixed(address);
                continue;
            }
            let stays = self.source.is_some() && self.is_host(address) && self.is_there(address, &fixed);
            let stage = match fixed.stage {
                None if self.keeps(&fixed) => None,
                None => {
                    self.end_fixed(address);
                    continue;
                }
                Some(Stage::Leased(_)) if !stays => {
                    self.end_fixed(address);
                    continue;
                }
                Some(Stage::Leased(revision)) if revision <= self.leasing.written => Some(Stage::Given),
                Some(Stage::Given) if !stays => Some(self.taken()),
                // The status of a Subnet that was created again does not have it yet.
                Some(Stage::Taken { .. }) if stays && self.leasing.revision > self.leasing.written => {
                    Some(Stage::Leased(self.leasing.revision))
                }
                Some(Stage::Taken { .. }) if stays => Some(Stage::Given),
                Some(Stage::Taken { version, .. })
                    if self.has_confirmed(&fixed.node, version) && !self.holds(&fixed.node, address) =>
                {
                    self.end_fixed(address);
                    continue;
                }
                stage => stage,
            };
            if let Some(own) = self.leasing.fixed.get_mut(&address) {
                own.stage = stage;
            }
        }
    }

    /// At the start, the addresses of pods that are not there are not commanded. Those that stay are kept: no other pod has
    /// the name. A node that is gone may still have its own.
    pub fn restate_fixed(&mut self) {
        let taken = self.taken();
        let all: Vec<(IpAddr, Fixed)> =
            self.leasing.fixed.iter().map(|(address, fixed)| (*address, fixed.clone())).collect();
        for (address, fixed) in all {
            if self.is_there(address, &fixed) {
                continue;
            }
            let is_gone = self.shares.get(&fixed.node).is_none_or(|share| share.target.is_none());
            let stage = if self.keeps(&fixed) && !is_gone { None } else { Some(taken) };
            self.leasing.fixed.entry(address).and_modify(|own| own.stage = stage);
        }
    }

    /// True while the pod is on the node.
    fn is_there(&self, address: IpAddr, Fixed { namespace, pod, node, .. }: &Fixed) -> bool {
        let Some(share) = self.shares.get(node) else { return false };
        let waiting = share.report.map_or(&[][..], |report| &report.waiting);
        share.pods.iter().any(|user| (&user.namespace, &user.name) == (namespace, pod))
            || waiting.iter().any(|one| (&*one.namespace, &*one.pod) == (&**namespace, &**pod))
            || share
                .user_of(address)
                .is_some_and(|one| (&*one.namespace, &*one.pod) == (&**namespace, &**pod))
    }

    fn keeps(&self, fixed: &Fixed) -> bool {
        self.source.is_some() && self.is_sticky() && has_ordinal(&fixed.pod)
    }

    /// No node has the address any more.
    fn end_fixed(&mut self, address: IpAddr) {
        let order = self.leasing.next_order();
        let Some(fixed) = self.leasing.fixed.get(&address).cloned() else { return };
        if fixed.stage.is_some() && self.keeps(&fixed) && self.is_host(address) {
            self.leasing.fixed.insert(address, Fixed { stage: None, order, ..fixed });
        } else {
            self.leasing.fixed.remove(&address);
            self.ipam.release(&self.pool, address);
        }
    }

    /// Leases addresses to pods that wait for one of their own. Returns for how many of them any is needed.
    pub fn serve_fixed(&mut self) -> u128 {
        if self.source.is_none() {
            return 0;
        }
        let is_sticky = self.is_sticky();
        let shares = self.shares.iter().filter(|(_, share)| share.target.is_some());
        let waiting = shares.flat_map(|(node, share)| {
            let waiting = share.report.map_or(&[][..], |report| &report.waiting).iter();
            waiting.filter(|pod| is_fixed(pod, is_sticky)).map(|pod| (node.clone(), pod))
        });
        let waiting: Vec<(Name, &WaitingPod)> = waiting.collect();
        let mut without = 0;
        for (node, pod) in waiting {
            match pod.address {
                Some(address) => {
                    if let Err(reason) = self.serve_asked(&node, pod, address) {
                        let message = format!(
                            "Pod {}/{} on Node {node} asks for {address}: {reason}",
                            pod.namespace, pod.pod
                        );
                        self.leasing.findings.refused.push(message);
                    }
                }
                None => without += u128::from(!self.serve_sticky(&node, pod)),
            }
        }
        without
    }

    /// Returns false when nothing is free.
    fn serve_sticky(&mut self, node: &Name, pod: &WaitingPod) -> bool {
        let is_its = |fixed: &Fixed| (&*fixed.namespace, &*fixed.pod) == (&*pod.namespace, &*pod.pod);
        let former = self.leasing.fixed.iter().find(|(_, fixed)| is_its(fixed)).map(|(address, _)| *address);
        if let Some(address) = former {
            self.move_kept(address, node);
            return true;
        }
        let Some(source) = self.source.as_ref().filter(|_| self.has_room_for(node, pod)) else { return true };
        let holder = holder(self.name, &format!("{}/{}", pod.namespace, pod.pod));
        let Some(address) = self.ipam.take_any(&self.pool, source, &holder) else { return false };
        self.add_fixed(address.addr(), node, pod);
        true
    }

    /// The pod of an address that is kept is on this node.
    fn move_kept(&mut self, address: IpAddr, node: &Name) {
        let (revision, order) = (self.next_revision(), self.leasing.next_order());
        if let Some(fixed) = self.leasing.fixed.get_mut(&address).filter(|fixed| fixed.stage.is_none()) {
            (fixed.node, fixed.order, fixed.stage) = (node.clone(), order, Some(Stage::Leased(revision)));
            self.is_unwritten = true;
        }
    }

    fn add_fixed(&mut self, address: IpAddr, node: &Name, pod: &WaitingPod) {
        let (namespace, order) = (Name::from(pod.namespace.as_str()), self.leasing.next_order());
        let stage = Some(Stage::Leased(self.next_revision()));
        let fixed = Fixed { namespace, pod: pod.pod.as_str().into(), node: node.clone(), stage, order };
        self.leasing.fixed.insert(address, fixed);
        self.bytes += FIXED_BYTES + pod.namespace.len() + pod.pod.len() + node.len();
        self.is_unwritten = true;
    }

    fn has_room_for(&self, node: &Name, pod: &WaitingPod) -> bool {
        self.bytes + FIXED_BYTES + pod.namespace.len() + pod.pod.len() + node.len() <= MAX_LEASE_BYTES
    }

    /// Leases the address that a pod asks for; `Err`: why it can't. It may come later.
    fn serve_asked(&mut self, node: &Name, pod: &WaitingPod, address: IpAddr) -> Result<(), String> {
        let is_its = |fixed: &Fixed| (&*fixed.namespace, &*fixed.pod) == (&*pod.namespace, &*pod.pod);
        if let Some(fixed) = self.leasing.fixed.get(&address) {
            if !is_its(fixed) {
                return Err(format!("it is that of Pod {}/{}", fixed.namespace, fixed.pod));
            }
            self.move_kept(address, node);
            return Ok(());
        }
        if !self.is_host(address) {
            return Err("it is no address of a host in the Subnet".into());
        }
        if self.source.as_ref().map_or(&[][..], Source::excluded).contains(&address) {
            return Err("it is that of a next hop or gateway".into());
        }
        if let Some(holder) = self.ipam.holder(&self.pool, address) {
            return Err(format!("{} has it", describe(self.pool.clone(), holder)));
        }
        if let Some((_, block)) = self.ipam.block_of(&self.pool, address) {
            let (owner, stage, part) = (block.node.clone(), block.stage, IpNet::from(address));
            if let Some(other) = self.shares.get(&owner).and_then(|share| share.user_of(address)) {
                if (&other.namespace, &other.pod) == (&pod.namespace, &pod.pod) {
                    return Ok(());
                }
                return Err(format!("{} has it", pod_on(other, &owner)));
            }
            match stage {
                Stage::Leased(_) => self.ipam.release_part(&self.pool, &part),
                Stage::Given => {
                    self.ipam.set_stage(&self.pool, &part, self.taken());
                    return Ok(());
                }
                Stage::Taken { .. } => return Ok(()),
            }
        }
        if !self.has_room_for(node, pod) {
            return Err("the status of the Subnet has no room for it".into());
        }
        let holder = holder(self.name, &format!("{}/{}", pod.namespace, pod.pod));
        if self.ipam.is_unknown(address) || !self.ipam.take(&self.pool, address, &holder) {
            return Err("another pod has it".into());
        }
        self.add_fixed(address, node, pod);
        Ok(())
    }
}

/// The holder of a single lease, as text.
pub(super) fn describe(pool: PoolKey, (owner, pod, _): &Holder) -> String {
    match pool {
        PoolKey::Subnet(name) if *owner == Key::cluster(Kind::Subnet, &name) => format!("Pod {pod}"),
        _ => format!("a running pod of {owner}"),
    }
}
