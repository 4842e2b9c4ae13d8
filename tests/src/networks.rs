//! A number of networks with callbacks.

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use kube::runtime::watcher;

use crate::{Receiver, System, object};

/// Services and attachments at one ConnectionPoint, which call back to a receiver.
pub struct Networks {
    /// The value of their label `test`, and the prefix of their names.
    test: String,
    yaml: String,
    /// The objects as callbacks name them.
    objects: Vec<String>,
    /// The first VLAN ID.
    first: u16,
    services: u16,
    attachments: u16,
}

impl Networks {
    /// `services` services with the VLANs from `first` on, and `attachments` attachments in the namespace `point`,
    /// evenly spread over them.
    pub fn new(
        point: &str,
        test: &str,
        first: u16,
        (services, attachments): (u16, u16),
        receiver: &Receiver,
    ) -> Self {
        let callback = format!("CallbackURL: '{}'", receiver.url());
        let (mut yaml, mut objects) = (String::new(), Vec::new());
        for n in 0..services {
            let name = format!("{test}-{n}");
            let spec = format!("SegmentationID: {}, PhysicalNW: [dc-gw], {callback}", first + n);
            yaml += &object("L2Service", &format!("name: {name}, labels: {{test: {test}}}"), &spec);
            objects.push(format!("L2Service {name}"));
        }
        for n in 0..attachments {
            let (name, service) = (format!("{test}-{n}"), n % services);
            let metadata = format!("name: {name}, namespace: {point}, labels: {{test: {test}}}");
            let spec = format!(
                "ConnectionPoint: {point}, L2Services: [{test}-{service}], VlanType: access, {callback}"
            );
            yaml += &object("L2ServiceAttachment", &metadata, &spec);
            objects.push(format!("L2ServiceAttachment {point}/{name}"));
        }
        Self { test: test.to_owned(), yaml, objects, first, services, attachments }
    }

    /// Applies the manifests.
    pub async fn apply(&self, system: &System) {
        system.apply(&self.yaml).await;
    }

    /// Requests the deletion of all objects, without waiting.
    pub async fn request_deletion(&self, system: &System) {
        system.request_deletion(&self.yaml).await;
    }

    /// Waits until a quarter of the attachments exist.
    pub async fn until_created(&self, system: &System) {
        let some = usize::from(self.attachments).div_ceil(4);
        self.until_count(system, |count| count >= some).await;
    }

    /// Waits until a quarter of the attachments are deleted.
    pub async fn until_deleting(&self, system: &System) {
        let most = usize::from(self.attachments) / 4 * 3;
        self.until_count(system, |count| count <= most).await;
    }

    async fn until_count(&self, system: &System, good: impl Fn(usize) -> bool) {
        let config = watcher::Config::default().labels(&format!("test={}", self.test));
        let api = system.all::<L2ServiceAttachment>();
        system.until(api, config, "a number of attachments", |all| good(all.len())).await;
    }

    /// Waits until all are ready and configured on switches, and have posted the phase.
    pub async fn ready(&self, system: &System, receiver: &Receiver) {
        system.all_become::<L2Service>(&self.test, self.services.into(), Phase::Ready).await;
        system.all_become::<L2ServiceAttachment>(&self.test, self.attachments.into(), Phase::Ready).await;
        receiver.until(&self.objects, "ready").await;
        for vid in [self.first, self.first + self.services - 1] {
            assert_eq!(system.ports_of(vid).await.len(), 11, "the ports of VLAN {vid}");
        }
    }

    /// Waits until objects and VLANs are gone.
    pub async fn gone(&self, system: &System) {
        system.none_left::<L2ServiceAttachment>(&self.test).await;
        system.none_left::<L2Service>(&self.test).await;
        system.until_without(self.first..self.first + self.services).await;
    }

    /// Deletes them, and waits until objects and VLANs are gone.
    pub async fn delete(&self, system: &System, receiver: &Receiver) {
        self.request_deletion(system).await;
        self.gone(system).await;
        receiver.until(&self.objects, "deleted").await;
    }

    /// Checks that every callback came, in order.
    pub fn assert_callbacks(&self, receiver: &Receiver) {
        receiver.assert_complete(&self.objects);
    }
}
