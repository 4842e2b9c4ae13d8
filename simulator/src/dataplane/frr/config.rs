//! The configuration of bgpd: rendered from that of a VRF, and changed line by line. Does no IO.
//!
//! Policies are route maps and prefix lists whose names are hashes of their content. So they never change while they
//! are used, and each neighbour goes from its old policies to the new ones at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;

use ipnet::IpNet;

use crate::dialect::{
    BgpFamilyView, BgpNeighbourView, BgpView, GracefulRestartView, PolicyResult, PolicyRule, PrefixRange,
    RouteSource,
};

/// The most next hops of a route.
const PATHS: u8 = 64;
/// The most dynamic neighbours.
const LISTEN_LIMIT: u16 = 5000;
/// Seconds between two attempts to connect where the configuration has none. The default of FRR is two minutes.
const CONNECT_RETRY: u16 = 5;
/// FRR needs a time after which a session with too many prefixes may come up again: in minutes, at least 1.
const RESTART_MINUTES: u32 = 1;

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    /// The command that enters it.
    fn enter(self) -> &'static str {
        match self {
            Self::Ipv4 => "address-family ipv4 unicast",
            Self::Ipv6 => "address-family ipv6 unicast",
        }
    }

    /// The word for its lists of prefixes.
    fn word(self) -> &'static str {
        match self {
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ipv6",
        }
    }

    fn has(self, prefix: &IpNet) -> bool {
        prefix.addr().is_ipv4() == (self == Self::Ipv4)
    }

    fn of(self, neighbour: &BgpNeighbourView) -> Option<&BgpFamilyView> {
        match self {
            Self::Ipv4 => neighbour.ipv4.as_ref(),
            Self::Ipv6 => neighbour.ipv6.as_ref(),
        }
    }
}

/// A line of `router bgp`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Line {
    /// The family in which it is.
    family: Option<Family>,
    /// The command that sets it.
    set: String,
    /// The command that removes it. Lines with the same one replace each other.
    unset: String,
    /// The `unset` of the line with which it goes.
    owner: Option<String>,
    /// How a change of it takes effect on a neighbour that was there before.
    reset: Option<Reset>,
}

/// How a change takes effect on a neighbour of this address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Reset {
    /// Its session is reset.
    Always(String),
    /// Its session may come up again, if it ended with too many prefixes.
    Exceeded(String),
}

/// What changes a configuration into another one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// The commands.
    pub(super) commands: Vec<String>,
    /// The neighbours that may come up again, if they had too many prefixes.
    pub(super) retried: Vec<String>,
}

/// The configuration of bgpd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FrrConfig {
    /// `None` without a BGP instance.
    asn: Option<u32>,
    /// Commands that make a policy, and those that remove it, by its name.
    policies: BTreeMap<String, [Vec<String>; 2]>,
    /// The lines, each before those that need it.
    lines: Vec<Line>,
    bfd: bool,
}

impl FrrConfig {
    /// Renders a BGP instance. `own_id` is its identifier where the configuration has none.
    pub(super) fn new(bgp: &BgpView, own_id: Ipv4Addr) -> Self {
        let mut config = Self { asn: Some(bgp.asn), ..Self::default() };
        let id = bgp.router_id.unwrap_or(own_id);
        config.line(None, format!("bgp router-id {id}"), "no bgp router-id".to_owned());
        config.plain("no bgp default ipv4-unicast", "bgp default ipv4-unicast");
        config.plain("no bgp network import-check", "bgp network import-check");
        config.plain("bgp bestpath as-path multipath-relax", "no bgp bestpath as-path multipath-relax");
        config.graceful_restart(bgp);
        config.line(None, format!("bgp listen limit {LISTEN_LIMIT}"), "no bgp listen limit".to_owned());
        for family in FAMILIES {
            for (protocol, source) in [("connected", RouteSource::Connected), ("kernel", RouteSource::Static)]
            {
                let map = config.tagging(source);
                let unset = format!("no redistribute {protocol}");
                config.line(Some(family), format!("redistribute {protocol} route-map {map}"), unset);
            }
            config.line(Some(family), format!("maximum-paths {PATHS}"), "no maximum-paths".to_owned());
        }
        for (address, neighbour) in &bgp.neighbours {
            // Without an AS, there is no session.
            let Some(peer_as) = neighbour.peer_as else { continue };
            let name = address.to_string();
            config.line(None, format!("neighbor {name} remote-as {peer_as}"), format!("no neighbor {name}"));
            config.neighbour(bgp.asn, &name, &format!("no neighbor {name}"), neighbour, true);
        }
        for (network, neighbour) in &bgp.dynamic_neighbours {
            let name = format!("range-{}", network.trunc());
            let unset = format!("no neighbor {name} peer-group");
            config.line(None, format!("neighbor {name} peer-group"), unset.clone());
            let peer_as = neighbour.peer_as.map_or_else(|| "external".to_owned(), |asn| asn.to_string());
            let no_as = format!("no neighbor {name} remote-as external");
            config.owned(&unset, None, format!("neighbor {name} remote-as {peer_as}"), no_as);
            config.neighbour(bgp.asn, &name, &unset, neighbour, false);
            let range = format!("bgp listen range {} peer-group {name}", network.trunc());
            config.line(None, range.clone(), format!("no {range}"));
        }
        config
    }

    /// Whether a neighbour has BFD.
    pub(super) fn uses_bfd(&self) -> bool {
        self.bfd
    }

    fn plain(&mut self, set: &str, unset: &str) {
        self.line(None, set.to_owned(), unset.to_owned());
    }

    fn line(&mut self, family: Option<Family>, set: String, unset: String) {
        self.lines.push(Line { family, set, unset, owner: None, reset: None });
    }

    fn owned(&mut self, owner: &str, family: Option<Family>, set: String, unset: String) {
        self.lines.push(Line { family, set, unset, owner: Some(owner.to_owned()), reset: None });
    }

    /// The times of the instance are the longest of its neighbours. Dynamic neighbours have no mode of their own.
    fn graceful_restart(&mut self, bgp: &BgpView) {
        let all = || bgp.neighbours.values().chain(bgp.dynamic_neighbours.values());
        let longest = |time: fn(&GracefulRestartView) -> Option<u16>| {
            all().filter_map(|neighbour| time(neighbour.graceful_restart.as_ref()?)).max()
        };
        let dynamic = bgp.dynamic_neighbours.values().any(|neighbour| neighbour.graceful_restart.is_some());
        if !dynamic {
            self.plain("bgp graceful-restart-disable", "no bgp graceful-restart-disable");
        }
        let times =
            [("restart-time", longest(|r| r.restart_time)), ("stalepath-time", longest(|r| r.stale_time))];
        for (name, time) in times {
            if let Some(time) = time.filter(|time| *time > 0) {
                let unset = format!("no bgp graceful-restart {name}");
                self.line(None, format!("bgp graceful-restart {name} {time}"), unset);
            }
        }
    }

    /// The lines of a neighbour or a group of this name, which go with the line of `owner`.
    fn neighbour(
        &mut self,
        asn: u32,
        name: &str,
        owner: &str,
        neighbour: &BgpNeighbourView,
        is_single: bool,
    ) {
        let mut line = |text: String, unset: &str| {
            self.owned(owner, None, format!("neighbor {name} {text}"), format!("no neighbor {name} {unset}"));
        };
        if let Some(local_as) = neighbour.local_as.filter(|local_as| *local_as != asn) {
            line(format!("local-as {local_as} no-prepend replace-as"), "local-as");
        }
        if let Some(password) = &neighbour.password {
            line(format!("password {password}"), "password");
        }
        line(format!("timers {} {}", neighbour.keepalive_time, neighbour.hold_time), "timers");
        if is_single {
            let retry = neighbour.connect_retry.unwrap_or(CONNECT_RETRY);
            line(format!("timers connect {retry}"), "timers connect");
        }
        if neighbour.passive {
            line("passive".to_owned(), "passive");
        }
        if let Some(bfd) = neighbour.bfd {
            // FRR takes 2 to 255 packets and 50 ms to a minute.
            let (multiplier, limits) = (bfd.detect_multiplier.max(2), |ms: u32| ms.clamp(50, 60_000));
            let (receive, transmit) = (limits(bfd.receive_interval), limits(bfd.transmit_interval));
            line(format!("bfd {multiplier} {receive} {transmit}"), "bfd");
        }
        if neighbour.disabled {
            line("shutdown".to_owned(), "shutdown");
        }
        self.bfd |= neighbour.bfd.is_some();
        if is_single {
            let mode = match neighbour.graceful_restart {
                None => "graceful-restart-disable",
                Some(GracefulRestartView { helper_only: true, .. }) => "graceful-restart-helper",
                Some(_) => "graceful-restart",
            };
            self.lines.push(Line {
                family: None,
                set: format!("neighbor {name} {mode}"),
                unset: format!("no neighbor {name} graceful-restart"),
                owner: Some(owner.to_owned()),
                reset: Some(Reset::Always(name.to_owned())),
            });
        }
        for family in FAMILIES {
            if let Some(view) = family.of(neighbour) {
                self.family(name, owner, family, view);
            }
        }
    }

    fn family(&mut self, name: &str, owner: &str, family: Family, view: &BgpFamilyView) {
        let maps = [("in", &view.import), ("out", &view.export)]
            .map(|(direction, rules)| (direction, self.policy(family, rules, direction == "in")));
        let neighbor = |text: &str| format!("neighbor {name} {text}");
        // The policies go first: without them, everything would pass for a moment.
        for (direction, map) in maps {
            // It wants a name, and ignores it.
            let unset = format!("no neighbor {name} route-map any {direction}");
            self.owned(owner, Some(family), neighbor(&format!("route-map {map} {direction}")), unset);
        }
        if let Some(maximum) = view.maximum_prefixes {
            let minutes = maximum.restart.map_or(RESTART_MINUTES, |s| s.div_ceil(60).clamp(1, 65535));
            let mut set = neighbor(&format!("maximum-prefix {}", maximum.number.max(1)));
            if maximum.warning_only {
                set += " warning-only";
            } else {
                let _ = write!(set, " restart {minutes}");
            }
            if maximum.received {
                set += " force";
            }
            self.lines.push(Line {
                family: Some(family),
                set,
                unset: format!("no neighbor {name} maximum-prefix"),
                owner: Some(owner.to_owned()),
                reset: Some(Reset::Exceeded(name.to_owned())),
            });
        }
        for setting in ["soft-reconfiguration inbound", "activate"] {
            let unset = format!("no neighbor {name} {setting}");
            self.owned(owner, Some(family), neighbor(setting), unset);
        }
    }

    /// The name of the route map that marks routes of a source.
    fn tagging(&mut self, source: RouteSource) -> String {
        let name = format!("eno-{}", tag(source));
        let make = vec![format!("route-map {name} permit 1"), format!("set tag {}", tag(source))];
        self.policies.insert(name.clone(), [make, vec![format!("no route-map {name}")]]);
        name
    }

    /// The name of the route map of a policy for a family.
    fn policy(&mut self, family: Family, rules: &[PolicyRule], is_import: bool) -> String {
        let mut hasher = DefaultHasher::new();
        (family, rules, is_import).hash(&mut hasher);
        let name = format!("eno-{:016x}", hasher.finish());
        let [mut lists, mut entries, mut removal] =
            [Vec::new(), Vec::new(), vec![format!("no route-map {name}")]];
        let mut number = 0;
        for rule in rules {
            let list = match &rule.prefixes {
                None => None,
                Some(prefixes) => {
                    let own: Vec<_> = prefixes.iter().filter(|range| family.has(&range.prefix)).collect();
                    if own.is_empty() && !rule.except {
                        continue;
                    }
                    let list = format!("{name}-{number}");
                    lists.extend(prefix_list(family, &list, &own, rule.except));
                    removal.push(format!("no {} prefix-list {list}", family.word()));
                    Some(list)
                }
            };
            let sources: Vec<Option<RouteSource>> = if rule.sources.is_empty() {
                vec![None]
            } else {
                rule.sources.iter().copied().map(Some).collect()
            };
            for source in sources {
                number += 1;
                let action = if rule.result == PolicyResult::Reject { "deny" } else { "permit" };
                entries.push(format!("route-map {name} {action} {number}"));
                if let Some(list) = &list {
                    entries.push(format!("match {} address prefix-list {list}", family.word()));
                }
                // What neighbours announce has no mark yet when it is imported.
                if let Some(source) = source.filter(|_| !is_import) {
                    entries.push(format!("match tag {}", tag(source)));
                }
                if action == "permit" {
                    if is_import {
                        entries.push(format!("set tag {}", tag(RouteSource::Bgp)));
                    }
                    if !rule.communities.is_empty() {
                        let all: Vec<&str> = rule.communities.iter().map(String::as_str).collect();
                        let additive = if rule.replaces_communities { "" } else { " additive" };
                        entries.push(format!("set community {}{additive}", all.join(" ")));
                    }
                }
                if rule.result == PolicyResult::Continue {
                    entries.push("on-match next".to_owned());
                }
            }
            let matches_all = rule.prefixes.is_none() && (rule.sources.is_empty() || is_import);
            if matches_all && rule.result != PolicyResult::Continue {
                break;
            }
        }
        // What no rule decides is refused.
        entries.push(format!("route-map {name} deny {}", number + 1));
        lists.extend(entries);
        self.policies.insert(name.clone(), [lists, removal]);
        name
    }

    /// The commands that set all maxima of prefixes again; empty without any. FRR 8.4 compares the number of prefixes with
    /// the maximum before it counts a new one, so that one or two too many may pass. It compares again with these.
    pub(super) fn maxima(&self) -> Vec<String> {
        let Some(asn) = self.asn else { return Vec::new() };
        let mut commands = vec!["configure terminal".to_owned()];
        let mut context = Context::new(asn, &mut commands);
        let maxima = self.lines.iter().filter(|line| matches!(line.reset, Some(Reset::Exceeded(_))));
        let mut number = 0;
        for family in FAMILIES.map(Some) {
            for line in maxima.clone().filter(|line| line.family == family) {
                context.run(line.family, &line.set);
                number += 1;
            }
        }
        commands.push("end".to_owned());
        if number == 0 { Vec::new() } else { commands }
    }

    /// What changes this configuration into another one: new policies come first, and unused ones go last.
    pub(super) fn change_to(&self, desired: &Self) -> Change {
        let mut commands = vec!["configure terminal".to_owned()];
        for (_, [make, _]) in desired.policies.iter().filter(|(name, _)| !self.policies.contains_key(*name)) {
            commands.extend(make.iter().cloned());
        }
        commands.extend(["end", "configure terminal"].map(str::to_owned));
        let same = self.asn == desired.asn;
        if let Some(asn) = self.asn.filter(|_| !same) {
            commands.push(format!("no router bgp {asn}"));
        }
        let before = if same { &self.lines[..] } else { &[] };
        let mut resets = BTreeSet::new();
        if let Some(asn) = desired.asn {
            let mut context = Context::new(asn, &mut commands);
            let [old, new] = [before, &desired.lines[..]]
                .map(|lines| lines.iter().map(|line| (line.key(), line)).collect::<HashMap<_, _>>());
            let owned_by = |line: &Line, lines: &HashMap<_, _>| {
                line.owner.as_ref().is_none_or(|owner| lines.contains_key(&(None, owner.as_str())))
            };
            for line in before.iter().rev().filter(|line| !new.contains_key(&line.key())) {
                // The lines of a neighbour go with it.
                if owned_by(line, &new) {
                    context.run(line.family, &line.unset);
                    resets.extend(line.reset.clone());
                }
            }
            for line in desired.lines.iter().filter(|line| old.get(&line.key()) != Some(line)) {
                context.run(line.family, &line.set);
                if owned_by(line, &old) {
                    resets.extend(line.reset.clone());
                }
            }
        }
        commands.extend(["end", "configure terminal"].map(str::to_owned));
        for (_, [_, remove]) in self.policies.iter().filter(|(name, _)| !desired.policies.contains_key(*name))
        {
            commands.extend(remove.iter().cloned());
        }
        commands.push("end".to_owned());
        let mut retried = Vec::new();
        for reset in resets {
            match reset {
                Reset::Always(name) => commands.push(format!("clear bgp {name}")),
                Reset::Exceeded(name) => retried.push(name),
            }
        }
        Change { commands, retried }
    }
}

impl Line {
    fn key(&self) -> (Option<Family>, &str) {
        (self.family, &self.unset)
    }
}

/// Runs commands in `router bgp` and its families.
struct Context<'a> {
    enter: String,
    family: Option<Family>,
    commands: &'a mut Vec<String>,
}

impl<'a> Context<'a> {
    fn new(asn: u32, commands: &'a mut Vec<String>) -> Self {
        let enter = format!("router bgp {asn}");
        commands.push(enter.clone());
        Self { enter, family: None, commands }
    }

    fn run(&mut self, family: Option<Family>, command: &str) {
        if self.family != family {
            if self.family.is_some() {
                self.commands.extend(["end", "configure terminal", &self.enter].map(str::to_owned));
            }
            self.commands.extend(family.map(|family| family.enter().to_owned()));
            self.family = family;
        }
        self.commands.push(command.to_owned());
    }
}

/// The mark of routes of a source within bgpd.
fn tag(source: RouteSource) -> u8 {
    match source {
        RouteSource::Connected => 1,
        RouteSource::Static => 2,
        RouteSource::Bgp => 3,
    }
}

/// The commands that make a list of prefixes; with `except`, of all others.
fn prefix_list(family: Family, name: &str, ranges: &[&PrefixRange], except: bool) -> Vec<String> {
    let word = family.word();
    let action = if except { "deny" } else { "permit" };
    let mut commands = Vec::new();
    for (number, PrefixRange { prefix, min, max }) in (1..).zip(ranges.iter().copied()) {
        let mut command = format!("{word} prefix-list {name} seq {number} {action} {prefix}");
        if *min > prefix.prefix_len() {
            let _ = write!(command, " ge {min}");
        }
        if *max > prefix.prefix_len() {
            let _ = write!(command, " le {max}");
        }
        commands.push(command);
    }
    if except {
        commands.push(format!("{word} prefix-list {name} seq {} permit any", ranges.len() + 1));
    }
    commands
}

#[cfg(test)]
mod tests;
