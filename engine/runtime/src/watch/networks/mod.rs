//! Which NetworkAttachmentDefinitions a pod uses, and which interfaces it got by them. Pure.

mod annotation;
mod element;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use eno_core::{Name, Uses};
use eno_nbi_crds::ATTACH_LABEL_PREFIX;

use annotation::{Verdict, read};
pub use status::attached;

/// The annotation that names further networks. A name without a namespace is in the pod's own.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The annotation that names the first network. A name without a namespace is in the namespace of Multus.
const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// `multusNamespace` of Multus, unless its configuration says otherwise.
pub const MULTUS_NAMESPACE: &str = "kube-system";
/// The most networks that are counted for one pod. One that names more counts as a user of any.
pub const MAX_NETWORKS: usize = 256;

/// The NADs that a pod uses. They come from the annotations that Multus reads, and from labels
/// `attach.eno.k8s.io/<attachment>` for its own namespace, whatever their value. An annotation that Multus refuses
/// names none. `multus`: the namespace of Multus.
pub fn used(
    namespace: &str,
    annotations: Option<&BTreeMap<String, String>>,
    labels: Option<&BTreeMap<String, String>>,
    multus: &str,
) -> Uses {
    let mut names = Names::default();
    for (annotation, default, most) in [(NETWORKS, namespace, usize::MAX), (DEFAULT_NETWORK, multus, 1)] {
        let Some(text) = annotations.and_then(|all| all.get(annotation)) else { continue };
        match read(text, default) {
            Verdict::Accepted { names: named, elements } if elements <= most => names.0.extend(named.0),
            Verdict::Accepted { .. } | Verdict::Refused => {}
            Verdict::Unclear(why) => {
                return Uses::Any(format!("ENO can't read its annotation {annotation}: {why}").into());
            }
        }
    }
    for label in labels.into_iter().flat_map(BTreeMap::keys) {
        if let Some(name) = label.strip_prefix(ATTACH_LABEL_PREFIX) {
            names.add(namespace, name);
        }
    }
    if names.0.len() > MAX_NETWORKS {
        return Uses::Any(format!("it names more than {MAX_NETWORKS} networks").into());
    }
    Uses::Named(names.0.into_iter().collect())
}

/// Namespaces and names: not many more than [`MAX_NETWORKS`], however many are added.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names(BTreeSet<(Name, Name)>);

impl Names {
    /// Adds a NAD. None has an empty name.
    fn add(&mut self, namespace: &str, name: &str) {
        if !name.is_empty() && self.0.len() <= MAX_NETWORKS {
            self.0.insert((namespace.into(), name.into()));
        }
    }
}

#[cfg(test)]
mod tests;
