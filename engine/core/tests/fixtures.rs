//! Objects, worlds and reports that the tests of several files use.

use std::collections::{BTreeMap, BTreeSet};

use eno_core::kinds::{LeadsTo, Plugin, SupportedCni};
use eno_core::{Event, Key, Kind, Labels, Object, Target};
use eno_schemas::{
    Applied, Desired, FabricDesired, InterfaceType, Item, Outcome, Phase, PortBefore, Rejection, VlanId,
};

use crate::edits::{edit_device, edit_point};
use crate::world::{World, attachment, connection_point, object, service};

pub fn vid(id: u16) -> VlanId {
    VlanId::new(id).unwrap()
}

pub fn attachment_key(name: &str) -> Key {
    Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &name.into())
}

pub fn device_key(name: &str) -> Key {
    Key::cluster(Kind::FabricDevice, &name.into())
}

pub fn switch(name: &str) -> Target {
    Target::Fabric(name.into())
}

pub fn to_node(node: &str) -> LeadsTo {
    LeadsTo::Node { node: node.into(), interface: "eth1".into() }
}

pub fn to_device(device: &str, port: &str) -> LeadsTo {
    LeadsTo::Device { device: device.into(), port: port.into() }
}

pub fn bridge_domain(name: &str, id: u16, points: &[&str]) -> Object {
    object(Kind::L2BridgeDomain, name, serde_json::json!({ "Vlan": id, "ConnectionPoints": points }))
}

/// A CNI plugin that gives pods kernel interfaces.
pub fn kernel_cni(plugin: Plugin) -> SupportedCni {
    SupportedCni { interfaces: vec![InterfaceType::Kernel], plugin, mtu: None }
}

/// A ConnectionPoint without NICs on the fabric.
pub fn point_without_nics(name: &str) -> Object {
    edit_point(&connection_point(name, None), |spec| {
        spec.interfaces.clear();
        spec.cnis.truncate(1);
    })
}

/// A permanent rejection by a driver that is reachable.
pub fn rejection(item: Item, reason: &str) -> Rejection {
    Rejection { item, reason: reason.into(), retryable: false, unreachable: false }
}

/// A leaf–spine fabric with the ready service `s` and its ready attachment `a`.
pub fn ready_world() -> (World, Key, Key) {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    (w, s, a)
}

/// leaf1 at another address.
pub fn moved_leaf1(w: &World) -> Object {
    edit_device(&w.objects[&device_key("leaf1")], |spec| spec.device.address = "192.0.2.1:830".into())
}

/// leaf1 with the port `e1` in a LAG.
pub fn leaf1_with_lag(w: &World, lag: &str) -> Object {
    edit_device(&w.objects[&device_key("leaf1")], |spec| {
        let port = spec.ports.iter_mut().find(|port| &*port.name == "e1");
        port.expect("a port e1").lag = Some(lag.into());
    })
}

/// leaf1 without one of its ports.
pub fn leaf1_without(w: &World, port: &str) -> Object {
    edit_device(&w.objects[&device_key("leaf1")], |spec| spec.ports.retain(|one| &*one.name != port))
}

impl World {
    /// Applies a new node with one label.
    pub fn apply_labelled_node(&mut self, name: &str, label: &str, value: &str) {
        let labels = Labels::from([(label.into(), value.into())]);
        self.nodes.insert(name.into(), (labels.clone(), true));
        self.engine.handle(Event::Node { name: name.into(), labels, ready: true });
    }

    /// Applies an object. `restarts`: no engine runs when it changes.
    pub fn apply_or_restart(&mut self, object: Object, restarts: bool) {
        if restarts {
            self.objects.insert(object.key.clone(), object);
            self.restart();
        } else {
            self.apply(object);
        }
        self.settle();
    }

    /// All of these objects have the phase and the message.
    #[track_caller]
    pub fn assert_phase(&self, keys: &[&Key], phase: Phase, message: &str) {
        for key in keys {
            assert_eq!((self.phase(key), self.message(key)), (phase, message), "{key}");
        }
    }

    /// An object has the phase, and a message with this text.
    #[track_caller]
    pub fn assert_message_contains(&self, key: &Key, phase: Phase, text: &str) {
        let message = self.message(key);
        assert!(self.phase(key) == phase && message.contains(text), "{key}: {}: {message}", self.phase(key));
    }

    pub fn assert_transitions_are_legal(&self) {
        for (key, phases) in &self.phases {
            for pair in phases.windows(2) {
                let legal = match pair[0] {
                    Phase::Terminating => pair[1] == Phase::Deleted,
                    Phase::Deleted => false,
                    _ => pair[1] != Phase::Deleted && pair[0] != pair[1],
                };
                assert!(legal, "{key}: {phases:?}");
            }
        }
    }

    /// The last command of a switch.
    pub fn commanded_fabric(&self, name: &str) -> &FabricDesired {
        match &self.commands[&switch(name)] {
            Desired::Fabric(fabric) => fabric,
            other => panic!("{name} is no switch: {other:?}"),
        }
    }

    /// The driver of a switch reports its last command, and this as applied.
    pub fn report_applied(&mut self, name: &str, applied: Applied) {
        self.report(&switch(name), Outcome::Applied, Some(applied), Vec::new());
        self.settle();
    }

    /// The driver of a node rejects these items, and executes its last command once more.
    pub fn reject(&mut self, target: &Target, rejections: &[Rejection]) {
        self.rejections.insert(target.clone(), rejections.to_vec());
        self.run_driver_again(target);
    }

    /// The events of deleted objects arrive that were delayed.
    pub fn end_delay_of_deletions(&mut self) {
        for gone in self.delayed_deletions.take().unwrap() {
            self.engine.handle(Event::ObjectGone(gone));
        }
        self.settle();
    }
}

/// A switch that has all that it is commanded, with these closed ports and states before the first VLAN.
pub fn applied_fabric(
    fabric: &FabricDesired,
    closed: BTreeSet<String>,
    before: BTreeMap<String, PortBefore>,
) -> Applied {
    let mut applied = fabric.carried_out();
    if let Applied::Fabric { closed: none, before: empty, .. } = &mut applied {
        (*none, *empty) = (Some(closed), before);
    }
    applied
}
