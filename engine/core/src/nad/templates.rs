//! The workloads without pods whose pod templates name an attachment's NetworkAttachmentDefinition. They don't keep it
//! from being deleted: its status shows them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::nad::Nads;
use crate::nad::users::may_use;
use crate::name::and_more;
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, Workload};

/// The workloads without pods that name L2ServiceAttachments.
#[derive(Debug, Default)]
pub(super) struct Templates {
    /// What each names.
    attachments: BTreeMap<Workload, BTreeSet<Key>>,
    /// The inverse of `attachments`.
    workloads: HashMap<Key, BTreeSet<Workload>>,
}

impl Templates {
    /// The L2ServiceAttachments of other namespaces that workloads of a namespace name.
    pub fn named_from(&self, namespace: &Name) -> impl Iterator<Item = &Key> {
        let from_there =
            self.attachments.iter().filter(move |(workload, _)| workload.namespace == *namespace);
        from_there.flat_map(|(_, keys)| keys).filter(move |key| key.namespace != *namespace)
    }
}

impl Nads {
    /// Takes what the template of a workload without pods names, instead of what it named before.
    pub fn set_template(
        &mut self,
        store: &Store,
        workload: Workload,
        nads: &[(Name, Name)],
        work: &mut Work,
    ) {
        let named = nads.iter();
        let named =
            named.map(|(namespace, name)| Key::namespaced(Kind::L2ServiceAttachment, namespace, name));
        let now: BTreeSet<Key> = named.collect();
        let Templates { attachments, workloads } = &mut self.templates;
        let before = attachments.remove(&workload).unwrap_or_default();
        for key in before.symmetric_difference(&now) {
            let all = workloads.entry(key.clone()).or_default();
            if now.contains(key) {
                all.insert(workload.clone());
            } else {
                all.remove(&workload);
            }
            if all.is_empty() {
                workloads.remove(key);
            }
            if store.contains(key) {
                work.evaluate.insert(key.clone());
            }
        }
        if !now.is_empty() {
            attachments.insert(workload, now);
        }
    }

    /// The workloads without pods whose templates name an attachment, as text. Those that may not use it don't count.
    pub fn stopped_workloads(&self, store: &Store, key: &Key) -> Option<String> {
        let all = self.templates.workloads.get(key)?;
        let may: Vec<_> = all.iter().filter(|one| may_use(store, key, &one.namespace)).collect();
        let first = may.iter().find(|one| one.namespace == key.namespace).or(may.first())?;
        let Workload { kind, namespace, name } = first;
        let first = if *namespace == key.namespace {
            format!("{kind} {name}")
        } else {
            format!("{kind} {namespace}/{name}")
        };
        Some(and_more(&first, may.len()))
    }
}
