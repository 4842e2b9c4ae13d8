//! The addresses that IPAM plugins hand out for a configuration: exactly those of the pools.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use eno_driver_nad::codec::render;
use eno_schemas::VlanAttachment;
use ipnet::Ipv4Net;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The network of these tests: 10.0.0.0/24.
const BASE: u32 = 0x0a00_0000;
const LAST: u32 = BASE + 255;

fn text(at: u32) -> String {
    Ipv4Addr::from_bits(BASE + at).to_string()
}

fn ipam(plugin: &str, pools: &[(u32, u32)]) -> Value {
    let pools: Vec<Value> =
        pools.iter().map(|(start, end)| json!({ "start": text(*start), "end": text(*end) })).collect();
    let attachment: VlanAttachment = serde_json::from_value(json!({
        "cni": { "type": "ovs", "bridge": "br-data" },
        "vlans": { "access": 13 },
        "subnets": [{ "ipam": plugin, "network": "10.0.0.0/24", "pools": pools }],
    }))
    .expect("an attachment");
    let rendered = render("net", &attachment).expect("a configuration");
    serde_json::from_str::<Value>(&rendered.config).expect("JSON")["ipam"].clone()
}

fn bits(value: &Value) -> u32 {
    value.as_str().expect("an address").parse::<Ipv4Addr>().expect("an address").to_bits()
}

/// The addresses of whereabouts' `range` and `exclude`. A range end that is the network or broadcast address
/// counts as absent (`GetIPRange`).
fn whereabouts(ipam: &Value) -> BTreeSet<u32> {
    let range = ipam["range"].as_str().expect("range");
    let (mut first, mut last) = (BASE + 1, LAST - 1);
    if let Some((start, end)) = range.split_once('-') {
        let (start, end) =
            (start.parse::<Ipv4Addr>().expect("an address"), end.parse::<Ipv4Net>().expect("a prefix"));
        first = Some(start.to_bits()).filter(|at| (first..=last).contains(at)).unwrap_or(first);
        last = Some(end.addr().to_bits()).filter(|at| (first..=last).contains(at)).unwrap_or(last);
    }
    let exclude: Vec<Ipv4Net> = serde_json::from_value(ipam["exclude"].clone()).unwrap_or_default();
    let excluded = |at: &u32| exclude.iter().any(|net| net.contains(&Ipv4Addr::from_bits(*at)));
    (first..=last).filter(|at| !excluded(at)).collect()
}

/// The addresses of host-local's one set of `ranges`. The plugin keeps the first address for a gateway.
fn host_local(ipam: &Value) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for range in ipam["ranges"][0].as_array().expect("a set of ranges") {
        let end = |key: &str, default| if range[key].is_null() { default } else { bits(&range[key]) };
        all.extend(end("rangeStart", BASE + 1)..=end("rangeEnd", LAST - 1));
    }
    all.remove(&(BASE + 1));
    all
}

proptest! {
    #[test]
    fn rendered_ipam_covers_exactly_the_pools(
        pools in proptest::collection::vec((1u32..255, 0u32..40), 0..8),
    ) {
        let pools: Vec<(u32, u32)> = pools.into_iter().map(|(at, more)| (at, (at + more).min(254))).collect();
        let in_pools = |at: &u32| pools.is_empty() || pools.iter().any(|(start, end)| (start..=end).contains(&&(at - BASE)));
        let wanted: BTreeSet<u32> = (BASE + 1..LAST).filter(in_pools).collect();
        prop_assert_eq!(&whereabouts(&ipam("whereabouts", &pools)), &wanted);
        let but_the_gateway: BTreeSet<u32> = wanted.into_iter().filter(|at| *at != BASE + 1).collect();
        prop_assert_eq!(&host_local(&ipam("host-local", &pools)), &but_the_gateway);
        if let Some((start, _)) = pools.first() {
            prop_assert_eq!(&ipam("static", &pools)["addresses"], &json!([{ "address": format!("{}/24", text(*start)) }]));
        }
    }
}
