use super::super::guard::tests::link;
use super::*;
use crate::netlink::Snapshot;

fn desired(networks: impl IntoIterator<Item = (&'static str, HostNetwork)>) -> NodeDesired {
    let networks = networks.into_iter().map(|(name, network)| (name.to_owned(), network)).collect();
    NodeDesired { cluster: "lab1".into(), networks, ..NodeDesired::default() }
}

fn state(links: Vec<Link>) -> State {
    State { snapshot: Snapshot { links, ..Snapshot::default() }, ..State::default() }
}

fn planned(desired: &NodeDesired, state: &State) -> (Vec<String>, BTreeMap<ItemRef, Refusal>) {
    let plan = plan(desired, state, &BTreeMap::new());
    (plan.steps.iter().map(|step| step.change.operation()).collect(), plan.refused)
}

fn bridge(nics: &[&str], vlans: &str, mtu: Option<u32>) -> HostNetwork {
    let uplink = Uplink { interfaces: nics.iter().map(|nic| (*nic).to_owned()).collect(), mtu };
    HostNetwork::Bridge { uplink: Some(uplink), vlans: vlans.parse().unwrap(), mtu: None }
}

fn ours(network: &str, link: Link) -> Link {
    Link {
        group: ownership::group("lab1"),
        alias: Some(ownership::alias("lab1", network)),
        address_generation: Some(ADDR_GEN_NONE),
        ..link
    }
}

fn used(original: OriginalSettings, link: Link) -> Link {
    Link { altnames: vec![original.altname("lab1", link.index)], ..link }
}

const FILTERING: Kind = Kind::Bridge { vlan_filtering: true, default_pvid: 0 };
const ORIGINAL: OriginalSettings = OriginalSettings { mtu: 1500, up: true, address_generation: Some(0) };

#[test]
fn plan_is_empty_when_state_is_as_desired() {
    let wanted = desired([("br0", bridge(&["eth1"], "10-12", Some(9000)))]);
    let nic = Link { master: Some(2), mtu: 9000, ..link(1, "eth1", Kind::Device) };
    let mut observed = state(vec![used(ORIGINAL, nic), ours("br0", link(2, "br0", FILTERING))]);
    let port = |vid| PortVlan { vid, pvid: false, untagged: false };
    observed.vlans.insert(1, vec![port(10), port(11), port(12)]);
    assert_eq!(planned(&wanted, &observed), (vec![], BTreeMap::new()));
    // Extra VLANs are deleted, and VLANs with wrong flags are deleted and added again.
    observed
        .vlans
        .insert(1, vec![port(10), PortVlan { vid: 11, pvid: true, untagged: true }, port(12), port(13)]);
    let steps = planned(&wanted, &observed).0;
    assert_eq!(steps, ["take VLANs from bridge port eth1", "add VLANs to bridge port eth1"]);
}

#[test]
fn nic_mtu_never_drops_below_the_original() {
    let original = OriginalSettings { mtu: 4000, ..ORIGINAL };
    let lowered = desired([("br0", bridge(&["eth1"], "", Some(1400)))]);
    let nic = Link { master: Some(2), mtu: 9000, ..link(1, "eth1", Kind::Device) };
    let observed = state(vec![used(original, nic.clone()), ours("br0", link(2, "br0", FILTERING))]);
    let plan = plan(&lowered, &observed, &BTreeMap::new());
    let [step] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    let wanted = Request::set("eth1", 1, "MTU", vec![LinkAttribute::Mtu(4000)]);
    assert_eq!(step.change, wanted.into());
    let (steps, refused) = planned(&desired([("br0", bridge(&["eth1"], "", Some(9001)))]), &observed);
    assert!(steps.is_empty(), "{steps:?}");
    assert!(matches!(
        refused[&ItemRef::Network("br0".into())],
        Refusal::Mtu { requested: 9001, maximum: 9000, .. }
    ));
}

#[test]
fn too_long_subinterface_name_is_refused() {
    let master = HostNetwork::Master { bond: vec![], vlans: "7,4000".parse().unwrap(), mtu: None };
    let nic = used(ORIGINAL, link(1, "enp130s0f1x", Kind::Device));
    let (steps, refused) = planned(&desired([("enp130s0f1x", master)]), &state(vec![nic]));
    assert_eq!(steps, ["make interface enp130s0f1x.7"]);
    let vlan = VlanId::new(4000).unwrap();
    assert!(matches!(refused[&ItemRef::Vlan("enp130s0f1x".into(), vlan)], Refusal::SubinterfaceName { .. }));
}

#[test]
fn refused_network_keeps_its_interfaces() {
    // The uplink is missing, and the bridge stays with its ports.
    let observed = state(vec![ours("br0", link(2, "br0", FILTERING))]);
    let wanted = desired([("br0", bridge(&["eth1"], "10", None))]);
    let (steps, refused) = planned(&wanted, &observed);
    assert!(steps.is_empty(), "{steps:?}");
    assert!(matches!(refused[&ItemRef::Network("br0".into())], Refusal::Missing { .. }));
    // The network is not desired any more.
    assert_eq!(planned(&desired([]), &observed).0, ["delete interface br0"]);
    // The interface belongs to another cluster.
    let other = NodeDesired { cluster: "lab2".into(), ..NodeDesired::default() };
    assert!(planned(&other, &observed).0.is_empty());
}

#[test]
fn unused_nic_is_restored_then_unmarked() {
    let original = OriginalSettings { mtu: 1500, up: false, address_generation: Some(0) };
    let nic = Link { mtu: 9000, address_generation: Some(1), ..link(1, "eth1", Kind::Device) };
    let in_use = state(vec![used(original, nic)]);
    let steps = planned(&desired([]), &in_use).0;
    assert_eq!(steps, ["set the MTU of eth1", "set eth1 down", "set the IPv6 mode of eth1"]);
    let back = Link { up: false, ..link(1, "eth1", Kind::Device) };
    let steps = planned(&desired([]), &state(vec![used(original, back)])).0;
    assert_eq!(steps, ["take the alternative name eno-lab1-was-1500-down-0-1 from eth1"]);
    // Another process has made it a member of a foreign bridge.
    let theirs = Link { master: Some(5), mtu: 9000, ..link(1, "eth1", Kind::Device) };
    let theirs = state(vec![used(original, theirs), link(5, "br5", FILTERING)]);
    let steps = planned(&desired([]), &theirs).0;
    assert_eq!(steps, ["take the alternative name eno-lab1-was-1500-down-0-1 from eth1"]);
}
