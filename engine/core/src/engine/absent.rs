//! Kinds that the API server does not know. What objects of such a kind ask for is unknown, which is not nothing: their
//! absence must not take away what is realised.

use std::borrow::Cow;

use eno_schemas::{Desired, HostNetwork, Ipam, NodeDesired};

use super::Engine;
use crate::kinds::{Absence, Spec, SubnetSpec};
use crate::pods::template::owner_of;
use crate::{Kind, Name, Target};

impl Engine {
    /// Why nothing may be decided without the objects of a kind; `None`: nothing that is realised depends on them. It
    /// counts before the first [`Engine::settle`]. Later no object that is not there is part of what is realised.
    pub fn need_of(&self, kind: Kind) -> Option<Cow<'static, str>> {
        match kind.facts().absence {
            Absence::Never => Some("networks depend on it".into()),
            Absence::UnlessNamed => self.realised_user(kind),
            Absence::UnlessInPods => self.config.nodes.then(|| self.pod_interfaces()).flatten(),
        }
    }

    /// An object whose realised spec names objects of a kind, and gives something else without them.
    fn realised_user(&self, kind: Kind) -> Option<Cow<'static, str>> {
        let users = self.store.iter().filter_map(|(key, record)| {
            let spec = record.effective.as_deref()?;
            let named = spec.references().into_iter().find(|named| named.kind == kind)?;
            (!self.keeps_without(spec)).then_some((key, named))
        });
        let (user, named) = users.min()?;
        Some(format!("{user} names {named}").into())
    }

    /// A NetworkAttachmentDefinition stays as it is without a Route that it has. An interface of a running pod does not,
    /// and no pod may get the address of its next hop.
    fn keeps_without(&self, spec: &Spec) -> bool {
        let is_kept = |subnet: &SubnetSpec| subnet.hot_plug_pool.is_empty() && subnet.ipam != Ipam::Eno;
        matches!(spec, Spec::Subnet(subnet) if !self.config.nodes || is_kept(subnet))
    }

    /// A node on which objects for running pods may have made something. Without nodes there is none.
    fn pod_interfaces(&self) -> Option<Cow<'static, str>> {
        self.store.nodes().next()?;
        let mut is_known = false;
        for stored in &self.startup.stored_commands {
            let Target::Node(node) = &stored.target else { continue };
            is_known = true;
            let desired = stored.command.as_ref().map(|command| &command.desired);
            let has_none = matches!(desired, Some(Desired::Node(desired)) if !has_pod_interfaces(desired));
            if !has_none {
                return Some(format!("pods on node {node} may have interfaces by it").into());
            }
        }
        (!is_known).then(|| "NATS has no command that tells which interfaces pods have".into())
    }
}

/// True if a node has interfaces or bridges of other objects than L2ServiceAttachments.
fn has_pod_interfaces(desired: &NodeDesired) -> bool {
    let is_bridge = |network: &HostNetwork| matches!(network, HostNetwork::PodBridge { .. });
    desired.networks.values().any(is_bridge)
        || desired.pods.values().any(|pod| {
            let namespace = Name::from(pod.namespace.as_str());
            let is_other = |id: &str| {
                owner_of(id, &namespace).is_none_or(|(owner, _)| owner.kind != Kind::L2ServiceAttachment)
            };
            pod.primary.is_some() || pod.links.iter().any(|link| is_other(&link.id))
        })
}
