//! Who has which address and which VLAN ID, computed of the objects of a cluster and the annotations of its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_nbi_crds::{
    IpPool, L2BridgeDomain, L2Service, L2ServiceAttachment, Lease, PhysicalNetwork, Subnet, SubnetSpec,
};
use eno_schemas::{VlanId, VlanSet};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::path::Reports;
use super::shares::{FixedAddress, NodeShare, fixed, shares};

/// The annotation in which Multus writes the addresses of a pod (Network Plumbing Working Group, multi-net-spec 4.1.2).
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// The pools, leases and VLAN IDs of a cluster.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Addresses {
    /// Every Subnet, by name.
    pub subnets: Vec<SubnetUse>,
    /// Every PhysicalNetwork, by name.
    pub vlans: Vec<VlanUse>,
    /// Every VLAN ID that an object names, with these objects.
    pub vlan_holders: BTreeMap<VlanId, Vec<String>>,
    /// Every known address of a pod, in ascending order.
    pub leases: Vec<Held>,
    /// Resources that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A Subnet and its pools.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubnetUse {
    /// The name of the Subnet.
    pub subnet: String,
    /// Its network; absent: it is invalid.
    pub network: Option<IpNet>,
    /// The IPAM plugin.
    pub ipam: String,
    /// The L2Services that name it.
    pub services: Vec<String>,
    /// Its ranges of addresses.
    pub pools: Vec<Pool>,
    /// With Ipam eno: what each node holds of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeShare>,
    /// With Ipam eno: the addresses that are for one pod each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<FixedAddress>,
}

/// A range of addresses.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pool {
    /// Who hands them out. An IPAM plugin leaves out the engine's pools and the next hops of Routes.
    pub by: PoolOwner,
    /// The first address.
    pub start: IpAddr,
    /// The last address.
    pub end: IpAddr,
    /// How many there are; absent if they are more than 64 bits can count.
    pub size: Option<u64>,
    /// How many of them pods are known to have. Those in a pool of the engine count there only.
    pub held: usize,
}

/// Who hands out the addresses of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PoolOwner {
    /// The IPAM plugin: AllocationPool, or the whole network where it is absent.
    Ipam,
    /// The engine: HotPlugPool.
    Engine,
}

/// The VLAN IDs of a PhysicalNetwork.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VlanUse {
    /// The name of the PhysicalNetwork.
    pub physical_network: String,
    /// Its SegmentationIDs.
    pub ids: VlanSet,
    /// Those that an object names, whether it leads to this network or not.
    pub used: VlanSet,
    /// Those that no object names.
    pub free: VlanSet,
}

/// An address that a pod has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Held {
    /// The address.
    pub address: IpAddr,
    /// The pod, as `Pod/NAMESPACE/NAME`.
    pub pod: String,
    /// The link as the object names it, or the interface in the pod.
    pub interface: String,
    /// The object that gave it, as `KIND/NAMESPACE/NAME`.
    pub given_by: String,
    /// The Subnet that it is of; absent: of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
}

/// An entry of the annotation [`NETWORK_STATUS`].
#[derive(Debug, Deserialize)]
pub(crate) struct NetworkStatus {
    /// The NetworkAttachmentDefinition, as `<namespace>/<name>`.
    pub name: String,
    /// The name of the interface in the pod.
    #[serde(default)]
    pub interface: String,
    /// Its addresses.
    #[serde(default)]
    pub ips: Vec<String>,
}

/// The addresses and VLAN IDs of a cluster. Pure. Objects that can't be parsed are left out. `reports`: those of agents,
/// as far as they are known.
pub(crate) fn addresses(
    world: &ClusterState,
    pods: &[PartialObjectMeta<Pod>],
    reports: &Reports,
) -> Addresses {
    let services: Vec<L2Service> = all(world, Kind::L2Service);
    let subnets: Vec<Subnet> = all(world, Kind::Subnet);
    let attachments: Vec<L2ServiceAttachment> = all(world, Kind::L2ServiceAttachment);
    let by_name: BTreeMap<String, &Subnet> =
        subnets.iter().map(|subnet| (subnet.name_any(), subnet)).collect();
    let of_services: BTreeMap<String, &L2Service> =
        services.iter().map(|service| (service.name_any(), service)).collect();
    let subnets_of: BTreeMap<String, Vec<&Subnet>> = attachments
        .iter()
        .map(|attachment| (key_text(attachment), subnets_of(attachment, &of_services, &by_name)))
        .collect();
    let held = |address: IpAddr, pod: String, interface: &str, given_by: String| {
        let own = subnets_of.get(&given_by).into_iter().flatten();
        let contains = |subnet: &&&Subnet| network(&subnet.spec).is_some_and(|net| net.contains(&address));
        let subnet = own.copied().find(|subnet| contains(&subnet)).map(ResourceExt::name_any);
        Held { subnet, address, pod, interface: interface.to_owned(), given_by }
    };
    let mut leases: BTreeSet<Held> = BTreeSet::new();
    for (key, lease) in leases_of_engine(world) {
        // That of another namespace is named with it.
        let own = key.namespace().unwrap_or_default();
        let (namespace, name) = lease.pod.split_once('/').unwrap_or((own, &lease.pod));
        let pod = format!("Pod/{namespace}/{name}");
        let found = lease.addresses.iter().filter_map(|text| text.parse::<IpNet>().ok());
        leases.extend(found.map(|net| held(net.addr(), pod.clone(), &lease.link, key.to_string())));
    }
    for pod in pods {
        let name = format!("Pod/{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        for status in network_statuses(&pod.metadata) {
            let given_by = format!("L2ServiceAttachment/{}", status.name);
            if subnets_of.contains_key(&given_by) {
                let found = status.ips.iter().filter_map(|text| text.parse().ok());
                leases.extend(
                    found.map(|address| held(address, name.clone(), &status.interface, given_by.clone())),
                );
            }
        }
    }
    let leases: Vec<Held> = leases.into_iter().collect();
    let vlan_holders = vlan_holders(&services, &all(world, Kind::L2BridgeDomain));
    Addresses {
        subnets: subnet_uses(world, &subnets, &services, &leases, reports),
        vlans: all(world, Kind::PhysicalNetwork)
            .iter()
            .map(|network| vlan_use(network, &vlan_holders))
            .collect(),
        vlan_holders,
        leases,
        left_out: Vec::new(),
    }
}

/// The Subnets of an attachment's L2Services.
fn subnets_of<'a>(
    attachment: &L2ServiceAttachment,
    services: &BTreeMap<String, &L2Service>,
    subnets: &BTreeMap<String, &'a Subnet>,
) -> Vec<&'a Subnet> {
    let services = attachment.spec.l2_services.iter().filter_map(|name| services.get(name));
    let named: BTreeSet<&String> = services.flat_map(|service| &service.spec.subnets).collect();
    named.into_iter().filter_map(|name| subnets.get(name).copied()).collect()
}

/// The objects of a kind.
fn all<K: Resource + serde::de::DeserializeOwned>(world: &ClusterState, kind: Kind) -> Vec<K> {
    let objects = world.keys().filter(|key| key.kind == kind).filter_map(|key| world.object(key));
    objects.filter_map(|object| object.clone().try_parse().ok()).collect()
}

/// An attachment as the owner of leases names it.
fn key_text(attachment: &L2ServiceAttachment) -> String {
    let namespace = attachment.namespace().unwrap_or_default();
    format!("L2ServiceAttachment/{namespace}/{}", attachment.name_any())
}

/// The leases in statuses.
fn leases_of_engine(world: &ClusterState) -> impl Iterator<Item = (&Key, Lease)> {
    world.keys().flat_map(|key| {
        let value = world.object(key).and_then(|object| object.data.pointer("/status/addresses"));
        // Of a PodNetwork it is a text.
        let leases = value.and_then(|value| Vec::<Lease>::deserialize(value).ok());
        leases.into_iter().flatten().map(move |lease| (key, lease))
    })
}

/// What Multus wrote on a pod.
pub(crate) fn network_statuses(pod: &ObjectMeta) -> Vec<NetworkStatus> {
    let text = pod.annotations.as_ref().and_then(|all| all.get(NETWORK_STATUS));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The network of a Subnet.
fn network(spec: &SubnetSpec) -> Option<IpNet> {
    IpNet::new(spec.address.parse().ok()?, spec.mask).ok().map(|network| network.trunc())
}

fn subnet_uses(
    world: &ClusterState,
    subnets: &[Subnet],
    services: &[L2Service],
    leases: &[Held],
    reports: &Reports,
) -> Vec<SubnetUse> {
    let mut users: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for service in services {
        for subnet in &service.spec.subnets {
            users.entry(subnet).or_default().push(service.name_any());
        }
    }
    // With host-local, pods on different nodes may have the same address.
    let mut held: BTreeMap<&String, BTreeSet<IpAddr>> = BTreeMap::new();
    for lease in leases {
        if let Some(subnet) = &lease.subnet {
            held.entry(subnet).or_default().insert(lease.address);
        }
    }
    let mut uses = Vec::new();
    for subnet in subnets {
        let name = subnet.name_any();
        let services = users.remove(&name).unwrap_or_default();
        let none = BTreeSet::new();
        let held = held.get(&name).unwrap_or(&none);
        let nodes = shares(world, &name, held, reports);
        uses.push(SubnetUse { nodes, fixed: fixed(world, &name), ..subnet_use(subnet, services, held) });
    }
    uses
}

/// A Subnet, the services that name it, and the addresses of it that pods have.
fn subnet_use(subnet: &Subnet, services: Vec<String>, own: &BTreeSet<IpAddr>) -> SubnetUse {
    let network = network(&subnet.spec);
    let SubnetSpec { allocation_pool, hot_plug_pool, .. } = &subnet.spec;
    let parse = |range: &IpPool| Some((range.start.parse().ok()?, range.end.parse().ok()?));
    let of_engine: Vec<(IpAddr, IpAddr)> = hot_plug_pool.iter().filter_map(parse).collect();
    let is_engines = |address: &IpAddr| of_engine.iter().any(|(start, end)| (start..=end).contains(&address));
    let mut of_ipam: Vec<(IpAddr, IpAddr)> = allocation_pool.iter().filter_map(parse).collect();
    if allocation_pool.is_empty() {
        of_ipam.extend(network.map(hosts));
    }
    let ipam = of_ipam.into_iter().map(|(start, end)| {
        let is_held = |address: &&IpAddr| (start..=end).contains(*address) && !is_engines(address);
        Pool {
            by: PoolOwner::Ipam,
            start,
            end,
            size: size(start, end),
            held: own.iter().filter(is_held).count(),
        }
    });
    let engine = of_engine.iter().map(|&(start, end)| {
        let held = own.iter().filter(|address| (start..=end).contains(*address)).count();
        Pool { by: PoolOwner::Engine, start, end, size: size(start, end), held }
    });
    SubnetUse {
        network,
        ipam: subnet.spec.ipam.to_string(),
        services,
        pools: ipam.chain(engine).collect(),
        subnet: subnet.name_any(),
        nodes: Vec::new(),
        fixed: Vec::new(),
    }
}

/// The first and the last address of a network that a host can have.
fn hosts(network: IpNet) -> (IpAddr, IpAddr) {
    match network {
        IpNet::V4(network) if network.prefix_len() < 31 => {
            let bits = |address: Ipv4Addr| address.to_bits();
            let (first, last) = (bits(network.network()) + 1, bits(network.broadcast()) - 1);
            (Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(last).into())
        }
        // The first address is the anycast address of the routers (RFC 4291, 2.6.1).
        IpNet::V6(network) if network.prefix_len() < 127 => {
            (Ipv6Addr::from_bits(network.network().to_bits() + 1).into(), network.broadcast().into())
        }
        network => (network.network(), network.broadcast()),
    }
}

/// How many addresses a range has.
fn size(start: IpAddr, end: IpAddr) -> Option<u64> {
    let number = |address| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    u64::try_from(number(end).checked_sub(number(start))?).ok()?.checked_add(1)
}

/// The objects that name each VLAN ID.
fn vlan_holders(services: &[L2Service], domains: &[L2BridgeDomain]) -> BTreeMap<VlanId, Vec<String>> {
    let services =
        services.iter().map(|one| (one.spec.segmentation_id, format!("L2Service/{}", one.name_any())));
    let domains = domains.iter().map(|one| (one.spec.vlan, format!("L2BridgeDomain/{}", one.name_any())));
    let mut holders: BTreeMap<VlanId, Vec<String>> = BTreeMap::new();
    for (id, holder) in services.chain(domains) {
        if let Ok(id) = VlanId::new(id) {
            holders.entry(id).or_default().push(holder);
        }
    }
    holders
}

fn vlan_use(network: &PhysicalNetwork, holders: &BTreeMap<VlanId, Vec<String>>) -> VlanUse {
    let ids: VlanSet = network.spec.segmentation_ids.join(",").parse().unwrap_or(VlanSet::EMPTY);
    let used = ids.intersection(&holders.keys().copied().collect());
    VlanUse { physical_network: network.name_any(), free: ids.difference(&used), used, ids }
}

impl Addresses {
    /// What is known of an address, in sentences: who has it, and of which Subnets it is.
    pub(crate) fn about(&self, address: IpAddr) -> Vec<String> {
        let holders = self.leases.iter().filter(|lease| lease.address == address);
        let mut lines: Vec<String> = holders
            .map(|lease| {
                let Held { pod, interface, given_by, subnet, .. } = lease;
                let subnet = subnet.as_ref().map_or_else(String::new, |name| format!(", of Subnet/{name}"));
                format!("{address} is of {pod}, interface {interface}, by {given_by}{subnet}")
            })
            .collect();
        if lines.is_empty() {
            lines.push(format!("No pod is known to have {address}."));
        }
        for subnet in &self.subnets {
            if !subnet.network.is_some_and(|network| network.contains(&address)) {
                continue;
            }
            // The engine's pools are the last ones. They may lie in that of the IPAM plugin, which leaves them out.
            let pool = subnet.pools.iter().rfind(|pool| (pool.start..=pool.end).contains(&address));
            let handed_out = match pool.map(|pool| pool.by) {
                Some(PoolOwner::Engine) => "the engine hands it out (HotPlugPool)".to_owned(),
                Some(PoolOwner::Ipam) => format!("{} hands it out", subnet.ipam),
                None => "it is in none of its pools".to_owned(),
            };
            lines.push(format!("It is in Subnet/{}: {handed_out}.", subnet.subnet));
            let holders =
                subnet.nodes.iter().filter(|share| share.blocks.iter().any(|block| block.contains(&address)));
            let node =
                |share: &NodeShare| Some(format!("Node {} may give it to its pods.", share.node.as_ref()?));
            lines.extend(holders.filter_map(node));
            let fixed = subnet.fixed.iter().filter(|fixed| fixed.address == address);
            lines.extend(fixed.filter_map(|fixed| Some(format!("It is for {} alone.", fixed.pod.as_ref()?))));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use eno_nbi_crds::manifest;
    use serde_json::json;

    use super::*;

    fn subnet(spec: &serde_json::Value) -> Subnet {
        serde_json::from_value(manifest("Subnet", "s", spec)).expect("a Subnet")
    }

    #[test]
    fn pools_count_their_addresses_and_leases() {
        let subnet = subnet(&json!({
            "Ipam": "whereabouts", "Address": "10.0.0.0", "Mask": 24, "Type": "v4",
            "HotPlugPool": [{ "Start": "10.0.0.200", "End": "10.0.0.209" }],
        }));
        let lease = |address: &str| Held {
            address: address.parse().expect("an address"),
            pod: "Pod/ns/p".into(),
            interface: "net1".into(),
            given_by: "L2ServiceAttachment/ns/a".into(),
            subnet: Some("s".into()),
        };
        let leases = [lease("10.0.0.7"), lease("10.0.0.200")];
        let of_subnet = |leases: &[Held]| {
            let (world, reports) = (ClusterState::default(), Reports::unknown());
            subnet_uses(&world, std::slice::from_ref(&subnet), &[], leases, &reports)
        };
        let SubnetUse { pools, .. } = of_subnet(&leases).remove(0);
        let counts: Vec<_> = pools
            .iter()
            .map(|pool| (pool.start.to_string(), pool.end.to_string(), pool.size, pool.held))
            .collect();
        let expected = [
            ("10.0.0.1".to_owned(), "10.0.0.254".to_owned(), Some(254), 1),
            ("10.0.0.200".to_owned(), "10.0.0.209".to_owned(), Some(10), 1),
        ];
        assert_eq!(counts, expected);
        let known = Addresses { subnets: of_subnet(&leases), leases: leases.into(), ..Addresses::default() };
        let about = known.about("10.0.0.7".parse().expect("an address"));
        assert_eq!(
            about,
            [
                "10.0.0.7 is of Pod/ns/p, interface net1, by L2ServiceAttachment/ns/a, of Subnet/s",
                "It is in Subnet/s: whereabouts hands it out."
            ]
        );
        let of_engine = known.about("10.0.0.205".parse().expect("an address"));
        assert_eq!(of_engine[1], "It is in Subnet/s: the engine hands it out (HotPlugPool).");
        assert_eq!(known.about("192.0.2.1".parse().expect("an address")).len(), 1, "it is in no Subnet");
    }

    #[test]
    fn hosts_leave_out_the_addresses_of_networks() {
        for (network, first, last) in [
            ("10.0.0.0/30", "10.0.0.1", "10.0.0.2"),
            ("10.0.0.0/31", "10.0.0.0", "10.0.0.1"),
            ("2001:db8::/126", "2001:db8::1", "2001:db8::3"),
            ("2001:db8::/127", "2001:db8::", "2001:db8::1"),
        ] {
            let (start, end) = hosts(network.parse().expect("a network"));
            assert_eq!((start.to_string().as_str(), end.to_string().as_str()), (first, last));
        }
    }

    #[test]
    fn size_of_a_range_fits_64_bits_or_is_absent() {
        let size = |start: &str, end: &str| {
            size(start.parse().expect("an address"), end.parse().expect("an address"))
        };
        assert_eq!(size("10.0.0.1", "10.0.0.1"), Some(1));
        assert_eq!(size("10.0.0.2", "10.0.0.1"), None, "it ends before it starts");
        assert_eq!(size("2001:db8::", "2001:db8::ff"), Some(256));
        assert_eq!(size("::", "ffff::"), None);
    }

    #[test]
    fn vlan_ids_that_an_object_names_are_not_free() {
        let network = manifest("PhysicalNetwork", "dc", json!({ "SegmentationIDs": ["100-103", "200"] }));
        let network: PhysicalNetwork = serde_json::from_value(network).expect("a PhysicalNetwork");
        let id = |id| VlanId::new(id).expect("a VLAN ID");
        let holders = [(id(101), vec!["L2Service/a".to_owned()]), (id(300), Vec::new())].into();
        let VlanUse { used, free, .. } = vlan_use(&network, &holders);
        assert_eq!((used.to_string(), free.to_string()), ("101".to_owned(), "100,102-103,200".to_owned()));
    }
}
