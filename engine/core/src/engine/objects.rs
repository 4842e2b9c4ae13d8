//! Objects that come, change and go.

use super::Engine;
use crate::fabric::vrfs;
use crate::kinds::Spec;
use crate::nad::sharing;
use crate::store::Update;
use crate::store::record::Record;
use crate::validate::{bgp, subnets};
use crate::{Key, Kind, Object};

impl Engine {
    pub(super) fn upsert(&mut self, object: Box<Object>) {
        let key = object.key.clone();
        match self.store.update(object) {
            Update::Unchanged => {}
            Update::Changed { forget, verify } => {
                if verify {
                    self.work.evaluate.extend(self.store.referrers(&key).cloned());
                }
                if key.kind == Kind::FabricDevice && forget {
                    self.fabric.touch_topology();
                }
                self.changed(&key);
            }
            Update::Unknown(object) => {
                self.remove(&key);
                self.add(*object);
            }
        }
    }

    fn add(&mut self, object: Object) {
        let (key, record) = Record::new(object);
        if self.config.nodes {
            self.pods.add_object(&key, &record.status);
        }
        self.groups.add_object(&key, &record.status);
        self.nad.restore_pool(&key, &record.status);
        if let (true, Ok(Spec::BridgeDomain(spec))) = (record.generated, record.spec.as_deref()) {
            self.fabric.bridge_domain_seen(&key.name, spec.clone());
        }
        self.store.insert(key.clone(), record);
        self.changed(&key);
    }

    /// Requests all work that follows from a changed manifest.
    fn changed(&mut self, key: &Key) {
        self.update_references(key);
        self.validate.update_trunk_index(&self.store, key);
        self.fabric.update_usage(&self.store, key, &mut self.work);
        self.work.validate.insert(key.clone());
        self.work.evaluate.insert(key.clone());
        subnets::revalidate_routes(&self.store, key, &mut self.work);
        if key.kind.facts().has_vlan {
            self.work.claim.insert(key.clone());
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let Some(references) = self.store.clear_specs(key) else { return };
        self.fabric.update_usage(&self.store, key, &mut self.work);
        let record = self.store.remove(key);
        let change = self.node.remove_object(&self.config, &self.store, key, &mut self.work);
        self.pods.change_point(&self.store, key, &change, &mut self.work);
        if change.changed {
            self.fabric.evaluate_stations(&mut self.work);
        }
        self.with_pods(|pods, cx| pods.remove_object(cx, key));
        for reference in references {
            self.store.remove_referrer(&reference, key, &mut self.work);
            self.reference_removed(&reference);
        }
        self.store.revalidate_referrers(key, &mut self.work);
        self.routed_removed(key, record.as_ref());
        bgp::revalidate_hindered(&self.store, key, &mut self.work);
        self.validate.update_trunk_index(&self.store, key);
        self.work.trunks = true;
        self.distribute();
        self.validate.forget(key);
        self.status.forget(key);
        self.vlan.drop_work(key);
        self.fabric.remove_object(key, &mut self.work);
        if key.kind == Kind::FabricDevice {
            self.status.reevaluate_removed(&key.name);
        }
        self.nad.remove_object(&self.store, key, record.as_ref(), &mut self.work);
        self.pods.follow_object(&self.store, key);
        self.groups.follow_object(key);
        if key.kind.facts().has_vlan {
            self.work.claim.insert(key.clone());
            self.work.place.insert(key.clone());
        }
    }

    /// A VRF, or what leads a service into one, is gone: others may have what it had.
    fn routed_removed(&mut self, key: &Key, record: Option<&Record>) {
        match key.kind {
            Kind::VRF => {
                self.store.revalidate_kind(Kind::VRF, &mut self.work);
                self.work.place.insert(key.clone());
            }
            Kind::VRFAttachment => {
                let spec = record.and_then(|record| record.status.realized.as_deref()?.vrf_attachment());
                if let Some(spec) = spec {
                    vrfs::follow_leaving(&self.store, spec, &mut self.work);
                }
            }
            _ => {}
        }
    }

    /// Updates the indices of what an object names.
    pub(super) fn update_references(&mut self, key: &Key) {
        self.pods.update_bridge_index(&self.store, key, &mut self.work);
        for reference in self.store.update_references(key, &mut self.work) {
            self.reference_removed(&reference);
        }
    }

    /// An object does not name another any more.
    fn reference_removed(&mut self, reference: &Key) {
        subnets::revalidate_invalid_route(&self.store, reference, &mut self.work);
        sharing::reevaluate_last_on_subnet(&self.store, reference, &mut self.work);
    }
}
