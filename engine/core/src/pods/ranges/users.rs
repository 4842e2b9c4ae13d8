//! The pods that use NetworkAttachmentDefinitions: where they run, and the addresses that Multus says they have.

use std::collections::{BTreeSet, HashMap};

use crate::{Attached, Key, Kind, Name, Pod};

/// A pod that uses NetworkAttachmentDefinitions.
#[derive(Debug)]
pub(super) struct User {
    pub namespace: Name,
    pub name: Name,
    /// Where it is bound to.
    pub node: Option<Name>,
    /// The L2ServiceAttachments of these, as far as they are known by name.
    pub attachments: BTreeSet<Key>,
    pub attached: Vec<Attached>,
}

/// All such pods.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// By uid.
    pods: HashMap<Name, User>,
    /// By attachment: uids.
    by_attachment: HashMap<Key, BTreeSet<Name>>,
}

impl Users {
    /// Takes a pod that is new or changed. Returns the attachments that it concerns.
    pub fn set(&mut self, pod: &Pod) -> BTreeSet<Key> {
        let nads = pod.uses.named().iter().chain(pod.attached.iter().map(|one| &one.nad));
        let of_nad =
            |(namespace, name): &(Name, Name)| Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
        let attachments: BTreeSet<Key> = nads.map(of_nad).collect();
        let known = self.pods.get(&pod.uid);
        if known.is_some_and(|known| {
            (&known.node, &known.attachments, &known.attached) == (&pod.node, &attachments, &pod.attached)
        }) {
            return BTreeSet::new();
        }
        let mut concerned = self.remove(&pod.uid);
        if attachments.is_empty() {
            return concerned;
        }
        for key in &attachments {
            self.by_attachment.entry(key.clone()).or_default().insert(pod.uid.clone());
        }
        concerned.extend(attachments.iter().cloned());
        let Pod { uid, namespace, name, node, attached, .. } = pod.clone();
        self.pods.insert(uid, User { namespace, name, node, attachments, attached });
        concerned
    }

    /// Removes a pod. Returns the attachments that it used.
    pub fn remove(&mut self, uid: &Name) -> BTreeSet<Key> {
        let Some(user) = self.pods.remove(uid) else { return BTreeSet::new() };
        for key in &user.attachments {
            if let Some(uids) = self.by_attachment.get_mut(key) {
                uids.remove(uid);
                if uids.is_empty() {
                    self.by_attachment.remove(key);
                }
            }
        }
        user.attachments
    }

    /// The pods that use some of these attachments, each once.
    pub fn of(&self, attachments: &BTreeSet<Key>) -> Vec<&User> {
        let uids = attachments.iter().filter_map(|key| self.by_attachment.get(key)).flatten();
        // Most Subnets have one attachment.
        let uids: Vec<&Name> = if attachments.len() > 1 {
            uids.collect::<BTreeSet<_>>().into_iter().collect()
        } else {
            uids.collect()
        };
        uids.into_iter().filter_map(|uid| self.pods.get(uid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uses;

    fn pod(uses: &[&str], node: Option<&str>) -> Pod {
        Pod {
            uid: "uid".into(),
            namespace: "ns".into(),
            name: "p".into(),
            uses: Uses::Named(uses.iter().map(|nad| ("ns".into(), Name::from(*nad))).collect()),
            labels: std::collections::BTreeMap::new(),
            node: node.map(Name::from),
            host_network: false,
            container: None,
            attached: Vec::new(),
        }
    }

    #[test]
    fn pod_concerns_what_it_uses_and_what_it_used() {
        let mut users = Users::default();
        let key = |name: &str| Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &name.into());
        assert_eq!(users.set(&pod(&[], Some("node1"))).len(), 0);
        assert_eq!(users.set(&pod(&["a", "b"], None)), [key("a"), key("b")].into());
        assert_eq!(users.set(&pod(&["a", "b"], None)).len(), 0, "it is the same");
        let both = [key("a"), key("b")].into();
        assert_eq!(users.of(&both).len(), 1, "a pod counts once");
        assert_eq!(users.set(&pod(&["c"], Some("node1"))), [key("a"), key("b"), key("c")].into());
        assert_eq!(users.of(&both).len(), 0);
        assert_eq!(users.remove(&"uid".into()), [key("c")].into());
        assert!(users.pods.is_empty() && users.by_attachment.is_empty());
    }
}
