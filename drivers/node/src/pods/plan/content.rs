//! What is on an interface: addresses, routes, rules, sysctls.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use eno_schemas::{PodLink, PodRoute, PodRule};
use ipnet::IpNet;
use nix::errno::Errno;

use super::link::{announcements, set_mac};
use super::{Op, Planner, Wanted};
use crate::netlink::{Address, Link, PROTOCOL, Request, Route, Rule};
use crate::pods::check::{self, Refusal};
use crate::pods::mark::{self, Property};
use crate::pods::sysctl;

/// `RT_TABLE_MAIN`.
pub(super) const MAIN: u32 = 254;
/// `IP6_RT_PRIO_USER`: what a route has that names none.
const METRIC_V6: u32 = 1024;

impl<'a> Planner<'a> {
    /// New addresses come before old ones go; what the pod's own processes added stays.
    pub(super) fn addresses(&mut self, link: &'a PodLink, found: &'a Link) -> Result<(), Refusal> {
        let seen = self.seen;
        let mut new = Vec::new();
        for net in &link.addresses {
            let here = |address: &&Address| address.index == found.index && address.net == *net;
            if seen.pod.addresses.iter().any(|address| here(&address)) {
                continue;
            }
            self.not_elsewhere(*net, Some(found.index))?;
            self.in_pod(link, Request::add_address(&found.name, found.index, *net));
            new.push(*net);
        }
        let mine = seen.pod.addresses.iter().filter(|address| address.index == found.index);
        let old: Vec<&Address> = mine
            .filter(|address| self.made_by_us(address) && !link.addresses.contains(&address.net))
            .collect();
        for address in &old {
            self.in_pod(link, Request::delete_address(&found.name, address));
        }
        // With the first IPv4 address of a network the kernel deletes the others of it: they come again.
        for net in link.addresses.iter().filter(|net| net.addr().is_ipv4()) {
            if old.iter().any(|address| address.net.trunc() == net.trunc()) {
                self.in_pod(link, Request::add_address(&found.name, found.index, *net));
            }
        }
        if found.up && link.up {
            self.announce(link, found, &new);
        }
        Ok(())
    }

    /// Has the kernel announce the addresses of an interface that is up. It does so when a hardware address is set, even to
    /// the one that is there.
    fn announce(&mut self, link: &'a PodLink, found: &Link, new: &[IpNet]) {
        let Some(mac) = found.mac else { return };
        let asked = link.mac.as_deref().and_then(|mac| check::parse_mac(mac).ok());
        let ops: Vec<Op> = announcements(link, new, &found.name).collect();
        if !ops.is_empty() {
            for op in ops {
                self.push(Some(&link.id), op);
            }
            // An ipvlan has that of the interface that it is made on.
            let request = set_mac(found, asked.unwrap_or(mac)).tolerating(Errno::EOPNOTSUPP);
            self.in_pod(link, request);
        }
    }

    /// No interface but that one, others of ours, and those that go, has the address.
    pub(super) fn not_elsewhere(&self, net: IpNet, index: Option<u32>) -> Result<(), Refusal> {
        let elsewhere = self.seen.pod.addresses.iter().find(|address| {
            Some(address.index) != index
                && address.net.addr() == net.addr()
                && !self.ours.values().any(|ours| ours.index == address.index)
                && !self.doomed.contains(&address.index)
        });
        let Some(address) = elsewhere else { return Ok(()) };
        let holder = self.seen.pod.link(address.index).map_or("another interface", |link| &link.name);
        Err(Refusal::for_now(format!("the pod has the address {} already, on {holder}", net.addr())))
    }

    /// Kernels that don't keep the mark leave us to guess: all that was given to an interface of ours.
    fn made_by_us(&self, address: &Address) -> bool {
        let link_local = matches!(address.net.addr(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        address.protocol == PROTOCOL
            || (!self.seen.address_marks && address.protocol == 0 && address.permanent && !link_local)
    }

    /// Only while the interface is up: the kernel has no routes through others.
    pub(super) fn routes(&mut self, link: &'a PodLink, found: &'a Link) {
        if !link.up {
            return;
        }
        for route in &link.routes {
            let wanted = wanted_route(route, found.index);
            let mut same_key = self.seen.pod.routes.iter().filter(|have| {
                (have.table, have.prefix, have.metric) == (wanted.table, wanted.prefix, wanted.metric)
            });
            let there = same_key.clone().any(|have| {
                have.index == wanted.index
                    && have.gateway == wanted.gateway
                    && (have.source == wanted.source || wanted.source.is_none())
            });
            if there {
                continue;
            }
            let replace = same_key.any(|have| have.protocol == PROTOCOL && have.index == wanted.index);
            let on_link =
                wanted.gateway.is_some_and(|ip| !link.addresses.iter().any(|net| net.contains(&ip)));
            self.in_pod(link, Request::add_route(&wanted, on_link, replace));
        }
    }

    pub(super) fn rules(&mut self, link: &'a PodLink) {
        for rule in &link.rules {
            for wanted in wanted_rules(link, rule) {
                if !self.seen.pod.rules.iter().any(|have| same_rule(have, &wanted)) {
                    self.in_pod(link, Request::add_rule(&wanted));
                }
            }
        }
    }

    /// Routes and rules of ours that nothing wants. They go first, since what is left of ours is found by its
    /// interfaces.
    pub(super) fn routing_that_goes(&mut self) {
        let links = &self.wanted.pod.links;
        let seen = self.seen;
        for rule in seen.pod.rules.iter().filter(|rule| rule.protocol == PROTOCOL) {
            let wanted = links
                .iter()
                .flat_map(|link| link.rules.iter().flat_map(move |rule| wanted_rules(link, rule)))
                .any(|wanted| same_rule(rule, &wanted));
            if !wanted {
                self.push(None, Op::Pod(Request::delete_rule(rule)));
            }
        }
        for route in seen.pod.routes.iter().filter(|route| route.protocol == PROTOCOL) {
            let owner = self.ours.iter().find(|(_, link)| Some(link.index) == route.index).map(|(id, _)| *id);
            let wanted = links.iter().filter(|link| Some(link.id.as_str()) == owner).any(|link| {
                link.routes.iter().any(|wanted| {
                    let wanted = wanted_route(wanted, route.index.unwrap_or_default());
                    (wanted.table, wanted.prefix, wanted.metric) == (route.table, route.prefix, route.metric)
                })
            });
            if !wanted {
                self.push(None, Op::Pod(Request::delete_route(route)));
            }
        }
    }

    pub(super) fn sysctls(&mut self, link: &'a PodLink, found: &'a Link) -> Result<(), Refusal> {
        for (key, value) in wanted_sysctls(link) {
            let Some(path) = sysctl::path(key, &found.name) else { continue };
            match self.seen.sysctls.get(&path) {
                Some(have) if sysctl::same(have, value) => {}
                Some(have) => {
                    if sysctl::check(key, have.trim()).is_ok() {
                        self.remember(link, found, &Property::Sysctl(key.to_owned()), have.trim());
                    }
                    self.push(Some(&link.id), Op::Sysctl { path, value: value.to_owned() });
                }
                None => {
                    return Err(Refusal::never(format!("this node has no sysctl {}", path.display())));
                }
            }
        }
        Ok(())
    }

    /// Settings that are not asked for any more. They come after addresses, which may go with what they need.
    pub(super) fn former_sysctls(&mut self, link: &'a PodLink, found: &'a Link) {
        let wanted = wanted_sysctls(link);
        let formers = mark::formers(self.wanted.cluster, self.wanted.uid, &link.id, found);
        for (property, former) in &formers {
            let Property::Sysctl(key) = property else { continue };
            let path = sysctl::path(key, &found.name).filter(|_| !wanted.contains_key(key.as_str()));
            let Some(path) = path else { continue };
            match self.seen.sysctls.get(&path) {
                Some(have) if !sysctl::same(have, &former.value) => {
                    self.push(Some(&link.id), Op::Sysctl { path, value: former.value.clone() });
                }
                _ => self.given_back(link, found, former),
            }
        }
    }
}

/// The settings that a link is to have. One with an IPv6 address has IPv6.
pub fn wanted_sysctls(link: &PodLink) -> BTreeMap<&str, &str> {
    let mut wanted: BTreeMap<&str, &str> =
        link.sysctls.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    if link.addresses.iter().any(|net| net.addr().is_ipv6()) {
        wanted.entry(sysctl::DISABLE_IPV6).or_insert("0");
    }
    wanted
}

/// Where the settings are that a link is to have, or that it gets back.
pub fn watched_sysctls(wanted: &Wanted<'_>, link: &PodLink, found: &Link) -> BTreeSet<PathBuf> {
    let formers = mark::formers(wanted.cluster, wanted.uid, &link.id, found);
    let former = formers.keys().filter_map(|property| match property {
        Property::Sysctl(key) => Some(key.as_str()),
        Property::Mac | Property::Mtu => None,
    });
    let keys = wanted_sysctls(link).into_keys().chain(former);
    keys.filter_map(|key| sysctl::path(key, &found.name)).collect()
}

fn wanted_route(route: &PodRoute, index: u32) -> Route {
    let default = if route.prefix.addr().is_ipv6() { METRIC_V6 } else { 0 };
    Route {
        table: route.table.unwrap_or(MAIN),
        prefix: route.prefix.trunc(),
        gateway: route.next_hop,
        index: Some(index),
        metric: route.metric.unwrap_or(default),
        source: route.source,
        protocol: PROTOCOL,
    }
}

/// A rule that names neither end holds for the families that its link speaks.
fn wanted_rules(link: &PodLink, rule: &PodRule) -> Vec<Rule> {
    let named = rule.from.or(rule.to).map(|net| net.addr().is_ipv6());
    let speaks = |v6: bool| {
        let mut nets = link.addresses.iter().copied().chain(link.routes.iter().map(|route| route.prefix));
        nets.any(|net: IpNet| net.addr().is_ipv6() == v6)
    };
    let families: Vec<bool> = match named {
        Some(v6) => vec![v6],
        None if speaks(true) && speaks(false) => vec![false, true],
        None => vec![speaks(true)],
    };
    families
        .into_iter()
        .map(|v6| Rule {
            v6,
            priority: rule.priority,
            table: rule.table,
            from: rule.from.map(|net| net.trunc()),
            to: rule.to.map(|net| net.trunc()),
            protocol: PROTOCOL,
        })
        .collect()
}

/// Whoever made it.
fn same_rule(a: &Rule, b: &Rule) -> bool {
    (a.v6, a.priority, a.table, a.from, a.to) == (b.v6, b.priority, b.table, b.from, b.to)
}
