//! Pod bridges: bridges without an uplink, for pods of this node only.
//!
//! A pod bridge may have addresses, so that its pods can reach the host, and the main routing table must not change. So
//! an address is added without its network's route (`IFA_F_NOPREFIXROUTE`). That route is in a table of the bridge,
//! which a policy rule selects for packets *from that address to that network*. So the host answers its pods, and no
//! other traffic of the host uses that route.

use ipnet::IpNet;

use super::guard::{self, Refusal};
use super::ownership;
use super::plan::{ItemRef, Planner, bridge_message};
use crate::netlink::{Kind, Link, PROTOCOL, PROTOCOL_KERNEL, Request, Route, Rule};

/// Priority of ENO's policy rules: before the rule for the main table (32766).
const RULE_PRIORITY: u32 = 20_101;

impl Planner<'_> {
    pub(super) fn pod_bridge(
        &mut self,
        name: &str,
        addresses: &[IpNet],
        mtu: Option<u32>,
    ) -> Result<(), Refusal> {
        let item = ItemRef::Network(name.to_owned());
        guard::bridge_name(name)?;
        let found = self.owned_link(&item, name, |kind| matches!(kind, Kind::Bridge { .. }))?;
        for address in addresses {
            guard::bridge_address(self.state, found.map(|bridge| bridge.index), self.group, *address)?;
            if let Some((_, other)) = self.addresses.iter().find(|(taken, _)| taken.addr() == address.addr())
            {
                return Err(Refusal::AddressTaken { address: *address, other: other.clone() });
            }
        }
        self.addresses.extend(addresses.iter().map(|address| (*address, name.to_owned())));
        let Some(bridge) = found else {
            let mac = ownership::mac(self.cluster, name).to_vec();
            let message = bridge_message(name, self.group, mtu).address(mac).build();
            self.step(&item, Request::add_link(name, message), format!("the bridge {name} was missing"));
            return Ok(());
        };
        if matches!(bridge.kind, Kind::Bridge { vlan_filtering: true, .. }) {
            let message = rtnetlink::LinkMessageBuilder::<rtnetlink::LinkBridge>::new(name)
                .index(bridge.index)
                .vlan_filtering(false)
                .build();
            let request = Request::change_link(format!("have {name} not filter VLANs"), message);
            self.step(&item, request, format!("the bridge {name} filtered VLANs"));
        }
        self.bridge_addresses(&item, bridge, addresses);
        self.configure(&item, bridge, mtu);
        self.bridge_routes(&item, bridge, addresses);
        Ok(())
    }

    fn bridge_addresses(&mut self, item: &ItemRef, bridge: &Link, wanted: &[IpNet]) {
        let state = self.state;
        // An address with its network's route in the main table was added by another process.
        let routed = |net: &IpNet| {
            state
                .main_routes_of(bridge.index)
                .any(|route| route.protocol == PROTOCOL_KERNEL && route.prefix == net.trunc())
        };
        let fine = |net: &IpNet| wanted.contains(net) && !routed(net);
        for address in state.addresses_of(bridge.index) {
            if address.permanent && !fine(&address.net) && !link_local(&address.net) {
                let request = Request::delete_address(&bridge.name, address);
                self.step(item, request, format!("{} had the address {}", bridge.name, address.net));
            }
        }
        for net in wanted {
            let there = state.addresses_of(bridge.index).any(|address| address.net == *net);
            if !there || routed(net) {
                let request = Request::add_address_alone(&bridge.name, bridge.index, *net);
                self.step(item, request, format!("{} did not have the address {net}", bridge.name));
            }
        }
    }

    fn bridge_routes(&mut self, item: &ItemRef, bridge: &Link, addresses: &[IpNet]) {
        let table = ownership::table(bridge.index);
        let mut routes: Vec<Route> = Vec::new();
        for net in addresses.iter().filter(|net| net.prefix_len() < net.max_prefix_len()) {
            let prefix = net.trunc();
            if routes.iter().all(|route| route.prefix != prefix) {
                routes.push(Route {
                    table,
                    prefix,
                    gateway: None,
                    index: Some(bridge.index),
                    metric: 0,
                    source: Some(net.addr()),
                    protocol: PROTOCOL,
                });
            }
            let from = IpNet::from(net.addr());
            let v6 = net.addr().is_ipv6();
            let rule = Rule {
                v6,
                priority: RULE_PRIORITY,
                table,
                from: Some(from),
                to: Some(prefix),
                protocol: PROTOCOL,
            };
            if !self.state.snapshot.rules.contains(&rule) {
                let difference = format!("the rule from {from} to {prefix} was missing");
                self.step(item, Request::add_rule(&rule), difference);
            }
            self.rules.push(rule);
        }
        let same = |a: &Route, b: &Route| {
            (a.prefix, a.index, a.source, a.gateway) == (b.prefix, b.index, b.source, b.gateway)
        };
        for found in self.state.snapshot.routes.iter().filter(|route| route.table == table) {
            if !routes.iter().any(|route| same(route, found)) {
                let difference = format!("table {table} had a route to {}", found.prefix);
                self.step(item, Request::delete_route(found), difference);
            }
        }
        for route in &routes {
            if !self.state.snapshot.routes.iter().any(|found| found.table == table && same(route, found)) {
                let difference = format!("the route to {} was missing", route.prefix);
                self.step(item, Request::add_route(route, false, false), difference);
            }
        }
    }

    /// Keeps the policy rules of a refused bridge.
    pub(super) fn keep_rules(&mut self, name: &str) {
        if let Some(bridge) = self.state.named(name).filter(|link| link.group == self.group) {
            let table = ownership::table(bridge.index);
            self.rules.extend(self.state.snapshot.rules.iter().filter(|rule| rule.table == table).cloned());
        }
    }

    /// Deletes ENO's policy rules whose bridge is gone or has other addresses.
    pub(super) fn remove_stale_rules(&mut self, item: &ItemRef) {
        let foreign = |rule: &Rule| {
            self.state
                .snapshot
                .links
                .iter()
                .any(|link| ownership::table(link.index) == rule.table && link.group != self.group)
        };
        let stale: Vec<Rule> = self
            .state
            .snapshot
            .rules
            .iter()
            .filter(|rule| rule.protocol == PROTOCOL && ownership::is_table(rule.table))
            .filter(|rule| !self.rules.contains(rule) && !foreign(rule))
            .cloned()
            .collect();
        for rule in stale {
            let request = Request::delete_rule(&rule);
            self.step(item, request, format!("the rule to table {} is not wanted", rule.table));
        }
    }
}

fn link_local(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local())
}
