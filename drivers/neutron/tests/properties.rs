//! Properties of plans over random states.

use std::collections::BTreeSet;

use eno_driver_neutron::observe::observe;
use eno_driver_neutron::plan::{Refusals, plan};
use eno_driver_neutron::view::{SubPort, View};
use eno_schemas::{Applied, FabricDesired, FabricVlans, VlanSet};
use proptest::prelude::*;

use crate::world::{
    PHYSICAL, converge, desired, foreign, is_acceptable, mark, network, placed, port, sub_port, sub_port_of,
    tenant, trunks, vid,
};

const VLANS: std::ops::Range<u16> = 10..16;
const TRUNKS: [&str; 3] = ["t1", "t2", "t3"];

/// Things in Neutron, of ours or foreign, in any combination that Neutron allows.
fn views(provider: bool) -> impl Strategy<Value = View> {
    let networks = prop::collection::vec((VLANS, 0u8..4), 0..8);
    let ports = prop::collection::vec((0usize..8, VLANS, 0u8..4, 0usize..5, VLANS), 0..16);
    (networks, ports).prop_map(move |(networks, ports)| {
        let mut view = trunks(&TRUNKS);
        let (own, mut used) = (mark(), BTreeSet::new());
        let description = |kind: u8| if kind < 2 { own.description().to_owned() } else { String::new() };
        let name = |vlan: u16, kind: u8| match kind {
            0 | 1 => own.name(vid(vlan)),
            2 => "blue".to_owned(),
            _ => format!("eno-c2-{vlan}"),
        };
        for (index, (vlan, kind)) in networks.iter().enumerate() {
            if provider && !used.insert(*vlan) {
                continue;
            }
            let id = format!("n{index}");
            network(&mut view, &id, &name(*vlan, *kind), &description(*kind), provider.then_some(*vlan));
        }
        let ids: Vec<String> = view.networks.keys().cloned().collect();
        for (index, (of, vlan, kind, trunk, tag)) in ports.iter().enumerate() {
            let Some(network) = ids.get(of % ids.len().max(1)) else { continue };
            let id = format!("p{index}");
            port(&mut view, &id, &name(*vlan, *kind), &description(*kind), network);
            let Some(trunk) = TRUNKS.get(*trunk) else { continue };
            let taken = &view.trunks[&format!("id-{trunk}")].sub_ports;
            if !taken.iter().any(|sub| sub.segmentation_id == u32::from(*tag)) {
                sub_port(&mut view, trunk, &id, *tag);
            }
        }
        view
    })
}

fn desires(provider: bool) -> impl Strategy<Value = FabricDesired> {
    let set = || prop::collection::btree_set(VLANS, 0..5);
    ([set(), set(), set(), set()], set()).prop_map(move |(ports, adopt)| {
        let text =
            |vlans: &BTreeSet<u16>| vlans.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let texts: Vec<String> = ports.iter().map(text).collect();
        let mut listed: Vec<(&str, &str)> =
            TRUNKS.into_iter().zip(&texts).map(|(name, vlans)| (name, vlans.as_str())).collect();
        if provider {
            listed.push((PHYSICAL, &texts[3]));
        }
        let mut desired = if provider { desired(&listed) } else { tenant(&listed) };
        desired.device.adopt = adopt.into_iter().map(vid).collect();
        desired
    })
}

fn cases() -> impl Strategy<Value = (View, FabricDesired)> {
    any::<bool>().prop_flat_map(|provider| (views(provider), desires(provider)))
}

/// The VLANs of a trunk that are rejected.
fn rejected(items: &[eno_schemas::Rejection], port: &str) -> VlanSet {
    let covers = |vlan: &u16| items.iter().any(|rejection| rejection.item.covers(vid(*vlan), port));
    VLANS.filter(covers).map(vid).collect()
}

/// The VLANs with a network of ours.
fn own_vlans(view: &View) -> VlanSet {
    view.networks.values().filter_map(|network| mark().vid_of(&network.name, &network.description)).collect()
}

proptest! {
    #[test]
    fn plans_converge_and_keep_what_is_foreign((before, desired) in cases()) {
        let mut view = before.clone();
        let (last, _) = converge(&mut view, &desired);
        let adopted = |id: &String| !foreign(&view).networks.contains_key(id) && foreign(&before).networks.contains_key(id);
        for (id, network) in &foreign(&before).networks {
            let vlan = network.segmentation_id.and_then(|tag| u16::try_from(tag).ok()).map(vid);
            let may_be_adopted = vlan.is_some_and(|vlan| desired.device.adopt.contains(vlan));
            prop_assert!(!adopted(id) || may_be_adopted, "{id} was changed");
            if !adopted(id) {
                prop_assert_eq!(view.networks.get(id), Some(network));
            }
        }
        for (id, port) in &foreign(&before).ports {
            if view.ports.get(id) == Some(port) {
                continue;
            }
            let tag = sub_port_of(&before, id).and_then(SubPort::vid);
            prop_assert!(tag.is_some_and(|tag| desired.device.adopt.contains(tag)), "port {id} was changed");
        }
        let placed = placed(&view);
        for port in desired.ports.iter().filter(|port| port.name != PHYSICAL) {
            let refused = rejected(&last.rejected, &port.name);
            prop_assert_eq!(
                placed[&port.name].difference(&refused), port.vlans.difference(&refused), "on {}", &port.name
            );
        }
        // The report says the same.
        let Applied::Fabric { ports, vlans, .. } = observe(&view, &desired, &mark(), &last) else { panic!() };
        for port in &desired.ports {
            let refused = rejected(&last.rejected, &port.name);
            let there = ports.get(&port.name).cloned().unwrap_or_default();
            prop_assert_eq!(there.difference(&refused), port.vlans.difference(&refused), "report on {}", &port.name);
            prop_assert!(port.vlans.difference(&refused).is_subset(&vlans));
        }
    }

    /// A process may die after any request, and another continues.
    #[test]
    fn interrupted_plans_end_in_the_same_state((before, desired) in cases(), steps in prop::collection::vec(0usize..4, 1..12)) {
        let mut view = before.clone();
        for step in steps {
            // Requests of one plan may be carried out in any order, and only some of them.
            let mut requests = plan(&view, &desired, &mark(), &Refusals::default()).requests;
            if requests.is_empty() {
                break;
            }
            let at = step % requests.len();
            requests.rotate_left(at);
            for request in requests.into_iter().take(step + 1) {
                if is_acceptable(&view, &request) {
                    request.predict(&mut view).unwrap();
                }
            }
        }
        converge(&mut view, &desired);
        let mut straight = before;
        converge(&mut straight, &desired);
        prop_assert_eq!(placed(&view), placed(&straight));
        // Of several networks of a VLAN, those with foreign ports stay besides the chosen one.
        prop_assert_eq!(own_vlans(&view), own_vlans(&straight));
        prop_assert_eq!(view.ports.len(), straight.ports.len());
    }

    #[test]
    fn removal_leaves_nothing_of_ours((before, desired) in cases()) {
        let mut view = before;
        converge(&mut view, &desired);
        let mut none = desired;
        none.vlans = FabricVlans::new();
        none.ports.iter_mut().for_each(|port| port.vlans = VlanSet::EMPTY);
        let (last, _) = converge(&mut view, &none);
        let Applied::Fabric { vlans, ports, .. } = observe(&view, &none, &mark(), &last) else { panic!() };
        // Networks with ports of others stay, and are reported.
        let in_use: VlanSet = last.rejected.iter().filter_map(|rejection| rejection.item.vlan).collect();
        prop_assert_eq!(&vlans, &in_use);
        prop_assert!(ports.keys().all(|port| port == PHYSICAL));
        let mut left = view.clone();
        left.networks.retain(|_, network| mark().vid_of(&network.name, &network.description).is_none());
        prop_assert_eq!(&foreign(&view), &left);
    }

    /// What Neutron refuses once is not requested again, and stands in the report.
    #[test]
    fn refusals_are_reported_and_end((before, desired) in cases(), refuse in prop::collection::vec(any::<bool>(), 64)) {
        let mut view = before;
        let (mut refusals, mut refuse) = (Refusals::default(), refuse.into_iter().cycle());
        let (mut refused, mut last) = (BTreeSet::new(), Vec::new());
        for _ in 0..300 {
            let planned = plan(&view, &desired, &mark(), &refusals);
            let Some(mut request) = planned.requests.into_iter().next() else {
                last = planned.rejected;
                refused.insert("end".to_owned());
                break;
            };
            if refuse.next().unwrap() || !is_acceptable(&view, &request) {
                while let Some([first, _]) = request.split() {
                    request = first;
                }
                let once = format!("{request:?}");
                prop_assert!(refused.insert(once.clone()), "requested again: {once}");
                refusals.record(&request, "refused");
            } else {
                request.predict(&mut view).unwrap();
            }
        }
        prop_assert!(refused.remove("end"), "the plans never end");
        // What is desired is there, or its rejection says why not.
        let placed = placed(&view);
        for port in desired.ports.iter().filter(|port| port.name != PHYSICAL) {
            let missing = port.vlans.difference(&placed[&port.name]);
            prop_assert!(missing.is_subset(&rejected(&last, &port.name)), "{missing:?} on {} in {last:?}", port.name);
        }
    }
}
