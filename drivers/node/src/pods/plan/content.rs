//! Addresses, routes, policy rules and sysctls of an interface.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use eno_schemas::{PodLink, PodRoute, PodRule};
use ipnet::IpNet;
use nix::errno::Errno;

use super::settings::{Target, announcements};
use super::{DesiredPod, Op, Planner, Setting};
use crate::host::state::TABLE_MAIN;
use crate::netlink::{Address, Link, PROTOCOL, Request, Route, Rule};
use crate::pods::check::{self, Refusal};
use crate::pods::ownership::{self, Property};
use crate::pods::sysctl;

/// `IP6_RT_PRIO_USER`: the metric of an IPv6 route without one.
const DEFAULT_METRIC_V6: u32 = 1024;

impl<'a> Planner<'a> {
    /// Plans the addresses: new ones are added before old ones are deleted. Addresses of the pod's own processes stay.
    pub(super) fn addresses(&mut self, link: &'a PodLink, target: Target<'_>) -> Result<(), Refusal> {
        let observed = self.observed;
        let index = target.found().map(|found| found.index);
        let mine = || observed.pod.addresses.iter().filter(|address| Some(address.index) == index);
        let is_missing = |net: &IpNet| mine().all(|address| address.net != *net);
        let missing: Vec<IpNet> = link.addresses.iter().copied().filter(is_missing).collect();
        let waits = !missing.is_empty() && self.waits_for_port(link, target);
        if !waits || index.is_none() {
            missing.iter().try_for_each(|net| self.check_address_free(*net, index))?;
        }
        if waits {
            self.plan.awaiting_port.insert(link.id.clone());
            return Ok(());
        }
        for net in &missing {
            self.set(link, target, Setting::Address(*net));
        }
        let Target::Found(found) = target else { return Ok(()) };
        let old: Vec<&Address> = mine()
            .filter(|address| self.is_address_ours(address) && !link.addresses.contains(&address.net))
            .collect();
        for address in &old {
            self.in_pod(link, Request::delete_address(&found.name, address));
        }
        // With the primary IPv4 address of a network the kernel deletes the secondary ones: they are added again.
        for net in link.addresses.iter().filter(|net| net.addr().is_ipv4()) {
            if old.iter().any(|address| address.net.trunc() == net.trunc()) {
                self.set(link, target, Setting::Address(*net));
            }
        }
        if found.up && link.up {
            self.announce(link, found, &missing);
        }
        Ok(())
    }

    /// Has the kernel announce the addresses of an interface that is up. It does so when a MAC address is set, even to
    /// the same value.
    fn announce(&mut self, link: &'a PodLink, found: &Link, new: &[IpNet]) {
        let Some(mac) = found.mac else { return };
        let requested = link.mac.as_deref().and_then(|mac| check::parse_mac(mac).ok());
        let ops: Vec<Op> = announcements(link, new, &found.name).collect();
        if !ops.is_empty() {
            for op in ops {
                self.push(Some(&link.id), op);
            }
            // The MAC address of an ipvlan is that of its lower interface, and can't be set.
            let request = Setting::Mac(requested.unwrap_or(mac)).of(found).tolerating(Errno::EOPNOTSUPP);
            self.in_pod(link, request);
        }
    }

    /// Refuses an address that a foreign interface of the pod has. `index`: the interface that is to have it.
    pub(super) fn check_address_free(&self, net: IpNet, index: Option<u32>) -> Result<(), Refusal> {
        let elsewhere = self.observed.pod.addresses.iter().find(|address| {
            Some(address.index) != index
                && address.net.addr() == net.addr()
                && !self.ours.values().any(|ours| ours.index == address.index)
                && !self.deleted.contains(&address.index)
        });
        let Some(address) = elsewhere else { return Ok(()) };
        let holder = self.observed.pod.link(address.index).map_or("another interface", |link| &link.name);
        Err(Refusal::temporary(format!("the pod has the address {} already, on {holder}", net.addr())))
    }

    /// True when ENO added the address. Kernels without `IFA_PROTO` don't tell, so all permanent addresses count.
    fn is_address_ours(&self, address: &Address) -> bool {
        let link_local = matches!(address.net.addr(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        address.protocol == PROTOCOL
            || (!self.observed.has_address_protocol
                && address.protocol == 0
                && address.permanent
                && !link_local)
    }

    /// Plans the routes of an interface that is up: the kernel has no routes over one that is down.
    pub(super) fn routes(&mut self, link: &'a PodLink, found: &Link) {
        if !link.up {
            return;
        }
        for route in &link.routes {
            let desired = desired_route(route, found.index);
            let mut same_key = self.observed.pod.routes.iter().filter(|have| {
                (have.table, have.prefix, have.metric) == (desired.table, desired.prefix, desired.metric)
            });
            let there = same_key.clone().any(|have| {
                have.index == desired.index
                    && have.gateway == desired.gateway
                    && (have.source == desired.source || desired.source.is_none())
            });
            if there {
                continue;
            }
            let replace = same_key.any(|have| have.protocol == PROTOCOL && have.index == desired.index);
            let on_link =
                desired.gateway.is_some_and(|ip| !link.addresses.iter().any(|net| net.contains(&ip)));
            self.in_pod(link, Request::add_route(&desired, on_link, replace));
        }
    }

    pub(super) fn rules(&mut self, link: &'a PodLink) {
        for rule in &link.rules {
            for desired in desired_rules(link, rule) {
                if !self.observed.pod.rules.iter().any(|have| same_rule(have, &desired)) {
                    self.in_pod(link, Request::add_rule(&desired));
                }
            }
        }
    }

    /// Deletes ENO's undesired routes and rules. They go before interfaces: a later run looks for them only in pods
    /// with interfaces of ENO.
    pub(super) fn delete_unwanted_routing(&mut self) {
        let links = &self.desired.pod.links;
        let observed = self.observed;
        for rule in observed.pod.rules.iter().filter(|rule| rule.protocol == PROTOCOL) {
            let desired = links
                .iter()
                .flat_map(|link| link.rules.iter().flat_map(move |rule| desired_rules(link, rule)))
                .any(|desired| same_rule(rule, &desired));
            if !desired {
                self.push(None, Op::Pod(Request::delete_rule(rule)));
            }
        }
        for route in observed.pod.routes.iter().filter(|route| route.protocol == PROTOCOL) {
            let owner = self.ours.iter().find(|(_, link)| Some(link.index) == route.index).map(|(id, _)| *id);
            let desired = links.iter().filter(|link| Some(link.id.as_str()) == owner).any(|link| {
                link.routes.iter().any(|desired| {
                    let desired = desired_route(desired, route.index.unwrap_or_default());
                    (desired.table, desired.prefix, desired.metric)
                        == (route.table, route.prefix, route.metric)
                })
            });
            if !desired {
                self.push(None, Op::Pod(Request::delete_route(route)));
            }
        }
    }

    pub(super) fn sysctls(&mut self, link: &'a PodLink, found: &Link) -> Result<(), Refusal> {
        for (key, value) in desired_sysctls(link) {
            let Some(path) = sysctl::path(key, &found.name) else { continue };
            match self.observed.sysctls.get(&path) {
                Some(have) if sysctl::is_same(have, value) => {}
                Some(have) => {
                    if sysctl::check(key, have.trim()).is_ok() {
                        self.record_original(link, found, &Property::Sysctl(key.to_owned()), have.trim());
                    }
                    self.push(Some(&link.id), Op::Sysctl { path, value: value.to_owned() });
                }
                None => {
                    return Err(Refusal::permanent(format!("this node has no sysctl {}", path.display())));
                }
            }
        }
        Ok(())
    }

    /// Restores sysctls that are not desired any more. This comes after addresses, since disabling IPv6 deletes those.
    pub(super) fn restore_sysctls(&mut self, link: &'a PodLink, found: &Link) {
        let desired = desired_sysctls(link);
        let original_values =
            ownership::original_values(self.desired.cluster, self.desired.uid, &link.id, found);
        for (property, original) in &original_values {
            let Property::Sysctl(key) = property else { continue };
            let path = sysctl::path(key, &found.name).filter(|_| !desired.contains_key(key.as_str()));
            let Some(path) = path else { continue };
            match self.observed.sysctls.get(&path) {
                Some(have) if !sysctl::is_same(have, &original.value) => {
                    self.push(Some(&link.id), Op::Sysctl { path, value: original.value.clone() });
                }
                _ => self.forget_original(link, found, original),
            }
        }
    }
}

/// The desired sysctls of a link, by key. A link with an IPv6 address gets IPv6 enabled.
pub fn desired_sysctls(link: &PodLink) -> BTreeMap<&str, &str> {
    let mut desired: BTreeMap<&str, &str> =
        link.sysctls.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    if link.addresses.iter().any(|net| net.addr().is_ipv6()) {
        desired.entry(sysctl::DISABLE_IPV6).or_insert("0");
    }
    desired
}

/// The files of the sysctls that a link has to have, or that are to be restored, below `/proc/sys/net`.
pub fn watched_sysctls(desired: &DesiredPod<'_>, link: &PodLink, found: &Link) -> BTreeSet<PathBuf> {
    let original_values = ownership::original_values(desired.cluster, desired.uid, &link.id, found);
    let original = original_values.keys().filter_map(|property| match property {
        Property::Sysctl(key) => Some(key.as_str()),
        Property::Mac | Property::Mtu => None,
    });
    let keys = desired_sysctls(link).into_keys().chain(original);
    keys.filter_map(|key| sysctl::path(key, &found.name)).collect()
}

fn desired_route(route: &PodRoute, index: u32) -> Route {
    let default = if route.prefix.addr().is_ipv6() { DEFAULT_METRIC_V6 } else { 0 };
    Route {
        table: route.table.unwrap_or(TABLE_MAIN),
        prefix: route.prefix.trunc(),
        gateway: route.next_hop,
        index: Some(index),
        metric: route.metric.unwrap_or(default),
        source: route.source,
        protocol: PROTOCOL,
    }
}

/// The kernel rules for a desired rule. Without source and destination there is one for each address family of the
/// link.
fn desired_rules(link: &PodLink, rule: &PodRule) -> Vec<Rule> {
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
            input: None,
            mark: None,
            protocol: PROTOCOL,
        })
        .collect()
}

/// True when two rules are equal but for their protocol.
fn same_rule(a: &Rule, b: &Rule) -> bool {
    *a == Rule { protocol: a.protocol, ..b.clone() }
}
