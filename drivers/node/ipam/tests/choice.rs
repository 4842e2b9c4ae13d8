//! Which address a pod gets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use eno_ipam::choice::choose;
use eno_ipam::{Lease, Reason};
use eno_schemas::NodeAddresses;
use ipnet::IpNet;
use proptest::prelude::*;

use crate::common::{address, fixed, lease, ranges};

fn of(
    ranges: &NodeAddresses,
    leases: &[Lease],
    last: &str,
    pod: &str,
    wanted: &str,
) -> Result<String, Reason> {
    choose(ranges, leases, last.parse().ok(), ("apps", pod), wanted.parse().ok())
        .map(|address| address.to_string())
}

#[test]
fn search_begins_after_the_last_address() {
    let blocks = ranges(&["10.0.0.4/30", "10.0.0.16/31"]);
    let leases = [lease("10.0.0.5", "a"), lease("10.0.0.16", "b")];
    for (last, expected) in [
        ("", "10.0.0.4"),
        ("10.0.0.4", "10.0.0.6"),
        ("10.0.0.7", "10.0.0.17"),
        // The end, addresses between and after the blocks, and another family.
        ("10.0.0.17", "10.0.0.4"),
        ("10.0.0.9", "10.0.0.17"),
        ("10.0.0.200", "10.0.0.4"),
        ("2001:db8::1", "10.0.0.4"),
    ] {
        assert_eq!(of(&blocks, &leases, last, "new", ""), Ok(expected.into()), "after {last:?}");
    }
    // No more addresses are looked at than are taken.
    let large = ranges(&["2001:db8::/64"]);
    assert_eq!(of(&large, &[], "2001:db8::ffff:0:0:0", "new", ""), Ok("2001:db8::ffff:0:0:1".into()));
    assert_eq!(of(&large, &[], "2001:db8::ffff:ffff:ffff:ffff", "new", ""), Ok("2001:db8::".into()));
}

#[test]
fn pods_get_what_is_meant_for_them() {
    let mut given = ranges(&["10.0.0.4/31"]);
    given.excluded = vec![address("10.0.0.4"), address("10.0.0.40")];
    given.fixed = vec![fixed("10.0.0.30", "db-0"), fixed("10.0.0.31", "db-1"), fixed("10.0.0.40", "db-2")];
    let sticky = NodeAddresses { sticky: true, ..given.clone() };
    let used = |address, pod: &str| Err(Reason::Used { address, namespace: "apps".into(), pod: pod.into() });
    let ok = |text: &str| Ok(text.to_owned());
    let (five, thirty) = (address("10.0.0.5"), address("10.0.0.30"));
    let former = [lease("10.0.0.30", "db-0")];
    let full = [lease("10.0.0.5", "web")];
    for (ranges, leases, pod, wanted, expected) in [
        (&given, &[][..], "web", "", ok("10.0.0.5")),
        (&given, &full, "web", "", Err(Reason::NoneFree)),
        (&given, &[], "db-0", "", ok("10.0.0.30")),
        (&given, &former, "db-0", "", ok("10.0.0.5")),
        (&given, &[], "db-9", "", ok("10.0.0.5")),
        (&given, &[], "db-2", "", ok("10.0.0.5")),
        (&sticky, &[], "db-0", "", ok("10.0.0.30")),
        (&sticky, &former, "db-0", "", used(thirty, "db-0")),
        (&sticky, &[], "db-9", "", Err(Reason::NotFixed)),
        (&sticky, &[], "db-2", "", Err(Reason::Excluded(address("10.0.0.40")))),
        (&sticky, &[], "web", "", ok("10.0.0.5")),
        (&given, &[], "web", "10.0.0.5", ok("10.0.0.5")),
        (&given, &full, "web", "10.0.0.5", used(five, "web")),
        (&given, &[], "web", "10.0.0.4", Err(Reason::Excluded(address("10.0.0.4")))),
        (&given, &[], "web", "10.0.0.9", Err(Reason::NotHere(address("10.0.0.9")))),
        (&given, &[], "db-0", "10.0.0.30", ok("10.0.0.30")),
        (&given, &[], "db-0", "10.0.0.5", ok("10.0.0.5")),
        (&sticky, &[], "db-0", "10.0.0.5", Err(Reason::NotFixed)),
    ] {
        assert_eq!(of(ranges, leases, "", pod, wanted), expected, "{pod} {wanted} {leases:?}");
    }
    let other = Reason::Fixed { address: thirty, namespace: "apps".into(), pod: "db-0".into() };
    assert_eq!(of(&given, &[], "", "web", "10.0.0.30"), Err(other));
}

/// What happens to a pool.
#[derive(Clone, Debug)]
enum Step {
    /// A pod starts; it may ask for an address.
    Take(u8, Option<u8>),
    /// One of the pods goes.
    Release(u8),
    /// The node gets other blocks, of two addresses each.
    Blocks(BTreeSet<u8>),
    /// Addresses are for pods, and for nobody.
    Fix(Vec<(u8, u8)>, Vec<u8>, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let small = || 0u8..16;
    let step = prop_oneof![
        4 => (small(), proptest::option::weighted(0.3, small())).prop_map(|(pod, wanted)| Step::Take(pod, wanted)),
        2 => any::<u8>().prop_map(Step::Release),
        1 => proptest::collection::btree_set(0u8..8, 0..8).prop_map(Step::Blocks),
        1 => (
            proptest::collection::vec((small(), small()), 0..3),
            proptest::collection::vec(small(), 0..3),
            any::<bool>(),
        )
            .prop_map(|(fixed, excluded, sticky)| Step::Fix(fixed, excluded, sticky)),
    ];
    proptest::collection::vec(step, 1..60)
}

fn at(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

proptest! {
    /// No address has two pods, none is given that the node may not give to this pod, and no pod waits while one is
    /// free that it may have. An address that was released is given again only after all other free ones.
    #[test]
    fn addresses_have_one_pod_and_none_is_lost(steps in steps()) {
        let mut ranges = ranges(&["10.0.0.0/30"]);
        let mut leases: Vec<Lease> = Vec::new();
        let mut last = None;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Release(which) if !leases.is_empty() => {
                    leases.remove(usize::from(which) % leases.len());
                }
                Step::Release(_) => {}
                Step::Blocks(blocks) => {
                    ranges.blocks = blocks.into_iter().filter_map(|at_two| IpNet::new(at(at_two * 2), 31).ok()).collect();
                }
                Step::Fix(fixed_for, excluded, sticky) => {
                    ranges.fixed = fixed_for.into_iter().map(|(address, pod)| fixed(&at(address).to_string(), &format!("db-{pod}"))).collect();
                    ranges.excluded = excluded.into_iter().map(at).collect();
                    ranges.sticky = sticky;
                }
                Step::Take(pod, wanted) => {
                    let pod = format!("db-{pod}");
                    let is_own = |address| ranges.fixed.iter().any(|fixed| fixed.address == address && fixed.pod == pod);
                    let is_fixed = |address| ranges.fixed.iter().any(|fixed| fixed.address == address);
                    let may_have = |address| {
                        let in_blocks = ranges.blocks.iter().any(|block| block.contains(&address));
                        !leases.iter().any(|lease| lease.address == address)
                            && !ranges.excluded.contains(&address)
                            && (is_own(address) || in_blocks && !is_fixed(address) && !ranges.sticky)
                            && wanted.is_none_or(|wanted| at(wanted) == address)
                    };
                    let free: Vec<IpAddr> = (0..16).map(at).filter(|address| may_have(*address)).collect();
                    let Ok(address) = choose(&ranges, &leases, last, ("apps", &pod), wanted.map(at)) else {
                        prop_assert_eq!(free, Vec::<IpAddr>::new());
                        continue;
                    };
                    prop_assert!(free.contains(&address), "{address} of {free:?}");
                    let later = free.iter().copied().find(|free| Some(*free) > last);
                    let first = free.iter().copied().find(|free| is_own(*free)).or(later).unwrap_or(free[0]);
                    prop_assert_eq!(address, first);
                    last = Some(address);
                    leases.push(lease(&address.to_string(), &format!("{pod}-{number}")));
                }
            }
        }
    }
}
