//! BGP groups of OpenConfig (openconfig/public: openconfig-bgp 9.9, openconfig-routing-policy 3.5).
//!
//! In a VRF: `/network-instances/network-instance[name]/protocols/protocol[identifier='BGP'][name]/bgp` with
//! `peer-groups/peer-group[peer-group-name]`, `neighbors/neighbor[neighbor-address]` and
//! `global/dynamic-neighbor-prefixes/dynamic-neighbor-prefix[prefix]`. A neighbour has the family of its address, and the
//! limit of its prefixes; its peer group has all else. On the device: `/routing-policy/policy-definitions` with a policy
//! for each direction, and `/routing-policy/defined-sets/prefix-sets` with a set for each of its families. Communities are
//! inline in the policy. What matches no statement is rejected by the default of the peer group.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use eno_sbi::TooLarge;
use eno_schemas::{Bfd, BgpGroup};
use ipnet::IpNet;

use super::routing::POLICY_TYPES;
use super::{NETWORK_INSTANCE, OpenConfig};
use crate::bgp_sessions::{FoundSessions, WantedSessions};
use crate::dialect::{BgpDialect, ParseError};
use crate::memory::Counter;
use crate::plan::{
    BgpModel, Builder, Built, Changes, EntryId, GroupValues, InstanceChange, ObservedBgp, ObservedConfig,
    ObservedInstance, OwnEntry, Rules, Shapes, WantedEntry, is_own_name,
};
use crate::text::Text;
use crate::xml::{NETCONF, Scope, Step, escape, walk};

const ROUTING_POLICY: &str = "http://openconfig.net/yang/routing-policy";
const BGP_POLICY: &str = "http://openconfig.net/yang/bgp-policy";
const BGP_TYPES: &str = "http://openconfig.net/yang/bgp-types";

/// The name of the instance of a VRF that has none.
const INSTANCE: &str = "BGP";
const PEER_GROUP: &str = "peer-group";
const NEIGHBOR: &str = "neighbor";
const DYNAMIC: &str = "dynamic-neighbor-prefix";
const PREFIX_SET: &str = "prefix-set";
const POLICY: &str = "policy-definition";

/// The path of an instance.
const PROTOCOL: &str = "network-instances/network-instance/protocols/protocol";
/// The lists of entries: the path within the instance or the document, the kind, the key, and the leaf with the group.
const LISTS: [(&str, &str, &str); 5] = [
    ("bgp/peer-groups/peer-group", PEER_GROUP, "peer-group-name"),
    ("bgp/neighbors/neighbor", NEIGHBOR, "neighbor-address"),
    ("bgp/global/dynamic-neighbor-prefixes/dynamic-neighbor-prefix", DYNAMIC, "prefix"),
    ("routing-policy/defined-sets/prefix-sets/prefix-set", PREFIX_SET, "name"),
    ("routing-policy/policy-definitions/policy-definition", POLICY, "name"),
];
/// The leaves of an instance that the driver makes.
const MADE: [&str; 8] = [
    "identifier",
    "name",
    "config/identifier",
    "config/name",
    "bgp/global/config/as",
    "bgp/global/afi-safis/afi-safi/afi-safi-name",
    "bgp/global/afi-safis/afi-safi/config/afi-safi-name",
    "bgp/global/afi-safis/afi-safi/config/enabled",
];
/// The families: the identity, its container, and the mode of a prefix set.
const FAMILIES: [(&str, &str, &str); 2] =
    [("IPV4_UNICAST", "ipv4-unicast", "IPV4"), ("IPV6_UNICAST", "ipv6-unicast", "IPV6")];

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
        bfd: Some(Bfd { receive_interval: 300, transmit_interval: 300, detect_multiplier: 3 }),
        graceful_restart: Some(120),
        password: None,
        maximum_prefixes: Some(1),
        accept: all.clone(),
        announce: all,
        communities: vec!["65000:1".into()],
    };
    let values = GroupValues { name: "x", vrf: "x", group: &group, local_as: Some(1), password: None };
    let samples = OpenConfig.entries(&values);
    // Settings of a neighbour that would override those of its group.
    let neighbour = "<neighbor><config><enabled/><peer-as/><local-as/></config><apply-policy><config><import-policy/>\
                     <export-policy/><default-import-policy/><default-export-policy/></config></apply-policy></neighbor>";
    let samples = samples.iter().map(|sample| (sample.id.kind, sample.xml.expose()));
    Shapes::of(
        samples.chain([(NEIGHBOR, neighbour)]),
        "auth-password",
        Rules { is_default, ..Rules::default() },
    )
});

/// Whether a value is the default of its leaf, which some devices leave out.
fn is_default(kind: &str, path: &str, text: &str) -> bool {
    match path {
        // A neighbour is enabled by default, all else is not.
        "config/enabled" if kind == NEIGHBOR => text == "true",
        "timers/config/hold-time" => text == "90",
        "timers/config/keepalive-interval" => text == "30",
        _ if path.ends_with("/enabled") => text == "false",
        _ => text == "REJECT_ROUTE",
    }
}

impl BgpModel for OpenConfig {
    fn shapes(&self) -> &'static Shapes {
        &SHAPES
    }

    fn entries(&self, values: &GroupValues<'_>) -> Vec<WantedEntry> {
        let GroupValues { name, group, .. } = *values;
        let in_vrf = |kind, name: String, xml: String| entry(kind, Some(values.vrf), name, xml);
        let mut entries = vec![WantedEntry {
            has_password: values.password.is_some(),
            ..in_vrf(PEER_GROUP, name.to_owned(), peer_group(values))
        }];
        let networks = network_families(group);
        for address in &group.neighbours {
            let xml = format!(
                "<neighbor><neighbor-address>{address}</neighbor-address><config><neighbor-address>{address}\
                 </neighbor-address><peer-group>{0}</peer-group><enabled>true</enabled></config>{1}</neighbor>",
                escape(name),
                afi_safis(&[address.is_ipv6()].into(), &networks, group)
            );
            entries.push(in_vrf(NEIGHBOR, address.to_string(), xml));
        }
        for prefix in &group.dynamic_neighbours {
            let xml = format!(
                "<{DYNAMIC}><prefix>{prefix}</prefix><config><prefix>{prefix}</prefix><peer-group>{}</peer-group></config>\
                 </{DYNAMIC}>",
                escape(name)
            );
            entries.push(in_vrf(DYNAMIC, prefix.to_string(), xml));
        }
        let (accept, announce) =
            (sets(name, "accept", &group.accept), sets(name, "announce", &group.announce));
        let mut on_device = |kind, name: String, xml: String| entries.push(entry(kind, None, name, xml));
        for (at, set, nets) in accept.iter().chain(&announce) {
            on_device(
                PREFIX_SET,
                set.clone(),
                prefix_set(set, FAMILIES[*at].2, nets, set.contains("-accept-")),
            );
        }
        let policies = [("import", &accept, &*group.communities), ("export", &announce, &[])];
        for (direction, sets, communities) in policies {
            if !sets.is_empty() {
                let policy = format!("{name}-{direction}");
                on_device(POLICY, policy.clone(), policy_definition(&policy, sets, communities));
            }
        }
        entries
    }
}

fn entry(kind: &'static str, vrf: Option<&str>, name: String, xml: String) -> WantedEntry {
    let id = EntryId { kind, vrf: vrf.map(str::to_owned), name };
    WantedEntry { id, xml: xml.into(), has_password: false }
}

/// The group of a policy or of a prefix set.
fn group_of(name: &str) -> &str {
    let ends = ["-import", "-export", "-accept-ipv4", "-accept-ipv6", "-announce-ipv4", "-announce-ipv6"];
    ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// The prefix sets of a purpose: the family, the name, and the prefixes.
fn sets(group: &str, purpose: &str, nets: &[IpNet]) -> Vec<(usize, String, Vec<IpNet>)> {
    let of = |at: usize| {
        let nets: Vec<IpNet> =
            nets.iter().copied().filter(|net| usize::from(net.addr().is_ipv6()) == at).collect();
        let name = format!("{group}-{purpose}-{}", FAMILIES[at].2.to_ascii_lowercase());
        (!nets.is_empty()).then_some((at, name, nets))
    };
    (0..FAMILIES.len()).filter_map(of).collect()
}

fn peer_group(values: &GroupValues<'_>) -> String {
    let GroupValues { name, group, local_as, password, .. } = *values;
    let name = escape(name);
    let mut xml = format!(
        "<peer-group><peer-group-name>{name}</peer-group-name><config><peer-group-name>{name}</peer-group-name>\
         <peer-as>{}</peer-as>",
        group.peer_as
    );
    // Writing to memory can't fail, so results of `write!` are dropped in this file.
    if let Some(local_as) = local_as {
        let _ = write!(xml, "<local-as>{local_as}</local-as>");
    }
    if let Some(password) = password {
        let _ = write!(xml, "<auth-password>{}</auth-password>", escape(password.expose()));
    }
    let _ = write!(
        xml,
        "<description>{}</description></config><timers><config><hold-time>{}</hold-time><keepalive-interval>{}\
         </keepalive-interval></config></timers>",
        escape(&group.owner),
        group.hold_time,
        group.keepalive_time
    );
    if let Some(seconds) = group.graceful_restart {
        let _ = write!(
            xml,
            "<graceful-restart><config><enabled>true</enabled><restart-time>{seconds}</restart-time></config>\
             </graceful-restart>"
        );
    }
    xml.push_str("<apply-policy><config>");
    for (direction, nets) in [("import", &group.accept), ("export", &group.announce)] {
        if !nets.is_empty() {
            let _ = write!(xml, "<{direction}-policy>{name}-{direction}</{direction}-policy>");
        }
        let _ = write!(xml, "<default-{direction}-policy>REJECT_ROUTE</default-{direction}-policy>");
    }
    xml.push_str("</config></apply-policy>");
    xml += &afi_safis(&network_families(group), &BTreeSet::new(), group);
    if let Some(bfd) = &group.bfd {
        // In microseconds.
        let micros = |millis: u32| u64::from(millis) * 1000;
        let _ = write!(
            xml,
            "<enable-bfd><config><enabled>true</enabled><desired-minimum-tx-interval>{}</desired-minimum-tx-interval>\
             <required-minimum-receive>{}</required-minimum-receive><detection-multiplier>{}</detection-multiplier>\
             </config></enable-bfd>",
            micros(bfd.transmit_interval),
            micros(bfd.receive_interval),
            bfd.detect_multiplier
        );
    }
    xml + "</peer-group>"
}

/// The families of a neighbour or group, each with the limit of its prefixes, and those of the group that the neighbour
/// does not have.
fn afi_safis(are_v6: &BTreeSet<bool>, off: &BTreeSet<bool>, group: &BgpGroup) -> String {
    let mut xml = String::new();
    for is_v6 in are_v6.union(off) {
        let (identity, container, _) = FAMILIES[usize::from(*is_v6)];
        let is_on = are_v6.contains(is_v6);
        let limit = group.maximum_prefixes.filter(|_| is_on).map_or(String::new(), |maximum| {
            format!(
                "<{container}><prefix-limit-received><config><max-prefixes>{maximum}</max-prefixes></config>\
                 </prefix-limit-received></{container}>"
            )
        });
        xml += &afi_safi(identity, is_on, &limit);
    }
    if xml.is_empty() { xml } else { format!("<afi-safis>{xml}</afi-safis>") }
}

/// The families of the networks of a group.
fn network_families(group: &BgpGroup) -> BTreeSet<bool> {
    group.dynamic_neighbours.iter().map(|net| net.addr().is_ipv6()).collect()
}

fn afi_safi(identity: &str, is_on: bool, content: &str) -> String {
    let name =
        format!("<afi-safi-name xmlns:oc-bgp-types=\"{BGP_TYPES}\">oc-bgp-types:{identity}</afi-safi-name>");
    format!("<afi-safi>{name}<config>{name}<enabled>{is_on}</enabled></config>{content}</afi-safi>")
}

/// `with_longer`: with all longer prefixes in them.
fn prefix_set(name: &str, mode: &str, nets: &[IpNet], with_longer: bool) -> String {
    let mut xml = format!(
        "<prefix-set><name>{0}</name><config><name>{0}</name><mode>{mode}</mode></config><prefixes>",
        escape(name)
    );
    for net in nets {
        let (length, longest) = (net.prefix_len(), net.max_prefix_len());
        let range =
            if with_longer && length < longest { format!("{length}..{longest}") } else { "exact".into() };
        let key = format!("<ip-prefix>{net}</ip-prefix><masklength-range>{range}</masklength-range>");
        let _ = write!(xml, "<prefix>{key}<config>{key}</config></prefix>");
    }
    xml + "</prefixes></prefix-set>"
}

/// A policy that accepts these prefix sets, and adds these communities.
fn policy_definition(name: &str, sets: &[(usize, String, Vec<IpNet>)], communities: &[String]) -> String {
    let mut xml = format!(
        "<policy-definition><name>{0}</name><config><name>{0}</name></config><statements>",
        escape(name)
    );
    let mut actions = String::from("<actions><config><policy-result>ACCEPT_ROUTE</policy-result></config>");
    if !communities.is_empty() {
        let _ = write!(
            actions,
            "<bgp-actions xmlns=\"{BGP_POLICY}\"><set-community><config><method>INLINE</method><options>ADD</options>\
             </config><inline><config>"
        );
        for community in communities {
            let _ = write!(actions, "<communities>{}</communities>", escape(community));
        }
        actions.push_str("</config></inline></set-community></bgp-actions>");
    }
    actions.push_str("</actions>");
    for (at, set, _) in sets {
        let statement = FAMILIES[*at].2.to_ascii_lowercase();
        let _ = write!(
            xml,
            "<statement><name>{statement}</name><config><name>{statement}</name></config><conditions><match-prefix-set>\
             <config><prefix-set>{}</prefix-set><match-set-options>ANY</match-set-options></config></match-prefix-set>\
             </conditions>{actions}</statement>",
            escape(set)
        );
    }
    xml + "</statements></policy-definition>"
}

impl BgpDialect for OpenConfig {
    fn filter_bgp(&self) -> String {
        format!(
            "<network-instances xmlns=\"{NETWORK_INSTANCE}\"><network-instance><name/><protocols><protocol><identifier/>\
             <name/><config/><bgp/></protocol></protocols></network-instance></network-instances>\
             <routing-policy xmlns=\"{ROUTING_POLICY}\"><defined-sets><prefix-sets/></defined-sets><policy-definitions/>\
             </routing-policy>"
        )
    }

    fn parse_bgp(&self, reply: &Text, cluster: &str) -> Result<ObservedBgp, ParseError> {
        let mut parser = Parser::new(cluster);
        walk(reply, scope, |step| parser.step(&step))?;
        Ok(parser.finish())
    }

    fn sessions_request(&self) -> Text {
        super::bgp_sessions::request()
    }

    fn parse_sessions(&self, reply: &Text, wanted: &WantedSessions) -> Result<FoundSessions, ParseError> {
        super::bgp_sessions::parse(reply, wanted)
    }
}

fn scope(namespace: &str) -> Scope {
    match namespace {
        NETWORK_INSTANCE | ROUTING_POLICY | BGP_POLICY => Scope::Known,
        NETCONF => Scope::Transparent,
        _ => Scope::Foreign,
    }
}

/// Reads the entries of ours while the reply streams by.
struct Parser<'a> {
    cluster: &'a str,
    observed: ObservedBgp,
    vrf: String,
    /// The identifier and the name of the protocol.
    protocol: (String, String),
    instance: ObservedInstance,
    /// A group of ours in the instance has its AS.
    shares_as: bool,
    builder: Builder,
    kept: Counter,
}

impl<'a> Parser<'a> {
    fn new(cluster: &'a str) -> Self {
        Self {
            cluster,
            observed: ObservedBgp::new(&OpenConfig),
            vrf: String::new(),
            protocol: Default::default(),
            instance: ObservedInstance::default(),
            shares_as: false,
            builder: Builder::default(),
            kept: Counter::default(),
        }
    }

    fn step(&mut self, step: &Step<'_>) -> Result<(), TooLarge> {
        match step {
            Step::Enter(path) => self.enter(path),
            Step::Leave(path, text) => self.leave(path, text),
        }
        self.kept.check()
    }

    fn enter(&mut self, path: &str) {
        if self.builder.is_open() {
            return self.builder.enter(path);
        }
        match path {
            "network-instances/network-instance" => self.vrf.clear(),
            PROTOCOL => (self.protocol, self.instance, self.shares_as) = Default::default(),
            _ => {
                let within = path.strip_prefix(PROTOCOL).map_or(path, |rest| rest.trim_start_matches('/'));
                if let Some((_, kind, _)) = LISTS.iter().find(|(list, ..)| *list == within) {
                    self.builder = Builder::begin(kind, path);
                }
            }
        }
    }

    fn leave(&mut self, path: &str, text: &str) {
        if self.builder.is_open() {
            if let Some(built) = self.builder.leave(&SHAPES, path, text) {
                self.entry(built);
            }
            return;
        }
        match path {
            "network-instances/network-instance/name" => text.clone_into(&mut self.vrf),
            PROTOCOL => self.leave_protocol(),
            _ => {
                if let Some(leaf) = path.strip_prefix(PROTOCOL) {
                    self.protocol_leaf(leaf.trim_start_matches('/'), text);
                }
            }
        }
    }

    fn protocol_leaf(&mut self, leaf: &str, text: &str) {
        match leaf {
            "identifier" => text.rsplit(':').next().unwrap_or(text).clone_into(&mut self.protocol.0),
            "name" => text.clone_into(&mut self.protocol.1),
            "bgp/global/config/as" => self.instance.local_as = text.parse().ok(),
            "config/enabled" if text == "true" => {}
            _ => self.instance.has_others |= !text.is_empty() && !MADE.contains(&leaf),
        }
    }

    fn leave_protocol(&mut self) {
        let ((identifier, name), mut instance) =
            (std::mem::take(&mut self.protocol), std::mem::take(&mut self.instance));
        if identifier != "BGP" {
            return;
        }
        instance.is_made = !instance.has_others && name == INSTANCE && self.shares_as;
        instance.name = name;
        self.kept.entry(size_of::<ObservedInstance>());
        // A VRF has one as a rule.
        let other = self.observed.instances.get_mut(&self.vrf);
        match other {
            Some(first) => {
                (first.has_others, first.is_made) = (true, false);
                first.neighbours.append(&mut instance.neighbours);
            }
            None => drop(self.observed.instances.insert(self.vrf.clone(), instance)),
        }
    }

    fn entry(&mut self, built: Built) {
        let Some((_, kind, key)) = LISTS.iter().find(|(_, kind, _)| *kind == built.kind) else { return };
        let name = built.tree.leaf(key).unwrap_or_default().to_owned();
        let is_of_device = matches!(*kind, PREFIX_SET | POLICY);
        let group = match *kind {
            PEER_GROUP => name.clone(),
            NEIGHBOR | DYNAMIC => built.tree.leaf("config/peer-group").unwrap_or_default().to_owned(),
            _ => group_of(&name).to_owned(),
        };
        if !is_own_name(self.cluster, &group) {
            if !is_of_device {
                self.instance.has_others = true;
            }
            if matches!(*kind, NEIGHBOR | DYNAMIC) {
                self.kept.entry(name.len());
                self.instance.neighbours.insert(name);
            }
            return;
        }
        self.shares_as |= *kind == PEER_GROUP && built.tree.leaf("config/local-as").is_none();
        Builder::count(&mut self.kept, &built);
        let vrf = (!is_of_device).then(|| self.vrf.clone());
        self.observed.entries.insert(EntryId { kind, vrf, name }, OwnEntry::new(group, built));
    }

    fn finish(self) -> ObservedBgp {
        ObservedBgp { memory: self.kept.into(), ..self.observed }
    }
}

/// Renders what changes in the instance of a VRF.
pub(super) fn render_protocol(xml: &mut Text, observed: &ObservedConfig, changes: &Changes, vrf: &str) {
    let bgp = &changes.routing.bgp;
    let read = observed.routing.read().and_then(|read| read.bgp.as_ref());
    let instance = read.and_then(|read| read.instances.get(vrf));
    let name = instance.map_or(INSTANCE, |instance| &instance.name);
    let key = format!(
        "<identifier xmlns:oc-pol-types=\"{POLICY_TYPES}\">oc-pol-types:BGP</identifier><name>{}</name>",
        escape(name)
    );
    let mut global = String::new();
    match bgp.instances.get(vrf) {
        Some(InstanceChange::Remove) => {
            let _ = write!(xml, "<protocol nc:operation=\"remove\">{key}</protocol>");
            return;
        }
        Some(InstanceChange::Set { local_as, .. }) => {
            let families = FAMILIES.map(|(identity, ..)| afi_safi(identity, true, "")).concat();
            let _ = write!(global, "<config><as>{local_as}</as></config><afi-safis>{families}</afi-safis>");
        }
        None => {}
    }
    let render = |kind: &str, around: &str| {
        let entries = render_entries(changes, kind, Some(vrf));
        if entries.is_empty() { entries } else { format!("<{around}>{entries}</{around}>") }
    };
    global += &render(DYNAMIC, "dynamic-neighbor-prefixes");
    let (neighbors, groups) = (render(NEIGHBOR, "neighbors"), render(PEER_GROUP, "peer-groups"));
    if global.is_empty() && neighbors.is_empty() && groups.is_empty() {
        return;
    }
    let _ = write!(xml, "<protocol>{key}");
    if instance.is_none() {
        let _ = write!(xml, "<config>{key}</config>");
    }
    xml.push_str("<bgp>");
    if !global.is_empty() {
        let _ = write!(xml, "<global>{global}</global>");
    }
    xml.push_str(&neighbors);
    xml.push_str(&groups);
    xml.push_str("</bgp></protocol>");
}

/// Renders the routing policies that change.
pub(super) fn render_policies(xml: &mut Text, changes: &Changes) {
    let (sets, policies) = (render_entries(changes, PREFIX_SET, None), render_entries(changes, POLICY, None));
    if sets.is_empty() && policies.is_empty() {
        return;
    }
    let _ = write!(xml, "<routing-policy xmlns=\"{ROUTING_POLICY}\">");
    if !sets.is_empty() {
        let _ = write!(xml, "<defined-sets><prefix-sets>{sets}</prefix-sets></defined-sets>");
    }
    if !policies.is_empty() {
        let _ = write!(xml, "<policy-definitions>{policies}</policy-definitions>");
    }
    xml.push_str("</routing-policy>");
}

fn render_entries(changes: &Changes, kind: &str, vrf: Option<&str>) -> String {
    let key = LISTS.iter().find(|(_, of, _)| *of == kind).map_or("name", |(.., key)| key);
    let (set, remove) = changes.routing.bgp.of_kind(kind, vrf);
    let mut xml = String::new();
    for id in remove {
        let _ = write!(xml, "<{kind} nc:operation=\"remove\"><{key}>{}</{key}></{kind}>", escape(&id.name));
    }
    set.for_each(|(_, entry)| entry.render(&mut xml, kind));
    xml
}
