//! The pods that use an attachment's NetworkAttachmentDefinition. Pods of its own namespace, and of namespaces that
//! its `UsableFrom` selects, keep the attachment from being deleted.

use std::collections::BTreeMap;

use crate::{ConditionReason, ConditionState, ConditionType, Key, Name};

use crate::engine::Engine;
use crate::status::evaluate::Evaluation;
use crate::validate::and_more;

/// Pods by uid: namespace and name.
pub(crate) type Users = BTreeMap<Name, (Name, Name)>;

impl Engine {
    pub(crate) fn set_pod_uses(&mut self, uid: &Name, (namespace, name): (&Name, &Name), uses: Vec<Key>) {
        let before = if uses.is_empty() {
            self.nad.attachments_by_pod.remove(uid)
        } else {
            self.nad.attachments_by_pod.insert(uid.clone(), uses.clone())
        };
        for key in before.into_iter().flatten().filter(|key| !uses.contains(key)) {
            let users = self.nad.pods_by_attachment.get_mut(&key);
            let gone = users.and_then(|users| users.remove(uid));
            if self.nad.pods_by_attachment.get(&key).is_some_and(BTreeMap::is_empty) {
                self.nad.pods_by_attachment.remove(&key);
            }
            self.users_changed(&key, gone.is_some_and(|(namespace, _)| namespace != key.namespace));
        }
        for key in uses {
            let is_foreign = *namespace != key.namespace;
            let user = (namespace.clone(), name.clone());
            let before =
                self.nad.pods_by_attachment.entry(key.clone()).or_default().insert(uid.clone(), user);
            self.users_changed(&key, is_foreign && before.is_none());
        }
    }

    /// The pods of an attachment changed. Its status shows those of other namespaces.
    fn users_changed(&mut self, key: &Key, foreign: bool) {
        self.revalidate_if_deleting(key);
        if foreign && self.store.records.contains_key(key) {
            self.status.queue.insert(key.clone());
        }
    }

    /// The labels of a namespace changed: its pods may now count, or not, as users of other namespaces' attachments.
    pub(crate) fn revalidate_used_from(&mut self, namespace: &Name) {
        let from_there = |users: &Users, key: &Key| {
            key.namespace != *namespace && users.values().any(|(own, _)| own == namespace)
        };
        let keys = self
            .nad
            .pods_by_attachment
            .iter()
            .filter(|(key, users)| from_there(users, key))
            .map(|(key, _)| key);
        let keys: Vec<Key> = keys.filter(|key| self.store.records.contains_key(*key)).cloned().collect();
        self.validate.queue.extend(keys.iter().cloned());
        self.status.queue.extend(keys);
    }

    fn may_use(&self, key: &Key, namespace: &Name) -> bool {
        let Some(record) = self.store.records.get(key).filter(|_| key.namespace != *namespace) else {
            return true;
        };
        let spec = record.spec.as_ref().ok().or(record.effective.as_ref());
        let selector = spec.and_then(|spec| spec.attachment()).and_then(|spec| spec.usable_from.as_ref());
        selector
            .zip(self.store.namespaces.get(namespace))
            .is_some_and(|(selector, labels)| selector.matches(labels))
    }

    /// The pods that keep an attachment from being deleted.
    pub(crate) fn blocking_pods(&self, key: &Key) -> Option<String> {
        let users = self
            .nad
            .pods_by_attachment
            .get(key)?
            .values()
            .filter(|(namespace, _)| self.may_use(key, namespace));
        describe(key, users)
    }

    /// Adds the condition ForeignPods for pods of other namespaces that may not use the attachment.
    pub(crate) fn note_foreign_pods(&self, key: &Key, evaluation: &mut Evaluation) {
        let Some(users) = self.nad.pods_by_attachment.get(key) else { return };
        if let Some(pods) =
            describe(key, users.values().filter(|(namespace, _)| !self.may_use(key, namespace)))
        {
            let message = format!(
                "{pods} of another namespace uses its NetworkAttachmentDefinition without UsableFrom: that does not keep it \
                 from being deleted; namespaceIsolation of Multus refuses such pods"
            );
            evaluation.conditions.push(ConditionState::new(
                ConditionType::ForeignPods,
                true,
                ConditionReason::NotUsableFrom,
                message,
            ));
        }
    }
}

fn describe<'a>(key: &Key, users: impl Iterator<Item = &'a (Name, Name)>) -> Option<String> {
    let users: Vec<_> = users.collect();
    let (namespace, name) =
        users.iter().find(|(namespace, _)| *namespace == key.namespace).or(users.first())?;
    let first =
        if *namespace == key.namespace { format!("pod {name}") } else { format!("pod {namespace}/{name}") };
    Some(and_more(&first, users.len()))
}
