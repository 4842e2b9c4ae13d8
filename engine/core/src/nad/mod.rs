//! The NetworkAttachmentDefinitions of attachments: their content, and the pods that use them.

pub mod pools;
pub mod render;
pub mod sharing;
pub mod subnets;
pub mod target;
pub mod templates;
pub mod users;

use std::collections::{BTreeSet, HashMap};

use eno_schemas::{Desired, NadDesired, Report};

use crate::kinds::Spec;
use crate::pods::ipam::Ipam;
use crate::status::hop::HopState;
use crate::store::Store;
use crate::store::record::Record;
use crate::work::Work;
use crate::{Key, Kind, Name, Target};

use pools::{Pools, SubnetIndex};
use render::{Leases, exhausted, render};
use target::NadTarget;
use templates::Templates;
use users::Users;

/// The driver that realises NetworkAttachmentDefinitions.
pub(crate) const NAD_DRIVER: &str = "nad";

/// The NetworkAttachmentDefinitions of all attachments.
#[derive(Debug, Default)]
pub struct Nads {
    /// By L2ServiceAttachment: its NetworkAttachmentDefinition.
    targets: HashMap<Key, NadTarget>,
    /// By pod uid: the L2ServiceAttachments that the pod uses.
    attachments_by_pod: HashMap<Name, BTreeSet<Key>>,
    /// The inverse of `attachments_by_pod`.
    pods_by_attachment: HashMap<Key, Users>,
    /// The pods that use any L2ServiceAttachment that they may use.
    users_of_any: Users,
    /// The workloads without pods that name L2ServiceAttachments.
    templates: Templates,
    /// Subnets by their networks.
    subnets: SubnetIndex,
    /// By L2ServiceAttachment: its pool of addresses.
    pools: Pools,
    /// The L2ServiceAttachments that share a pool of addresses with another L2Service.
    shared_pools: BTreeSet<Key>,
}

impl Nads {
    /// The NetworkAttachmentDefinition of an attachment.
    pub fn get(&self, key: &Key) -> Option<&NadTarget> {
        self.targets.get(key)
    }

    /// Plans the NetworkAttachmentDefinition of an attachment. `ipam` has the leased addresses, which it leaves out.
    pub fn plan(&mut self, store: &Store, ipam: &Ipam, key: &Key, work: &mut Work) {
        let Some(record) = store.get(key).filter(|record| record.finalized) else { return };
        let is_wanted = record.effective.is_some();
        // What a CNI plugin makes can't be kept from spoofing.
        let anti_spoof = store.effective(key, Spec::attachment).is_some_and(|spec| spec.anti_spoof);
        if !is_wanted && !self.targets.contains_key(key) && record.status.realized.is_none() {
            return;
        }
        let desired = |leases| {
            // One without an address to give does not exist.
            let attachment = if is_wanted && !anti_spoof && exhausted(store, key, leases).is_none() {
                Some(render(store, self.pool(key), key, leases)?)
            } else {
                None
            };
            Some(target::desired(key, &record.uid, attachment))
        };
        // One that can't be rendered, because a referenced object was removed by force, stays as it is.
        let (Some(desired), Some(unleased)) = (desired(Leases::Exclude(ipam)), desired(Leases::Ignore))
        else {
            return;
        };
        let nad = self.targets.entry(key.clone()).or_insert_with(|| NadTarget::new(record.uid.clone()));
        nad.uid = record.uid.clone();
        if nad.want(&desired, &unleased) {
            work.publish.insert(target_of(key));
        }
    }

    /// An object is gone.
    pub fn remove_object(&mut self, store: &Store, key: &Key, record: Option<&Record>, work: &mut Work) {
        match key.kind {
            Kind::Subnet => self.index_subnet(store, &key.name),
            Kind::L2ServiceAttachment => {
                self.forget_pool(key, work);
                if let Some(record) = record.filter(|_| self.targets.contains_key(key)) {
                    self.withdraw(key, &record.uid, work);
                }
            }
            _ => {}
        }
    }

    /// The attachment is gone: its NetworkAttachmentDefinition has to go, unless it is confirmed to be gone.
    fn withdraw(&mut self, key: &Key, uid: &Name, work: &mut Work) {
        let nad = self.targets.entry(key.clone()).or_insert_with(|| NadTarget::new(uid.clone()));
        let nothing = target::desired(key, &nad.uid, None);
        nad.want(&nothing, &nothing);
        if nad.hop() == HopState::Confirmed {
            self.targets.remove(key);
            work.forget.push(target_of(key));
        } else {
            work.publish.insert(target_of(key));
        }
    }

    /// Restores the command of a former leader. If nothing is planned for the attachment, its
    /// NetworkAttachmentDefinition stays as it is until the attachment changes or goes.
    pub fn restore(&mut self, store: &Store, ipam: &Ipam, key: &Key, commanded: NadDesired, work: &mut Work) {
        if self.targets.contains_key(key) {
            return;
        }
        let uid = Name::from(commanded.owner.uid.as_str());
        if !store.contains(key) {
            return self.withdraw(key, &uid, work);
        }
        let mut nad = NadTarget::new(uid);
        let commanded = Desired::Nad(commanded);
        nad.want(&commanded, &commanded);
        self.targets.insert(key.clone(), nad);
        self.plan(store, ipam, key, work);
    }

    /// Processes a report of the driver.
    pub fn report(&mut self, store: &Store, key: &Key, report: Report, work: &mut Work) {
        let Some(nad) = self.targets.get_mut(key) else { return };
        nad.report(report);
        if store.contains(key) {
            work.evaluate.insert(key.clone());
        } else if nad.hop() == HopState::Confirmed {
            self.targets.remove(key);
            work.forget.push(target_of(key));
        }
    }

    /// The desired state of an attachment's NetworkAttachmentDefinition. `None`: there is none, or an object that it
    /// names is gone.
    pub fn desired(&self, store: &Store, ipam: &Ipam, key: &Key) -> Option<Desired> {
        let nad = self.targets.get(key)?;
        let attachment =
            if nad.wanted { Some(render(store, self.pool(key), key, Leases::Exclude(ipam))?) } else { None };
        Some(target::desired(key, &nad.uid, attachment))
    }

    /// The desired state could not be commanded, since an object that it names is gone.
    pub fn mark_unpublished(&mut self, key: &Key) {
        self.targets.get_mut(key).into_iter().for_each(NadTarget::mark_unpublished);
    }

    /// The driver appeared or disappeared, which the statuses of all attachments tell.
    pub fn reevaluate_all(&self, store: &Store, work: &mut Work) {
        work.evaluate.extend(self.targets.keys().filter(|key| store.contains(key)).cloned());
    }
}

fn target_of(key: &Key) -> Target {
    Target::Nad(key.namespace.clone(), key.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Kind;
    use crate::store::fixture::{key, store};

    #[test]
    fn content_changes_with_the_service_and_goes_with_the_attachment() {
        let point = json!({ "SupportedCnis": [{ "SupportedInterfaceTypes": ["kernel"], "Plugin": { "Name": "Ovs", "BridgeName": "br" } }] });
        let attachment = json!({
            "L2Services": ["s"], "ConnectionPoint": "cp", "PodInterfaceType": "kernel", "VlanType": "access",
        });
        let vid = |vid: u16| (Kind::L2Service, "s", json!({ "SegmentationID": vid }));
        let with = |service| {
            store([
                (Kind::ConnectionPoint, "cp", point.clone()),
                service,
                (Kind::L2ServiceAttachment, "a", attachment.clone()),
            ])
        };
        let (mut nads, ipam, mut work) = (Nads::default(), Ipam::default(), Work::default());
        let key = key(Kind::L2ServiceAttachment, "a");
        for service in [vid(100), vid(200)] {
            nads.plan(&with(service), &ipam, &key, &mut work);
            assert_eq!(std::mem::take(&mut work.publish).len(), 1, "another VLAN is another content");
        }
        nads.plan(&with(vid(200)), &ipam, &key, &mut work);
        assert!(work.publish.is_empty());
        nads.withdraw(&key, &"a".into(), &mut work);
        let gone = nads.desired(&Store::default(), &ipam, &key);
        assert!(matches!(gone, Some(Desired::Nad(NadDesired { attachment: None, .. }))));
        assert_eq!(work.publish.len(), 1);
    }
}
