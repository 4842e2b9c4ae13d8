//! Conditions of an object that do not change its phase.

use std::collections::BTreeSet;

use eno_schemas::{Ipam, VlanType};

use crate::evaluate::Evaluator;
use crate::kinds::{AttachmentSpec, Plugin, compat};
use crate::nad::pools::AddressPool;
use crate::nad::render::{Leases, exhausted, nad_subnets};
use crate::nad::sharing::attachments_on;
use crate::name::and_more;
use crate::pods::ranges::Findings;
use crate::status::evaluation::Evaluation;
use crate::{ConditionReason, ConditionType, Key};

/// The number of free addresses below which a Subnet has few: those of the largest range that a node gets at once.
const FEW: u128 = 256;
/// The share of free addresses below which a smaller Subnet has few.
const FEW_PERCENT: u128 = 10;

impl Evaluator<'_> {
    /// Adds the condition AddressesLow to a Subnet with Ipam eno that has few free addresses, or none. Its message has
    /// no number of pods, so that their coming and going does not change it.
    pub fn note_few_addresses(&self, key: &Key, evaluation: &mut Evaluation) {
        let usage = self.pods.pods.usage(self.store, self.hosts.nodes, &key.name);
        let (Some(usage), Some(spec)) = (usage, self.store.subnet(&key.name)) else { return };
        let few = FEW.min(usage.size.saturating_mul(FEW_PERCENT).div_ceil(100));
        if usage.free() > 0 && usage.free() >= few {
            return;
        }
        let remedy = if spec.allocation_pool.is_empty() { "shorten Mask" } else { "widen AllocationPool" };
        let (reason, left) = if usage.free() > 0 {
            (ConditionReason::FewLeft, format!("fewer than {few} of {} addresses are", usage.size))
        } else {
            (ConditionReason::NoneLeft, format!("none of {} addresses is", usage.size))
        };
        let message = format!("{left} left for pods; {remedy}, or end pods");
        evaluation.note(ConditionType::AddressesLow, true, reason, message);
    }

    /// Adds the condition UnknownOpts for keys in `Opts` of a ConnectionPoint that have no effect.
    pub fn note_unknown_opts(&self, key: &Key, evaluation: &mut Evaluation) {
        let record = self.store.get(key).filter(|record| !record.deleting);
        if let Some(message) = record.and_then(|record| record.unknown_opts.as_deref()) {
            evaluation.note(ConditionType::UnknownOpts, true, ConditionReason::UnknownKey, message);
        }
    }

    /// Adds the condition FabricManaged when no switch port leads to the attachment's ConnectionPoint.
    pub fn note_unmanaged(&self, spec: &AttachmentSpec, evaluation: &mut Evaluation) {
        if self.fabric.point(&spec.connection_point).is_none_or(|point| point.ports.is_empty()) {
            let message = format!("no FabricDevice has ports of ConnectionPoint {}", spec.connection_point);
            evaluation.note(ConditionType::FabricManaged, false, ConditionReason::NoFabricDevice, message);
        }
    }

    /// Adds the condition EndsJoined when ends of attachments are apart from those of the service.
    pub fn note_ends_apart(&self, service: &Key, evaluation: &mut Evaluation) {
        let Some(message) = self.fabric.ends_apart_message(self.store, service) else { return };
        evaluation.note(ConditionType::EndsJoined, false, ConditionReason::NoPath, message);
    }

    /// Adds the condition ForeignPods for pods of other namespaces that may not use the attachment.
    pub fn note_foreign_pods(&self, key: &Key, evaluation: &mut Evaluation) {
        let Some(pods) = self.nad.foreign_pods(self.store, key) else { return };
        let message = format!(
            "{pods} of another namespace uses its NetworkAttachmentDefinition without UsableFrom: that does not keep it \
             from being deleted; namespaceIsolation of Multus refuses such pods"
        );
        evaluation.note(ConditionType::ForeignPods, true, ConditionReason::NotUsableFrom, message);
    }

    /// Adds the condition UsedByTemplates for workloads without pods whose templates name the attachment.
    pub fn note_templates(&self, key: &Key, evaluation: &mut Evaluation) {
        let Some(workloads) = self.nad.stopped_workloads(self.store, key) else { return };
        let message = format!(
            "the template of {workloads} names its NetworkAttachmentDefinition, and there are no pods now: that does not \
             keep it from being deleted; pods of the template would not start without it"
        );
        evaluation.note(ConditionType::UsedByTemplates, true, ConditionReason::NoPods, message);
    }

    /// Adds the condition TrunkChecked when the NICs of a trunk are unknown.
    pub fn note_trunk(&self, spec: &AttachmentSpec, evaluation: &mut Evaluation) {
        let Some(point) = self.store.connection_point(&spec.connection_point) else { return };
        let Ok(chosen) = compat::choose(spec, point) else { return };
        let (VlanType::Trunk, true, Plugin::HostDevice { pool_name } | Plugin::Sriov { pool_name }) =
            (spec.vlan_type, point.interfaces.is_empty(), &chosen.plugin)
        else {
            return;
        };
        let message = format!(
            "which NICs {pool_name} has is not known: whether the trunk shows closed L2Services was only checked for those \
             of ConnectionPoint {}; name the NICs in its Interfaces",
            spec.connection_point
        );
        evaluation.note(ConditionType::TrunkChecked, false, ConditionReason::NicsUnknown, message);
    }

    /// Adds the conditions on addresses that nodes give to pods.
    pub fn note_leases(&self, key: &Key, evaluation: &mut Evaluation) {
        let Some(Findings { conflicts, refused, none_left }) = self.pods.pods.findings(&key.name) else {
            return;
        };
        if let Some(first) = conflicts.first() {
            let message = format!("{}; delete one of the two", and_more(first, conflicts.len()));
            evaluation.note(
                ConditionType::AddressesUnique,
                false,
                ConditionReason::DuplicateAddress,
                message,
            );
        }
        if let Some(waiting) = none_left {
            let message = format!(
                "{waiting} waits for an address, and none is left; widen the AllocationPool or the network, or delete pods"
            );
            evaluation.note(ConditionType::AddressesAssigned, false, ConditionReason::NoneLeft, message);
        } else if let Some(first) = refused.first() {
            let message = format!("{}; let it ask for another", and_more(first, refused.len()));
            evaluation.note(ConditionType::AddressesAssigned, false, ConditionReason::Refused, message);
        }
    }

    /// Adds the conditions on addresses that pods get by an attachment's NetworkAttachmentDefinition.
    pub fn note_addresses(&self, key: &Key, spec: &AttachmentSpec, evaluation: &mut Evaluation) {
        if spec.vlan_type != VlanType::Access {
            let names: BTreeSet<&str> =
                self.store.subnets_of(spec).into_iter().map(|(name, _)| &**name).collect();
            if !names.is_empty() && !spec.sub_interfaces {
                let names = names.into_iter().collect::<Vec<_>>().join(", ");
                let message = format!(
                    "with VlanType {} a pod that uses the NetworkAttachmentDefinition sets the addresses and routes of each VLAN itself: Subnets {names}",
                    spec.vlan_type.as_str()
                );
                evaluation.note(ConditionType::AddressesAssigned, false, ConditionReason::SetByPod, message);
            }
            return;
        }
        if let Some(subnet) = exhausted(self.store, key, Leases::Exclude(self.pods.pods.ipam())) {
            let message = format!(
                "Subnet {subnet} has no address left for the NetworkAttachmentDefinition, which is not there; narrow its HotPlugPool or widen its AllocationPool"
            );
            evaluation.note(ConditionType::AddressesAssigned, false, ConditionReason::NoneLeft, message);
        }
        if let Some(AddressPool::Shared(other)) = self.nad.pool(key) {
            let message = format!(
                "its L2Service has a Subnet in common with that of L2ServiceAttachment {}/{} or one that overlaps, and the IPAM plugin hands out both from one pool; its own pool follows when no pod uses the attachments of its L2Service",
                other.namespace, other.name
            );
            evaluation.note(ConditionType::AddressesSeparate, false, ConditionReason::PoolInUse, message);
        }
        let subnets = nad_subnets(self.store, spec);
        let Some((name, _)) = subnets.iter().find(|(_, subnet)| subnet.ipam == Ipam::HostLocal) else {
            return;
        };
        let point = &spec.connection_point;
        let (reason, others) = if self.fabric.point(point).is_some_and(|point| point.has_several_nodes) {
            (ConditionReason::PerNode, format!("pods on different nodes of ConnectionPoint {point}"))
        } else if attachments_on(self.store, name).any(|other| other != key) {
            (ConditionReason::PerAttachment, "pods of this attachment and of others on the Subnet".into())
        } else {
            return;
        };
        let message =
            format!("Subnet {name} has Ipam host-local: {others} get the same addresses; use whereabouts");
        evaluation.note(ConditionType::AddressesUnique, false, reason, message);
    }
}
