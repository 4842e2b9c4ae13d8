//! Own addresses on ENO's interfaces of the host, and how the host answers from them.
//!
//! The main routing table must not change. So an address is added without its network's route
//! (`IFA_F_NOPREFIXROUTE`). That route is in a table of the interface, which policy rules select.

use std::net::IpAddr;

use ipnet::IpNet;

use super::guard::{self, Refusal};
use super::ownership;
use super::plan::{ItemRef, Planner};
use crate::netlink::{Link, PROTOCOL, PROTOCOL_KERNEL, Request, Route, Rule};

/// Priority of ENO's policy rules: before the rule for the main table (32766).
const RULE_PRIORITY: u32 = 20_101;

impl Planner<'_> {
    /// Checks that an interface may have these addresses, and that no other network has them. `own`: its index.
    pub(super) fn claim_addresses(
        &mut self,
        name: &str,
        own: Option<u32>,
        addresses: &[IpNet],
    ) -> Result<(), Refusal> {
        for address in addresses {
            guard::own_address(self.state, own, self.group, *address)?;
            if let Some((_, other)) = self.addresses.iter().find(|(taken, _)| taken.addr() == address.addr())
            {
                return Err(Refusal::AddressTaken { address: *address, other: other.clone() });
            }
        }
        self.addresses.extend(addresses.iter().map(|address| (*address, name.to_owned())));
        Ok(())
    }

    /// Plans exactly these addresses, besides link-local ones.
    pub(super) fn own_addresses(&mut self, item: &ItemRef, link: &Link, wanted: &[IpNet]) {
        let state = self.state;
        // An address with its network's route in the main table was added by another process.
        let routed = |net: &IpNet| {
            state
                .main_routes_of(link.index)
                .any(|route| route.protocol == PROTOCOL_KERNEL && route.prefix == net.trunc())
        };
        let fine = |net: &IpNet| wanted.contains(net) && !routed(net);
        for address in state.addresses_of(link.index) {
            if address.permanent && !fine(&address.net) && !link_local(&address.net) {
                let request = Request::delete_address(&link.name, address);
                self.step(item, request, format!("{} had the address {}", link.name, address.net));
            }
        }
        for net in wanted {
            let there = state.addresses_of(link.index).any(|address| address.net == *net);
            if !there || routed(net) {
                let request = Request::add_address_alone(&link.name, link.index, *net);
                self.step(item, request, format!("{} did not have the address {net}", link.name));
            }
        }
    }

    /// Plans exactly the routes to the networks of these addresses, in the interface's table, and default routes to these
    /// gateways in them.
    pub(super) fn own_routes(
        &mut self,
        item: &ItemRef,
        link: &Link,
        addresses: &[IpNet],
        gateways: impl Iterator<Item = IpAddr>,
    ) {
        let table = ownership::table(link.index);
        let mut routes: Vec<Route> = Vec::new();
        for net in addresses.iter().filter(|net| net.prefix_len() < net.max_prefix_len()) {
            let prefix = net.trunc();
            if routes.iter().all(|route| route.prefix != prefix) {
                routes.push(Route {
                    table,
                    prefix,
                    gateway: None,
                    index: Some(link.index),
                    metric: 0,
                    source: Some(net.addr()),
                    protocol: PROTOCOL,
                });
            }
        }
        routes.extend(gateways.map(|gateway| Route {
            table,
            prefix: any(gateway),
            gateway: Some(gateway),
            index: Some(link.index),
            metric: 0,
            source: None,
            protocol: PROTOCOL,
        }));
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

    /// A policy rule that selects the interface's table for all packets of a family.
    pub(super) fn rule_of(link: &Link, v6: bool) -> Rule {
        Rule {
            v6,
            priority: RULE_PRIORITY,
            table: ownership::table(link.index),
            from: None,
            to: None,
            input: None,
            mark: None,
            protocol: PROTOCOL,
        }
    }

    /// Plans a policy rule.
    pub(super) fn own_rule(&mut self, item: &ItemRef, rule: Rule) {
        if !self.state.snapshot.rules.contains(&rule) {
            let from = rule.from.map(|from| format!(" from {from}"));
            let to = rule.to.map(|to| format!(" to {to}"));
            let mark = rule.mark.map(|(mark, mask)| format!(" for the mark {mark:#x}/{mask:#x}"));
            let parts: String = [from, to, mark].into_iter().flatten().collect();
            self.step(item, Request::add_rule(&rule), format!("the rule{parts} was missing"));
        }
        self.rules.push(rule);
    }

    /// Keeps the policy rules and chains of a refused network.
    pub(super) fn keep_rules(&mut self, name: &str) {
        self.keep_chains(name);
        if let Some(link) = self.state.named(name).filter(|link| link.group == self.group) {
            let table = ownership::table(link.index);
            self.rules.extend(self.state.snapshot.rules.iter().filter(|rule| rule.table == table).cloned());
        }
    }

    /// Deletes ENO's policy rules whose interface is gone or has other addresses.
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

/// The network of all addresses of that family.
fn any(address: IpAddr) -> IpNet {
    IpNet::new(address, 0).map_or_else(|_| address.into(), |net| net.trunc())
}

fn link_local(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local())
}
