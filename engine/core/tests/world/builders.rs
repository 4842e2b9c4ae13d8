//! Builders of objects and pods with defaults for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_core::kinds::*;
use eno_core::{Event, Key, Kind, Name, Object, Pod, StoredCommand, Target, Uses};
use eno_schemas::*;

pub fn object(kind: Kind, name: &str, spec: Spec) -> Object {
    let is_namespaced =
        matches!(kind, Kind::L2ServiceAttachment | Kind::Bridge | Kind::PodNetworkConfig | Kind::PodConfig);
    let namespace = if is_namespaced { "ns" } else { "" };
    Object {
        key: Key { kind, namespace: namespace.into(), name: name.into() },
        uid: "".into(),
        generation: 1,
        created: 100,
        deleting: false,
        finalized: false,
        forget: false,
        generated: false,
        unknown_opts: None,
        spec: Ok(spec),
        status: None,
    }
}

pub fn device(name: &str, ports: &[(&str, LeadsTo)]) -> Object {
    let ports = ports
        .iter()
        .map(|(name, leads_to)| DevicePort {
            name: (*name).into(),
            mode: PortMode::Keep,
            lag: None,
            leads_to: leads_to.clone(),
        })
        .collect();
    let access = Device {
        address: "127.0.0.1:830".into(),
        dialect: None,
        credential: None,
        host_key: None,
        drift: Drift::Repair,
        audit_interval: None,
        adopt: VlanSet::EMPTY,
        neutron: None,
    };
    object(
        Kind::FabricDevice,
        name,
        Spec::Device(DeviceSpec { driver: "netconf".into(), device: access, ports }),
    )
}

pub fn connection_point(name: &str, pool: Option<&str>) -> Object {
    let offer = |plugin| SupportedCni { interfaces: vec![InterfaceType::Kernel], plugin, mtu: None };
    let spec = ConnectionPointSpec {
        cnis: vec![
            offer(Plugin::Ovs {
                bridge_name: format!("br-{name}"),
                socket_file: None,
                datapath: None,
                patch: None,
                pool_name: None,
            }),
            offer(Plugin::Macvlan { master: "eth1".into() }),
        ],
        node_pool: pool.map(Name::from),
        interfaces: vec!["eth1".into()],
        trunk_namespaces: None,
    };
    object(Kind::ConnectionPoint, name, Spec::ConnectionPoint(spec))
}

/// A running pod in the namespace `ns`.
pub fn pod(name: &str, node: &str, labels: &[(&str, &str)]) -> Pod {
    Pod {
        uid: format!("uid-{name}").into(),
        namespace: "ns".into(),
        name: name.into(),
        uses: Uses::default(),
        labels: labels.iter().map(|(label, value)| (Name::from(*label), Name::from(*value))).collect(),
        node: Some(node.into()),
        host_network: false,
        container: Some(format!("containerd://{name}").into()),
    }
}

/// A pod that uses NetworkAttachmentDefinitions of the namespace `ns`.
pub fn pod_using(name: &str, uses: &[&str]) -> Pod {
    Pod {
        uses: Uses::Named(uses.iter().map(|nad| ("ns".into(), Name::from(*nad))).collect()),
        node: None,
        container: None,
        ..pod(name, "", &[])
    }
}

pub fn service(name: &str, vid: u16, networks: &[&str]) -> Object {
    let spec = ServiceSpec {
        vid: VlanId::new(vid).unwrap(),
        subnets: Vec::new(),
        physical_networks: networks.iter().map(|name| Name::from(*name)).collect(),
        namespaces: None,
    };
    object(Kind::L2Service, name, Spec::Service(spec))
}

pub fn subnet(name: &str, network: &str) -> Object {
    let spec = SubnetSpec {
        ipam: Ipam::Whereabouts,
        network: network.parse().unwrap(),
        allocation_pool: Vec::new(),
        hot_plug_pool: Vec::new(),
        routes: Vec::new(),
        dns: Dns::default(),
    };
    object(Kind::Subnet, name, Spec::Subnet(spec))
}

/// The service with these Subnets.
pub fn with_subnets(service: &Object, subnets: &[&str]) -> Object {
    edit_spec(service, |spec| {
        let Spec::Service(spec) = spec else { unreachable!() };
        spec.subnets = subnets.iter().map(|name| Name::from(*name)).collect();
    })
}

pub fn attachment(name: &str, services: &[&str], point: &str) -> Object {
    let spec = AttachmentSpec {
        services: services.iter().map(|name| Name::from(*name)).collect(),
        connection_point: point.into(),
        interface: InterfaceType::Kernel,
        vlan_type: if services.len() == 1 { VlanType::Access } else { VlanType::SelectiveTrunk },
        implementation: None,
        mtu: None,
        usable_from: None,
        anti_spoof: false,
    };
    object(Kind::L2ServiceAttachment, name, Spec::Attachment(spec))
}

/// A copy of the object with a changed spec.
pub fn edit_spec(object: &Object, change: impl FnOnce(&mut Spec)) -> Object {
    let mut object = object.clone();
    let mut spec = object.spec.clone().unwrap();
    change(&mut spec);
    object.spec = Ok(spec);
    object
}

/// The object with another creationTimestamp, in Unix seconds.
pub fn created(mut object: Object, at: i64) -> Object {
    object.created = at;
    object
}

pub fn to_name(name: &str) -> Name {
    Arc::from(name)
}

/// A veth on a pod bridge.
pub fn veth(name: &str, bridge: &str, cidr: &str) -> PodLinkSpec {
    let master = Master::Bridge { bridge: bridge.into(), vlans: None };
    PodLinkSpec {
        cidrs: vec![cidr.parse().unwrap()],
        ..pod_link(name, LinkKind::Veth { master: Some(master) })
    }
}

pub fn pod_link(name: &str, kind: LinkKind) -> PodLinkSpec {
    PodLinkSpec {
        name: name.into(),
        kind,
        member_of: None,
        cidrs: Vec::new(),
        addresses: Vec::new(),
        mtu: None,
        mac: None,
        alias: None,
        routes: Vec::new(),
        rules: Vec::new(),
        sysctls: BTreeMap::new(),
        up: true,
    }
}

pub fn pod_config(name: &str, links: Vec<PodLinkSpec>) -> Object {
    let spec = PodLinksSpec { links, ..PodLinksSpec::default() };
    object(Kind::PodConfig, name, Spec::PodLinks(spec))
}

pub fn bridge(object_name: &str, name: &str, cidrs: &[&str]) -> Object {
    let cidrs = cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
    object(Kind::Bridge, object_name, Spec::Bridge(BridgeSpec { name: name.into(), cidrs, mtu: None }))
}

/// The [`PortBefore`] of each port that has one, as a driver reports it.
pub fn before_by_port(ports: &[FabricPort]) -> BTreeMap<String, PortBefore> {
    ports.iter().filter_map(|port| Some((port.name.clone(), port.before.clone()?))).collect()
}

/// The ports that a driver reports as closed: those that carry VLANs.
pub fn closed_ports(ports: &BTreeMap<String, VlanSet>) -> BTreeSet<String> {
    let carrying = ports.iter().filter(|(_, vlans)| !vlans.is_empty());
    carrying.map(|(name, _)| name.clone()).collect()
}

/// A command as NATS stores it.
pub fn stored_command(
    target: &Target,
    driver: &str,
    generation: Generation,
    desired: Desired,
    sequence: u64,
) -> StoredCommand {
    let name = target.to_string();
    let command = Command { driver: driver.into(), target: name, generation, desired, transaction: None };
    StoredCommand { target: target.clone(), driver: driver.into(), sequence, command: Some(command) }
}

/// The commands of a former engine.
pub fn stored_commands(commands: &BTreeMap<Target, Desired>) -> Event {
    let stored = commands.iter().map(|(target, desired)| {
        let generation = Generation { term: 0, sequence: 0, hash: desired.hash() };
        stored_command(target, "netconf", generation, desired.clone(), 1)
    });
    Event::StoredCommands(stored.collect())
}
