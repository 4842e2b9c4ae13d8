//! Properties over random histories of VRFs and VRFAttachments: no two services have one network in a VRF, a new engine
//! finds nothing to do, and deleted objects leave nothing.

use std::collections::BTreeMap;

use eno_core::kinds::{LeadsTo, Spec};
use eno_core::{Key, Kind, Object};
use eno_schemas::{FabricDesired, Phase};
use ipnet::IpNet;
use proptest::prelude::*;

use crate::edits::edit_vrf;
use crate::fixtures::{attachment_key, switch, to_device};
use crate::world::*;

/// The devices that VRFs are on.
const GATEWAYS: [&str; 3] = ["leaf1", "leaf2", "gw"];

const ALL: [&str; 5] = ["leaf1", "leaf2", "spine1", "spine2", "gw"];

#[derive(Clone, Debug)]
enum Step {
    /// The VRF `v<name>` on some of [`GATEWAYS`]. `shared`: with a DeviceName that others may have.
    Vrf {
        name: u8,
        devices: u8,
        shared: bool,
    },
    /// The service `s<name>`, with VLANs of its own; two have the same Subnet.
    Service {
        name: u8,
        vid: u16,
    },
    Attachment {
        service: u8,
    },
    Routed {
        name: u8,
        vrf: u8,
        service: u8,
        device: u8,
        host: u8,
    },
    Delete(u8),
    /// The router's ports: none, one, two, or two of a LAG.
    Cabling(u8),
    Refuse {
        device: u8,
        vid: u16,
        refuses: bool,
    },
    Silence(u8),
    EndSilence,
    Retry,
    RunSteps(u8),
    Settle,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u8..2, 1u8..8, any::<bool>()).prop_map(|(name, devices, shared)| Step::Vrf { name, devices, shared }),
        3 => (0u8..3, 0u16..2).prop_map(|(name, odd)| Step::Service { name, vid: 100 + u16::from(name) * 10 + odd }),
        2 => (0u8..3).prop_map(|service| Step::Attachment { service }),
        6 => (0u8..3, 0u8..2, 0u8..3, 0u8..3, 1u8..3)
            .prop_map(|(name, vrf, service, device, host)| Step::Routed { name, vrf, service, device, host }),
        4 => (0u8..11).prop_map(Step::Delete),
        1 => (0u8..4).prop_map(Step::Cabling),
        1 => (0u8..5, 0u16..3, any::<bool>())
            .prop_map(|(device, tens, refuses)| Step::Refuse { device, vid: 100 + tens * 10, refuses }),
        1 => (0u8..5).prop_map(Step::Silence),
        1 => Just(Step::EndSilence),
        1 => Just(Step::Retry),
        2 => (1u8..12).prop_map(Step::RunSteps),
        4 => Just(Step::Settle),
        1 => Just(Step::Restart),
    ]
}

fn key_of(n: u8) -> Key {
    match n {
        0..2 => Key::cluster(Kind::VRF, &to_name(&format!("v{n}"))),
        2..5 => Key::cluster(Kind::L2Service, &to_name(&format!("s{}", n - 2))),
        5..8 => attachment_key(&format!("a{}", n - 5)),
        _ => Key::cluster(Kind::VRFAttachment, &to_name(&format!("r{}", n - 8))),
    }
}

/// The router with no port, one, two, or two of a LAG.
fn cabled(ports: u8) -> Object {
    let all: [(&str, LeadsTo); 2] = [("e1", to_device("leaf2", "r1")), ("e2", to_device("leaf1", "r1"))];
    let object = router("gw", &all[..usize::from(ports.min(2))]);
    crate::edits::edit_device(&object, |spec| {
        spec.ports.iter_mut().filter(|_| ports == 3).for_each(|port| port.lag = Some("ae0".into()));
    })
}

struct History {
    w: World,
    clock: i64,
}

impl History {
    fn run(steps: &[Step]) -> Self {
        let mut w = World::with_transactions();
        w.apply(cabled(1));
        w.apply(subnet("sn0", "10.0.0.0/24"));
        w.apply_and_settle(subnet("sn1", "10.1.0.0/24"));
        let mut history = Self { w, clock: 1000 };
        for step in steps {
            history.run_step(step);
        }
        for device in ALL {
            for vid in [100, 110, 120] {
                history.w.set_refusal(device, vid, false);
            }
        }
        history.w.end_silence();
        history.w.elapse_backoff_and_settle();
        history.check();
        history
    }

    /// Skips objects that are being deleted, since the engine ignores their spec.
    fn apply(&mut self, object: Object) {
        let known = self.w.objects.get(&object.key);
        if known.is_some_and(|object| object.deleting) {
            return;
        }
        if known.is_none() {
            self.w.phases.remove(&object.key);
            self.w.statuses.remove(&object.key);
        }
        self.clock += 1;
        self.w.apply(created(object, self.clock));
    }

    fn run_step(&mut self, step: &Step) {
        match step {
            Step::Vrf { name, devices, shared } => {
                let on = GATEWAYS.iter().enumerate().filter(|(index, _)| devices & (1 << index) != 0);
                let on: Vec<&str> = on.map(|(_, device)| *device).collect();
                self.apply(edit_vrf(&vrf(&format!("v{name}"), &on), |spec| {
                    spec.device_name = shared.then(|| "internet".into());
                }));
            }
            Step::Service { name, vid } => {
                let subnet = format!("sn{}", name % 2);
                self.apply(with_subnets(&service(&format!("s{name}"), *vid, &[]), &[&subnet]));
            }
            Step::Attachment { service } => {
                self.apply(attachment(&format!("a{service}"), &[&format!("s{service}")], "cp"));
            }
            Step::Routed { name, vrf, service, device, host } => {
                let address = format!("10.{}.0.{host}/24", service % 2);
                let (vrf, service) = (format!("v{vrf}"), format!("s{service}"));
                let device = GATEWAYS[usize::from(*device)];
                self.apply(vrf_attachment(&format!("r{name}"), &vrf, &service, device, &[&address]));
            }
            Step::Delete(n) => {
                let key = key_of(*n);
                if self.w.objects.get(&key).is_some_and(|object| !object.deleting) {
                    self.w.delete(&key);
                }
            }
            Step::Cabling(ports) => _ = self.w.apply(cabled(*ports)),
            Step::Refuse { device, vid, refuses } => {
                self.w.set_refusal(ALL[usize::from(*device)], *vid, *refuses);
            }
            Step::Silence(n) => _ = self.w.silent.insert(switch(ALL[usize::from(*n)])),
            Step::EndSilence => self.w.silent.clear(),
            Step::Retry => self.w.elapse_backoff(),
            Step::RunSteps(count) => {
                for _ in 0..*count {
                    self.w.step();
                }
            }
            Step::Settle => {
                self.w.settle();
                self.w.assert_paths_agree();
            }
            Step::Restart => self.w.restart(),
        }
    }

    /// Each VRF that a VLAN is led into is there, no two VLANs have one network in it, and what is ready is on its device.
    fn check(&self) {
        self.w.assert_paths_agree();
        self.w.assert_observer_agrees();
        self.w.assert_transitions_are_legal();
        for device in ALL {
            let actual = self.w.actual(&device.into()).unwrap();
            assert_eq!(actual, self.w.commanded_fabric(device), "{device}");
            check_device(actual, device);
        }
        for (key, status) in &self.w.statuses {
            let spec = status.realized.as_deref().and_then(Spec::vrf_attachment);
            let is_ready = status.phase == Some(Phase::Ready) && self.w.objects.contains_key(key);
            let Some(spec) = spec.filter(|_| is_ready) else { continue };
            let device = self.w.commanded_fabric(spec.devices().next().unwrap());
            let vlan = device.vlans.iter().filter_map(|vlan| vlan.routed.as_ref());
            let vlan = vlan.filter(|routed| routed.owner == key.to_string());
            let found: Vec<&[IpNet]> = vlan.map(|routed| &*routed.addresses).collect();
            assert_eq!(found, [&*spec.interfaces[0].addresses], "{key}");
        }
    }

    /// Deletes everything, and checks that nothing is left.
    fn delete_all(&mut self) {
        for key in (0..11).map(key_of) {
            if self.w.objects.contains_key(&key) {
                self.w.delete(&key);
            }
        }
        self.w.settle();
        for key in (0..11).map(key_of) {
            assert!(!self.w.objects.contains_key(&key), "{key}: {}", self.w.message(&key));
        }
        for device in ALL {
            let fabric = self.w.actual(&device.into()).unwrap();
            assert!(fabric.vrfs.is_empty() && fabric.vlans.iter().next().is_none(), "{device}");
            assert!(fabric.ports.iter().all(|port| port.vlans.is_empty()), "{device}");
        }
    }
}

fn check_device(fabric: &FabricDesired, device: &str) {
    let mut networks: BTreeMap<(&str, IpNet), &str> = BTreeMap::new();
    for vlan in &fabric.vlans {
        let Some(routed) = &vlan.routed else {
            assert_ne!(device, "gw", "a router switches no VLAN");
            continue;
        };
        assert!(fabric.vrfs.iter().any(|vrf| vrf.name == routed.vrf), "{device}: {}", routed.vrf);
        if device == "gw" {
            let ports = fabric.ports.iter().filter(|port| port.vlans.contains(vlan.vid)).count();
            assert_eq!(ports, 1, "{device}: {}", vlan.vid);
        }
        for address in &routed.addresses {
            let other = networks.insert((&routed.vrf, address.trunc()), &routed.owner);
            assert_eq!(other, None, "{device}: {address} of {}", routed.owner);
        }
    }
    let names: Vec<&str> = fabric.vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deleted_vrfs_leave_nothing(steps in proptest::collection::vec(step(), 1..60)) {
        History::run(&steps).delete_all();
    }

    #[test]
    fn new_engine_finds_nothing_to_do_for_vrfs(steps in proptest::collection::vec(step(), 1..60)) {
        let mut history = History::run(&steps);
        let (statuses, published, paths) =
            (history.w.statuses.clone(), history.w.published, history.w.paths());
        history.w.restart_and_settle();
        assert_eq!((history.w.published, history.w.paths()), (published, paths));
        for (key, status) in &statuses {
            assert_eq!(&history.w.statuses[key], status, "{key}");
        }
        history.delete_all();
    }
}

/// A device removed a VRF by a command without undecided VLANs. The next command has the same state, and gets no report.
#[test]
fn vrf_that_went_before_undecided_vlans_leaves_nothing() {
    let steps = [
        Step::Silence(1),
        Step::Vrf { name: 1, devices: 2, shared: false },
        Step::RunSteps(4),
        Step::Attachment { service: 2 },
        Step::Refuse { device: 0, vid: 120, refuses: true },
        Step::Service { name: 2, vid: 120 },
        Step::Delete(1),
        Step::RunSteps(8),
    ];
    History::run(&steps).delete_all();
}
