//! The interfaces of VRFs that the data plane connects, derived from the view of a switch. Does no IO.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::dialect::{BgpView, RouteView, RoutedView, View, VlanSet};

/// The MTU of a routed interface whose configuration has none, in bytes of IP packets.
const DEFAULT_MTU: u16 = 1500;

/// The smallest MTU with which Linux has IPv6 on an interface.
const LEAST_IPV6_MTU: u16 = 1280;

/// Added to the preference of a route: Linux takes a metric of 0 for its default, which is higher for IPv6.
const METRIC_OFFSET: u32 = 1;

/// The preference of a route whose configuration has none.
const DEFAULT_PREFERENCE: u32 = 5;

/// The VLANs of a switch that lead into a VRF. The bridge has one broadcast domain for each VLAN, so of several
/// interfaces of one VLAN only the first is connected; sub-interfaces precede IRB interfaces.
#[derive(Debug)]
pub(super) struct RoutedVlans<'a> {
    by_vlan: BTreeMap<u16, (&'a str, &'a RoutedView)>,
}

impl<'a> RoutedVlans<'a> {
    /// Finds the VLANs of the enabled routed interfaces. An IRB interface needs its VLAN on the switch.
    pub(super) fn new(view: &'a View) -> Self {
        let mut by_vlan = BTreeMap::new();
        for irb in [false, true] {
            let all = view
                .vrfs
                .iter()
                .flat_map(|(vrf, content)| content.interfaces.values().map(move |i| (vrf, i)));
            for (vrf, routed) in all.filter(|(_, routed)| routed.port.is_none() == irb && !routed.disabled) {
                if let Some(vlan) = routed.vlan.filter(|vlan| !irb || view.is_active(*vlan)) {
                    by_vlan.entry(vlan).or_insert((vrf.as_str(), routed));
                }
            }
        }
        Self { by_vlan }
    }

    /// The VLANs of the sub-interfaces of a port or link aggregation.
    pub(super) fn of_port(&self, port: &str) -> VlanSet {
        let of_port = self.by_vlan.iter().filter(|(_, (_, routed))| routed.port.as_deref() == Some(port));
        of_port.map(|(vlan, _)| *vlan).collect()
    }

    /// The VRFs that have an interface, by name.
    pub(super) fn vrfs(&self, view: &View) -> BTreeMap<String, VrfConfig> {
        let mut vrfs: BTreeMap<String, VrfConfig> = BTreeMap::new();
        for (vlan, (vrf, routed)) in &self.by_vlan {
            let config = vrfs.entry((*vrf).to_owned()).or_default();
            config.interfaces.insert(*vlan, InterfaceConfig::new(routed));
        }
        for (name, config) in &mut vrfs {
            config.set_routes(&view.vrfs[name].routes);
            config.bgp = view.bgp.get(name).cloned();
        }
        vrfs
    }
}

/// The configuration of a VRF in the data plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VrfConfig {
    /// Its interfaces, by VLAN.
    pub(super) interfaces: BTreeMap<u16, InterfaceConfig>,
    /// Its routes, as `PREFIX via ADDRESS metric NUMBER`.
    pub(super) routes: Vec<String>,
    /// Its BGP instance.
    pub(super) bgp: Option<BgpView>,
    /// How often its switch was rebooted: BGP starts anew then.
    pub(super) boots: u64,
}

impl VrfConfig {
    /// Sets the routes whose next hop is in a connected network; others are not resolved.
    fn set_routes(&mut self, routes: &[RouteView]) {
        let networks: Vec<IpNet> =
            self.interfaces.values().flat_map(|interface| interface.addresses.iter().copied()).collect();
        let resolved = routes.iter().filter(|route| {
            let same_family = route.prefix.addr().is_ipv6() == route.next_hop.is_ipv6();
            same_family && networks.iter().any(|network| network.contains(&route.next_hop))
        });
        let text = |route: &RouteView| {
            let metric = route.preference.unwrap_or(DEFAULT_PREFERENCE).saturating_add(METRIC_OFFSET);
            format!("{} via {} metric {metric}", route.prefix.trunc(), route.next_hop)
        };
        self.routes = resolved.map(text).collect();
        self.routes.dedup();
    }
}

/// The configuration of an interface of a VRF in the data plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InterfaceConfig {
    /// Its addresses.
    pub(super) addresses: Vec<IpNet>,
    /// Bytes of an IP packet.
    pub(super) mtu: u16,
}

impl InterfaceConfig {
    fn new(routed: &RoutedView) -> Self {
        let mtu = routed.mtu.unwrap_or(DEFAULT_MTU);
        let possible = |address: &&IpNet| mtu >= LEAST_IPV6_MTU || address.addr().is_ipv4();
        Self { addresses: routed.addresses.iter().filter(possible).copied().collect(), mtu }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{VlanView, VrfView};

    fn irb(vlan: u16, addresses: &[&str]) -> (String, RoutedView) {
        let addresses = addresses.iter().map(|text| text.parse().expect(text)).collect();
        (format!("irb.{vlan}"), RoutedView { vlan: Some(vlan), addresses, ..RoutedView::default() })
    }

    #[test]
    fn vrf_has_interfaces_of_known_vlans_and_resolved_routes() {
        let route = |prefix: &str, next_hop: &str| RouteView {
            prefix: prefix.parse().expect(prefix),
            next_hop: next_hop.parse().expect(next_hop),
            preference: None,
        };
        let blue = VrfView {
            interfaces: [irb(10, &["10.0.0.1/24", "2001:db8::1/64"]), irb(20, &["10.0.1.1/24"])].into(),
            routes: vec![
                route("192.0.2.1/24", "10.0.0.9"),
                route("198.18.0.0/15", "10.0.1.9"),
                route("2001:db8:1::/48", "2001:db8::9"),
            ],
            ..VrfView::default()
        };
        let mut view = View { vrfs: [("blue".to_owned(), blue)].into(), ..View::default() };
        assert!(RoutedVlans::new(&view).vrfs(&view).is_empty(), "the switch has no VLANs");
        view.vlans.insert(10, VlanView { name: None, status: "ACTIVE".to_owned() });
        let vrfs = RoutedVlans::new(&view).vrfs(&view);
        assert_eq!(vrfs["blue"].interfaces.keys().collect::<Vec<_>>(), [&10]);
        let expected = ["192.0.2.0/24 via 10.0.0.9 metric 6", "2001:db8:1::/48 via 2001:db8::9 metric 6"];
        assert_eq!(vrfs["blue"].routes, expected, "the other next hop is in no connected network");
    }
}
