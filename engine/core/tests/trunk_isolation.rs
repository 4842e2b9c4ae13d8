//! Trunk isolation: no trunk exposes VLANs of services that its namespace may not use.

#![allow(clippy::many_single_char_names, reason = "a, b and t are attachments of those names")]

use eno_core::kinds::{AttachmentSpec, Plugin};
use eno_core::{Event, Key, Kind, Labels, Name, Object, Selector};
use eno_schemas::{InterfaceType, Phase, VlanType};
use proptest::prelude::*;

use crate::edits::{edit_attachment, edit_point, edit_service};
use crate::fixtures::kernel_cni;
use crate::world::*;

const NAMESPACES: [&str; 3] = ["n0", "n1", "n2"];
const POINTS: [&str; 3] = ["left", "right", "both"];

/// Selects the namespaces with the label `open-<number>`.
fn selector(number: u8) -> Selector {
    let text = format!(r#"[{{"key":"open-{number}","operator":"Exists"}}]"#);
    serde_json::from_str(&text).unwrap()
}

/// Sets the labels `open-<number>` of a namespace.
fn label_namespace(w: &mut World, namespace: &str, numbers: &[u8]) {
    let labels: Labels = numbers.iter().map(|number| (format!("open-{number}"), String::new())).collect();
    w.engine.handle(Event::Namespace(namespace.into(), labels));
}

/// [`split_fabric`], and the ConnectionPoint `both` with a bridge of its own on the NICs of all nodes.
fn isolation_world() -> World {
    let mut w = split_fabric();
    for namespace in NAMESPACES {
        label_namespace(&mut w, namespace, &[]);
    }
    w.apply_and_settle(connection_point("both", None));
    w
}

/// The service `own`, and the service `private`, which only the namespace `n1` may use.
fn world_with_private_service() -> World {
    let mut w = isolation_world();
    label_namespace(&mut w, "n1", &[1]);
    w.apply(service("own", 100, &[]));
    w.apply(restricted(&service("private", 200, &[]), Some(1)));
    w
}

fn in_namespace(namespace: &str, created_at: i64, object: Object) -> Object {
    let mut object = created(object, created_at);
    object.key.namespace = namespace.into();
    object
}

fn trunk(name: &str, services: &[&str], point: &str) -> Object {
    edit_attachment(&attachment(name, services, point), |spec| spec.vlan_type = VlanType::Trunk)
}

fn restricted(service: &Object, number: Option<u8>) -> Object {
    edit_service(service, |spec| spec.namespaces = number.map(selector))
}

fn allowing_trunks(w: &World, point: &str, number: Option<u8>) -> Object {
    edit_point(&w.objects[&Key::cluster(Kind::ConnectionPoint, &point.into())], |spec| {
        spec.trunk_namespaces = number.map(selector);
    })
}

fn reason<'a>(w: &'a World, key: &Key) -> &'a str {
    condition(&w.statuses[key], "Ready").map_or("", |ready| ready.reason.as_ref())
}

fn is_refused(w: &World, key: &Key) -> bool {
    w.phase(key) == Phase::Error && reason(w, key) == "NotPermitted" && w.statuses[key].realized.is_none()
}

#[test]
fn younger_of_two_conflicting_attachments_is_rejected() {
    for (name, trunk_first, trunk_point, point) in [
        ("same point", true, "left", "left"),
        ("same point, trunk younger", false, "left", "left"),
        ("same NIC under another bridge", true, "both", "right"),
        ("same NIC under another bridge, trunk younger", false, "left", "both"),
    ] {
        let mut w = world_with_private_service();
        let (older, younger) = (10, 20);
        let (trunk_at, other_at) = if trunk_first { (older, younger) } else { (younger, older) };
        let t = w.apply(in_namespace("n0", trunk_at, trunk("t", &["own"], trunk_point)));
        let a = w.apply_and_settle(in_namespace("n1", other_at, attachment("a", &["private"], point)));
        let (accepted, rejected) = if trunk_first { (&t, &a) } else { (&a, &t) };
        assert_eq!(w.phase(accepted), Phase::Ready, "{name}: {}", w.message(accepted));
        assert!(is_refused(&w, rejected), "{name}: {:?}", w.statuses[rejected]);
        assert_eq!(w.nad(&rejected.namespace, &rejected.name), None, "{name}");
        assert_eq!(w.carrying_ports(200).is_empty(), trunk_first, "{name}");
        let message = w.message(rejected).to_owned();
        let expected = if trunk_first {
            "spec.L2Services[0]: L2Service private is not open to namespace n0"
        } else {
            "spec.VlanType: a trunk at ConnectionPoint"
        };
        assert!(message.starts_with(expected) && message.contains("TrunkNamespaces"), "{name}: {message}");
        // A restart changes nothing.
        w.restart();
        label_namespace(&mut w, "n0", &[]);
        label_namespace(&mut w, "n1", &[1]);
        w.settle();
        assert!(w.phase(accepted) == Phase::Ready && is_refused(&w, rejected), "{name}: after a restart");
        // The younger one becomes ready when the older one is deleted.
        w.delete_and_settle(&accepted.clone());
        assert_eq!(w.phase(rejected), Phase::Ready, "{name}: {}", w.message(rejected));
    }
}

/// A tenant can't take what another has by a change of an attachment that is older.
#[test]
fn older_attachment_that_becomes_a_trunk_evicts_no_other() {
    let mut w = world_with_private_service();
    let plain = in_namespace("n0", 10, attachment("t", &["own"], "left"));
    let t = w.apply(plain.clone());
    let a = w.apply_and_settle(in_namespace("n1", 20, attachment("a", &["private"], "left")));
    assert_eq!((w.phase(&t), w.phase(&a)), (Phase::Ready, Phase::Ready));
    w.apply_and_settle(edit_attachment(&plain, |spec| spec.vlan_type = VlanType::Trunk));
    for what in ["changed", "restarted"] {
        assert_eq!(w.phase(&a), Phase::Ready, "{what}: {}", w.message(&a));
        assert_eq!((w.phase(&t), reason(&w, &t)), (Phase::Error, "NotPermitted"), "{what}");
        assert!(!w.carrying_ports(200).is_empty() && w.nad("n1", "a").is_some(), "{what}");
        w.restart();
        label_namespace(&mut w, "n0", &[]);
        label_namespace(&mut w, "n1", &[1]);
        w.settle();
    }
    // The other way round: a service that an older attachment names anew.
    w.apply(plain);
    w.delete_and_settle(&a);
    let trunk = w.apply_and_settle(in_namespace("n0", 30, trunk("young", &["own"], "left")));
    w.apply_and_settle(in_namespace("n1", 5, attachment("b", &["private"], "left")));
    assert_eq!(w.phase(&trunk), Phase::Ready, "{}", w.message(&trunk));
}

/// An attachment whose permission was narrowed may become a trunk that leaves the closed service.
#[test]
fn own_realised_spec_does_not_exclude_a_change() {
    let mut w = world_with_private_service();
    label_namespace(&mut w, "n1", &[1]);
    let plain = in_namespace("n1", 10, attachment("a", &["private"], "left"));
    let a = w.apply_and_settle(plain);
    label_namespace(&mut w, "n1", &[]);
    w.settle();
    assert_eq!(w.phase(&a), Phase::Error);
    w.apply_and_settle(in_namespace("n1", 10, trunk("a", &["own"], "left")));
    assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
}

#[test]
fn attachments_without_a_conflict_are_both_ready() {
    for case in ["other nodes", "open to all", "open to the namespace", "trunk allowed", "selectivetrunk"] {
        let mut w = isolation_world();
        label_namespace(&mut w, "n1", &[1]);
        w.apply(service("own", 100, &[]));
        w.apply(restricted(&service("private", 200, &[]), (case != "open to all").then_some(1)));
        if case == "open to the namespace" {
            label_namespace(&mut w, "n0", &[1]);
        }
        if case == "trunk allowed" {
            label_namespace(&mut w, "n0", &[2]);
            w.apply(allowing_trunks(&w, "left", Some(2)));
        }
        let mut t = trunk("t", &["own"], "left");
        if case == "selectivetrunk" {
            t = edit_attachment(&t, |spec| spec.vlan_type = VlanType::SelectiveTrunk);
        }
        let t = w.apply(in_namespace("n0", 10, t));
        let place = if case == "other nodes" { "right" } else { "left" };
        let a = w.apply_and_settle(in_namespace("n1", 20, attachment("a", &["private"], place)));
        for key in [&t, &a] {
            assert_eq!(w.phase(key), Phase::Ready, "{case}: {key}: {}", w.message(key));
        }
    }
}

#[test]
fn narrowed_permission_removes_the_younger_attachment() {
    for case in ["service", "namespace", "trunk namespaces"] {
        let mut w = isolation_world();
        label_namespace(&mut w, "n0", &[1, 2]);
        label_namespace(&mut w, "n1", &[1]);
        w.apply(service("own", 100, &[]));
        let private = service("private", 200, &[]);
        w.apply(if case == "service" { private.clone() } else { restricted(&private, Some(1)) });
        if case == "trunk namespaces" {
            label_namespace(&mut w, "n0", &[2]);
            w.apply(allowing_trunks(&w, "left", Some(2)));
        }
        let a = w.apply(in_namespace("n1", 10, attachment("a", &["private"], "left")));
        let t = w.apply_and_settle(in_namespace("n0", 20, trunk("t", &["own"], "left")));
        assert_eq!((w.phase(&a), w.phase(&t)), (Phase::Ready, Phase::Ready), "{case}: {}", w.message(&t));
        match case {
            "service" => {
                label_namespace(&mut w, "n0", &[]);
                w.apply(restricted(&private, Some(1)));
            }
            "namespace" => label_namespace(&mut w, "n0", &[]),
            _ => {
                w.apply(allowing_trunks(&w, "left", None));
            }
        }
        w.settle();
        assert_eq!(w.phase(&a), Phase::Ready, "{case}");
        assert!(is_refused(&w, &t), "{case}: {:?}", w.statuses[&t]);
        assert_eq!(w.nad("n0", "t"), None, "{case}");
        assert!(w.carrying_ports(100).is_empty(), "{case}: its own VLAN rejected too");
    }
}

#[test]
fn unrealisable_attachment_excludes_no_other() {
    let mut w = world_with_private_service();
    // n0 may not use the service, and n2 requests an interface type that no plugin offers.
    let claim = w.apply(in_namespace("n0", 1, attachment("claim", &["private"], "left")));
    let bad = trunk("bad", &["own"], "left");
    let bad = edit_attachment(&bad, |spec| spec.interface = InterfaceType::Dpdk);
    w.apply(in_namespace("n2", 2, bad));
    let t = w.apply(in_namespace("n0", 10, trunk("t", &["own"], "right")));
    let a = w.apply(in_namespace("n1", 20, attachment("a", &["private"], "left")));
    let b = w.apply_and_settle(in_namespace("n0", 30, trunk("b", &["own"], "left")));
    assert_eq!(w.phase(&claim), Phase::Error);
    assert_eq!((w.phase(&t), w.phase(&a)), (Phase::Ready, Phase::Ready), "{}", w.message(&a));
    assert!(is_refused(&w, &b));
}

#[test]
fn trunk_on_unknown_nics_is_a_condition() {
    let mut w = isolation_world();
    w.apply(service("own", 100, &[]));
    let devices = |interfaces: &[&str]| {
        edit_point(&connection_point("pool", None), |spec| {
            let plugin = Plugin::HostDevice { pool_name: "vendor/nics".into() };
            spec.cnis = vec![kernel_cni(plugin)];
            spec.interfaces = interfaces.iter().map(ToString::to_string).collect();
        })
    };
    w.apply(devices(&[]));
    let t = w.apply_and_settle(in_namespace("n0", 10, trunk("t", &["own"], "pool")));
    assert_eq!(w.phase(&t), Phase::Ready, "{}", w.message(&t));
    assert!(condition(&w.statuses[&t], "TrunkChecked").is_some_and(|condition| !condition.holds));
    w.apply_and_settle(devices(&["eth1"]));
    assert!(condition(&w.statuses[&t], "TrunkChecked").is_none());
    // With a known NIC, VLANs of other ConnectionPoints on it count.
    label_namespace(&mut w, "n1", &[1]);
    w.apply(restricted(&service("private", 200, &[]), Some(1)));
    let a = w.apply_and_settle(in_namespace("n1", 20, attachment("a", &["private"], "left")));
    assert!(is_refused(&w, &a), "{:?}", w.statuses[&a]);
}

#[derive(Clone, Debug)]
enum Step {
    /// Creates or changes an attachment; `number` is also its creation time.
    Attach {
        number: u8,
        point: u8,
        service: u8,
        trunk: bool,
    },
    Detach(u8),
    Restrict {
        service: u8,
        to: Option<u8>,
    },
    AllowTrunks {
        point: u8,
        to: Option<u8>,
    },
    Label {
        namespace: u8,
        numbers: Vec<u8>,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || proptest::option::of(0..2_u8);
    prop_oneof![
        6 => (0..6_u8, 0..3_u8, 0..3_u8, any::<bool>())
            .prop_map(|(number, point, service, trunk)| Step::Attach { number, point, service, trunk }),
        1 => (0..6_u8).prop_map(Step::Detach),
        2 => (0..3_u8, number()).prop_map(|(service, to)| Step::Restrict { service, to }),
        1 => (0..3_u8, number()).prop_map(|(point, to)| Step::AllowTrunks { point, to }),
        2 => (0..3_u8, proptest::collection::vec(0..2_u8, 0..3))
            .prop_map(|(namespace, numbers)| Step::Label { namespace, numbers }),
        1 => Just(Step::Restart),
    ]
}

/// The labels and selectors, from which the test computes conflicts by itself.
struct Model {
    labels: [Vec<u8>; 3],
    restricted: [Option<u8>; 3],
    trunks_allowed: [Option<u8>; 3],
}

impl Model {
    fn has_label(&self, namespace: &str, number: Option<u8>) -> bool {
        let index = NAMESPACES.iter().position(|name| *name == namespace).unwrap();
        number.is_some_and(|number| self.labels[index].contains(&number))
    }

    /// True if `trunk` exposes a service of `other` that its namespace may not use.
    fn exposes(&self, (namespace, trunk): (&Name, &AttachmentSpec), other: &AttachmentSpec) -> bool {
        let share_network = trunk.connection_point == other.connection_point
            || [&trunk.connection_point, &other.connection_point].iter().any(|point| ***point == *"both");
        let point = POINTS.iter().position(|point| **point == *trunk.connection_point).unwrap();
        let is_restricted = |service: &Name| {
            let selector = self.restricted[service.strip_prefix('s').unwrap().parse::<usize>().unwrap()];
            selector.is_some() && !self.has_label(namespace, selector)
        };
        trunk.vlan_type == VlanType::Trunk
            && share_network
            && !self.has_label(namespace, self.trunks_allowed[point])
            && other.services.iter().any(is_restricted)
    }

    fn conflicts(&self, (a, one): (&Key, &AttachmentSpec), (b, other): (&Key, &AttachmentSpec)) -> bool {
        self.exposes((&a.namespace, one), other) || self.exposes((&b.namespace, other), one)
    }
}

/// An attachment by its number; `life` counts its recreations, each with another name and the same creation time.
fn attachment_of((number, life): (u8, u32), point: u8, service: u8, is_trunk: bool) -> Object {
    let (name, service) = (format!("a{number}-{life}"), format!("s{service}"));
    let make = if is_trunk { trunk } else { attachment };
    let object = make(&name, &[&service], POINTS[usize::from(point)]);
    in_namespace(NAMESPACES[usize::from(number % 3)], i64::from(number), object)
}

proptest! {
    /// No realised trunk exposes a restricted realised service. An attachment is rejected for a trunk only if a realised
    /// one conflicts with it. A change of an attachment takes nothing from others.
    #[test]
    fn realised_trunks_never_expose_restricted_services(steps in proptest::collection::vec(step(), 1..40)) {
        let mut w = isolation_world();
        let mut lives = [0; 6];
        let mut model = Model { labels: Default::default(), restricted: [None; 3], trunks_allowed: [None; 3] };
        for (service_number, vid) in [100, 200, 300].into_iter().enumerate() {
            w.apply(service(&format!("s{service_number}"), vid, &[]));
        }
        for step in steps {
            let before: Vec<Key> =
                w.statuses.iter().filter(|(_, status)| status.realized.is_some()).map(|(key, _)| key.clone()).collect();
            let changed = match step {
                Step::Attach { number, .. } => Some(attachment_of((number, lives[usize::from(number)]), 0, 0, false).key),
                _ => None,
            };
            match step {
                Step::Attach { number, point, service, trunk } => {
                    let life = lives[usize::from(number)];
                    w.apply(attachment_of((number, life), point, service, trunk));
                }
                Step::Detach(number) => {
                    let life = &mut lives[usize::from(number)];
                    let key = attachment_of((number, *life), 0, 0, false).key;
                    if w.objects.contains_key(&key) {
                        w.delete(&key);
                        *life += 1;
                    }
                }
                Step::Restrict { service: number, to } => {
                    model.restricted[usize::from(number)] = to;
                    let key = Key::cluster(Kind::L2Service, &format!("s{number}").into());
                    w.apply(restricted(&w.objects[&key].clone(), to));
                }
                Step::AllowTrunks { point, to } => {
                    model.trunks_allowed[usize::from(point)] = to;
                    w.apply(allowing_trunks(&w, POINTS[usize::from(point)], to));
                }
                Step::Label { namespace, numbers } => {
                    label_namespace(&mut w, NAMESPACES[usize::from(namespace)], &numbers);
                    model.labels[usize::from(namespace)] = numbers;
                }
                Step::Restart => {
                    w.restart();
                    for (namespace, numbers) in NAMESPACES.iter().zip(&model.labels) {
                        label_namespace(&mut w, namespace, numbers);
                    }
                }
            }
            w.settle();
            if let Some(changed) = changed {
                for key in before.iter().filter(|key| **key != changed) {
                    prop_assert!(w.statuses[key].realized.is_some(), "{changed} evicted {key}");
                }
            }
            let attachments: Vec<(&Key, &Object)> =
                w.objects.iter().filter(|(key, _)| key.kind == Kind::L2ServiceAttachment).collect();
            let realised: Vec<(&Key, &AttachmentSpec)> = attachments
                .iter()
                .filter_map(|(key, _)| Some((*key, w.statuses[*key].realized.as_deref()?.attachment()?)))
                .collect();
            for (i, one) in realised.iter().enumerate() {
                for other in &realised[i + 1..] {
                    prop_assert!(!model.conflicts(*one, *other), "{} and {}", one.0, other.0);
                }
            }
            for (key, object) in &attachments {
                let refused = w.phase(key) == Phase::Error && w.message(key).contains("TrunkNamespaces");
                if !refused {
                    continue;
                }
                let spec = object.spec.as_ref().unwrap().attachment().unwrap();
                let holder = realised
                    .iter()
                    .any(|(other, other_spec)| model.conflicts((*key, spec), (*other, *other_spec)));
                prop_assert!(holder, "no realised attachment excludes {key}: {}", w.message(key));
            }
        }
    }
}
