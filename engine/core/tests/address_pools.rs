//! The pools of addresses that IPAM plugins share between L2Services.

use eno_core::{Key, Name, Object};
use eno_schemas::{Ipam, Phase};

use crate::edits::edit_subnet;
use crate::world::*;

/// An L2Service with a Subnet of its own, both called `name`.
fn apply_service(w: &mut World, name: &str, vid: u16, network: &str, ipam: Ipam) -> Key {
    w.apply(edit_subnet(&subnet(name, network), |spec| spec.ipam = ipam));
    w.apply(with_subnets(&service(name, vid, &[]), &[name]))
}

fn in_namespace(namespace: &str, mut object: Object) -> Object {
    object.key.namespace = namespace.into();
    object.uid = format!("{}-{namespace}", object.uid).into();
    object
}

/// The name of the pool in a NAD.
fn pool(w: &World, key: &Key) -> Option<String> {
    w.nad(&key.namespace, &key.name).expect("a NAD").pool
}

fn recorded<'a>(w: &'a World, key: &Key) -> Option<&'a str> {
    w.statuses[key].address_pool.as_deref()
}

fn shared(w: &World, key: &Key) -> Option<String> {
    condition(&w.statuses[key], "AddressesSeparate").map(|condition| condition.message.clone())
}

#[test]
fn second_service_with_a_prefix_gets_a_pool_of_its_own() {
    for (network, ipam, expected) in [
        ("10.0.0.0/24", Ipam::Whereabouts, Some("two")),
        ("10.0.0.128/25", Ipam::Whereabouts, Some("two")),
        ("10.0.0.0/16", Ipam::Whereabouts, Some("two")),
        ("10.0.1.0/24", Ipam::Whereabouts, None),
        // Another plugin has another pool, or none.
        ("10.0.0.0/24", Ipam::HostLocal, None),
        ("10.0.0.0/24", Ipam::Static, None),
        ("10.0.0.0/24", Ipam::Eno, None),
    ] {
        let mut w = World::with_agents();
        apply_service(&mut w, "one", 100, "10.0.0.0/24", Ipam::Whereabouts);
        let a = w.apply_and_settle(attachment("a", &["one"], "cp"));
        // It is older, but the other one has the pool.
        apply_service(&mut w, "two", 200, network, ipam);
        let b = w.apply(created(attachment("b", &["two"], "cp"), -1));
        let c = w.apply_and_settle(in_namespace("other", attachment("c", &["two"], "cp")));
        assert_eq!((pool(&w, &a), recorded(&w, &a)), (None, None));
        for key in [&b, &c] {
            assert_eq!(pool(&w, key).as_deref(), expected, "{network} {ipam:?}");
            assert_eq!(recorded(&w, key), expected);
            assert_eq!((w.phase(key), shared(&w, key)), (Phase::Ready, None));
        }
        let published = w.published;
        w.restart();
        w.settle();
        assert_eq!(w.published, published, "a new engine finds nothing to do");
        // The name stays when it is not needed any more.
        w.delete_and_settle(&a);
        assert_eq!(pool(&w, &b).as_deref(), expected);
        let later = w.apply_and_settle(attachment("d", &["two"], "cp"));
        assert_eq!(pool(&w, &later).as_deref(), expected, "one pool for each L2Service");
    }
}

#[test]
fn services_that_come_together_get_different_pools() {
    let mut w = World::leaf_spine();
    let keys: Vec<Key> = (0..4u16)
        .map(|n| {
            let name = format!("s{n}");
            apply_service(&mut w, &name, 100 + n, "10.0.0.0/24", Ipam::Whereabouts);
            w.apply(attachment(&name, &[&name], "cp"))
        })
        .collect();
    w.settle();
    let pools: Vec<Option<String>> = keys.iter().map(|key| pool(&w, key)).collect();
    assert_eq!(pools.iter().filter(|pool| pool.is_none()).count(), 1, "{pools:?}");
    assert_eq!(pools.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{pools:?}");
}

#[test]
fn host_local_shares_by_the_name_of_the_attachment() {
    for (name, network, expected) in
        [("a", "10.0.0.0/24", Some("two")), ("b", "10.0.0.0/24", None), ("a", "10.0.1.0/24", None)]
    {
        let mut w = World::leaf_spine();
        apply_service(&mut w, "one", 100, "10.0.0.0/24", Ipam::HostLocal);
        let a = w.apply_and_settle(attachment("a", &["one"], "cp"));
        apply_service(&mut w, "two", 200, network, Ipam::HostLocal);
        let other = w.apply_and_settle(in_namespace("other", attachment(name, &["two"], "cp")));
        assert_eq!(pool(&w, &a), None);
        assert_eq!(pool(&w, &other).as_deref(), expected, "{name} {network}");
    }
}

/// Two L2Services that share a pool, as engines before made them. Returns the attachments of the older and the younger
/// service; a pod uses each.
fn with_shared_pool() -> (World, Key, Key) {
    let mut w = World::leaf_spine();
    for (name, vid, network, at) in [("one", 100, "10.0.0.0/24", 1), ("two", 200, "10.0.1.0/24", 2)] {
        w.apply(subnet(name, network));
        w.apply(created(with_subnets(&service(name, vid, &[]), &[name]), at));
    }
    let a = w.apply(attachment("a", &["one"], "cp"));
    let b = w.apply(attachment("b", &["two"], "cp"));
    w.apply_pod(pod_using("pa", &["a"]));
    w.apply_pod_and_settle(pod_using("pb", &["b"]));
    // As if it had been so from the beginning.
    w.apply_and_settle(edit_subnet(&w.objects[&subnet_key("two")], |spec| {
        spec.network = "10.0.0.0/24".parse().unwrap();
    }));
    (w, a, b)
}

fn subnet_key(name: &str) -> Key {
    Key::cluster(eno_core::Kind::Subnet, &Name::from(name))
}

#[test]
fn used_nad_keeps_its_pool_and_says_so() {
    let (mut w, a, b) = with_shared_pool();
    for restarted in [false, true] {
        if restarted {
            w.restart();
            w.settle();
        }
        assert_eq!((pool(&w, &a), shared(&w, &a)), (None, None));
        assert_eq!((pool(&w, &b), w.phase(&b)), (None, Phase::Ready));
        let message = shared(&w, &b).expect("the condition");
        assert!(message.contains("L2ServiceAttachment ns/a "), "{message}");
    }
    // All attachments of an L2Service have one pool.
    let c = w.apply_and_settle(attachment("c", &["two"], "cp"));
    assert_eq!(pool(&w, &c), None);
    w.remove_pod_and_settle("uid-pb");
    for key in [&b, &c] {
        assert_eq!((pool(&w, key).as_deref(), shared(&w, key)), (Some("two"), None));
        assert_eq!(recorded(&w, key), Some("two"));
    }
    assert_eq!(pool(&w, &a), None);
}

#[test]
fn pool_is_shared_no_longer_when_the_other_user_goes() {
    let narrow = |w: &mut World| {
        w.apply_and_settle(edit_subnet(&w.objects[&subnet_key("one")], |spec| {
            spec.network = "10.9.0.0/24".parse().unwrap();
        }));
    };
    let delete = |w: &mut World| {
        w.remove_pod("uid-pa");
        let a = w.objects.keys().find(|key| &*key.name == "a").cloned().unwrap();
        w.delete_and_settle(&a);
    };
    for end in [&narrow as &dyn Fn(&mut World), &delete] {
        let (mut w, _, b) = with_shared_pool();
        end(&mut w);
        assert_eq!((pool(&w, &b), shared(&w, &b)), (None, None));
        w.remove_pod_and_settle("uid-pb");
        assert_eq!(pool(&w, &b), None, "it needs no name");
    }
}

/// The older service has no pods, so it can take another pool at once.
#[test]
fn service_without_pods_yields_to_one_with_pods() {
    let (mut w, a, b) = with_shared_pool();
    w.remove_pod_and_settle("uid-pa");
    assert_eq!((pool(&w, &a).as_deref(), shared(&w, &a)), (Some("one"), None));
    assert_eq!((pool(&w, &b), shared(&w, &b)), (None, None));
}

/// An attachment that changes to another L2Service gets that one's pool, and brings none.
#[test]
fn attachment_that_changes_its_service_brings_no_pool() {
    for name in ["a0", "z0"] {
        let mut w = World::leaf_spine();
        apply_service(&mut w, "other", 300, "10.9.0.0/24", Ipam::Whereabouts);
        apply_service(&mut w, "one", 100, "10.0.0.0/24", Ipam::Whereabouts);
        apply_service(&mut w, "two", 200, "10.0.0.0/24", Ipam::Whereabouts);
        let moved = w.apply(attachment(name, &["other"], "cp"));
        let one = w.apply_and_settle(attachment("one", &["one"], "cp"));
        let two = w.apply_and_settle(attachment("two", &["two"], "cp"));
        w.apply_pod(pod_using("p1", &["one"]));
        w.apply_pod_and_settle(pod_using("p2", &["two"]));
        assert_eq!((pool(&w, &one), pool(&w, &two).as_deref()), (None, Some("two")));
        w.apply_and_settle(attachment(name, &["two"], "cp"));
        for restarted in [false, true] {
            if restarted {
                w.restart();
                w.settle();
            }
            assert_eq!(pool(&w, &one), None, "{name}");
            assert_eq!((pool(&w, &two).as_deref(), shared(&w, &two)), (Some("two"), None), "{name}");
            assert_eq!(pool(&w, &moved).as_deref(), Some("two"), "{name}");
        }
    }
}
