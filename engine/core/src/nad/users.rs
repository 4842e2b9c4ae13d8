//! The pods that use an attachment's NetworkAttachmentDefinition. Pods of its own namespace, and of namespaces that
//! its `UsableFrom` selects, keep the attachment from being deleted.

use std::collections::BTreeMap;

use crate::nad::Nads;
use crate::store::Store;
use crate::validate::and_more;
use crate::work::Work;
use crate::{Key, Name};

/// Pods by uid: namespace and name.
pub(crate) type Users = BTreeMap<Name, (Name, Name)>;

impl Nads {
    /// Takes the attachments that a pod uses: `uses` replaces those that it used before.
    pub fn set_uses(
        &mut self,
        store: &Store,
        uid: &Name,
        (namespace, name): (&Name, &Name),
        uses: Vec<Key>,
        work: &mut Work,
    ) {
        let before = if uses.is_empty() {
            self.attachments_by_pod.remove(uid)
        } else {
            self.attachments_by_pod.insert(uid.clone(), uses.clone())
        };
        for key in before.into_iter().flatten().filter(|key| !uses.contains(key)) {
            let users = self.pods_by_attachment.get_mut(&key);
            let gone = users.and_then(|users| users.remove(uid));
            if self.pods_by_attachment.get(&key).is_some_and(BTreeMap::is_empty) {
                self.pods_by_attachment.remove(&key);
            }
            users_changed(store, &key, gone.is_some_and(|(namespace, _)| namespace != key.namespace), work);
        }
        for key in uses {
            let is_foreign = *namespace != key.namespace;
            let user = (namespace.clone(), name.clone());
            let before = self.pods_by_attachment.entry(key.clone()).or_default().insert(uid.clone(), user);
            users_changed(store, &key, is_foreign && before.is_none(), work);
        }
    }

    /// The labels of a namespace changed: its pods may now count, or not, as users of other namespaces' attachments.
    pub fn revalidate_used_from(&self, store: &Store, namespace: &Name, work: &mut Work) {
        let from_there = |users: &Users, key: &Key| {
            key.namespace != *namespace && users.values().any(|(own, _)| own == namespace)
        };
        for (key, users) in &self.pods_by_attachment {
            if from_there(users, key) && store.contains(key) {
                work.validate.insert(key.clone());
                work.evaluate.insert(key.clone());
            }
        }
    }

    /// The pods that keep an attachment from being deleted, as text.
    pub fn blocking_pods(&self, store: &Store, key: &Key) -> Option<String> {
        let users = self.pods_by_attachment.get(key)?.values();
        describe(key, users.filter(|(namespace, _)| may_use(store, key, namespace)))
    }

    /// The pods of other namespaces that use the attachment although they may not, as text.
    pub fn foreign_pods(&self, store: &Store, key: &Key) -> Option<String> {
        let users = self.pods_by_attachment.get(key)?.values();
        describe(key, users.filter(|(namespace, _)| !may_use(store, key, namespace)))
    }
}

/// The pods of an attachment changed. Its status shows those of other namespaces.
fn users_changed(store: &Store, key: &Key, foreign: bool, work: &mut Work) {
    store.revalidate_if_deleting(key, work);
    if foreign && store.contains(key) {
        work.evaluate.insert(key.clone());
    }
}

fn may_use(store: &Store, key: &Key, namespace: &Name) -> bool {
    let Some(record) = store.get(key).filter(|_| key.namespace != *namespace) else { return true };
    let spec = record.spec.as_ref().ok().or(record.effective.as_ref());
    let selector = spec.and_then(|spec| spec.attachment()).and_then(|spec| spec.usable_from.as_ref());
    selector.zip(store.namespace(namespace)).is_some_and(|(selector, labels)| selector.matches(labels))
}

fn describe<'a>(key: &Key, users: impl Iterator<Item = &'a (Name, Name)>) -> Option<String> {
    let users: Vec<_> = users.collect();
    let (namespace, name) =
        users.iter().find(|(namespace, _)| *namespace == key.namespace).or(users.first())?;
    let first =
        if *namespace == key.namespace { format!("pod {name}") } else { format!("pod {namespace}/{name}") };
    Some(and_more(&first, users.len()))
}
