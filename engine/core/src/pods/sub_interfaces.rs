//! Interfaces of VLANs on those that Multus made for a pod, by an L2ServiceAttachment with `SubInterfaces`.

use std::collections::BTreeSet;

use eno_schemas::{Carrier, InterfaceType, LinkKind, Parent};

use crate::kinds::{AttachmentSpec, Plugin, Spec};
use crate::node::shape::name_problem;
use crate::pods;
use crate::pods::hot_plug::{ServicePart, template};
use crate::pods::template::{Template, link_id};
use crate::store::Store;
use crate::{Key, Name, Pod};

/// The interfaces that a pod has already, whoever looks: their names are not free.
const TAKEN: [&str; 2] = ["eth0", "lo"];
/// Maximum interfaces of VLANs that an attachment gives to a pod: as many as there are VLANs.
const MAX_SUB_INTERFACES: usize = 4094;

/// True when a pod asks for what an object gives: its label names the object, or Multus made an interface for it that
/// gets interfaces of VLANs.
pub(super) fn asks_for(store: &Store, key: &Key, spec: &Spec, pod: &Pod) -> bool {
    let is_attached = |spec: &AttachmentSpec| {
        spec.sub_interfaces
            && store.is_usable_from(key, Some(spec), &pod.namespace)
            && pod.attached_by(key).next().is_some()
    };
    pods::labelled(pod).contains(key) || spec.attachment().is_some_and(is_attached)
}

/// True when a pod has an interface of this name that is not ENO's.
pub(super) fn has_interface(pod: &Pod, name: &str) -> bool {
    TAKEN.contains(&name) || pod.attached.iter().any(|own| own.interface.as_deref() == Some(name))
}

/// The interfaces of VLANs on those that Multus made for a pod by the attachment and its `plugin`. Each has the MTU of the
/// one that it is on.
pub(super) fn sub_interfaces(
    key: &Key,
    spec: &AttachmentSpec,
    plugin: &Plugin,
    pod: &Pod,
    parts: &[ServicePart],
) -> Result<Vec<Template>, String> {
    let mut parents = BTreeSet::new();
    for own in pod.attached_by(key).filter(|_| spec.sub_interfaces) {
        let parent = own.interface.as_deref().filter(|_| spec.interface == InterfaceType::Kernel);
        parents.insert(parent.ok_or(
            "the kernel has no interface of it for VLANs, as with DPDK: SubInterfaces has no effect on this pod",
        )?);
    }
    if parents.len() * parts.len() > MAX_SUB_INTERFACES {
        return Err(format!(
            "its {} interfaces would get more than {MAX_SUB_INTERFACES} for VLANs; divide the L2Services between attachments",
            parents.len()
        ));
    }
    let mut templates = Vec::new();
    for parent in parents {
        if TAKEN.contains(&parent) {
            return Err(format!(
                "{parent} gets no interfaces of VLANs; name the network in the pod's annotation k8s.v1.cni.cncf.io/networks"
            ));
        }
        for part in parts {
            let name = format!("{parent}.{}", part.vid);
            if let Some(problem) = name_problem(&name) {
                return Err(problem);
            }
            let kind = LinkKind::Vlan { parent: Parent::Pod(parent.to_owned()), vlan: part.vid };
            let link = Name::from(format!("{}@{parent}", part.service));
            let id = link_id(key, &pod.namespace, &link);
            let mut template = template(link, id, name, kind, None).of_service(part);
            template.link.parent_leads_to = carrier(plugin);
            templates.push(template);
        }
    }
    Ok(templates)
}

/// Where the interfaces that a plugin makes for trunks lead to.
fn carrier(plugin: &Plugin) -> Option<Carrier> {
    Some(match plugin {
        Plugin::Ovs { bridge_name, .. } => Carrier::Ovs(bridge_name.clone()),
        Plugin::Bridge { bridge_name } => Carrier::Bridge(bridge_name.clone()),
        Plugin::Macvlan { master } => Carrier::Master(master.clone()),
        Plugin::HostDevice { .. } | Plugin::Sriov { .. } => Carrier::Device,
        Plugin::Ipvlan { .. } | Plugin::Vlan { .. } | Plugin::Userspace { .. } => return None,
    })
}
