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

fn done(desired: &NodeDesired, state: &State) -> (Vec<String>, BTreeMap<Spot, Refusal>) {
    let plan = plan(desired, state, &BTreeMap::new());
    (plan.steps.iter().map(|step| step.request.operation().to_owned()).collect(), plan.refused)
}

fn bridge(nics: &[&str], vlans: &str, mtu: Option<u32>) -> HostNetwork {
    let uplink = Uplink { interfaces: nics.iter().map(|nic| (*nic).to_owned()).collect(), mtu };
    HostNetwork::Bridge { uplink: Some(uplink), vlans: vlans.parse().unwrap(), mtu: None }
}

fn ours(network: &str, link: Link) -> Link {
    Link {
        group: mark::group("lab1"),
        alias: Some(mark::alias("lab1", network)),
        address_generation: Some(NO_ADDRESSES),
        ..link
    }
}

fn used(was: Was, link: Link) -> Link {
    Link { altnames: vec![was.written("lab1", link.index)], ..link }
}

const FILTERING: Kind = Kind::Bridge { vlan_filtering: true, default_pvid: 0 };
const WAS: Was = Was { mtu: 1500, up: true, address_generation: Some(0) };

#[test]
fn what_is_as_wanted_needs_nothing() {
    let wanted = desired([("br0", bridge(&["eth1"], "10-12", Some(9000)))]);
    let nic = Link { master: Some(2), mtu: 9000, ..link(1, "eth1", Kind::Device) };
    let mut there = state(vec![used(WAS, nic), ours("br0", link(2, "br0", FILTERING))]);
    let port = |vid| PortVlan { vid, pvid: false, untagged: false };
    there.vlans.insert(1, vec![port(10), port(11), port(12)]);
    assert_eq!(done(&wanted, &there), (vec![], BTreeMap::new()));
    // Each VLAN that is one too many goes, and one that is not as wanted comes anew.
    there
        .vlans
        .insert(1, vec![port(10), PortVlan { vid: 11, pvid: true, untagged: true }, port(12), port(13)]);
    let steps = done(&wanted, &there).0;
    assert_eq!(steps, ["take VLANs from bridge port eth1", "add VLANs to bridge port eth1"]);
}

#[test]
fn a_nic_never_gets_less_than_it_had() {
    let was = Was { mtu: 4000, ..WAS };
    let lowered = desired([("br0", bridge(&["eth1"], "", Some(1400)))]);
    let nic = Link { master: Some(2), mtu: 9000, ..link(1, "eth1", Kind::Device) };
    let there = state(vec![used(was, nic.clone()), ours("br0", link(2, "br0", FILTERING))]);
    let plan = plan(&lowered, &there, &BTreeMap::new());
    let [step] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    let wanted = Request::set("eth1", 1, "MTU", vec![LinkAttribute::Mtu(4000)]);
    assert_eq!(step.request, wanted);
    let (steps, refused) = done(&desired([("br0", bridge(&["eth1"], "", Some(9001)))]), &there);
    assert!(steps.is_empty(), "{steps:?}");
    assert!(matches!(refused[&Spot::Network("br0".into())], Refusal::Mtu { asked: 9001, most: 9000, .. }));
}

#[test]
fn a_long_name_is_refused_before_anything_is_done() {
    let master = HostNetwork::Master { bond: vec![], vlans: "7,4000".parse().unwrap(), mtu: None };
    let nic = used(WAS, link(1, "enp130s0f1x", Kind::Device));
    let (steps, refused) = done(&desired([("enp130s0f1x", master)]), &state(vec![nic]));
    assert_eq!(steps, ["make interface enp130s0f1x.7"]);
    let vlan = VlanId::new(4000).unwrap();
    assert!(matches!(refused[&Spot::Vlan("enp130s0f1x".into(), vlan)], Refusal::SubinterfaceName { .. }));
}

#[test]
fn what_is_refused_keeps_what_it_has() {
    // Its uplink has gone, and the bridge stays with what is on it.
    let there = state(vec![ours("br0", link(2, "br0", FILTERING))]);
    let wanted = desired([("br0", bridge(&["eth1"], "10", None))]);
    let (steps, refused) = done(&wanted, &there);
    assert!(steps.is_empty(), "{steps:?}");
    assert!(matches!(refused[&Spot::Network("br0".into())], Refusal::Missing { .. }));
    // Nobody wants it any more.
    assert_eq!(done(&desired([]), &there).0, ["delete interface br0"]);
    // It is of another cluster.
    let other = NodeDesired { cluster: "lab2".into(), ..NodeDesired::default() };
    assert!(done(&other, &there).0.is_empty());
}

#[test]
fn a_nic_is_given_back_as_it_was_and_then_forgotten() {
    let was = Was { mtu: 1500, up: false, address_generation: Some(0) };
    let nic = Link { mtu: 9000, address_generation: Some(1), ..link(1, "eth1", Kind::Device) };
    let used_now = state(vec![used(was, nic)]);
    let steps = done(&desired([]), &used_now).0;
    assert_eq!(steps, ["set the MTU of eth1", "set eth1 down", "set the IPv6 mode of eth1"]);
    let back = Link { up: false, ..link(1, "eth1", Kind::Device) };
    let steps = done(&desired([]), &state(vec![used(was, back)])).0;
    assert_eq!(steps, ["take the alternative name eno-lab1-was-1500-down-0-1 from eth1"]);
    // Someone else has it now.
    let theirs = Link { master: Some(5), mtu: 9000, ..link(1, "eth1", Kind::Device) };
    let theirs = state(vec![used(was, theirs), link(5, "br5", FILTERING)]);
    let steps = done(&desired([]), &theirs).0;
    assert_eq!(steps, ["take the alternative name eno-lab1-was-1500-down-0-1 from eth1"]);
}
