//! What the kernel tells of interfaces is what it lists.

use std::collections::{BTreeMap, BTreeSet};

use eno_driver_node::netlink::{Link, Mirror, Namespace, Netlink, Request};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rtnetlink::packet_route::link::LinkAttribute;

use crate::pods::common::*;

/// The last are those that the kernel gives to the other ends of pairs.
const NAMES: [&str; 5] = ["a", "b", "c", "veth0", "veth1"];

#[derive(Clone, Debug)]
enum Act {
    Add(&'static str, &'static str),
    Delete(&'static str),
    Rename(&'static str, &'static str),
    Up(&'static str, bool),
    Mtu(&'static str, u32),
    Master(&'static str, Option<&'static str>),
    Alias(&'static str, String),
    Group(&'static str, u32),
    Altname(&'static str, String),
    /// It is looked at.
    Look(&'static str),
}

fn act() -> impl Strategy<Value = Act> {
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        4 => (name(), prop::sample::select(&["bridge", "veth"][..])).prop_map(|(name, kind)| Act::Add(name, kind)),
        1 => name().prop_map(Act::Delete),
        2 => (name(), name()).prop_map(|(from, to)| Act::Rename(from, to)),
        3 => (name(), any::<bool>()).prop_map(|(name, up)| Act::Up(name, up)),
        1 => (name(), 1300..1500_u32).prop_map(|(name, mtu)| Act::Mtu(name, mtu)),
        2 => (name(), prop::option::of(name())).prop_map(|(name, master)| Act::Master(name, master)),
        1 => (name(), "[a-z]{1,9}").prop_map(|(name, alias)| Act::Alias(name, alias)),
        1 => (name(), 1..9_u32).prop_map(|(name, group)| Act::Group(name, group)),
        1 => (name(), "[a-z]{17,30}").prop_map(|(name, other)| Act::Altname(name, other)),
        2 => name().prop_map(Act::Look),
    ]
}

/// Whether the kernel wants it or not.
fn try_to(netlink: &mut Netlink, act: Act) {
    let index = |netlink: &mut Netlink, name: &str| {
        netlink.link_named(name).unwrap().map_or(u32::MAX, |link| link.index)
    };
    let request = match act {
        Act::Add(name, kind) => Request::add_link(name, bare(name, kind)),
        Act::Delete(name) => Request::delete_link(name, index(netlink, name)),
        Act::Rename(from, to) => {
            Request::set(from, index(netlink, from), "name", vec![LinkAttribute::IfName(to.to_owned())])
        }
        Act::Up(name, up) => Request::set_up(name, index(netlink, name), up),
        Act::Mtu(name, mtu) => Request::set(name, index(netlink, name), "MTU", vec![LinkAttribute::Mtu(mtu)]),
        Act::Master(name, master) => {
            let master = master.map_or(0, |master| index(netlink, master));
            Request::set_master(name, index(netlink, name), master)
        }
        Act::Alias(name, alias) => {
            Request::set(name, index(netlink, name), "alias", vec![LinkAttribute::IfAlias(alias)])
        }
        Act::Group(name, group) => {
            Request::set(name, index(netlink, name), "group", vec![LinkAttribute::Group(group)])
        }
        Act::Altname(name, other) => Request::add_altname(name, index(netlink, name), &other),
        Act::Look(_) => return,
    };
    drop(netlink.execute(request));
}

/// What is told of an interface, which is less of one that is down.
fn told<'a>(links: impl IntoIterator<Item = &'a Link>) -> BTreeMap<u32, Link> {
    let comparable = |link: &Link| {
        let mut link = Link { carrier: false, ..link.clone() };
        if !link.up {
            (link.alias, link.group, link.altnames, link.parent) = (None, 0, Vec::new(), None);
        }
        link
    };
    links.into_iter().map(|link| (link.index, comparable(link))).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn what_is_told_is_what_is_there() {
    let run = || {
        let mut runner =
            TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
        runner.run(&prop::collection::vec(prop::collection::vec(act(), 1..6), 1..8), |bursts| {
            Namespace::create().unwrap().enter().unwrap();
            let mut netlink = Netlink::open().unwrap();
            let mut mirror = Mirror::open(&mut netlink).unwrap();
            for burst in bursts {
                let before = told(mirror.links().iter());
                let mut looked = BTreeSet::new();
                for act in burst {
                    if let Act::Look(name) = act
                        && let Some(link) = netlink.link_named(name).unwrap()
                    {
                        looked.insert(link.index);
                        mirror.update(link.index, Some(link), None);
                    }
                    try_to(&mut netlink, act);
                }
                let different = mirror.receive().expect("nothing is lost");
                let there = netlink.links().unwrap();
                let known = told(mirror.links().iter());
                prop_assert_eq!(&known, &told(&there));
                for name in NAMES {
                    let listed = there.iter().find(|link| link.name == name).map(|link| link.index);
                    prop_assert_eq!(mirror.links().named(name).map(|link| link.index), listed);
                }
                let changed = |index: &u32| !looked.contains(index) && before.get(index) != known.get(index);
                for index in before.keys().chain(known.keys()).filter(|index| changed(index)) {
                    prop_assert!(different.iter().any(|link| link.index == *index));
                }
                prop_assert!(mirror.receive().unwrap().is_empty());
                prop_assert!(mirror.list(&mut netlink).unwrap().iter().all(|link| !link.up));
            }
            Ok(())
        })
    };
    let nowhere = Namespace::create().unwrap();
    nowhere.run(run).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn what_is_lost_is_listed() {
    let namespace = Namespace::create().unwrap();
    let lost = namespace.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let mut mirror = Mirror::open(&mut netlink).unwrap();
        netlink.execute(Request::add_link("a", bare("a", "bridge"))).unwrap();
        let index = netlink.link_named("a").unwrap().unwrap().index;
        let mtu = |mtu| Request::set("a", index, "MTU", vec![LinkAttribute::Mtu(mtu)]);
        for _ in 0..100 {
            assert!(netlink.batch((1300..1500).map(mtu).collect()).iter().all(Result::is_ok));
        }
        assert_eq!(mirror.receive(), None);
        let found = mirror.list(&mut netlink).unwrap();
        assert!(found.iter().any(|link| link.index == index && link.mtu == 1499), "{found:?}");
        assert_eq!(mirror.receive(), Some(Vec::new()));
        assert_eq!(mirror.links().iter().count(), netlink.links().unwrap().len());
    });
    lost.await.unwrap();
}
