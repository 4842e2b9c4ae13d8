//! BGP of SR Linux: srl_nokia-bgp and srl_nokia-bfd 24.7.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::vrf::{GROUP_NAME, is_vrf};
use super::{
    ADMIN_STATE, DESCRIPTION, INSTANCE, REVISION, ROOTS, SUBINTERFACE_NAME, instances as all_instances,
    policy, vrf,
};
use crate::dialect::accessors::module;
use crate::dialect::bgp::{
    AS_NUMBER, BfdView, BgpFamilyView, BgpNeighbourView, BgpView, GracefulRestartView, MaximumPrefixes,
    PASSWORD, PolicyRule,
};
use crate::dialect::cursor::Cursor;
use crate::dialect::routing::{IP_ADDRESS, IP_PREFIX, IPV4_ADDRESS};
use crate::dialect::view::RoutedView;
use crate::model::schema::{Definition, Identity, Module};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value};

pub(super) static BGP_MODULE: Module =
    module("srl_nokia-bgp", "srl_nokia-bgp", "urn:nokia.com:srlinux:bgp:bgp", REVISION);
pub(super) static BFD_MODULE: Module =
    module("srl_nokia-bfd", "srl_nokia-bfd", "urn:nokia.com:srlinux:bfd:bfd", REVISION);
pub(super) static COMMON: Module =
    module("srl_nokia-common", "srl_nokia-comm", "urn:nokia.com:srlinux:general:common", REVISION);

/// The defaults of the model, in seconds.
const HOLD_TIME: u16 = 90;
const KEEPALIVE: u16 = 30;
/// The defaults of BFD.
const BFD_DEFAULT: BfdView =
    BfdView { transmit_interval: 1000, receive_interval: 1000, detect_multiplier: 3 };

static IPV4_UNICAST: Identity = Identity { module: &COMMON, name: "ipv4-unicast" };
static IPV6_UNICAST: Identity = Identity { module: &COMMON, name: "ipv6-unicast" };
/// `afi-safi-name`.
pub(super) const AFI_SAFI: Type = Type::Identity(&[&IPV4_UNICAST, &IPV6_UNICAST]);

/// `allowed-peer-as`: a number or a range.
static ALLOWED_AS: StringRule = StringRule {
    length: (1, 22),
    matches: |text| {
        let (low, high) = text.split_once("..").unwrap_or((text, text));
        [low, high].iter().all(|n| n.parse::<u32>().is_ok_and(|n| n > 0))
    },
    expected: "the number of an autonomous system or a range of them",
};

const NAME: Type = Type::Restricted(&GROUP_NAME);
const TEXT: Type = Type::Text { max_length: 255 };
const U16: Type = Type::Uint(0, 65535);
const U32: Type = Type::Uint(0, 4_294_967_295);
const U64: Type = Type::Uint(0, u64::MAX);

const fn container(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::container(name, &BGP_MODULE, children)
}

const fn list(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::list(name, &BGP_MODULE, 1, children)
}

const fn leaf(name: &'static str, ty: Type) -> Definition {
    Definition::leaf(name, &BGP_MODULE, ty)
}

const fn state(name: &'static str, ty: Type) -> Definition {
    Definition::state_leaf(name, &BGP_MODULE, ty)
}

/// `bgp` of a network instance.
pub(super) const DEFINITION: Definition = Definition::presence("bgp", &BGP_MODULE, BGP);

pub(super) const BGP: &[Definition] = &[
    leaf("admin-state", ADMIN_STATE),
    leaf("autonomous-system", AS_NUMBER),
    Definition::leaf_list("export-policy", &BGP_MODULE, NAME),
    Definition::leaf_list("import-policy", &BGP_MODULE, NAME),
    leaf("router-id", Type::Restricted(&IPV4_ADDRESS)),
    container("authentication", AUTHENTICATION),
    container("dynamic-neighbors", DYNAMIC),
    container("ebgp-default-policy", EBGP_POLICY),
    container("failure-detection", FAILURE_DETECTION),
    container("graceful-restart", RESTART),
    list("afi-safi", INSTANCE_FAMILY),
    list("group", GROUP),
    list("neighbor", NEIGHBOR),
];

const AUTHENTICATION: &[Definition] = &[leaf("password", Type::Restricted(&PASSWORD))];

const DYNAMIC: &[Definition] = &[container("accept", ACCEPT)];

const ACCEPT: &[Definition] = &[list("match", MATCH), leaf("max-sessions", U16)];

const MATCH: &[Definition] = &[
    leaf("prefix", Type::Restricted(&IP_PREFIX)),
    Definition::leaf_list("allowed-peer-as", &BGP_MODULE, Type::Restricted(&ALLOWED_AS)),
    leaf("peer-group", NAME),
];

const EBGP_POLICY: &[Definition] =
    &[leaf("import-reject-all", Type::Bool), leaf("export-reject-all", Type::Bool)];

const FAILURE_DETECTION: &[Definition] = &[leaf("enable-bfd", Type::Bool), leaf("fast-failover", Type::Bool)];

const RESTART: &[Definition] = &[
    leaf("admin-state", ADMIN_STATE),
    leaf("stale-routes-time", Type::Uint(1, 3600)),
    leaf("requested-restart-time", Type::Uint(0, 4095)),
];

const INSTANCE_FAMILY: &[Definition] = &[
    leaf("afi-safi-name", AFI_SAFI),
    leaf("admin-state", ADMIN_STATE),
    Definition::leaf_list("export-policy", &BGP_MODULE, NAME),
    Definition::leaf_list("import-policy", &BGP_MODULE, NAME),
    container("multipath", MULTIPATH),
];

const MULTIPATH: &[Definition] =
    &[leaf("allow-multiple-as", Type::Bool), leaf("maximum-paths", Type::Uint(1, 64))];

const GROUP: &[Definition] = &[
    leaf("group-name", NAME),
    leaf("admin-state", ADMIN_STATE),
    leaf("description", Type::Restricted(&DESCRIPTION)),
    Definition::leaf_list("export-policy", &BGP_MODULE, NAME),
    Definition::leaf_list("import-policy", &BGP_MODULE, NAME),
    leaf("next-hop-self", Type::Bool),
    leaf("peer-as", AS_NUMBER),
    container("authentication", AUTHENTICATION),
    container("failure-detection", FAILURE_DETECTION),
    container("graceful-restart", RESTART),
    list("afi-safi", FAMILY),
    container("local-as", LOCAL_AS),
    container("timers", TIMERS),
    container("transport", TRANSPORT),
];

pub(super) const NEIGHBOR: &[Definition] = &[
    leaf("peer-address", Type::Restricted(&IP_ADDRESS)),
    leaf("admin-state", ADMIN_STATE),
    leaf("description", Type::Restricted(&DESCRIPTION)),
    Definition::leaf_list("export-policy", &BGP_MODULE, NAME),
    Definition::leaf_list("import-policy", &BGP_MODULE, NAME),
    leaf("next-hop-self", Type::Bool),
    leaf("peer-as", AS_NUMBER),
    leaf("peer-group", NAME),
    container("authentication", AUTHENTICATION),
    container("failure-detection", FAILURE_DETECTION),
    container("graceful-restart", RESTART),
    list("afi-safi", FAMILY),
    container("local-as", LOCAL_AS),
    container("timers", TIMERS),
    container("transport", TRANSPORT),
    state("peer-router-id", TEXT),
    state("session-state", SESSION_STATE),
    state("last-established", TEXT),
    state("established-transitions", U64),
    state("dynamic-neighbor", Type::Bool),
    container("sent-messages", MESSAGES).state_data(),
    container("received-messages", MESSAGES).state_data(),
];

const SESSION_STATE: Type =
    Type::Enum(&["idle", "connect", "active", "opensent", "openconfirm", "established"]);

const MESSAGES: &[Definition] = &[
    state("total-updates", U64),
    state("total-messages", U64),
    state("last-notification-time", TEXT),
    state("last-notification-error-code", TEXT),
    state("last-notification-error-subcode", TEXT),
    state("total-notifications", U32),
];

/// A family of a group or neighbour.
pub(super) const FAMILY: &[Definition] = &[
    leaf("afi-safi-name", AFI_SAFI),
    leaf("admin-state", ADMIN_STATE),
    Definition::leaf_list("export-policy", &BGP_MODULE, NAME),
    Definition::leaf_list("import-policy", &BGP_MODULE, NAME),
    state("oper-state", Type::Enum(&["up", "down"])),
    state("received-routes", U32),
    state("sent-routes", U32),
    state("active-routes", U32),
    container("ipv4-unicast", UNICAST),
    container("ipv6-unicast", UNICAST),
];

const UNICAST: &[Definition] = &[container("prefix-limit-received", LIMIT)];

const LIMIT: &[Definition] = &[
    leaf("max-received-routes", Type::Uint(1, 4_294_967_295)),
    leaf("warning-threshold-pct", Type::Uint(0, 100)),
    leaf("prevent-teardown", Type::Bool),
];

const LOCAL_AS: &[Definition] = &[
    leaf("as-number", AS_NUMBER),
    leaf("prepend-global-as", Type::Bool),
    leaf("prepend-local-as", Type::Bool),
];

const TIMERS: &[Definition] = &[
    leaf("connect-retry", Type::Uint(1, 65535)),
    leaf("hold-time", U16),
    leaf("keepalive-interval", Type::Uint(0, 21845)),
    leaf("minimum-advertisement-interval", Type::Uint(1, 255)),
    leaf("prefix-limit-restart-timer", U16),
    state("negotiated-hold-time", U16),
    state("negotiated-keepalive-interval", U16),
];

const TRANSPORT: &[Definition] =
    &[leaf("passive-mode", Type::Bool), leaf("local-address", Type::Restricted(&IP_ADDRESS))];

/// Content of `bfd`.
pub(super) const BFD: &[Definition] = &[Definition::list("subinterface", &BFD_MODULE, 1, BFD_SUBINTERFACE)];

/// The intervals are in microseconds.
const BFD_SUBINTERFACE: &[Definition] = &[
    Definition::leaf("id", &BFD_MODULE, Type::Restricted(&SUBINTERFACE_NAME)),
    Definition::leaf("admin-state", &BFD_MODULE, ADMIN_STATE),
    Definition::leaf("desired-minimum-transmit-interval", &BFD_MODULE, Type::Uint(10_000, 100_000_000)),
    Definition::leaf("required-minimum-receive", &BFD_MODULE, Type::Uint(10_000, 100_000_000)),
    Definition::leaf("detection-multiplier", &BFD_MODULE, Type::Uint(3, 20)),
];

/// `bgp` of a network instance.
pub(super) fn bgp(instance: &Container) -> Option<Cursor<'_>> {
    Cursor::new(instance, INSTANCE).below(&["protocols", "bgp"])
}

/// The BGP instances of VRFs, by the name of the VRF.
pub(super) fn instances(config: &Container) -> BTreeMap<String, BgpView> {
    let vrfs = all_instances(config).filter(|(name, instance)| is_vrf(name, instance));
    let with_bgp = vrfs.filter(|(_, instance)| bgp(instance).is_some());
    with_bgp
        .filter_map(|(name, instance)| {
            let routed = vrf::routed_interfaces(config, instance);
            Some((name.to_owned(), view(config, bgp(instance)?, &routed)?))
        })
        .collect()
}

fn view(config: &Container, bgp: Cursor<'_>, routed: &BTreeMap<String, RoutedView>) -> Option<BgpView> {
    if bgp.is(&["admin-state"], "disable") {
        return None;
    }
    let group = |name: &str| bgp.entry(&["group"], name);
    let of = |neighbour: Option<Cursor<'_>>, name: Option<&str>, address: IpAddr| {
        let layers = Layers { bgp, layers: [neighbour, name.and_then(group)] };
        layers.neighbour(config, name, address, routed)
    };
    let neighbours = bgp.named(&["neighbor"]).filter_map(|(text, neighbour)| {
        let address = text.parse().ok()?;
        Some((address, of(Some(neighbour), neighbour.text(&["peer-group"]), address)))
    });
    let dynamic = bgp.named(&["dynamic-neighbors", "accept", "match"]).filter_map(|(text, entry)| {
        let network: ipnet::IpNet = text.parse().ok()?;
        let mut neighbour = of(None, Some(entry.text(&["peer-group"])?), network.addr());
        // A single AS can be told to FRR, and several can't.
        let mut allowed = entry.values(&["allowed-peer-as"]).filter_map(|asn| asn.text()?.parse().ok());
        if let (Some(asn), None) = (allowed.next(), allowed.next()) {
            neighbour.peer_as = Some(asn);
        }
        Some((network, neighbour))
    });
    Some(BgpView {
        asn: bgp.number(&["autonomous-system"])?,
        router_id: bgp.text(&["router-id"]).and_then(|id| id.parse().ok()),
        neighbours: neighbours.collect(),
        dynamic_neighbours: dynamic.collect(),
    })
}

/// A neighbour and its group, and the instance that has some nodes for both: the first one that has a node counts.
#[derive(Clone, Copy)]
struct Layers<'a> {
    bgp: Cursor<'a>,
    layers: [Option<Cursor<'a>>; 2],
}

impl<'a> Layers<'a> {
    fn find<T>(self, get: impl Fn(Cursor<'a>) -> Option<T>) -> Option<T> {
        self.layers.into_iter().flatten().find_map(get)
    }

    /// The same, with what the instance has.
    fn find_with_instance<T>(self, get: impl Fn(Cursor<'a>) -> Option<T>) -> Option<T> {
        self.layers.into_iter().flatten().chain([self.bgp]).find_map(get)
    }

    fn number<T: TryFrom<u64>>(self, path: &[&str]) -> Option<T> {
        self.find(|layer| layer.number(path))
    }

    fn is(self, path: &[&str], value: &str) -> bool {
        self.find(|layer| layer.leaf(path)).is_some_and(|leaf| leaf.is(value))
    }

    fn neighbour(
        self,
        config: &Container,
        group: Option<&str>,
        address: IpAddr,
        routed: &BTreeMap<String, RoutedView>,
    ) -> BgpNeighbourView {
        let bfd = self.find_with_instance(|layer| layer.leaf(&["failure-detection", "enable-bfd"]));
        let bfd = bfd.is_some_and(|bfd| bfd.is("true"));
        let password = self.find_with_instance(|layer| layer.text(&["authentication", "password"]));
        let restart = self.find_with_instance(|layer| {
            layer.below(&["graceful-restart"]).filter(|restart| restart.leaf(&["admin-state"]).is_some())
        });
        BgpNeighbourView {
            group: group.map(str::to_owned),
            peer_as: self.number(&["peer-as"]),
            local_as: self.number(&["local-as", "as-number"]),
            disabled: self.layers.into_iter().flatten().any(|layer| layer.is(&["admin-state"], "disable")),
            passive: self.is(&["transport", "passive-mode"], "true"),
            password: password.map(str::to_owned),
            hold_time: self.number(&["timers", "hold-time"]).unwrap_or(HOLD_TIME),
            keepalive_time: self.number(&["timers", "keepalive-interval"]).unwrap_or(KEEPALIVE),
            connect_retry: self.number(&["timers", "connect-retry"]),
            bfd: bfd.then(|| bfd_timers(config, address, routed)).flatten(),
            // It is a helper only.
            graceful_restart: restart.filter(|restart| restart.is(&["admin-state"], "enable")).map(
                |restart| GracefulRestartView {
                    restart_time: restart.number(&["requested-restart-time"]),
                    stale_time: restart.number(&["stale-routes-time"]),
                    helper_only: true,
                },
            ),
            ipv4: self.family(config, "ipv4-unicast"),
            ipv6: self.family(config, "ipv6-unicast"),
        }
    }

    /// A family, if it is enabled.
    fn family(self, config: &Container, name: &str) -> Option<BgpFamilyView> {
        let of = |layer: Cursor<'a>| {
            layer.list(&["afi-safi"]).find(|(key, _)| key[0].is(name)).map(|(_, family)| family)
        };
        let state = self.find_with_instance(|layer| of(layer)?.leaf(&["admin-state"]));
        if !state.is_some_and(|state| state.is("enable")) {
            return None;
        }
        let limit = |leaf| [name, "prefix-limit-received", leaf];
        let maximum: Option<u32> = self.find(|layer| of(layer)?.number(&limit("max-received-routes")));
        let warning_only = self.find(|layer| of(layer)?.leaf(&limit("prevent-teardown")));
        let policies = |direction: &str| -> Vec<PolicyRule> {
            let named = |holder: Cursor<'a>| {
                let names: Vec<&str> = holder.values(&[direction]).filter_map(Value::text).collect();
                (!names.is_empty()).then_some(names)
            };
            // What the family has goes before what its holder has.
            let names = self.find_with_instance(|layer| of(layer).and_then(named).or_else(|| named(layer)));
            let is_import = direction == "import-policy";
            let leaf = if is_import { "import-reject-all" } else { "export-reject-all" };
            let rejects = !self.bgp.is(&["ebgp-default-policy", leaf], "false");
            policy::rules(config, &names.unwrap_or_default(), policy::default(rejects, is_import))
        };
        Some(BgpFamilyView {
            maximum_prefixes: maximum.map(|number| MaximumPrefixes {
                number,
                received: true,
                warning_only: warning_only.is_some_and(|only| only.is("true")),
                restart: self.number(&["timers", "prefix-limit-restart-timer"]).filter(|time| *time > 0),
            }),
            import: policies("import-policy"),
            export: policies("export-policy"),
        })
    }
}

/// The timers of BFD on the subinterface that leads to an address; `None` if it has no BFD there.
fn bfd_timers(config: &Container, address: IpAddr, routed: &BTreeMap<String, RoutedView>) -> Option<BfdView> {
    let leads = |view: &RoutedView| view.addresses.iter().any(|network| network.contains(&address));
    let (name, _) = routed.iter().find(|(_, view)| leads(view))?;
    let timers = Cursor::new(config, ROOTS).entry(&["bfd", "subinterface"], name)?;
    let milliseconds = |leaf| timers.number(&[leaf]).map(|micros: u32| micros / 1000);
    // The default of `admin-state` is `disable`.
    timers.is(&["admin-state"], "enable").then(|| BfdView {
        transmit_interval: milliseconds("desired-minimum-transmit-interval")
            .unwrap_or(BFD_DEFAULT.transmit_interval),
        receive_interval: milliseconds("required-minimum-receive").unwrap_or(BFD_DEFAULT.receive_interval),
        detect_multiplier: timers.number(&["detection-multiplier"]).unwrap_or(BFD_DEFAULT.detect_multiplier),
    })
}
