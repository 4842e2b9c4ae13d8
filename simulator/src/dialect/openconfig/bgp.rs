//! BGP of OpenConfig: openconfig-bgp within openconfig-network-instance, with BFD of openconfig-bfd.

use std::collections::BTreeMap;

use super::{INSTANCE, NETWORK_INSTANCE, TEXT, policy, vrf};
use crate::dialect::accessors::module;
use crate::dialect::bgp::{
    AS_NUMBER, BfdView, BgpFamilyView, BgpNeighbourView, BgpView, GracefulRestartView, MaximumPrefixes,
    PASSWORD, PolicyResult, PolicyRule,
};
use crate::dialect::cursor::Cursor;
use crate::dialect::routing::{IP_ADDRESS, IP_PREFIX, IPV4_ADDRESS};
use crate::model::schema::{Definition, Module};
use crate::model::tree::Container;
use crate::model::value::{Type, Value};

pub(super) static BGP_TYPES: Module =
    module("openconfig-bgp-types", "oc-bgp-types", "http://openconfig.net/yang/bgp-types", "2024-09-06");

/// The defaults of openconfig-bgp, in seconds.
const HOLD_TIME: u16 = 90;
const KEEPALIVE: u16 = 30;
/// BFD of a device whose configuration gives no timers.
const BFD: BfdView = BfdView { transmit_interval: 300, receive_interval: 300, detect_multiplier: 3 };

const U16: Type = Type::Uint(0, 65535);
const U32: Type = Type::Uint(0, 4_294_967_295);
const U64: Type = Type::Uint(0, u64::MAX);
const ADDRESS: Type = Type::Restricted(&IP_ADDRESS);
const PREFIX: Type = Type::Restricted(&IP_PREFIX);
const DEFAULT_POLICY: Type = Type::Enum(&["ACCEPT_ROUTE", "REJECT_ROUTE"]);
const COMMUNITY_TYPE: Type = Type::Enum(&["STANDARD", "EXTENDED", "LARGE", "BOTH", "NONE"]);

const fn container(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::container(name, &NETWORK_INSTANCE, children)
}

const fn mirror(children: &'static [Definition]) -> Definition {
    Definition::mirror(&NETWORK_INSTANCE, children)
}

const fn list(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::list(name, &NETWORK_INSTANCE, 1, children)
}

const fn leaf(name: &'static str, ty: Type) -> Definition {
    Definition::leaf(name, &NETWORK_INSTANCE, ty)
}

const fn leaf_list(name: &'static str, ty: Type) -> Definition {
    Definition::leaf_list(name, &NETWORK_INSTANCE, ty)
}

const fn state(name: &'static str, ty: Type) -> Definition {
    Definition::state_leaf(name, &NETWORK_INSTANCE, ty)
}

/// Content of `protocol`: `bgp`.
pub(super) const BGP: &[Definition] =
    &[container("global", GLOBAL), container("neighbors", NEIGHBORS), container("peer-groups", PEER_GROUPS)];

pub(super) const GLOBAL: &[Definition] = &[
    container("config", GLOBAL_CONFIG),
    mirror(GLOBAL_CONFIG),
    container("graceful-restart", GRACEFUL_RESTART),
    container("use-multiple-paths", MULTIPLE_PATHS),
    container("afi-safis", AFI_SAFIS),
    container("dynamic-neighbor-prefixes", DYNAMIC_PREFIXES),
    container("apply-policy", APPLY_POLICY),
];

pub(super) const GLOBAL_CONFIG: &[Definition] =
    &[leaf("as", AS_NUMBER), leaf("router-id", Type::Restricted(&IPV4_ADDRESS))];

const MULTIPLE_PATHS: &[Definition] = &[
    container("config", ENABLED),
    mirror(ENABLED),
    container("ebgp", EBGP_PATHS),
    container("ibgp", IBGP_PATHS),
];

const ENABLED: &[Definition] = &[leaf("enabled", Type::Bool)];

const EBGP_PATHS: &[Definition] = &[container("config", EBGP_PATHS_CONFIG), mirror(EBGP_PATHS_CONFIG)];

const EBGP_PATHS_CONFIG: &[Definition] = &[leaf("allow-multiple-as", Type::Bool), leaf("maximum-paths", U32)];

const IBGP_PATHS: &[Definition] = &[container("config", IBGP_PATHS_CONFIG), mirror(IBGP_PATHS_CONFIG)];

const IBGP_PATHS_CONFIG: &[Definition] = &[leaf("maximum-paths", U32)];

const DYNAMIC_PREFIXES: &[Definition] = &[list("dynamic-neighbor-prefix", DYNAMIC_PREFIX)];

const DYNAMIC_PREFIX: &[Definition] =
    &[leaf("prefix", PREFIX), container("config", DYNAMIC_PREFIX_CONFIG), mirror(DYNAMIC_PREFIX_CONFIG)];

const DYNAMIC_PREFIX_CONFIG: &[Definition] = &[leaf("prefix", PREFIX), leaf("peer-group", TEXT)];

pub(super) const NEIGHBORS: &[Definition] = &[list("neighbor", NEIGHBOR)];

pub(super) const NEIGHBOR: &[Definition] = &[
    leaf("neighbor-address", ADDRESS),
    container("config", NEIGHBOR_CONFIG),
    mirror(NEIGHBOR_CONFIG),
    container("timers", TIMERS),
    container("transport", TRANSPORT),
    container("graceful-restart", GRACEFUL_RESTART),
    container("ebgp-multihop", MULTIHOP),
    container("apply-policy", APPLY_POLICY),
    container("afi-safis", AFI_SAFIS),
    container("enable-bfd", ENABLE_BFD),
];

/// With the leaves of `state`.
pub(super) const NEIGHBOR_CONFIG: &[Definition] = &[
    leaf("peer-group", TEXT),
    leaf("neighbor-address", ADDRESS),
    leaf("enabled", Type::Bool),
    leaf("peer-as", AS_NUMBER),
    leaf("local-as", AS_NUMBER),
    leaf("peer-type", Type::Enum(&["INTERNAL", "EXTERNAL"])),
    leaf("auth-password", Type::Restricted(&PASSWORD)),
    leaf_list("send-community-type", COMMUNITY_TYPE),
    leaf("description", TEXT),
    state("session-state", SESSION_STATE),
    state("last-established", U64),
    state("established-transitions", U64),
    container("messages", MESSAGES).state_data(),
    state("dynamically-configured", Type::Bool),
];

pub(super) const SESSION_STATE: Type =
    Type::Enum(&["IDLE", "CONNECT", "ACTIVE", "OPENSENT", "OPENCONFIRM", "ESTABLISHED"]);

pub(super) const MESSAGES: &[Definition] = &[container("sent", COUNTERS), container("received", COUNTERS)];

pub(super) const COUNTERS: &[Definition] = &[
    state("UPDATE", U64),
    state("NOTIFICATION", U64),
    state("last-notification-time", U64),
    state("last-notification-error-code", super::bgp_state::ERROR_CODE),
    state("last-notification-error-subcode", super::bgp_state::ERROR_SUBCODE),
];

const PEER_GROUPS: &[Definition] = &[list("peer-group", PEER_GROUP)];

const PEER_GROUP: &[Definition] = &[
    leaf("peer-group-name", TEXT),
    container("config", PEER_GROUP_CONFIG),
    mirror(PEER_GROUP_CONFIG),
    container("timers", TIMERS),
    container("transport", TRANSPORT),
    container("graceful-restart", GRACEFUL_RESTART),
    container("ebgp-multihop", MULTIHOP),
    container("apply-policy", APPLY_POLICY),
    container("afi-safis", AFI_SAFIS),
    container("enable-bfd", ENABLE_BFD),
];

const PEER_GROUP_CONFIG: &[Definition] = &[
    leaf("peer-group-name", TEXT),
    leaf("peer-as", AS_NUMBER),
    leaf("local-as", AS_NUMBER),
    leaf("peer-type", Type::Enum(&["INTERNAL", "EXTERNAL"])),
    leaf("auth-password", Type::Restricted(&PASSWORD)),
    leaf_list("send-community-type", COMMUNITY_TYPE),
    leaf("description", TEXT),
];

const TIMERS: &[Definition] = &[container("config", TIMERS_CONFIG), mirror(TIMERS_CONFIG)];

const TIMERS_CONFIG: &[Definition] = &[
    leaf("connect-retry", Type::Uint(1, 65535)),
    leaf("hold-time", U16),
    leaf("keepalive-interval", U16),
    leaf("minimum-advertisement-interval", U16),
    leaf("restart-time", U16),
];

const TRANSPORT: &[Definition] = &[container("config", TRANSPORT_CONFIG), mirror(TRANSPORT_CONFIG)];

const TRANSPORT_CONFIG: &[Definition] = &[leaf("passive-mode", Type::Bool), leaf("local-address", TEXT)];

const GRACEFUL_RESTART: &[Definition] =
    &[container("config", GRACEFUL_RESTART_CONFIG), mirror(GRACEFUL_RESTART_CONFIG)];

const GRACEFUL_RESTART_CONFIG: &[Definition] = &[
    leaf("enabled", Type::Bool),
    leaf("restart-time", Type::Uint(0, 4095)),
    leaf("stale-routes-time", U16),
    leaf("helper-only", Type::Bool),
];

const MULTIHOP: &[Definition] = &[container("config", MULTIHOP_CONFIG), mirror(MULTIHOP_CONFIG)];

const MULTIHOP_CONFIG: &[Definition] =
    &[leaf("enabled", Type::Bool), leaf("multihop-ttl", Type::Uint(0, 255))];

const APPLY_POLICY: &[Definition] = &[container("config", APPLY_POLICY_CONFIG), mirror(APPLY_POLICY_CONFIG)];

/// The model orders the names of policies by the user; here they are in alphabetical order.
const APPLY_POLICY_CONFIG: &[Definition] = &[
    leaf_list("import-policy", TEXT),
    leaf_list("export-policy", TEXT),
    leaf("default-import-policy", DEFAULT_POLICY),
    leaf("default-export-policy", DEFAULT_POLICY),
];

pub(super) const AFI_SAFIS: &[Definition] = &[list("afi-safi", FAMILY)];

pub(super) const FAMILY: &[Definition] = &[
    leaf("afi-safi-name", policy::AFI_SAFI),
    container("config", FAMILY_CONFIG),
    mirror(FAMILY_CONFIG),
    container("graceful-restart", FAMILY_RESTART),
    container("apply-policy", APPLY_POLICY),
    container("ipv4-unicast", UNICAST),
    container("ipv6-unicast", UNICAST),
];

/// With the leaves of `state`.
pub(super) const FAMILY_CONFIG: &[Definition] = &[
    leaf("afi-safi-name", policy::AFI_SAFI),
    leaf("enabled", Type::Bool),
    leaf_list("send-community-type", COMMUNITY_TYPE),
    state("active", Type::Bool),
    container("prefixes", PREFIXES).state_data(),
];

pub(super) const PREFIXES: &[Definition] =
    &[state("received", U32), state("sent", U32), state("installed", U32)];

const FAMILY_RESTART: &[Definition] = &[container("config", ENABLED), mirror(ENABLED)];

const UNICAST: &[Definition] = &[container("prefix-limit", LIMIT), container("prefix-limit-received", LIMIT)];

const LIMIT: &[Definition] = &[container("config", LIMIT_CONFIG), mirror(LIMIT_CONFIG)];

const LIMIT_CONFIG: &[Definition] = &[
    leaf("max-prefixes", U32),
    leaf("prevent-teardown", Type::Bool),
    leaf("warning-threshold-pct", Type::Uint(0, 100)),
];

const ENABLE_BFD: &[Definition] = &[container("config", BFD_CONFIG), mirror(BFD_CONFIG)];

/// The intervals are in microseconds.
const BFD_CONFIG: &[Definition] = &[
    leaf("enabled", Type::Bool),
    leaf("desired-minimum-tx-interval", U32),
    leaf("required-minimum-receive", U32),
    leaf("detection-multiplier", Type::Uint(1, 255)),
];

/// `bgp` of a network instance, with the keys of its protocol.
pub(super) fn protocol(instance: &Container) -> Option<(&[Value], Cursor<'_>)> {
    Cursor::new(instance, INSTANCE)
        .list(&["protocols", "protocol"])
        .filter(|(key, _)| key[0].is("BGP"))
        .find_map(|(key, protocol)| Some((&**key, protocol.below(&["bgp"])?)))
}

/// The BGP instances of VRFs, by the name of the VRF.
pub(super) fn instances(config: &Container) -> BTreeMap<String, BgpView> {
    let instances = vrf::vrf_instances(config);
    instances.filter_map(|(name, instance)| Some((name.to_owned(), view(config, instance)?))).collect()
}

/// The BGP instance of a network instance.
fn view(config: &Container, instance: &Container) -> Option<BgpView> {
    let (_, bgp) = protocol(instance)?;
    let group = |name: &str| bgp.entry(&["peer-groups", "peer-group"], name);
    let neighbours = bgp.named(&["neighbors", "neighbor"]).filter_map(|(address, neighbour)| {
        let name = neighbour.text(&["config", "peer-group"]);
        let layers = [Some(neighbour), name.and_then(group)];
        Some((address.parse().ok()?, Layers(layers).neighbour(config, bgp, name)))
    });
    let dynamic = bgp.named(&["global", "dynamic-neighbor-prefixes", "dynamic-neighbor-prefix"]);
    let dynamic = dynamic.filter_map(|(prefix, entry)| {
        let name = entry.text(&["config", "peer-group"])?;
        Some((prefix.parse().ok()?, Layers([None, group(name)]).neighbour(config, bgp, Some(name))))
    });
    Some(BgpView {
        asn: bgp.number(&["global", "config", "as"])?,
        router_id: bgp.text(&["global", "config", "router-id"]).and_then(|id| id.parse().ok()),
        neighbours: neighbours.collect(),
        dynamic_neighbours: dynamic.collect(),
    })
}

/// A neighbour and its group: the first one that has a node counts.
#[derive(Clone, Copy)]
struct Layers<'a>([Option<Cursor<'a>>; 2]);

impl<'a> Layers<'a> {
    fn find<T>(self, get: impl Fn(Cursor<'a>) -> Option<T>) -> Option<T> {
        self.0.into_iter().flatten().find_map(get)
    }

    fn leaf(self, path: &[&str]) -> Option<&'a Value> {
        self.find(|layer| layer.leaf(path))
    }

    fn number<T: TryFrom<u64>>(self, path: &[&str]) -> Option<T> {
        T::try_from(self.leaf(path)?.number()?).ok()
    }

    fn is(self, path: &[&str], value: &str) -> bool {
        self.leaf(path).is_some_and(|leaf| leaf.is(value))
    }

    fn neighbour(self, config: &Container, bgp: Cursor<'_>, group: Option<&str>) -> BgpNeighbourView {
        let bfd = self.is(&["enable-bfd", "config", "enabled"], "true").then(|| {
            let milliseconds =
                |name| self.number(&["enable-bfd", "config", name]).map(|micros: u32| (micros / 1000).max(1));
            BfdView {
                transmit_interval: milliseconds("desired-minimum-tx-interval")
                    .unwrap_or(BFD.transmit_interval),
                receive_interval: milliseconds("required-minimum-receive").unwrap_or(BFD.receive_interval),
                detect_multiplier: self
                    .number(&["enable-bfd", "config", "detection-multiplier"])
                    .unwrap_or(BFD.detect_multiplier),
            }
        });
        BgpNeighbourView {
            group: group.map(str::to_owned),
            peer_as: self.number(&["config", "peer-as"]),
            local_as: self.number(&["config", "local-as"]),
            // A peer group can't be disabled.
            disabled: self.0[0].is_some_and(|neighbour| neighbour.is(&["config", "enabled"], "false")),
            passive: self.is(&["transport", "config", "passive-mode"], "true"),
            password: self.leaf(&["config", "auth-password"]).map(ToString::to_string),
            hold_time: self.number(&["timers", "config", "hold-time"]).unwrap_or(HOLD_TIME),
            keepalive_time: self.number(&["timers", "config", "keepalive-interval"]).unwrap_or(KEEPALIVE),
            connect_retry: self.number(&["timers", "config", "connect-retry"]),
            bfd,
            graceful_restart: self.graceful_restart(bgp),
            ipv4: self.family(config, "IPV4_UNICAST", "ipv4-unicast"),
            ipv6: self.family(config, "IPV6_UNICAST", "ipv6-unicast"),
        }
    }

    fn graceful_restart(self, bgp: Cursor<'_>) -> Option<GracefulRestartView> {
        let own = self.find(|layer| layer.below(&["graceful-restart", "config"]));
        let enabled = |restart: Cursor<'_>| {
            restart.is(&["enabled"], "true").then(|| GracefulRestartView {
                restart_time: restart.number(&["restart-time"]),
                stale_time: restart.number(&["stale-routes-time"]),
                helper_only: restart.is(&["helper-only"], "true"),
            })
        };
        match own {
            Some(own) => enabled(own),
            None => enabled(bgp.below(&["global", "graceful-restart", "config"])?),
        }
    }

    /// A family of the neighbour, if it is enabled.
    fn family(self, config: &Container, name: &str, unicast: &str) -> Option<BgpFamilyView> {
        let of_layer = |layer: Cursor<'a>| {
            layer.list(&["afi-safis", "afi-safi"]).find(|(key, _)| key[0].is(name)).map(|(_, family)| family)
        };
        let families = Layers(self.0.map(|layer| layer.and_then(of_layer)));
        if !families.is(&["config", "enabled"], "true") {
            return None;
        }
        let limit = |kind, received| {
            let leaf = |name| [unicast, kind, "config", name];
            Some(MaximumPrefixes {
                number: families.number(&leaf("max-prefixes"))?,
                received,
                warning_only: families.is(&leaf("prevent-teardown"), "true"),
                restart: self.number(&["timers", "config", "restart-time"]),
            })
        };
        let policies = |direction| {
            // What the family has goes before what the neighbour has.
            let layers = [families.0[0], self.0[0], families.0[1], self.0[1]].into_iter().flatten();
            rules(config, layers, direction)
        };
        Some(BgpFamilyView {
            maximum_prefixes: limit("prefix-limit", false).or_else(|| limit("prefix-limit-received", true)),
            import: policies(["import-policy", "default-import-policy"]),
            export: policies(["export-policy", "default-export-policy"]),
        })
    }
}

/// The rules of a direction, given the names of its leaves in `apply-policy`.
fn rules<'a>(
    config: &Container,
    layers: impl Iterator<Item = Cursor<'a>> + Clone,
    [name, default]: [&str; 2],
) -> Vec<PolicyRule> {
    let names = |layer: Cursor<'a>| {
        let names: Vec<&str> =
            layer.values(&["apply-policy", "config", name]).filter_map(Value::text).collect();
        (!names.is_empty()).then_some(names)
    };
    let names = layers.clone().find_map(names).unwrap_or_default();
    let default = layers.into_iter().find_map(|layer| layer.leaf(&["apply-policy", "config", default]));
    // The default of the model is REJECT_ROUTE.
    let accepts = default.is_some_and(|default| default.is("ACCEPT_ROUTE"));
    policy::rules(config, &names, if accepts { PolicyResult::Accept } else { PolicyResult::Reject })
}
