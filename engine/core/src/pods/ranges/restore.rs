//! Leases from before the start: those in statuses, and what agents have reported.

use std::collections::BTreeMap;

use eno_schemas::{Applied, AppliedAddresses, Report};
use ipnet::IpNet;

use super::fixed::holder;
use super::plan::Plan;
use super::{Fixed, render};
use crate::kinds::Spec;
use crate::node::addresses::bounded;
use crate::pods::ipam::PoolKey;
use crate::pods::ipam::blocks::{Block, Stage};
use crate::pods::{Context, Pods};
use crate::status::Status;
use crate::store::Store;
use crate::{Key, Kind, Name, Target};

/// By node and Subnet: what the agent has reported.
pub(super) type Reports = BTreeMap<Name, BTreeMap<Name, AppliedAddresses>>;

impl Pods {
    /// A Subnet is new, with the status that it was found with.
    pub(in crate::pods) fn add_subnet(&mut self, name: &Name, status: &Status) {
        if let Some(leasing) = self.ranges.subnets.get_mut(name) {
            // One of the same name was there before: its leases have to be written to the new status.
            leasing.revision += 1;
            let revision = leasing.revision;
            let pool = PoolKey::Subnet(name.clone());
            let blocks = self.ipam.blocks(&pool).filter(|(_, block)| matches!(block.stage, Stage::Leased(_)));
            let blocks: Vec<IpNet> = blocks.map(|(net, _)| *net).collect();
            for net in blocks {
                self.ipam.set_stage(&pool, &net, Stage::Leased(revision));
            }
            let fixed =
                leasing.fixed.values_mut().filter(|fixed| matches!(fixed.stage, Some(Stage::Leased(_))));
            fixed.for_each(|fixed| fixed.stage = Some(Stage::Leased(revision)));
        }
        if !status.node_addresses.is_empty() || !status.fixed_addresses.is_empty() {
            self.ranges.restore_queue.insert(name.clone());
        }
    }

    /// Restores the leases in the status of a Subnet, before any new lease.
    pub(in crate::pods) fn restore_ranges(&mut self, cx: &mut Context<'_>, name: &Name) {
        let Some(record) = cx.store.get(&Key::cluster(Kind::Subnet, name)) else { return };
        let leasing = self.ranges.leasing(name);
        let pool = PoolKey::Subnet(name.clone());
        for own in &record.status.node_addresses {
            let block = Block { node: own.node.clone(), stage: Stage::Given };
            for net in &own.blocks {
                self.ipam.claim(&pool, net, &block);
            }
        }
        for own in &record.status.fixed_addresses {
            let pod = format!("{}/{}", own.namespace, own.pod);
            if self.ipam.take(&pool, own.address, &holder(name, &pod)) {
                leasing.order += 1;
                let (namespace, pod) = (own.namespace.clone(), own.pod.clone());
                // Whether the pod is still there is planned after the start.
                let fixed = Fixed {
                    namespace,
                    pod,
                    node: own.node.clone(),
                    stage: Some(Stage::Given),
                    order: leasing.order,
                };
                leasing.fixed.insert(own.address, fixed);
            }
        }
        if self.orphans_restored {
            self.restate(cx, name, &Reports::new());
        }
    }

    /// Takes what agents have reported into the list, before any new lease. What pods have comes first.
    pub(in crate::pods) fn restore_reported_ranges(
        &mut self,
        cx: &mut Context<'_>,
        early_reports: &[(Target, Report)],
    ) {
        let mut latest = Reports::new();
        for (target, report) in early_reports {
            if let (Target::Node(node), Some(Applied::Node { addresses, .. })) = (target, &report.applied)
                && let Some(addresses) = bounded(addresses.clone())
            {
                latest.insert(node.clone(), addresses);
            }
        }
        let is_used =
            |own: &AppliedAddresses| own.used.iter().map(|one| IpNet::from(one.address)).collect::<Vec<_>>();
        for is_first in [true, false] {
            for (node, subnets) in &latest {
                for (name, own) in subnets.iter().filter(|(name, _)| is_there(cx.store, name)) {
                    let nets = if is_first { is_used(own) } else { own.held.clone() };
                    self.ranges.leasing(name);
                    let Some(leasing) = self.ranges.subnets.get_mut(name) else { continue };
                    let mut plan = Plan::new(cx, &self.ranges.users, &mut self.ipam, leasing, name);
                    for net in &nets {
                        plan.take_held(node, net);
                    }
                }
            }
        }
        for name in self.ranges.subnets.keys().cloned().collect::<Vec<_>>() {
            self.restate(cx, &name, &latest);
        }
    }

    /// The nodes are commanded what they have, until the Subnet is planned after the start.
    fn restate(&mut self, cx: &mut Context<'_>, name: &Name, reports: &Reports) {
        let Some(mut leasing) = self.ranges.subnets.remove(name) else { return };
        let mut plan = Plan::new(cx, &self.ranges.users, &mut self.ipam, &mut leasing, name);
        plan.read_reports(reports);
        plan.withdraw_unoffered();
        plan.restate_fixed();
        let commands = plan.commands();
        render::command(cx.nodes, name, &mut leasing, commands);
        self.ranges.subnets.insert(name.clone(), leasing);
    }
}

fn is_there(store: &Store, name: &Name) -> bool {
    store.effective(&Key::cluster(Kind::Subnet, name), Spec::subnet).is_some()
}
