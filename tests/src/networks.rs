//! A number of networks with callbacks.

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::{Receiver, System};
use kube::runtime::watcher;

/// Services with an attachment each, at one ConnectionPoint.
pub struct Networks {
    /// The value of their label `test`, and the prefix of their names.
    pub test: String,
    yaml: String,
    objects: Vec<String>,
    count: usize,
    first: u16,
}

impl Networks {
    /// `count` services with the VLANs from `first` on, which call back to `receiver`.
    pub fn new(point: &str, test: &str, first: u16, count: u16, receiver: &Receiver) -> Self {
        let (mut yaml, mut objects) = (String::new(), Vec::new());
        let spec = format!("CallbackURL: '{}'", receiver.url());
        for n in 0..count {
            let vid = first + n;
            yaml.extend([format!(
                "\n---\napiVersion: eno.k8s.io/v1alpha1\nkind: L2Service\nmetadata: {{name: {test}-{n}, labels: \
                 {{test: {test}}}}}\nspec: {{SegmentationID: {vid}, PhysicalNW: [dc-gw], {spec}}}\n---\napiVersion: \
                 eno.k8s.io/v1alpha1\nkind: L2ServiceAttachment\nmetadata: {{name: {test}-{n}, namespace: {point}, \
                 labels: {{test: {test}}}}}\nspec: {{ConnectionPoint: {point}, L2Services: [{test}-{n}], VlanType: \
                 access, {spec}}}"
            )]);
            objects.push(format!("L2Service {test}-{n}"));
            objects.push(format!("L2ServiceAttachment {point}/{test}-{n}"));
        }
        Self { test: test.to_owned(), yaml, objects, count: count.into(), first }
    }

    /// Applies the manifests.
    pub async fn apply(&self, system: &System) {
        system.apply(&self.yaml).await;
    }

    /// Waits until a quarter of the attachments exist.
    pub async fn until_created(&self, system: &System) {
        let config = watcher::Config::default().labels(&format!("test={}", self.test));
        let some = self.count.div_ceil(4);
        let api = system.all::<L2ServiceAttachment>();
        system.until(api, config, "some attachments", |all| all.len() >= some).await;
    }

    /// Waits until all are ready and configured on switches, and have posted the phase.
    pub async fn ready(&self, system: &System, receiver: &Receiver) {
        system.all_become::<L2Service>(&self.test, self.count, Phase::Ready).await;
        system.all_become::<L2ServiceAttachment>(&self.test, self.count, Phase::Ready).await;
        receiver.until(&self.objects, "ready").await;
        let last_message = self.first + u16::try_from(self.count - 1).expect("a few");
        for vid in [self.first, last_message] {
            assert_eq!(system.ports_of(vid).await.len(), 11, "the ports of VLAN {vid}");
        }
    }

    /// Deletes them, and waits until objects and VLANs are gone.
    pub async fn delete(&self, system: &System, receiver: &Receiver) {
        system.request_deletion(&self.yaml).await;
        system.none_left::<L2ServiceAttachment>(&self.test).await;
        system.none_left::<L2Service>(&self.test).await;
        let count = u16::try_from(self.count).expect("a few");
        system.until_without(self.first..self.first + count).await;
        receiver.until(&self.objects, "deleted").await;
    }

    /// Checks that every callback came, in order.
    pub fn assert_callbacks(&self, receiver: &Receiver) {
        for object in &self.objects {
            let callbacks = receiver.of(object);
            let numbers: Vec<_> = callbacks.iter().map(|callback| callback.transition).collect();
            let complete: Vec<_> = (1..=callbacks.len() as u64).collect();
            assert_eq!(numbers, complete, "the callbacks of {object}: {:?}", receiver.phases(object));
        }
    }
}
