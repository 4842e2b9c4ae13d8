//! The content of the NetworkAttachmentDefinition of an attachment.

use std::collections::BTreeSet;

use eno_schemas::{VlanAttachment, VlanType};

use crate::engine::Engine;
use crate::spec::{AttachmentSpec, Spec};
use crate::validate::compat;
use crate::{Key, Kind, Target};

use super::addresses::LeaseHandling;
use super::target::{self as nad, NadTarget};

impl Engine {
    /// Plans the NAD of an attachment.
    pub(crate) fn plan_nad(&mut self, key: &Key) {
        let Some(record) = self.store.records.get(key).filter(|record| record.finalized) else { return };
        let uid = record.uid.clone();
        let is_wanted = record.effective.is_some();
        if !is_wanted && !self.nad.targets.contains_key(key) && record.status.realized.is_none() {
            return;
        }
        let desired = |leases| {
            // A NAD without an address to give does not exist.
            let attachment = if is_wanted && self.exhausted(key, leases).is_none() {
                Some(self.render(key, leases)?)
            } else {
                None
            };
            Some(nad::desired(key, &uid, attachment))
        };
        // A NAD that can't be rendered, because a referenced object was removed by force, stays as it is.
        let (Some(desired), Some(unleased)) =
            (desired(LeaseHandling::Exclude), desired(LeaseHandling::Ignore))
        else {
            return;
        };
        let nad = self.nad.targets.entry(key.clone()).or_insert_with(|| NadTarget::new(uid.clone()));
        nad.uid = uid;
        if nad.want(&desired, &unleased) {
            self.schedule.publish_queue.insert(Target::Nad(key.namespace.clone(), key.name.clone()));
        }
    }

    /// Renders the configuration of an attachment's NAD.
    pub(crate) fn render(&self, key: &Key, leases: LeaseHandling) -> Option<VlanAttachment> {
        let spec: &AttachmentSpec = self.effective(key, Spec::attachment)?;
        let point = self.effective(
            &Key::cluster(Kind::ConnectionPoint, &spec.connection_point),
            Spec::connection_point,
        )?;
        let chosen = compat::choose(spec, point).ok()?;
        let mut vids = BTreeSet::new();
        let mut subnets = Vec::new();
        for name in &spec.services {
            let service = self.effective(&Key::cluster(Kind::L2Service, name), Spec::service)?;
            vids.insert(service.vid);
            if spec.vlan_type == VlanType::Access {
                for subnet in &service.subnets {
                    subnets.push(self.render_subnet(subnet, leases)?);
                }
            }
        }
        let (cni, vlans) = nad::cni(&chosen.plugin, spec.interface, spec.vlan_type, &vids);
        Some(VlanAttachment { cni, vlans, mtu: spec.mtu(chosen), subnets })
    }
}
