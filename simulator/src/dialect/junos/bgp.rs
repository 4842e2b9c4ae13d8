//! BGP of Junos: `protocols/bgp` of routing instances (junos-qfx-conf-routing-instances).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::vrf::{INSTANCE, INSTANCES_MODULE, instances as routing_instances, is_vrf};
use super::{TEXT, policy};
use crate::dialect::bgp::{
    BfdView, BgpFamilyView, BgpNeighbourView, BgpView, GracefulRestartView, MaximumPrefixes, PASSWORD,
};
use crate::dialect::cursor::Cursor;
use crate::dialect::routing::{IP_ADDRESS, IP_PREFIX};
use crate::model::schema::Definition;
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value};

/// Seconds. A KEEPALIVE is sent three times within it.
const HOLD_TIME: u16 = 90;
/// The defaults of BFD.
const BFD_MULTIPLIER: u8 = 3;

/// A number of an autonomous system, plain or as `1.10`.
pub(super) static AS_NUMBER: StringRule = StringRule {
    length: (1, 11),
    matches: |text| asn(text).is_some(),
    expected: "the number of an autonomous system",
};
const AS: Type = Type::Restricted(&AS_NUMBER);
const U32: Type = Type::Uint(1, 4_294_967_295);

const fn container(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::container(name, &INSTANCES_MODULE, children)
}

const fn presence(name: &'static str, children: &'static [Definition]) -> Definition {
    Definition::presence(name, &INSTANCES_MODULE, children)
}

const fn leaf(name: &'static str, ty: Type) -> Definition {
    Definition::leaf(name, &INSTANCES_MODULE, ty)
}

const fn leaf_list(name: &'static str, ty: Type) -> Definition {
    Definition::leaf_list(name, &INSTANCES_MODULE, ty)
}

/// Content of a routing instance.
pub(super) const PROTOCOLS: &[Definition] = &[container("bgp", BGP)];

const BGP: &[Definition] = &[Definition::list("group", &INSTANCES_MODULE, 1, GROUP)];

const GROUP: &[Definition] = &[
    leaf("name", TEXT),
    leaf("type", Type::Enum(&["internal", "external"])),
    leaf("description", TEXT),
    leaf("local-address", Type::Restricted(&IP_ADDRESS)),
    leaf("hold-time", Type::Uint(0, 65535)),
    leaf("passive", Type::Empty),
    leaf_list("import", TEXT),
    container("family", FAMILY),
    leaf("authentication-key", Type::Restricted(&PASSWORD)),
    leaf_list("export", TEXT),
    leaf("peer-as", AS),
    container("local-as", LOCAL_AS),
    presence("shutdown", &[]),
    presence("graceful-restart", GRACEFUL_RESTART),
    presence("multipath", MULTIPATH),
    container("bfd-liveness-detection", BFD),
    leaf_list("allow", Type::Restricted(&IP_PREFIX)),
    leaf("peer-as-list", TEXT),
    Definition::list("neighbor", &INSTANCES_MODULE, 1, NEIGHBOR),
];

const NEIGHBOR: &[Definition] = &[
    leaf("name", Type::Restricted(&IP_ADDRESS)),
    leaf("description", TEXT),
    leaf("local-address", Type::Restricted(&IP_ADDRESS)),
    leaf("hold-time", Type::Uint(0, 65535)),
    leaf("passive", Type::Empty),
    leaf_list("import", TEXT),
    container("family", FAMILY),
    leaf("authentication-key", Type::Restricted(&PASSWORD)),
    leaf_list("export", TEXT),
    leaf("peer-as", AS),
    container("local-as", LOCAL_AS),
    presence("shutdown", &[]),
    presence("graceful-restart", GRACEFUL_RESTART),
    container("bfd-liveness-detection", BFD),
];

const LOCAL_AS: &[Definition] = &[
    leaf("as-number", AS),
    leaf("private", Type::Empty),
    leaf("alias", Type::Empty),
    leaf("no-prepend-global-as", Type::Empty),
];

const GRACEFUL_RESTART: &[Definition] = &[
    leaf("disable", Type::Empty),
    leaf("restart-time", Type::Uint(1, 1800)),
    leaf("stale-routes-time", Type::Uint(1, 1800)),
];

const MULTIPATH: &[Definition] = &[leaf("multiple-as", Type::Empty)];

const FAMILY: &[Definition] = &[container("inet", SAFIS), container("inet6", SAFIS)];

const SAFIS: &[Definition] = &[presence("unicast", UNICAST)];

const UNICAST: &[Definition] = &[container("prefix-limit", LIMIT), container("accepted-prefix-limit", LIMIT)];

const LIMIT: &[Definition] = &[leaf("maximum", U32), presence("teardown", TEARDOWN)];

const TEARDOWN: &[Definition] =
    &[leaf("limit-threshold", Type::Uint(1, 100)), presence("idle-timeout", IDLE_TIMEOUT)];

const IDLE_TIMEOUT: &[Definition] = &[
    leaf("forever", Type::Empty).in_case("idle-parm", "forever"),
    leaf("timeout", Type::Uint(1, 2400)).in_case("idle-parm", "timeout"),
];

/// The intervals are in milliseconds.
const BFD: &[Definition] = &[
    leaf("minimum-interval", Type::Uint(1, 255_000)),
    leaf("minimum-receive-interval", Type::Uint(1, 255_000)),
    leaf("multiplier", Type::Uint(1, 255)),
    container("transmit-interval", TRANSMIT),
    leaf("session-mode", Type::Enum(&["automatic", "single-hop", "multihop"])),
];

const TRANSMIT: &[Definition] = &[leaf("minimum-interval", Type::Uint(1, 255_000))];

/// The number in `65000` or `1.10`.
pub(super) fn asn(text: &str) -> Option<u32> {
    let number = match text.split_once('.') {
        None => text.parse().ok()?,
        Some((high, low)) => u32::from(high.parse::<u16>().ok()?) << 16 | u32::from(low.parse::<u16>().ok()?),
    };
    (number > 0).then_some(number)
}

/// The groups of a routing instance.
pub(super) fn groups(instance: &Container) -> impl Iterator<Item = (&str, Cursor<'_>)> {
    Cursor::new(instance, INSTANCE).named(&["protocols", "bgp", "group"])
}

/// The AS of a routing instance.
pub(super) fn autonomous_system(instance: &Container) -> Option<u32> {
    Cursor::new(instance, INSTANCE).text(&["routing-options", "autonomous-system", "as-number"]).and_then(asn)
}

/// The AS of a neighbour or group itself.
pub(super) fn local_as(holder: Cursor<'_>) -> Option<u32> {
    holder.text(&["local-as", "as-number"]).and_then(asn)
}

/// The BGP instances of VRFs, by the name of the VRF.
pub(super) fn instances(config: &Container) -> BTreeMap<String, BgpView> {
    let vrfs = routing_instances(config).filter(|(_, instance)| is_vrf(instance));
    vrfs.filter_map(|(name, instance)| Some((name.to_owned(), view(config, instance)?))).collect()
}

fn view(config: &Container, instance: &Container) -> Option<BgpView> {
    let any_as = || groups(instance).find_map(|(_, group)| local_as(group));
    groups(instance).next()?;
    let id = Cursor::new(instance, INSTANCE).text(&["routing-options", "router-id"]);
    let mut bgp = BgpView {
        asn: autonomous_system(instance).or_else(any_as)?,
        router_id: id.and_then(|id| id.parse().ok()),
        ..BgpView::default()
    };
    for (name, group) in groups(instance) {
        for (address, neighbour) in group.named(&["neighbor"]) {
            let Ok(address) = address.parse() else { continue };
            let layers = Layers([Some(neighbour), Some(group)]);
            bgp.neighbours.insert(address, layers.neighbour(config, &bgp, name, address));
        }
        for network in group.values(&["allow"]).filter_map(|network| network.text()?.parse().ok()) {
            let network: ipnet::IpNet = network;
            let layers = Layers([None, Some(group)]);
            let neighbour = layers.neighbour(config, &bgp, name, network.addr());
            bgp.dynamic_neighbours.insert(network, neighbour);
        }
    }
    Some(bgp)
}

/// A neighbour and its group: the first one that has a node counts.
#[derive(Clone, Copy)]
struct Layers<'a>([Option<Cursor<'a>>; 2]);

impl<'a> Layers<'a> {
    fn find<T>(self, get: impl Fn(Cursor<'a>) -> Option<T>) -> Option<T> {
        self.0.into_iter().flatten().find_map(get)
    }

    fn number<T: TryFrom<u64>>(self, path: &[&str]) -> Option<T> {
        self.find(|layer| layer.number(path))
    }

    fn neighbour(self, config: &Container, bgp: &BgpView, group: &str, address: IpAddr) -> BgpNeighbourView {
        let hold_time: u16 = self.number(&["hold-time"]).unwrap_or(HOLD_TIME);
        let internal = self.find(|layer| layer.leaf(&["peer-as"])).is_none()
            && self.0[1].is_some_and(|group| group.is(&["type"], "internal"));
        // A single AS of a list can be told to FRR, and several can't.
        let listed = || {
            let list = policy::options(config)?.entry(&["as-list"], self.0[1]?.text(&["peer-as-list"])?)?;
            let mut members = list.values(&["members"]).filter_map(Value::text);
            asn(members.next()?).filter(|_| members.next().is_none())
        };
        let peer_as = self.find(|layer| layer.text(&["peer-as"])).and_then(asn);
        let family = |name, is_own| self.family(config, name, is_own);
        BgpNeighbourView {
            group: Some(group.to_owned()),
            peer_as: peer_as.or(internal.then_some(bgp.asn)).or_else(listed),
            local_as: self.find(local_as),
            disabled: self.find(|layer| layer.below(&["shutdown"])).is_some(),
            passive: self.find(|layer| layer.leaf(&["passive"])).is_some(),
            password: self.find(|layer| layer.text(&["authentication-key"])).map(str::to_owned),
            hold_time,
            keepalive_time: hold_time / 3,
            connect_retry: None,
            bfd: self.find(bfd),
            graceful_restart: self.graceful_restart(),
            ipv4: family("inet", address.is_ipv4()),
            ipv6: family("inet6", address.is_ipv6()),
        }
    }

    fn graceful_restart(self) -> Option<GracefulRestartView> {
        let restart = self.find(|layer| layer.below(&["graceful-restart"]))?;
        restart.leaf(&["disable"]).is_none().then(|| GracefulRestartView {
            restart_time: restart.number(&["restart-time"]),
            stale_time: restart.number(&["stale-routes-time"]),
            helper_only: false,
        })
    }

    /// A family, if it is configured. Without any, the neighbour has that of its address.
    fn family(self, config: &Container, name: &str, is_own: bool) -> Option<BgpFamilyView> {
        let families = self.find(|layer| layer.below(&["family"]));
        let unicast = families.and_then(|families| families.below(&[name, "unicast"]));
        if unicast.is_none() && (families.is_some() || !is_own) {
            return None;
        }
        let limit = |kind, received| {
            let limit = unicast?.below(&[kind])?;
            let teardown = limit.below(&["teardown"]);
            let minutes = teardown.and_then(|teardown| teardown.number::<u32>(&["idle-timeout", "timeout"]));
            Some(MaximumPrefixes {
                number: limit.number(&["maximum"])?,
                received,
                warning_only: teardown.is_none(),
                restart: minutes.map(|minutes| minutes * 60),
            })
        };
        let policies = |direction| {
            let names = self.find(|layer| {
                let names: Vec<&str> = layer.values(&[direction]).filter_map(Value::text).collect();
                (!names.is_empty()).then_some(names)
            });
            policy::rules(config, &names.unwrap_or_default(), policy::default(direction == "import"))
        };
        Some(BgpFamilyView {
            maximum_prefixes: limit("prefix-limit", true).or_else(|| limit("accepted-prefix-limit", false)),
            import: policies("import"),
            export: policies("export"),
        })
    }
}

fn bfd(layer: Cursor<'_>) -> Option<BfdView> {
    let bfd = layer.below(&["bfd-liveness-detection"])?;
    let both: Option<u32> = bfd.number(&["minimum-interval"]);
    Some(BfdView {
        transmit_interval: bfd.number(&["transmit-interval", "minimum-interval"]).or(both)?,
        receive_interval: bfd.number(&["minimum-receive-interval"]).or(both)?,
        detect_multiplier: bfd.number(&["multiplier"]).unwrap_or(BFD_MULTIPLIER),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_autonomous_systems_may_have_a_dot() {
        assert_eq!(
            [asn("65000"), asn("1.10"), asn("4200000000")],
            [Some(65000), Some(65546), Some(4_200_000_000)]
        );
        for bad in ["", "0", "0.0", "1.65536", "x", "4294967296"] {
            assert_eq!(asn(bad), None, "{bad}");
        }
    }
}
