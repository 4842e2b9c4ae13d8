//! BGP groups of SR Linux: srl_nokia-bgp and srl_nokia-routing-policy 24.7 (nokia/srlinux-yang-models).
//!
//! In a VRF: `/network-instance[name]/protocols/bgp` with `group[group-name]`, `neighbor[peer-address]` and
//! `dynamic-neighbors/accept/match[prefix]`. A neighbour has the family of its address and no other one, and the limit of
//! its prefixes; its group has all else. On the device: `/routing-policy` with a `policy` for each direction, a
//! `prefix-set` for each, and a `community-set`. An instance of BGP needs a router ID: the first IPv4 address of the VRF.
//!
//! The timers of BFD are those of a subinterface, which all protocols share. So a group with BFD is refused. A device
//! helps a neighbour that restarts, and keeps its routes for the time of the group.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use eno_sbi::TooLarge;
use eno_schemas::BgpGroup;
use ipnet::IpNet;

use super::{NETWORK_INSTANCE, SrLinux, scope};
use crate::bgp_sessions::{FoundSessions, WantedSessions};
use crate::dialect::{BgpDialect, ParseError};
use crate::memory::Counter;
use crate::plan::{
    BgpModel, Builder, Built, Changes, EntryId, GroupValues, InstanceChange, ObservedBgp, ObservedInstance,
    OwnEntry, Rules, Shapes, WantedEntry, is_own_name,
};
use crate::text::Text;
use crate::xml::{Step, escape, walk};

const BGP: &str = "urn:nokia.com:srlinux:bgp:bgp";
const ROUTING_POLICY: &str = "urn:nokia.com:srlinux:plcy:routing-policy";
const COMMON: &str = "urn:nokia.com:srlinux:general:common";
const REMOVE: &str = " nc:operation=\"remove\"";
const GROUP: &str = "group";
const NEIGHBOR: &str = "neighbor";
const MATCH: &str = "match";
const PREFIX_SET: &str = "prefix-set";
const COMMUNITY_SET: &str = "community-set";
const POLICY: &str = "policy";
/// The families.
const FAMILIES: [&str; 2] = ["ipv4-unicast", "ipv6-unicast"];
/// The path of an instance of BGP.
const INSTANCE: &str = "network-instance/protocols/bgp";
/// The lists of entries, and their keys.
const LISTS: [(&str, &str, &str); 6] = [
    ("network-instance/protocols/bgp/group", GROUP, "group-name"),
    ("network-instance/protocols/bgp/neighbor", NEIGHBOR, "peer-address"),
    ("network-instance/protocols/bgp/dynamic-neighbors/accept/match", MATCH, "prefix"),
    ("routing-policy/prefix-set", PREFIX_SET, "name"),
    ("routing-policy/community-set", COMMUNITY_SET, "name"),
    ("routing-policy/policy", POLICY, "name"),
];
/// The leaves of an instance that the driver makes.
const MADE: [&str; 4] =
    ["/autonomous-system", "/router-id", "/afi-safi/afi-safi-name", "/afi-safi/admin-state"];

/// Entries with all that they may have.
static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let net = |text: &str| text.parse::<IpNet>().into_iter();
    let all: Vec<IpNet> = net("192.0.2.0/24").chain(net("2001:db8::/64")).collect();
    let group = BgpGroup {
        owner: "BGPSessionGroup/x".into(),
        local_as: 1,
        peer_as: 2,
        neighbours: all.iter().map(IpNet::addr).collect(),
        dynamic_neighbours: all.clone(),
        hold_time: 90,
        keepalive_time: 30,
        bfd: None,
        graceful_restart: Some(120),
        password: None,
        maximum_prefixes: Some(1),
        accept: all.clone(),
        announce: all,
        communities: vec!["65000:1".into()],
    };
    let values = GroupValues { name: "x", vrf: "x", group: &group, local_as: Some(1), password: None };
    let samples = SrLinux.entries(&values);
    // What would override the rest.
    let more =
        "<neighbor><import-policy/><export-policy/><peer-as/><local-as><as-number/></local-as></neighbor>";
    let samples = samples.iter().map(|sample| (sample.id.kind, sample.xml.expose()));
    let rules = Rules {
        is_default: |kind, path, text| match path {
            "timers/hold-time" => text == "90",
            "admin-state" => matches!(kind, GROUP | NEIGHBOR) && text == "enable",
            _ => false,
        },
        ..Rules::default()
    };
    Shapes::of(samples.chain([(NEIGHBOR, more)]), "password", rules)
});

impl BgpModel for SrLinux {
    fn shapes(&self) -> &'static Shapes {
        &SHAPES
    }

    fn needs_router_id(&self) -> bool {
        true
    }

    fn refuses(&self, group: &BgpGroup) -> Option<String> {
        group.bfd.map(|_| {
            "the timers of BFD are those of a subinterface on SR Linux, which ENO does not set: leave BFD out".to_owned()
        })
    }

    fn entries(&self, values: &GroupValues<'_>) -> Vec<WantedEntry> {
        let GroupValues { name, group, .. } = *values;
        let entry = |kind, vrf: Option<&str>, name: String, xml: String| {
            let id = EntryId { kind, vrf: vrf.map(str::to_owned), name };
            WantedEntry { id, xml: xml.into(), has_password: false }
        };
        let (vrf, has_password) = (Some(values.vrf), values.password.is_some());
        let mut entries =
            vec![WantedEntry { has_password, ..entry(GROUP, vrf, name.to_owned(), group_xml(values)) }];
        for address in &group.neighbours {
            let xml = format!(
                "<neighbor><peer-address>{address}</peer-address><admin-state>enable</admin-state><peer-group>{}</peer-group>\
                 {}</neighbor>",
                escape(name),
                families(&[address.is_ipv6()], group)
            );
            entries.push(entry(NEIGHBOR, vrf, address.to_string(), xml));
        }
        for net in &group.dynamic_neighbours {
            let xml = format!(
                "<match><prefix>{net}</prefix><allowed-peer-as>{}</allowed-peer-as><peer-group>{}</peer-group></match>",
                group.peer_as,
                escape(name)
            );
            entries.push(entry(MATCH, vrf, net.to_string(), xml));
        }
        let community = (!group.communities.is_empty()).then_some(name);
        for (direction, purpose, nets) in
            [("import", "accept", &group.accept), ("export", "announce", &group.announce)]
        {
            let set = (!nets.is_empty()).then(|| format!("{name}-{purpose}"));
            if let Some(set) = &set {
                let xml = prefix_set(set, nets, direction == "import");
                entries.push(entry(PREFIX_SET, None, set.clone(), xml));
            }
            let policy = format!("{name}-{direction}");
            let community = community.filter(|_| direction == "import");
            entries.push(entry(POLICY, None, policy.clone(), policy_xml(&policy, set.as_deref(), community)));
        }
        if let Some(community) = community {
            let mut xml = format!("<community-set><name>{}</name>", escape(community));
            for member in &group.communities {
                let _ = write!(xml, "<member>{}</member>", escape(member));
            }
            entries.push(entry(COMMUNITY_SET, None, community.to_owned(), xml + "</community-set>"));
        }
        entries
    }
}

/// The group itself. Writing to memory can't fail, so results of `write!` are dropped in this file.
fn group_xml(values: &GroupValues<'_>) -> String {
    let GroupValues { name, group, local_as, password, .. } = *values;
    let name = escape(name);
    let mut xml = format!(
        "<group><group-name>{name}</group-name><admin-state>enable</admin-state><description>{}</description>\
         <export-policy>{name}-export</export-policy><import-policy>{name}-import</import-policy><peer-as>{}</peer-as>",
        escape(&group.owner),
        group.peer_as
    );
    if let Some(password) = password {
        let password = escape(password.expose());
        let _ = write!(xml, "<authentication><password>{password}</password></authentication>");
    }
    if let Some(seconds) = group.graceful_restart {
        let _ = write!(
            xml,
            "<graceful-restart><admin-state>enable</admin-state><stale-routes-time>{seconds}</stale-routes-time>\
             </graceful-restart>"
        );
    }
    let networks: BTreeSet<bool> = group.dynamic_neighbours.iter().map(|net| net.addr().is_ipv6()).collect();
    if !networks.is_empty() {
        xml += &families(&networks.into_iter().collect::<Vec<bool>>(), group);
    }
    if let Some(local_as) = local_as {
        let _ = write!(xml, "<local-as><as-number>{local_as}</as-number></local-as>");
    }
    let _ = write!(
        xml,
        "<timers><hold-time>{}</hold-time><keepalive-interval>{}</keepalive-interval></timers></group>",
        group.hold_time, group.keepalive_time
    );
    xml
}

/// These families of a neighbour or group, each with the limit of its prefixes, and no other one.
fn families(are_v6: &[bool], group: &BgpGroup) -> String {
    let mut xml = String::new();
    for (is_v6, family) in [(false, FAMILIES[0]), (true, FAMILIES[1])] {
        let is_on = are_v6.contains(&is_v6);
        let limit = group.maximum_prefixes.filter(|_| is_on).map_or(String::new(), |maximum| {
            format!(
                "<{family}><prefix-limit-received><max-received-routes>{maximum}</max-received-routes>\
                 </prefix-limit-received></{family}>"
            )
        });
        xml += &afi_safi(family, if is_on { "enable" } else { "disable" }, &limit);
    }
    xml
}

fn afi_safi(family: &str, state: &str, content: &str) -> String {
    format!(
        "<afi-safi><afi-safi-name xmlns:srl_nokia-comm=\"{COMMON}\">srl_nokia-comm:{family}</afi-safi-name>\
         <admin-state>{state}</admin-state>{content}</afi-safi>"
    )
}

/// `with_longer`: with all longer prefixes in them.
fn prefix_set(name: &str, nets: &[IpNet], with_longer: bool) -> String {
    let mut xml = format!("<prefix-set><name>{}</name>", escape(name));
    for net in nets {
        let (length, longest) = (net.prefix_len(), net.max_prefix_len());
        let range =
            if with_longer && length < longest { format!("{length}..{longest}") } else { "exact".into() };
        let _ = write!(
            xml,
            "<prefix><ip-prefix>{net}</ip-prefix><mask-length-range>{range}</mask-length-range></prefix>"
        );
    }
    xml + "</prefix-set>"
}

/// A policy that accepts a prefix set, adds communities, and rejects all else.
fn policy_xml(name: &str, set: Option<&str>, community: Option<&str>) -> String {
    let mut xml = format!(
        "<policy><name>{}</name><default-action><policy-result>reject</policy-result></default-action>",
        escape(name)
    );
    if let Some(set) = set {
        let _ = write!(
            xml,
            "<statement><name>accept</name><match><prefix-set>{}</prefix-set></match><action><policy-result>accept\
             </policy-result>",
            escape(set)
        );
        if let Some(community) = community {
            let _ = write!(xml, "<bgp><communities><add>{}</add></communities></bgp>", escape(community));
        }
        xml.push_str("</action></statement>");
    }
    xml + "</policy>"
}

impl BgpDialect for SrLinux {
    fn filter_bgp(&self) -> String {
        format!(
            "<network-instance xmlns=\"{NETWORK_INSTANCE}\"><name/><protocols><bgp xmlns=\"{BGP}\"/></protocols>\
             </network-instance><routing-policy xmlns=\"{ROUTING_POLICY}\"><prefix-set/><community-set/><policy/>\
             </routing-policy>"
        )
    }

    fn parse_bgp(&self, reply: &Text, cluster: &str) -> Result<ObservedBgp, ParseError> {
        let mut parser = Parser {
            cluster,
            observed: ObservedBgp::new(&SrLinux),
            vrf: String::new(),
            instance: ObservedInstance::default(),
            shares_as: false,
            builder: Builder::default(),
            kept: Counter::default(),
        };
        walk(reply, scope, |step| parser.step(&step))?;
        Ok(ObservedBgp { memory: parser.kept.into(), ..parser.observed })
    }

    fn sessions_request(&self) -> Text {
        super::bgp_sessions::request(BGP)
    }

    fn parse_sessions(&self, reply: &Text, wanted: &WantedSessions) -> Result<FoundSessions, ParseError> {
        super::bgp_sessions::parse(reply, wanted)
    }
}

/// Reads the entries of ours while the reply streams by.
struct Parser<'a> {
    cluster: &'a str,
    observed: ObservedBgp,
    vrf: String,
    instance: ObservedInstance,
    /// A group of ours in the instance has its AS.
    shares_as: bool,
    builder: Builder,
    kept: Counter,
}

impl Parser<'_> {
    fn step(&mut self, step: &Step<'_>) -> Result<(), TooLarge> {
        match step {
            Step::Enter(path) if self.builder.is_open() => self.builder.enter(path),
            Step::Enter("network-instance") => self.vrf.clear(),
            Step::Enter(INSTANCE) => (self.instance, self.shares_as) = Default::default(),
            Step::Enter(path) => {
                if let Some((list, kind, _)) = LISTS.iter().find(|(list, ..)| list == path) {
                    self.builder = Builder::begin(kind, list);
                }
            }
            Step::Leave(path, text) if self.builder.is_open() => {
                if let Some(built) = self.builder.leave(&SHAPES, path, text) {
                    self.entry(built);
                }
            }
            Step::Leave("network-instance/name", text) => (*text).clone_into(&mut self.vrf),
            Step::Leave(INSTANCE, _) => {
                let mut instance = std::mem::take(&mut self.instance);
                instance.is_made = self.shares_as && !instance.has_others;
                self.kept.entry(size_of::<ObservedInstance>());
                self.observed.instances.insert(self.vrf.clone(), instance);
            }
            Step::Leave(path, text) => {
                if let Some(leaf) = path.strip_prefix(INSTANCE) {
                    self.instance_leaf(leaf, text);
                }
            }
        }
        self.kept.check()
    }

    fn instance_leaf(&mut self, leaf: &str, text: &str) {
        match leaf {
            "/autonomous-system" => self.instance.local_as = text.parse().ok(),
            "/admin-state" if text == "enable" => {}
            _ => self.instance.has_others |= !text.is_empty() && !MADE.contains(&leaf),
        }
    }

    fn entry(&mut self, built: Built) {
        let kind = built.kind;
        let key = LISTS.iter().find(|(_, of, _)| *of == kind).map_or("name", |(.., key)| key);
        let name = built.tree.leaf(key).unwrap_or_default().to_owned();
        let ends = ["-import", "-export", "-accept", "-announce"];
        let group = match kind {
            NEIGHBOR | MATCH => built.tree.leaf("peer-group").unwrap_or_default().to_owned(),
            PREFIX_SET | POLICY => {
                ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name.as_str()).to_owned()
            }
            _ => name.clone(),
        };
        let is_in_vrf = matches!(kind, GROUP | NEIGHBOR | MATCH);
        if !is_own_name(self.cluster, &group) {
            self.instance.has_others |= is_in_vrf;
            if matches!(kind, NEIGHBOR | MATCH) {
                self.kept.entry(name.len());
                self.instance.neighbours.insert(name);
            }
            return;
        }
        self.shares_as |= kind == GROUP && built.tree.leaf("local-as/as-number").is_none();
        Builder::count(&mut self.kept, &built);
        let vrf = is_in_vrf.then(|| self.vrf.clone());
        let entry = OwnEntry::new(group, built);
        self.observed.entries.insert(EntryId { kind, vrf, name }, entry);
    }
}

/// Renders what changes of BGP in a network-instance.
pub(super) fn render_protocol(xml: &mut Text, changes: &Changes, vrf: &str) {
    let mut content = match changes.routing.bgp.instances.get(vrf) {
        Some(InstanceChange::Remove) => {
            let _ = write!(xml, "<bgp xmlns=\"{BGP}\"{REMOVE}/>");
            return;
        }
        Some(InstanceChange::Set { local_as, router_id }) => {
            let mut made = format!("<autonomous-system>{local_as}</autonomous-system>");
            if let Some(router_id) = router_id {
                let _ = write!(made, "<router-id>{router_id}</router-id>");
            }
            made + &FAMILIES.map(|family| afi_safi(family, "enable", "")).concat()
        }
        None => String::new(),
    };
    let networks = render_entries(changes, MATCH, Some(vrf));
    if !networks.is_empty() {
        let _ = write!(content, "<dynamic-neighbors><accept>{networks}</accept></dynamic-neighbors>");
    }
    content += &render_entries(changes, GROUP, Some(vrf));
    content += &render_entries(changes, NEIGHBOR, Some(vrf));
    if !content.is_empty() {
        let _ = write!(xml, "<bgp xmlns=\"{BGP}\">{content}</bgp>");
    }
}

/// Renders the routing policies that change.
pub(super) fn render_policies(xml: &mut Text, changes: &Changes) {
    let kinds = [PREFIX_SET, COMMUNITY_SET, POLICY];
    let entries = kinds.map(|kind| render_entries(changes, kind, None)).concat();
    if !entries.is_empty() {
        let _ = write!(xml, "<routing-policy xmlns=\"{ROUTING_POLICY}\">{entries}</routing-policy>");
    }
}

fn render_entries(changes: &Changes, kind: &str, vrf: Option<&str>) -> String {
    let key = LISTS.iter().find(|(_, of, _)| *of == kind).map_or("name", |(.., key)| key);
    let (set, remove) = changes.routing.bgp.of_kind(kind, vrf);
    let mut xml = String::new();
    for id in remove {
        let _ = write!(xml, "<{kind}{REMOVE}><{key}>{}</{key}></{kind}>", escape(&id.name));
    }
    set.for_each(|(_, entry)| entry.render(&mut xml, kind));
    xml
}
