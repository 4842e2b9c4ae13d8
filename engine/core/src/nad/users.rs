//! The pods that use an attachment's NetworkAttachmentDefinition. Pods of its own namespace, and of namespaces that
//! its `UsableFrom` selects, keep the attachment from being deleted.

use std::collections::{BTreeMap, BTreeSet};

use crate::nad::Nads;
use crate::name::and_more;
use crate::pods::used_attachments;
use crate::store::Store;
use crate::work::Work;
use crate::{About, Effect, Key, Kind, Name, NoticeKind, Pod, Uses};

/// Pods by uid: namespace and name.
pub(crate) type Users = BTreeMap<Name, (Name, Name)>;

impl Nads {
    /// Takes what a pod uses, instead of what it used before. `has_agents`: its labels give it interfaces.
    pub fn set_user(&mut self, store: &Store, pod: &Pod, has_agents: bool, work: &mut Work) {
        let Pod { uid, namespace, name, uses, .. } = pod;
        let user = (namespace.clone(), name.clone());
        let named = match uses {
            Uses::Named(_) => used_attachments(pod, has_agents),
            Uses::Any(_) => BTreeSet::new(),
        };
        self.set_named(store, uid, &user, named, work);
        match uses {
            Uses::Named(_) => self.remove_user_of_any(store, uid, work),
            Uses::Any(reason) => {
                if self.users_of_any.insert(uid.clone(), user).is_none() {
                    revalidate_deleted(store, work);
                    let message = format!(
                        "{reason}. While it exists, it keeps each L2ServiceAttachment from being deleted that it may \
                         use"
                    );
                    let (namespace, name, uid) = (namespace.clone(), name.clone(), uid.clone());
                    let (about, messages) = (About::Pod { namespace, name, uid }, vec![message.into()]);
                    work.effects.push(Effect::Notice { about, kind: NoticeKind::NetworksUnclear, messages });
                }
            }
        }
    }

    /// A pod is gone.
    pub fn remove_user(&mut self, store: &Store, uid: &Name, work: &mut Work) {
        self.set_named(store, uid, &("".into(), "".into()), BTreeSet::new(), work);
        self.remove_user_of_any(store, uid, work);
    }

    fn set_named(
        &mut self,
        store: &Store,
        uid: &Name,
        user: &(Name, Name),
        now: BTreeSet<Key>,
        work: &mut Work,
    ) {
        let before = self.attachments_by_pod.remove(uid).unwrap_or_default();
        for key in now.difference(&before) {
            self.pods_by_attachment.entry(key.clone()).or_default().insert(uid.clone(), user.clone());
            users_changed(store, key, user.0 != key.namespace, work);
        }
        for key in before.difference(&now) {
            let Some(users) = self.pods_by_attachment.get_mut(key) else { continue };
            let gone = users.remove(uid);
            if users.is_empty() {
                self.pods_by_attachment.remove(key);
            }
            users_changed(store, key, gone.is_some_and(|(namespace, _)| namespace != key.namespace), work);
            if self.shared_pools.contains(key) {
                work.validate.insert(key.clone());
            }
            self.revalidate_sharers(key, work);
        }
        if !now.is_empty() {
            self.attachments_by_pod.insert(uid.clone(), now);
        }
    }

    fn remove_user_of_any(&mut self, store: &Store, uid: &Name, work: &mut Work) {
        if self.users_of_any.remove(uid).is_some() {
            revalidate_deleted(store, work);
            self.revalidate_shared_pools(work);
        }
    }

    /// The labels of a namespace changed: its pods may now count, or not, as users of other namespaces' attachments.
    pub fn revalidate_used_from(&self, store: &Store, namespace: &Name, work: &mut Work) {
        work.evaluate.extend(self.templates.named_from(namespace).filter(|key| store.contains(key)).cloned());
        let from_there = |users: &Users, key: &Key| {
            key.namespace != *namespace && users.values().any(|(own, _)| own == namespace)
        };
        for (key, users) in &self.pods_by_attachment {
            if from_there(users, key) && store.contains(key) {
                work.validate.insert(key.clone());
                work.evaluate.insert(key.clone());
            }
        }
        if self.users_of_any.values().any(|(own, _)| own == namespace) {
            revalidate_deleted(store, work);
            self.revalidate_shared_pools(work);
        }
    }

    /// The pods that keep an attachment from being deleted, as text.
    pub fn blocking_pods(&self, store: &Store, key: &Key) -> Option<String> {
        let users = self.pods_by_attachment.get(key).into_iter().flatten().chain(&self.users_of_any);
        describe(key, users.map(|(_, user)| user).filter(|(namespace, _)| may_use(store, key, namespace)))
    }

    /// The pods of other namespaces that use the attachment although they may not, as text.
    pub fn foreign_pods(&self, store: &Store, key: &Key) -> Option<String> {
        let users = self.pods_by_attachment.get(key)?.values();
        describe(key, users.filter(|(namespace, _)| !may_use(store, key, namespace)))
    }
}

/// The pods that use any attachment changed.
fn revalidate_deleted(store: &Store, work: &mut Work) {
    let deleted = store.of_kind(Kind::L2ServiceAttachment).filter(|(_, record)| record.deleting);
    work.validate.extend(deleted.map(|(key, _)| key.clone()));
}

/// The pods of an attachment changed. Its status shows those of other namespaces.
fn users_changed(store: &Store, key: &Key, foreign: bool, work: &mut Work) {
    store.revalidate_if_deleting(key, work);
    if foreign && store.contains(key) {
        work.evaluate.insert(key.clone());
    }
}

pub(super) fn may_use(store: &Store, key: &Key, namespace: &Name) -> bool {
    let Some(record) = store.get(key) else { return true };
    let spec = record.spec.as_ref().ok().or(record.effective.as_ref());
    store.is_usable_from(key, spec.and_then(|spec| spec.attachment()), namespace)
}

fn describe<'a>(key: &Key, users: impl Iterator<Item = &'a (Name, Name)>) -> Option<String> {
    let users: Vec<_> = users.collect();
    let (namespace, name) =
        users.iter().find(|(namespace, _)| *namespace == key.namespace).or(users.first())?;
    let first =
        if *namespace == key.namespace { format!("pod {name}") } else { format!("pod {namespace}/{name}") };
    Some(and_more(&first, users.len()))
}
