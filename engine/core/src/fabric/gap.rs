//! Gaps: endpoints of a network that can't reach each other. A gap doesn't change the plan: each part of the network
//! is built as far as possible.
//!
//! Tenants choose the ends of their attachments. So an end that no link joins to the ends of the others hinders only
//! the attachment that has it.

use std::collections::BTreeSet;

use eno_schemas::Phase;

use crate::kinds::{AttachmentSpec, Spec, VrfAttachmentSpec};
use crate::store::Store;
use crate::{Key, Kind, Name};

use super::Fabric;

/// Why the endpoints of a network can't reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// No switch port leads to this PhysicalNetwork.
    NoPort(Name),
    /// No link joins the endpoints that the network's own spec names: the switches there, part by part.
    NoPath(Vec<BTreeSet<Name>>),
    /// No link joins the ends of all attachments.
    EndsApart {
        /// The switches at the endpoints, part by part.
        parts: Vec<BTreeSet<Name>>,
        /// The index of the part that is the service's own. `None`: no attachment has all of its ends in one part.
        own: Option<usize>,
    },
}

impl Gap {
    /// The message about a gap of the network's own endpoints, as seen `from` a switch at one endpoint. `None`: only
    /// ends of attachments are apart.
    fn describe(&self, from: Option<&Name>) -> Option<String> {
        let parts = match self {
            Self::NoPort(name) => return Some(format!("PhysicalNetwork {name}: no switch port leads there")),
            Self::NoPath(parts) => parts,
            Self::EndsApart { .. } => return None,
        };
        let own = from.map_or(Some(0), |from| parts.iter().position(|part| part.contains(from)));
        let first = |part: usize| parts.get(part).and_then(BTreeSet::first);
        Some(no_way(from.or_else(|| first(0))?, first(usize::from(own == Some(0)))?))
    }
}

fn no_way(from: &Name, to: &Name) -> String {
    format!("no way from {from} to {to}: name the link in their Ports")
}

impl Fabric {
    /// The attachments by which a service is realised.
    fn attachments_of<'a>(
        &'a self,
        store: &'a Store,
        service: &'a Key,
    ) -> impl Iterator<Item = (&'a Key, &'a AttachmentSpec)> {
        store.referrers(service).filter_map(|key| {
            let spec = self.counted.get(key)?.realised.as_deref()?.attachment()?;
            spec.services.contains(&service.name).then_some((key, spec))
        })
    }

    /// The gap of a network, if there is one. It is unknown without any FabricDevice, and for a network that is used
    /// only at ConnectionPoints without switch ports.
    pub(super) fn gap_of(&self, store: &Store, key: &Key) -> Option<Gap> {
        let spec = store.get(key)?.effective.as_deref()?;
        let mut points = self.points_of(key).peekable();
        let is_used = points.peek().is_some();
        let mut ends: BTreeSet<&Name> =
            points.filter_map(|name| self.points.get(name)).flat_map(|point| point.ports.keys()).collect();
        if !self.has_devices || (is_used && ends.is_empty()) {
            return None;
        }
        let (mut networks, mut managed) = (Vec::new(), BTreeSet::new());
        for name in spec.service().into_iter().flat_map(|service| &service.physical_networks) {
            let network = store.effective(&Key::cluster(Kind::PhysicalNetwork, name), Spec::physical_network);
            let unmanaged = network.is_some_and(|network| network.unmanaged);
            match self.topology.network_ports(name) {
                Some(ports) => {
                    networks.push(ports);
                    managed.extend(ports.keys().filter(|_| !unmanaged));
                }
                None if unmanaged => {}
                None => return Some(Gap::NoPort(name.clone())),
            }
        }
        ends.extend(&managed);
        let parts = self.topology.parts(ends, networks);
        if parts.len() < 2 {
            return None;
        }
        if spec.service().is_none() {
            return Some(Gap::NoPath(parts));
        }
        let leads_to_network = |part: &BTreeSet<Name>| part.iter().any(|device| managed.contains(device));
        let with_network: Vec<usize> =
            (0..parts.len()).filter(|part| leads_to_network(&parts[*part])).collect();
        if with_network.len() > 1 {
            return Some(Gap::NoPath(parts.into_iter().filter(leads_to_network).collect()));
        }
        let own = with_network.first().copied().or_else(|| self.part_of_attachments(store, key, &parts));
        Some(Gap::EndsApart { parts, own })
    }

    /// The part that is a service's own as its attachments have it: the one that was, else that of the oldest ready
    /// attachment, else that of the oldest one. So an attachment that waits for a link takes nothing from others.
    fn part_of_attachments(&self, store: &Store, service: &Key, parts: &[BTreeSet<Name>]) -> Option<usize> {
        let former = match &self.networks.get(service)?.gap {
            Some(Gap::EndsApart { parts, own: Some(own) }) => parts.get(*own),
            _ => None,
        };
        let candidates = self.attachments_of(store, service).filter_map(|(key, spec)| {
            let (record, ends) = (store.get(key)?, self.ends_of(spec)?);
            let part = parts.iter().position(|part| ends.iter().all(|end| part.contains(*end)))?;
            let was = former.is_some_and(|former| !former.is_disjoint(&parts[part]));
            let is_ready = record.status.phase == Some(Phase::Ready);
            Some(((!was, !is_ready, record.seniority()), part))
        });
        candidates.min().map(|(_, part)| part)
    }

    /// The switches at the ends of an attachment. `None`: no switch port leads to its ConnectionPoint.
    fn ends_of(&self, spec: &AttachmentSpec) -> Option<Vec<&Name>> {
        let ports = &self.points.get(&spec.connection_point)?.ports;
        (!ports.is_empty()).then(|| ports.keys().collect())
    }

    /// The message about an attachment's ends if one of them is apart from those of the service.
    fn end_apart(
        &self,
        spec: &AttachmentSpec,
        parts: &[BTreeSet<Name>],
        own: Option<usize>,
    ) -> Option<String> {
        let ends = self.ends_of(spec)?;
        let from = *ends.first()?;
        let part = parts.iter().find(|part| part.contains(from))?;
        let other_end = ends.into_iter().find(|end| !part.contains(*end));
        let own_end = || parts.get(own?).filter(|own| *own != part)?.first();
        Some(no_way(from, other_end.or_else(own_end)?))
    }

    /// The message about the gap for an object that uses the network. An attachment sees it from its own
    /// ConnectionPoint, if that has switch ports.
    pub fn gap_message(&self, store: &Store, key: &Key, network: &Key) -> Option<String> {
        if let Some(spec) = store.effective(key, Spec::vrf_attachment)
            && let Some(apart) = self.router_apart(store, spec, network)
        {
            return Some(apart);
        }
        let gap = self.networks.get(network)?.gap.as_ref()?;
        if key.kind == Kind::VRFAttachment {
            return gap.describe(None);
        }
        match (store.effective(key, Spec::attachment), gap) {
            (Some(spec), Gap::EndsApart { parts, own }) => self.end_apart(spec, parts, *own),
            (Some(spec), gap) => gap.describe(Some(self.ends_of(spec)?.first()?)),
            (None, gap) => gap.describe(None),
        }
    }

    /// The message about a switch that routes a service and that no link joins to the service's ends.
    fn router_apart(&self, store: &Store, spec: &VrfAttachmentSpec, network: &Key) -> Option<String> {
        let service = store.effective(network, Spec::service)?;
        let ends = self.ports_of(Some(service), self.points_of(network), std::iter::empty());
        let mut switches = spec.devices().filter(|device| !self.topology.is_router(device));
        switches.find_map(|device| {
            let is_joined = |end: &Name| self.topology.component(end) == self.topology.component(device);
            let first = ends.keys().next().filter(|_| !ends.keys().any(is_joined))?;
            Some(no_way(device, first))
        })
    }

    /// The message about the attachments whose ends are apart from those of a service: the first, and how many more.
    pub fn ends_apart_message(&self, store: &Store, service: &Key) -> Option<String> {
        let Some(Gap::EndsApart { parts, own }) = &self.networks.get(service)?.gap else { return None };
        let mut apart = self
            .attachments_of(store, service)
            .filter_map(|(key, spec)| Some((key, self.end_apart(spec, parts, *own)?)));
        let (Key { kind, namespace, name }, gap) = apart.next()?;
        let more = match apart.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!("{kind} {namespace}/{name}: {gap}{more}"))
    }
}
