//! Hot-plugging: the interfaces of an L2ServiceAttachment in a running pod that carries its label. Others have those of
//! VLANs only ([`sub_interfaces`]).

use std::collections::BTreeSet;

use eno_schemas::{Ipam, LinkKind, LinkName, Master, Parent, PodLink, PodRoute, PortVlans, VlanId, VlanType};
use sha2::{Digest as _, Sha256};

use crate::kinds::{AttachmentSpec, Plugin, SupportedCni, compat};
use crate::node::Nodes;
use crate::node::shape::name_problem;
use crate::pods::claims::Claim;
use crate::pods::ipam::{PoolKey, Source};
use crate::pods::sub_interfaces::{has_interface, sub_interfaces};
use crate::pods::template::{AddressNeed, Template, link_id};
use crate::pods::{self, PodState, Pods, ranges};
use crate::store::Store;
use crate::{Key, Name};

/// The addresses and routes that a pod gets of one service.
pub(super) struct ServicePart {
    /// The L2Service.
    pub service: Name,
    /// Its VLAN.
    pub vid: VlanId,
    /// One address of each of its Subnets.
    needs: Vec<AddressNeed>,
    /// The Routes of its Subnets.
    routes: Vec<PodRoute>,
}

impl Pods {
    /// The interfaces that an attachment gives to a running pod that asks for it; `Err`: why it can't.
    pub(super) fn attachment_links(
        &self,
        store: &Store,
        nodes: &Nodes,
        key: &Key,
        spec: &AttachmentSpec,
        state: &PodState,
    ) -> Result<Vec<Template>, String> {
        let point = store.connection_point(&spec.connection_point);
        let point = point.ok_or_else(|| format!("ConnectionPoint {} is not there", spec.connection_point))?;
        let chosen = compat::choose(spec, point).map_err(|invalid| invalid.to_string())?;
        let on = nodes.nodes_of(&spec.connection_point);
        // A pod outlives its Node object for a while. Until the node is back or the pod is gone, the pod keeps its
        // addresses.
        let entry = self.entry(key, &state.pod.uid);
        let has_some = entry.is_some_and(|entry| !entry.leases.is_empty() || !entry.retiring.is_empty());
        let keeps = |node: &Name| has_some && nodes.node(node).is_none();
        let excluded = |node: &&Name| !keeps(node) && !on.contains(*node);
        if let Some(node) = state.pod.node.as_ref().filter(excluded) {
            return Err(format!(
                "node {node}, where it runs, is not one of ConnectionPoint {}",
                spec.connection_point
            ));
        }
        let parts: Vec<ServicePart> =
            spec.services.iter().map(|name| service_part(store, name)).collect::<Result<_, String>>()?;
        let mut templates = Vec::new();
        if pods::labelled(&state.pod).contains(key) {
            templates = self.hot_plug(key, spec, chosen, state, &parts)?;
        }
        templates.extend(sub_interfaces(key, spec, &chosen.plugin, &state.pod, &parts)?);
        Ok(templates)
    }

    /// The interfaces of a pod whose label names the attachment.
    fn hot_plug(
        &self,
        key: &Key,
        spec: &AttachmentSpec,
        chosen: &SupportedCni,
        state: &PodState,
        parts: &[ServicePart],
    ) -> Result<Vec<Template>, String> {
        let vids: BTreeSet<VlanId> = parts.iter().map(|part| part.vid).collect();
        let name = self.interface_name(key, state)?;
        let kind = main_link(&chosen.plugin, spec.vlan_type, &vids)?;
        let main = link_id(key, &state.pod.namespace, &key.name);
        let template = |name: Name, id: String, ifname: String, kind: LinkKind| {
            template(name, id, ifname, kind, spec.mtu(chosen))
        };
        let mut first = template(key.name.clone(), main.clone(), name.clone(), kind);
        if spec.anti_spoof {
            first.link.anti_spoof = true;
            first.link.mac = Some(mac_of(&state.pod.uid, &main));
        }
        if spec.vlan_type == VlanType::Access {
            for part in parts {
                first.needs.extend(part.needs.iter().cloned());
                first.link.routes.extend(part.routes.iter().cloned());
            }
            return Ok(vec![first]);
        }
        let mut templates = vec![first];
        for part in parts {
            let subinterface = format!("{name}.{}", part.vid);
            if let Some(problem) = name_problem(&subinterface) {
                return Err(problem);
            }
            let kind = LinkKind::Vlan { parent: Parent::Link(main.clone()), vlan: part.vid };
            let link = Name::from(format!("{}/{}", key.name, part.service));
            let id = link_id(key, &state.pod.namespace, &link);
            templates.push(template(link, id, subinterface, kind).of_service(part));
        }
        Ok(templates)
    }

    /// The interface's name: that of the label, or `net<N>` with the lowest free N.
    fn interface_name(&self, key: &Key, state: &PodState) -> Result<String, String> {
        let requested = pods::requested_name(&state.pod, &key.name);
        let uid = &state.pod.uid;
        let free = |name: &String| {
            let claim = Claim::Name(uid.clone(), name.clone());
            !has_interface(&state.pod, name)
                && self.claims.get(&claim).is_none_or(|(holder, _, _)| holder == key)
        };
        if requested.is_empty() {
            let kept = self.entry(key, uid).and_then(|entry| entry.ifname.clone()).filter(free);
            // The labels of a pod are few, so one of the first is free.
            return Ok(kept.or_else(|| (0..1000).map(|n| format!("net{n}")).find(free)).unwrap_or_default());
        }
        if let Some(problem) = name_problem(requested) {
            return Err(problem);
        }
        if has_interface(&state.pod, requested) {
            return Err(format!(
                "{requested} is the name of an interface that the pod has already; choose another"
            ));
        }
        Ok(requested.to_owned())
    }
}

impl Template {
    /// With what a pod gets of a service.
    pub(super) fn of_service(mut self, part: &ServicePart) -> Self {
        self.needs.clone_from(&part.needs);
        self.link.routes.clone_from(&part.routes);
        self
    }
}

/// An interface without addresses. `mtu`: in bytes.
pub(super) fn template(name: Name, id: String, ifname: String, kind: LinkKind, mtu: Option<u32>) -> Template {
    Template {
        name,
        needs: Vec::new(),
        bridge: None,
        link: PodLink {
            id,
            revision: String::new(),
            name: LinkName::Fixed(ifname),
            kind,
            member_of: None,
            mtu,
            mac: None,
            anti_spoof: false,
            parent_leads_to: None,
            alias: None,
            addresses: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
            sysctls: std::collections::BTreeMap::new(),
            up: true,
        },
    }
}

/// The MAC address of an interface that must not have another one: locally administered, derived from pod and link.
fn mac_of(uid: &str, id: &str) -> String {
    let digest = Sha256::digest([uid.as_bytes(), b" ", id.as_bytes()].concat());
    let rest = digest.iter().take(5).map(|byte| format!(":{byte:02x}"));
    std::iter::once("02".to_owned()).chain(rest).collect()
}

/// The need of an address of each Subnet of a service, for something that is made at run time.
pub(crate) fn address_needs(store: &Store, service: &Name) -> Result<Vec<AddressNeed>, String> {
    Ok(service_part(store, service)?.needs)
}

fn service_part(store: &Store, service: &Name) -> Result<ServicePart, String> {
    let spec = store.service(service).ok_or_else(|| format!("L2Service {service} is not there"))?;
    let mut part =
        ServicePart { service: service.clone(), vid: spec.vid, needs: Vec::new(), routes: Vec::new() };
    for name in &spec.subnets {
        let subnet = store.subnet(name).ok_or_else(|| format!("Subnet {name} is not there"))?;
        let routes: Vec<PodRoute> = store
            .routes_of(subnet)
            .into_iter()
            .map(|route| PodRoute {
                prefix: route.prefix,
                next_hop: Some(route.next_hop),
                table: None,
                metric: None,
                source: None,
            })
            .collect();
        // With the Ipam eno, nodes have blocks of the same ranges.
        let is_shared = subnet.ipam == Ipam::Eno;
        let source = if is_shared {
            ranges::source(store, name, subnet)
        } else {
            Source::Ranges {
                network: subnet.network,
                ranges: subnet.hot_plug_pool.clone(),
                excluded: routes
                    .iter()
                    .filter_map(|route| route.next_hop)
                    .chain(store.routed_addresses(name))
                    .collect(),
            }
        };
        let exhausted_message = if is_shared {
            format!("Subnet {name} has no address left; widen its AllocationPool or its network")
        } else if subnet.hot_plug_pool.is_empty() {
            format!(
                "Subnet {name} has no HotPlugPool to take an address for a running pod from; give it one beside its AllocationPool"
            )
        } else {
            format!("the HotPlugPool of Subnet {name} has no address left; widen it")
        };
        part.needs.push(AddressNeed { pool: PoolKey::Subnet(name.clone()), source, exhausted_message });
        part.routes.extend(routes);
    }
    Ok(part)
}

/// The kind of the interface itself.
fn main_link(plugin: &Plugin, vlan_type: VlanType, vids: &BTreeSet<VlanId>) -> Result<LinkKind, String> {
    let access = vids.first().copied().unwrap_or(VlanId::MIN);
    let is_access = vlan_type == VlanType::Access;
    let vlans =
        if is_access { PortVlans::Access(access) } else { PortVlans::Trunk(vids.iter().copied().collect()) };
    let master = |master: &str| if is_access { format!("{master}.{access}") } else { master.to_owned() };
    Ok(match plugin {
        Plugin::Ovs { bridge_name, .. } => {
            LinkKind::Veth { master: Some(Master::Ovs { bridge: bridge_name.clone(), vlans }) }
        }
        Plugin::Bridge { bridge_name } => LinkKind::Veth {
            master: Some(Master::Bridge { bridge: bridge_name.clone(), vlans: Some(vlans) }),
        },
        Plugin::Macvlan { master: nic } => LinkKind::Macvlan { master: master(nic) },
        Plugin::Ipvlan { master: nic } => LinkKind::Ipvlan { master: master(nic) },
        Plugin::Vlan { master } => LinkKind::Vlan { parent: Parent::Host(master.clone()), vlan: access },
        Plugin::HostDevice { .. } | Plugin::Sriov { .. } | Plugin::Userspace { .. } => {
            return Err(format!(
                "an attachment by {} can't be hot-plugged: its device is handed out when the pod is made; name it in the pod's annotation k8s.v1.cni.cncf.io/networks",
                plugin.name().as_str()
            ));
        }
    })
}
