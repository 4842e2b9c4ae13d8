use std::collections::BTreeSet;

use super::*;
use crate::dialect::{BfdView, MaximumPrefixes};

const OWN_ID: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 254);

fn rule(prefixes: &[(&str, u8, u8)], result: PolicyResult) -> PolicyRule {
    let range = |(prefix, min, max): &(&str, u8, u8)| PrefixRange {
        prefix: prefix.parse().expect(prefix),
        min: *min,
        max: *max,
    };
    PolicyRule {
        prefixes: Some(prefixes.iter().map(range).collect()),
        except: false,
        sources: BTreeSet::new(),
        communities: BTreeSet::new(),
        replaces_communities: false,
        result,
    }
}

fn neighbour() -> BgpNeighbourView {
    BgpNeighbourView {
        peer_as: Some(65001),
        hold_time: 9,
        keepalive_time: 3,
        ipv4: Some(BgpFamilyView::default()),
        ..BgpNeighbourView::default()
    }
}

fn bgp(neighbours: &[(&str, BgpNeighbourView)]) -> BgpView {
    let neighbours = neighbours.iter().map(|(text, own)| (text.parse().expect(text), own.clone()));
    BgpView { asn: 65000, neighbours: neighbours.collect(), ..BgpView::default() }
}

fn config(neighbours: &[(&str, BgpNeighbourView)]) -> FrrConfig {
    FrrConfig::new(&bgp(neighbours), OWN_ID)
}

/// The lines of a neighbour or group.
fn lines(config: &FrrConfig, name: &str) -> Vec<String> {
    let prefix = format!("neighbor {name} ");
    let all = config.lines.iter().filter_map(|line| line.set.strip_prefix(&prefix));
    all.filter(|line| !line.starts_with("route-map")).map(str::to_owned).collect()
}

/// The commands of a change, without the contexts that they enter and leave.
fn change(from: &FrrConfig, to: &FrrConfig) -> Vec<String> {
    let contexts = ["configure terminal", "end", "router bgp 65000"];
    let mut commands = from.change_to(to).commands;
    commands.retain(|command| !contexts.contains(&command.as_str()));
    commands
}

#[test]
fn neighbour_has_the_lines_of_its_configuration() {
    let full = BgpNeighbourView {
        local_as: Some(64999),
        password: Some("secret".to_owned()),
        passive: true,
        disabled: true,
        connect_retry: Some(7),
        bfd: Some(BfdView { transmit_interval: 300, receive_interval: 10, detect_multiplier: 1 }),
        graceful_restart: Some(GracefulRestartView { helper_only: true, ..GracefulRestartView::default() }),
        ipv4: Some(BgpFamilyView {
            maximum_prefixes: Some(MaximumPrefixes {
                number: 10,
                received: true,
                warning_only: false,
                restart: Some(61),
            }),
            ..BgpFamilyView::default()
        }),
        ..neighbour()
    };
    let full = config(&[("10.7.0.1", full)]);
    assert_eq!(
        lines(&full, "10.7.0.1"),
        [
            "remote-as 65001",
            "local-as 64999 no-prepend replace-as",
            "password secret",
            "timers 3 9",
            "timers connect 7",
            "passive",
            "bfd 2 50 300",
            "shutdown",
            "graceful-restart-helper",
            "maximum-prefix 10 restart 2 force",
            "soft-reconfiguration inbound",
            "activate",
        ]
    );
    assert!(full.uses_bfd());
    let plain = config(&[("10.7.0.1", BgpNeighbourView { local_as: Some(65000), ..neighbour() })]);
    let expected = [
        "remote-as 65001",
        "timers 3 9",
        "timers connect 5",
        "graceful-restart-disable",
        "soft-reconfiguration inbound",
        "activate",
    ];
    assert_eq!(lines(&plain, "10.7.0.1"), expected);
    assert!(!plain.uses_bfd());
    let without_as = config(&[("10.7.0.1", BgpNeighbourView { peer_as: None, ..neighbour() })]);
    assert!(lines(&without_as, "10.7.0.1").is_empty());
}

#[test]
fn change_of_a_neighbour_touches_no_other() {
    let before = config(&[("10.7.0.1", neighbour()), ("10.7.0.2", neighbour())]);
    assert!(change(&before, &before).is_empty());
    let slower = BgpNeighbourView { keepalive_time: 10, hold_time: 30, ..neighbour() };
    let after = config(&[("10.7.0.1", slower), ("10.7.0.2", neighbour())]);
    assert_eq!(change(&before, &after), ["neighbor 10.7.0.1 timers 10 30"]);
    let without = config(&[("10.7.0.2", neighbour())]);
    assert_eq!(change(&before, &without), ["no neighbor 10.7.0.1"]);
    let with_password = BgpNeighbourView { password: Some("p".to_owned()), ..neighbour() };
    let protected = config(&[("10.7.0.1", with_password), ("10.7.0.2", neighbour())]);
    assert_eq!(change(&before, &protected), ["neighbor 10.7.0.1 password p"]);
    assert_eq!(change(&protected, &before), ["no neighbor 10.7.0.1 password"]);
    assert_eq!(change(&before, &FrrConfig::default())[0], "no router bgp 65000");
}

#[test]
fn family_is_entered_and_left() {
    let both = BgpNeighbourView { ipv6: Some(BgpFamilyView::default()), ..neighbour() };
    let [before, after] = [neighbour(), both].map(|neighbour| config(&[("10.7.0.1", neighbour)]));
    let commands = before.change_to(&after).commands;
    let entered = commands.iter().position(|command| command == "address-family ipv6 unicast");
    let activated = commands.iter().position(|command| command == "neighbor 10.7.0.1 activate");
    assert!(entered.is_some() && entered < activated, "{commands:?}");
    let back = after.change_to(&before).commands;
    assert!(back.contains(&"no neighbor 10.7.0.1 activate".to_owned()), "{back:?}");
    assert!(back.iter().all(|command| command != "address-family ipv4 unicast"), "{back:?}");
}

#[test]
fn session_is_reset_only_by_what_needs_it() {
    let limited = |number| {
        let maximum = MaximumPrefixes { number, received: false, warning_only: false, restart: None };
        let family = BgpFamilyView { maximum_prefixes: Some(maximum), ..BgpFamilyView::default() };
        config(&[("10.7.0.1", BgpNeighbourView { ipv4: Some(family), ..neighbour() })])
    };
    let plain = config(&[("10.7.0.1", neighbour())]);
    assert!(plain.maxima().is_empty());
    let again = [
        "configure terminal",
        "router bgp 65000",
        "address-family ipv4 unicast",
        "neighbor 10.7.0.1 maximum-prefix 1 restart 1",
        "end",
    ];
    assert_eq!(limited(1).maxima(), again);
    let raised = limited(1).change_to(&limited(2));
    assert_eq!(raised.retried, ["10.7.0.1"]);
    assert!(raised.commands.contains(&"neighbor 10.7.0.1 maximum-prefix 2 restart 1".to_owned()));
    assert_eq!(limited(1).change_to(&plain).retried, ["10.7.0.1"]);
    let restart = Some(GracefulRestartView::default());
    let helped = config(&[("10.7.0.1", BgpNeighbourView { graceful_restart: restart, ..neighbour() })]);
    assert!(plain.change_to(&helped).commands.contains(&"clear bgp 10.7.0.1".to_owned()));
    for commands in [raised.commands, FrrConfig::default().change_to(&helped).commands] {
        assert!(commands.iter().all(|command| !command.starts_with("clear")), "{commands:?}");
    }
}

#[test]
fn policies_never_change_and_are_replaced_at_once() {
    let of = |prefix: &str| {
        let export = vec![rule(&[(prefix, 24, 24)], PolicyResult::Accept)];
        let family = BgpFamilyView { export, ..BgpFamilyView::default() };
        config(&[("10.7.0.1", BgpNeighbourView { ipv4: Some(family), ..neighbour() })])
    };
    let commands = change(&of("10.1.0.0/24"), &of("10.2.0.0/24"));
    let at = |text: &str| {
        commands.iter().position(|command| command.contains(text)).unwrap_or_else(|| panic!("{commands:?}"))
    };
    let (made, used) = (at("permit 10.2.0.0/24"), at("neighbor 10.7.0.1 route-map"));
    let (removed, list) = (at("no route-map"), at("no ip prefix-list"));
    assert!(made < used && used < removed && removed < list, "{commands:?}");
    assert_eq!(commands.iter().filter(|command| command.contains("neighbor")).count(), 1, "{commands:?}");
}

/// The commands that make a policy, with its name replaced.
fn policy(family: Family, rules: &[PolicyRule], is_import: bool) -> Vec<String> {
    let mut config = FrrConfig::default();
    let name = config.policy(family, rules, is_import);
    config.policies[&name][0].iter().map(|command| command.replace(&name, "P")).collect()
}

#[test]
fn policies_become_route_maps() {
    let communities = ["65000:1".to_owned(), "no-export".to_owned()].into();
    let rules = [
        PolicyRule {
            communities,
            ..rule(&[("10.0.0.0/8", 8, 32), ("10.1.0.0/16", 24, 24)], PolicyResult::Accept)
        },
        rule(&[("2001:db8::/32", 48, 128)], PolicyResult::Accept),
        PolicyRule { except: true, ..rule(&[("192.0.2.0/24", 24, 24)], PolicyResult::Continue) },
    ];
    assert_eq!(
        policy(Family::Ipv4, &rules, true),
        [
            "ip prefix-list P-0 seq 1 permit 10.0.0.0/8 le 32",
            "ip prefix-list P-0 seq 2 permit 10.1.0.0/16 ge 24 le 24",
            "ip prefix-list P-1 seq 1 deny 192.0.2.0/24",
            "ip prefix-list P-1 seq 2 permit any",
            "route-map P permit 1",
            "match ip address prefix-list P-0",
            "set tag 3",
            "set community 65000:1 no-export additive",
            "route-map P permit 2",
            "match ip address prefix-list P-1",
            "set tag 3",
            "on-match next",
            "route-map P deny 3",
        ]
    );
    let sources = [RouteSource::Connected, RouteSource::Static].into();
    let exported = PolicyRule { sources, replaces_communities: true, ..rules[1].clone() };
    assert_eq!(
        policy(Family::Ipv6, &[exported, PolicyRule::all(PolicyResult::Reject)], false),
        [
            "ipv6 prefix-list P-0 seq 1 permit 2001:db8::/32 ge 48 le 128",
            "route-map P permit 1",
            "match ipv6 address prefix-list P-0",
            "match tag 1",
            "route-map P permit 2",
            "match ipv6 address prefix-list P-0",
            "match tag 2",
            "route-map P deny 3",
            "route-map P deny 4",
        ]
    );
    assert_eq!(policy(Family::Ipv6, &[], true), ["route-map P deny 1"]);
    // No rule follows one that decides all routes.
    let all = [PolicyRule::all(PolicyResult::Reject), PolicyRule::all(PolicyResult::Accept)];
    assert_eq!(policy(Family::Ipv4, &all, true), ["route-map P deny 1", "route-map P deny 2"]);
}

#[test]
fn networks_have_groups_of_their_own() {
    let dynamic = |networks: &[&str]| {
        let networks = networks.iter().map(|text| (text.parse().expect(text), neighbour()));
        FrrConfig::new(&BgpView { dynamic_neighbours: networks.collect(), ..bgp(&[]) }, OWN_ID)
    };
    let before = dynamic(&["10.7.0.0/24"]);
    let group = "range-10.7.0.0/24";
    let expected =
        ["peer-group", "remote-as 65001", "timers 3 9", "soft-reconfiguration inbound", "activate"];
    assert_eq!(lines(&before, group), expected);
    assert!(before.lines.iter().any(|line| line.set == "bgp graceful-restart-disable"));
    let commands = change(&before, &dynamic(&["10.6.0.0/24", "10.7.0.0/24"]));
    assert!(commands.iter().all(|command| !command.contains("10.7.0.0/24")), "{commands:?}");
    let removal = [
        "no bgp listen range 10.7.0.0/24 peer-group range-10.7.0.0/24",
        "no neighbor range-10.7.0.0/24 peer-group",
    ];
    assert_eq!(change(&before, &dynamic(&[]))[..2], removal);
    let restart = Some(GracefulRestartView { restart_time: Some(60), ..GracefulRestartView::default() });
    let helped = BgpNeighbourView { graceful_restart: restart, ..neighbour() };
    let network = "10.7.0.0/24".parse().expect("a network");
    let helped = BgpView { dynamic_neighbours: [(network, helped)].into(), ..bgp(&[]) };
    let helped = FrrConfig::new(&helped, OWN_ID);
    assert!(helped.lines.iter().all(|line| line.set != "bgp graceful-restart-disable"));
    assert!(helped.lines.iter().any(|line| line.set == "bgp graceful-restart restart-time 60"));
}
