//! The mirror of interfaces equals the list of the kernel after any changes.

use std::collections::{BTreeMap, BTreeSet};

use eno_driver_node::netlink::{Link, Mirror, Namespace, Netlink, Request, Watch};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rtnetlink::packet_route::link::LinkAttribute;

use crate::pods::common::*;

/// Names of interfaces. The kernel gives the last ones to peers of veth pairs.
const NAMES: [&str; 5] = ["a", "b", "c", "veth0", "veth1"];

#[derive(Clone, Debug)]
enum Change {
    Add(&'static str, &'static str),
    Delete(&'static str),
    Rename(&'static str, &'static str),
    Up(&'static str, bool),
    Mtu(&'static str, u32),
    Master(&'static str, Option<&'static str>),
    Alias(&'static str, String),
    Group(&'static str, u32),
    Altname(&'static str, String),
    /// The interface is read and handed to the mirror.
    Read(&'static str),
}

fn change() -> impl Strategy<Value = Change> {
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        4 => (name(), prop::sample::select(&["bridge", "veth"][..])).prop_map(|(name, kind)| Change::Add(name, kind)),
        1 => name().prop_map(Change::Delete),
        2 => (name(), name()).prop_map(|(from, to)| Change::Rename(from, to)),
        3 => (name(), any::<bool>()).prop_map(|(name, up)| Change::Up(name, up)),
        1 => (name(), 1300..1500_u32).prop_map(|(name, mtu)| Change::Mtu(name, mtu)),
        2 => (name(), prop::option::of(name())).prop_map(|(name, master)| Change::Master(name, master)),
        1 => (name(), "[a-z]{1,9}").prop_map(|(name, alias)| Change::Alias(name, alias)),
        1 => (name(), 1..9_u32).prop_map(|(name, group)| Change::Group(name, group)),
        1 => (name(), "[a-z]{17,30}").prop_map(|(name, other)| Change::Altname(name, other)),
        2 => name().prop_map(Change::Read),
    ]
}

/// Tries a change; the kernel may refuse it.
fn try_change(netlink: &mut Netlink, change: Change) {
    let index = |netlink: &mut Netlink, name: &str| {
        netlink.link_named(name).unwrap().map_or(u32::MAX, |link| link.index)
    };
    let request = match change {
        Change::Add(name, kind) => Request::add_link(name, bare(name, kind)),
        Change::Delete(name) => Request::delete_link(name, index(netlink, name)),
        Change::Rename(from, to) => {
            Request::set(from, index(netlink, from), "name", vec![LinkAttribute::IfName(to.to_owned())])
        }
        Change::Up(name, up) => Request::set_up(name, index(netlink, name), up),
        Change::Mtu(name, mtu) => {
            Request::set(name, index(netlink, name), "MTU", vec![LinkAttribute::Mtu(mtu)])
        }
        Change::Master(name, master) => {
            let master = master.map_or(0, |master| index(netlink, master));
            Request::set_master(name, index(netlink, name), master)
        }
        Change::Alias(name, alias) => {
            Request::set(name, index(netlink, name), "alias", vec![LinkAttribute::IfAlias(alias)])
        }
        Change::Group(name, group) => {
            Request::set(name, index(netlink, name), "group", vec![LinkAttribute::Group(group)])
        }
        Change::Altname(name, other) => Request::add_altname(name, index(netlink, name), &other),
        Change::Read(_) => return,
    };
    drop(netlink.execute(request));
}

/// A mirror of the calling thread's namespace, and the subscription that keeps it current.
fn open(netlink: &mut Netlink) -> (Watch, Mirror) {
    let (watch, mut mirror) = (Watch::links().unwrap(), Mirror::default());
    mirror.list(watch.list(netlink).unwrap());
    (watch, mirror)
}

/// Hands the waiting notifications to the mirror; `None`: some were lost.
fn receive(mirror: &mut Mirror, watch: &Watch) -> Option<Vec<Link>> {
    let notifications = watch.read_links(|port| mirror.tracks_vlans(port))?;
    Some(mirror.receive(notifications))
}

/// The comparable state of interfaces: the kernel does not notify all changes of those that are down.
fn comparable_links<'a>(links: impl IntoIterator<Item = &'a Link>) -> BTreeMap<u32, Link> {
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
async fn mirror_equals_listed_interfaces() {
    let run = || {
        let mut runner =
            TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
        runner.run(&prop::collection::vec(prop::collection::vec(change(), 1..6), 1..8), |bursts| {
            Namespace::create().unwrap().enter().unwrap();
            let mut netlink = Netlink::open().unwrap();
            let (watch, mut mirror) = open(&mut netlink);
            for burst in bursts {
                let before = comparable_links(mirror.links().iter());
                let mut read = BTreeSet::new();
                for change in burst {
                    if let Change::Read(name) = change
                        && let Some(link) = netlink.link_named(name).unwrap()
                    {
                        read.insert(link.index);
                        mirror.update(link.index, Some(link), None);
                    }
                    try_change(&mut netlink, change);
                }
                let changed = receive(&mut mirror, &watch).expect("nothing is lost");
                let listed = netlink.links().unwrap();
                let mirrored = comparable_links(mirror.links().iter());
                prop_assert_eq!(&mirrored, &comparable_links(&listed));
                for name in NAMES {
                    let listed_index = listed.iter().find(|link| link.name == name).map(|link| link.index);
                    prop_assert_eq!(mirror.links().named(name).map(|link| link.index), listed_index);
                }
                let is_changed =
                    |index: &u32| !read.contains(index) && before.get(index) != mirrored.get(index);
                for index in before.keys().chain(mirrored.keys()).filter(|index| is_changed(index)) {
                    prop_assert!(changed.iter().any(|link| link.index == *index));
                }
                prop_assert!(receive(&mut mirror, &watch).unwrap().is_empty());
                let listed = watch.list(&mut netlink).unwrap();
                prop_assert!(mirror.list(listed).iter().all(|link| !link.up));
            }
            Ok(())
        })
    };
    let namespace = Namespace::create().unwrap();
    namespace.run(run).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn lost_notifications_are_recovered_by_listing() {
    let namespace = Namespace::create().unwrap();
    let lost = namespace.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let (watch, mut mirror) = open(&mut netlink);
        netlink.execute(Request::add_link("a", bare("a", "bridge"))).unwrap();
        let index = netlink.link_named("a").unwrap().unwrap().index;
        let mtu = |mtu| Request::set("a", index, "MTU", vec![LinkAttribute::Mtu(mtu)]);
        for _ in 0..100 {
            assert!(netlink.batch((1300..1500).map(mtu).collect()).iter().all(Result::is_ok));
        }
        assert_eq!(receive(&mut mirror, &watch), None);
        let found = mirror.list(watch.list(&mut netlink).unwrap());
        assert!(found.iter().any(|link| link.index == index && link.mtu == 1499), "{found:?}");
        assert_eq!(receive(&mut mirror, &watch), Some(Vec::new()));
        assert_eq!(mirror.links().iter().count(), netlink.links().unwrap().len());
    });
    lost.await.unwrap();
}
