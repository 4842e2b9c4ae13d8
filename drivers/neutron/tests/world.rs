//! Views and desired states for tests of the pure core.

use std::collections::BTreeMap;

use eno_conformance::fabrics;
use eno_driver_neutron::mark::Mark;
use eno_driver_neutron::plan::{Plan, Refusals, plan};
use eno_driver_neutron::request::{Kind, Request};
use eno_driver_neutron::view::{Network, Port, SubPort, Trunk, View};
use eno_schemas::{Device, FabricDesired, NetworkType, NeutronSettings, VlanSet};

pub use eno_conformance::fabrics::vid;

pub const CLUSTER: &str = "c1";
pub const TARGET: &str = "vim1";
/// The credential's project.
pub const PROJECT: &str = "p";
/// The physical network.
pub const PHYSICAL: &str = "datacentre";

/// A desired state: VLANs by listed name.
pub fn desired(ports: &[(&str, &str)]) -> FabricDesired {
    let settings = NeutronSettings { physical_network: Some(PHYSICAL.into()), ..NeutronSettings::default() };
    let device = Device { neutron: Some(settings), ..Device::new("https://keystone/v3") };
    fabrics::desired(CLUSTER, device, "", ports)
}

/// The same with tenant networks.
pub fn tenant(ports: &[(&str, &str)]) -> FabricDesired {
    let mut desired = desired(ports);
    desired.device.neutron =
        Some(NeutronSettings { network_type: NetworkType::Tenant, ..NeutronSettings::default() });
    desired
}

pub fn mark() -> Mark {
    Mark::new(&desired(&[]), TARGET).unwrap()
}

/// A view of these trunks, which have no sub-ports.
pub fn trunks(names: &[&str]) -> View {
    let mut view = View { project: PROJECT.into(), ..View::default() };
    for name in names {
        let id = format!("id-{name}");
        let trunk = Trunk {
            id: id.clone(),
            name: (*name).to_owned(),
            project_id: PROJECT.into(),
            port_id: format!("parent-{name}"),
            status: "ACTIVE".into(),
            admin_state_up: true,
            sub_ports: Vec::new(),
        };
        view.trunks.insert(id.clone(), trunk);
        view.trunk_of.insert((*name).to_owned(), id);
    }
    view
}

pub fn network(view: &mut View, id: &str, name: &str, description: &str, vlan: Option<u16>) {
    let network = Network {
        id: id.into(),
        name: name.into(),
        description: description.into(),
        project_id: PROJECT.into(),
        admin_state_up: true,
        port_security_enabled: Some(false),
        network_type: vlan.map(|_| "vlan".into()),
        physical_network: vlan.map(|_| PHYSICAL.into()),
        segmentation_id: vlan.map(u32::from),
        ..Network::default()
    };
    view.networks.insert(id.into(), network);
}

pub fn port(view: &mut View, id: &str, name: &str, description: &str, network: &str) {
    let port = Port {
        id: id.into(),
        name: name.into(),
        description: description.into(),
        project_id: PROJECT.into(),
        network_id: network.into(),
        mac_address: format!("fa:16:3e:{id}"),
        admin_state_up: true,
        port_security_enabled: Some(false),
        ..Port::default()
    };
    view.ports.insert(id.into(), port);
}

pub fn sub_port(view: &mut View, trunk: &str, port: &str, vlan: u16) {
    let sub_port =
        SubPort { port_id: port.into(), segmentation_type: "vlan".into(), segmentation_id: vlan.into() };
    view.trunks.get_mut(&format!("id-{trunk}")).unwrap().sub_ports.push(sub_port);
}

/// The sub-port that a port is on a listed trunk.
pub fn sub_port_of<'a>(view: &'a View, port: &str) -> Option<&'a SubPort> {
    view.trunks.values().flat_map(|trunk| &trunk.sub_ports).find(|sub| sub.port_id == port)
}

/// False when Neutron refuses a request for what others have there. Panics when it refuses it otherwise.
pub fn is_acceptable(view: &View, request: &Request) -> bool {
    let attached = |port: &str| sub_port_of(view, port).is_some();
    match request {
        Request::CreateNetworks(new) => {
            for new in new {
                let tag = new.attributes.get("provider:segmentation_id").cloned();
                let used =
                    |network: &&Network| tag.is_some() && network.segmentation_id.map(Into::into) == tag;
                assert!(!view.networks.values().any(|network| used(&network)), "VlanIdInUse: {request}");
            }
        }
        Request::CreatePorts(new) => {
            for new in new {
                let network = new.attributes["network_id"].as_str().unwrap();
                assert!(view.networks.contains_key(network), "NetworkNotFound: {request}");
                let same = |port: &&Port| {
                    port.network_id == network && new.attributes["mac_address"] == port.mac_address
                };
                assert!(!view.ports.values().any(|port| same(&port)), "MacAddressInUse: {request}");
            }
        }
        Request::AddSubPorts { trunk, ports } => {
            let trunk = &view.trunks[trunk];
            for (port, vid) in ports {
                assert!(view.ports.contains_key(port), "PortNotFound: {request}");
                assert!(!attached(port), "TrunkPortInUse: {request}");
                let used = trunk.sub_ports.iter().any(|sub| sub.vid() == Some(*vid));
                assert!(!used, "DuplicateSubPort: {request}");
            }
        }
        Request::RemoveSubPorts { trunk, ports } => {
            for (port, _) in ports {
                let there = view.trunks[trunk].sub_ports.iter().any(|sub| sub.port_id == *port);
                assert!(there, "SubPortNotFound: {request}");
            }
        }
        Request::Update { .. } => {}
        Request::Delete { resource } => match resource.kind {
            Kind::Port => assert!(!attached(&resource.id), "PortInUseAsSubPort: {request}"),
            Kind::Network => {
                let mut users = view.ports.values().filter(|port| port.network_id == resource.id).peekable();
                let is_used = users.peek().is_some();
                assert!(users.all(is_foreign), "NetworkInUse: {request}");
                return !is_used;
            }
        },
    }
    true
}

fn is_foreign(port: &Port) -> bool {
    mark().vid_of(&port.name, &port.description).is_none() || port.project_id != PROJECT
}

/// Carries out plans until one is empty, and returns that one with all requests.
pub fn converge(view: &mut View, desired: &FabricDesired) -> (Plan, Vec<Request>) {
    let (mut all, mut refusals) = (Vec::new(), Refusals::default());
    for _ in 0..20 {
        let planned = plan(view, desired, &mark(), &refusals);
        if planned.requests.is_empty() {
            return (planned, all);
        }
        for request in planned.requests {
            if is_acceptable(view, &request) {
                request.predict(view).unwrap();
                all.push(request);
            } else {
                refusals.record(&request, "it is in use");
            }
        }
    }
    panic!("the plans never end: {:?}", plan(view, desired, &mark(), &refusals).requests);
}

/// What is not ours.
pub fn foreign(view: &View) -> View {
    let mark = mark();
    let ours = |name: &str, description: &str| mark.vid_of(name, description).is_some();
    let foreign_sub_port = |port: &str| view.ports.get(port).is_none_or(is_foreign);
    let mut foreign = view.clone();
    foreign.networks.retain(|_, network| !ours(&network.name, &network.description));
    foreign.ports.retain(|_, port| is_foreign(port));
    for trunk in foreign.trunks.values_mut() {
        trunk.sub_ports.retain(|sub| foreign_sub_port(&sub.port_id));
    }
    foreign
}

/// The VLANs of ports of ours on each trunk, by its listed name.
pub fn placed(view: &View) -> BTreeMap<String, VlanSet> {
    let mark = mark();
    let on = |trunk: &Trunk| -> VlanSet {
        let ours = |sub: &SubPort| {
            let port = view.ports.get(&sub.port_id)?;
            mark.vid_of(&port.name, &port.description).filter(|vid| sub.vid() == Some(*vid))
        };
        trunk.sub_ports.iter().filter_map(ours).collect()
    };
    view.trunk_of.iter().map(|(name, id)| (name.clone(), on(&view.trunks[id]))).collect()
}
