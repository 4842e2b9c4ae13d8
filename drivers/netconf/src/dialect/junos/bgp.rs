//! BGP groups of Junos (Juniper/yang 23.2R2, junos-qfx).
//!
//! In a VRF: `/configuration/routing-instances/instance[name]/protocols/bgp/group[name]`, with its neighbours and the
//! networks of which any host may be one (`allow`). On the device: `/configuration/policy-options` with a
//! `policy-statement` for each direction and a `community`. Routing instances have no AS of their own making: the AS that
//! workers see is the `local-as` of the group, unless the instance has it. The interval of KEEPALIVE messages is a third
//! of the hold time, and can't be set.
//!
//! The modules write a choice of a list as `choice-ident`, Junos' own protocol as an element of that name. Each is read,
//! and the one is written that the device announces. Groups (`apply-groups`) are not applied.

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::LazyLock;

use eno_sbi::TooLarge;
use eno_schemas::{Bfd, BgpGroup};
use ipnet::IpNet;

use super::{COMMON, EX, Junos, PLAIN, QFX};
use crate::bgp_sessions::{FoundSessions, WantedSessions};
use crate::dialect::{BgpDialect, ParseError};
use crate::memory::Counter;
use crate::plan::{
    BgpModel, Builder, Built, Changes, EntryId, GroupValues, InstanceChange, ObservedBgp, ObservedInstance,
    OwnEntry, Rules, Shapes, Tree, WantedEntry, is_own_name,
};
use crate::text::Text;
use crate::xml::{Element, NETCONF, Scope, Step, escape, walk_tags};

const DELETE: &str = " nc:operation=\"delete\"";
const GROUP: &str = "group";
const POLICY: &str = "policy-statement";
const COMMUNITY: &str = "community";
/// The path of a routing instance, and that of BGP in it.
const INSTANCE: &str = "configuration/routing-instances/instance";
const BGP: &str = "configuration/routing-instances/instance/protocols/bgp";
/// The lists of entries.
const LISTS: [(&str, &str); 3] = [
    ("configuration/routing-instances/instance/protocols/bgp/group", GROUP),
    ("configuration/policy-options/policy-statement", POLICY),
    ("configuration/policy-options/community", COMMUNITY),
];

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
    let samples = QFX.entries(&values);
    // A family without a limit, and what would override the rest.
    let family = "<family><inet><unicast/></inet><inet6><unicast/></inet6></family>";
    let more = format!(
        "<group>{family}<neighbor>{family}<import/><export/><peer-as/><local-as><as-number/></local-as></neighbor></group>"
    );
    let samples = samples.iter().map(|sample| (sample.id.kind, sample.xml.expose()));
    let rules = Rules {
        is_default: |_, path, text| match path {
            "hold-time" => text == "90",
            "bfd-liveness-detection/multiplier" => text == "3",
            _ => path.ends_with("/choice-value") && text.is_empty(),
        },
        alias: |around, name| match (around, name) {
            ("route-filter", "exact") => Some(("choice-ident", "exact")),
            ("route-filter", "orlonger") => Some(("choice-ident", "orlonger")),
            ("community", "add") => Some(("choice-ident", "add")),
            _ => None,
        },
    };
    Shapes::of(samples.chain([(GROUP, more.as_str())]), "authentication-key", rules)
});

impl Junos {
    /// The same for ever.
    fn model(self) -> &'static dyn BgpModel {
        match self.family {
            None => &PLAIN,
            Some("junos-qfx") => &QFX,
            Some("junos-ex") => &EX,
            Some(_) => &COMMON,
        }
    }

    /// A case of a choice in an entry of a list.
    fn case(self, name: &str) -> String {
        match self.family {
            None => format!("<{name}/>"),
            Some(_) => format!("<choice-ident>{name}</choice-ident><choice-value/>"),
        }
    }

    fn policy(self, name: &str, nets: &[IpNet], case: &str, community: Option<&str>) -> String {
        let mut xml = format!("<policy-statement><name>{}</name>", escape(name));
        for is_v6 in [false, true] {
            let of_family: Vec<&IpNet> = nets.iter().filter(|net| net.addr().is_ipv6() == is_v6).collect();
            if of_family.is_empty() {
                continue;
            }
            let _ = write!(xml, "<term><name>{}</name><from>", if is_v6 { "ipv6" } else { "ipv4" });
            for net in of_family {
                let _ =
                    write!(xml, "<route-filter><address>{net}</address>{}</route-filter>", self.case(case));
            }
            xml.push_str("</from><then>");
            if let Some(community) = community {
                let (add, name) = (self.case("add"), escape(community));
                let _ = write!(xml, "<community>{add}<community-name>{name}</community-name></community>");
            }
            xml.push_str("<accept/></then></term>");
        }
        xml + "<then><reject/></then></policy-statement>"
    }
}

impl BgpModel for Junos {
    fn shapes(&self) -> &'static Shapes {
        &SHAPES
    }

    fn has_instances(&self) -> bool {
        false
    }

    fn entries(&self, values: &GroupValues<'_>) -> Vec<WantedEntry> {
        let GroupValues { name, group, .. } = *values;
        let entry = |kind, vrf: Option<&str>, name: &str, xml: String| {
            let id = EntryId { kind, vrf: vrf.map(str::to_owned), name: name.to_owned() };
            WantedEntry { id, xml: xml.into(), has_password: false }
        };
        let has_password = values.password.is_some();
        let (import, export) = (format!("{name}-import"), format!("{name}-export"));
        let community = (!group.communities.is_empty()).then_some(name);
        let mut entries = vec![
            WantedEntry { has_password, ..entry(GROUP, Some(values.vrf), name, group_xml(values)) },
            entry(POLICY, None, &import, self.policy(&import, &group.accept, "orlonger", community)),
            entry(POLICY, None, &export, self.policy(&export, &group.announce, "exact", None)),
        ];
        if let Some(community) = community {
            let mut xml = format!("<community><name>{}</name>", escape(community));
            for member in &group.communities {
                let _ = write!(xml, "<members>{}</members>", escape(member));
            }
            entries.push(entry(COMMUNITY, None, community, xml + "</community>"));
        }
        entries
    }
}

/// The group itself. Writing to memory can't fail, so results of `write!` are dropped in this file.
fn group_xml(values: &GroupValues<'_>) -> String {
    let GroupValues { name, group, local_as, password, .. } = *values;
    let name = escape(name);
    let mut xml = format!(
        "<group><name>{name}</name><type>{}</type><description>{}</description><hold-time>{}</hold-time>\
         <import>{name}-import</import>",
        if group.local_as == group.peer_as { "internal" } else { "external" },
        escape(&group.owner),
        group.hold_time
    );
    let networks = group.dynamic_neighbours.iter().map(|net| net.addr().is_ipv6());
    xml += &families(&networks.collect::<Vec<bool>>(), group);
    if let Some(password) = password {
        let _ = write!(xml, "<authentication-key>{}</authentication-key>", escape(password.expose()));
    }
    let _ = write!(xml, "<export>{name}-export</export><peer-as>{}</peer-as>", group.peer_as);
    if let Some(local_as) = local_as {
        let _ = write!(xml, "<local-as><as-number>{local_as}</as-number></local-as>");
    }
    if let Some(seconds) = group.graceful_restart {
        let _ = write!(xml, "<graceful-restart><restart-time>{seconds}</restart-time></graceful-restart>");
    }
    if let Some(bfd) = &group.bfd {
        let _ = write!(
            xml,
            "<bfd-liveness-detection><minimum-receive-interval>{}</minimum-receive-interval><multiplier>{}</multiplier>\
             <transmit-interval><minimum-interval>{}</minimum-interval></transmit-interval></bfd-liveness-detection>",
            bfd.receive_interval, bfd.detect_multiplier, bfd.transmit_interval
        );
    }
    for net in &group.dynamic_neighbours {
        let _ = write!(xml, "<allow>{net}</allow>");
    }
    for address in &group.neighbours {
        let _ = write!(
            xml,
            "<neighbor><name>{address}</name>{}</neighbor>",
            families(&[address.is_ipv6()], group)
        );
    }
    xml + "</group>"
}

/// The families of a neighbour or group, each with the limit of its prefixes.
fn families(are_v6: &[bool], group: &BgpGroup) -> String {
    let mut xml = String::new();
    for (is_v6, family) in [(false, "inet"), (true, "inet6")] {
        if !are_v6.contains(&is_v6) {
            continue;
        }
        let limit = group.maximum_prefixes.map_or(String::new(), |maximum| {
            format!("<prefix-limit><maximum>{maximum}</maximum><teardown/></prefix-limit>")
        });
        let _ = write!(xml, "<{family}><unicast>{limit}</unicast></{family}>");
    }
    if xml.is_empty() { xml } else { format!("<family>{xml}</family>") }
}

impl BgpDialect for Junos {
    fn filter_bgp(&self) -> String {
        format!(
            "<configuration xmlns=\"{}\"><routing-instances xmlns=\"{}\"><instance><name/><routing-options>\
             <autonomous-system/></routing-options><protocols><bgp/></protocols></instance></routing-instances>\
             <policy-options xmlns=\"{}\"><policy-statement/><community/></policy-options></configuration>",
            self.namespace("root"),
            self.namespace("routing-instances"),
            self.namespace("policy-options")
        )
    }

    fn parse_bgp(&self, reply: &Text, cluster: &str) -> Result<ObservedBgp, ParseError> {
        let (mut parser, inactive) = (Parser::new(self.model(), cluster), Cell::new(false));
        walk_tags(reply, |element| scope(element, &inactive), |step| parser.step(&step, inactive.take()))?;
        Ok(ObservedBgp { memory: parser.kept.into(), ..parser.observed })
    }

    fn sessions_request(&self) -> Text {
        "<get-bgp-neighbor-information/>".into()
    }

    fn parse_sessions(&self, reply: &Text, wanted: &WantedSessions) -> Result<FoundSessions, ParseError> {
        super::bgp_sessions::parse(reply, wanted)
    }
}

/// Deactivated elements count as absent, except entries of ours, which are written again.
fn scope(element: &Element<'_>, found: &Cell<bool>) -> Scope {
    let envelope = element.within.is_empty() && matches!(element.name(), "rpc-reply" | "data");
    if element.namespace == NETCONF && envelope {
        return Scope::Transparent;
    }
    let known = matches!(element.namespace, NETCONF | "")
        || ["http://yang.juniper.net/", "http://xml.juniper.net/"]
            .iter()
            .any(|base| element.namespace.starts_with(base));
    let inactive = element.has_attribute("inactive", "inactive") || element.has_attribute("active", "false");
    let stays = matches!(element.within, BGP | "configuration/policy-options");
    found.set(inactive && stays);
    if !known || inactive && !stays { Scope::Foreign } else { Scope::Known }
}

/// Reads the entries of ours while the reply streams by.
struct Parser<'a> {
    cluster: &'a str,
    observed: ObservedBgp,
    vrf: String,
    instance: ObservedInstance,
    has_bgp: bool,
    has_own: bool,
    builder: Builder,
    /// The entry is deactivated.
    is_inactive: bool,
    kept: Counter,
}

impl<'a> Parser<'a> {
    fn new(model: &'static dyn BgpModel, cluster: &'a str) -> Self {
        Self {
            cluster,
            observed: ObservedBgp::new(model),
            vrf: String::new(),
            instance: ObservedInstance::default(),
            has_bgp: false,
            has_own: false,
            builder: Builder::default(),
            is_inactive: false,
            kept: Counter::default(),
        }
    }

    fn step(&mut self, step: &Step<'_>, inactive: bool) -> Result<(), TooLarge> {
        match step {
            Step::Enter(path) if self.builder.is_open() => self.builder.enter(path),
            Step::Enter(INSTANCE) => {
                (self.vrf, self.instance, self.has_bgp, self.has_own) = Default::default();
            }
            Step::Enter(path) => {
                self.has_bgp |= *path == BGP;
                if let Some((list, kind)) = LISTS.iter().find(|(list, _)| list == path) {
                    (self.builder, self.is_inactive) = (Builder::begin(kind, list), inactive);
                }
            }
            Step::Leave(path, text) if self.builder.is_open() => {
                if let Some(built) = self.builder.leave(&SHAPES, path, text) {
                    self.entry(built);
                }
            }
            Step::Leave(INSTANCE, _) => self.leave_instance(),
            Step::Leave(path, text) => match path.strip_prefix(INSTANCE) {
                Some("/name") => (*text).clone_into(&mut self.vrf),
                Some("/routing-options/autonomous-system/as-number") => {
                    self.instance.local_as = text.parse().ok();
                }
                Some(rest) => {
                    // All that is directly in BGP or below, but for containers of entries of ours.
                    self.instance.has_others |= rest.starts_with("/protocols/bgp/");
                }
                None => {}
            },
        }
        self.kept.check()
    }

    fn leave_instance(&mut self) {
        let mut instance = std::mem::take(&mut self.instance);
        instance.is_made = self.has_bgp && self.has_own && !instance.has_others;
        self.kept.entry(size_of::<ObservedInstance>());
        self.observed.instances.insert(std::mem::take(&mut self.vrf), instance);
    }

    fn entry(&mut self, mut built: Built) {
        let name = built.tree.leaf("name").unwrap_or_default().to_owned();
        let kind = built.kind;
        let ends = ["-import", "-export"];
        let group = match kind {
            POLICY => ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name.as_str()),
            _ => name.as_str(),
        };
        let is_own = is_own_name(self.cluster, group);
        if kind == GROUP {
            self.has_own |= is_own;
            self.instance.has_others |= !is_own;
        }
        if !is_own {
            if kind == GROUP {
                let neighbours: Vec<String> = built
                    .tree
                    .leaves("neighbor/name")
                    .chain(built.tree.leaves("allow"))
                    .map(str::to_owned)
                    .collect();
                self.kept.bytes(neighbours.iter().map(String::len).sum());
                self.instance.neighbours.extend(neighbours);
            }
            return;
        }
        Builder::count(&mut self.kept, &built);
        if self.is_inactive {
            built.tree = Tree::default();
        }
        let vrf = (kind == GROUP).then(|| self.vrf.clone());
        let entry = OwnEntry::new(group, built);
        self.observed.entries.insert(EntryId { kind, vrf, name }, entry);
    }
}

/// Renders what changes of BGP in a routing instance.
pub(super) fn render_protocols(xml: &mut Text, changes: &Changes, vrf: &str) {
    if changes.routing.bgp.instances.get(vrf) == Some(&InstanceChange::Remove) {
        let _ = write!(xml, "<protocols><bgp{DELETE}/></protocols>");
        return;
    }
    let groups = render_entries(changes, GROUP, Some(vrf));
    if !groups.is_empty() {
        let _ = write!(xml, "<protocols><bgp>{groups}</bgp></protocols>");
    }
}

/// Renders the routing policies that change.
pub(super) fn render_policies(xml: &mut Text, junos: Junos, changes: &Changes) {
    let entries = [POLICY, COMMUNITY].map(|kind| render_entries(changes, kind, None)).concat();
    if !entries.is_empty() {
        let namespace = junos.namespace("policy-options");
        let _ = write!(xml, "<policy-options xmlns=\"{namespace}\">{entries}</policy-options>");
    }
}

fn render_entries(changes: &Changes, kind: &str, vrf: Option<&str>) -> String {
    let (set, remove) = changes.routing.bgp.of_kind(kind, vrf);
    let mut xml = String::new();
    for id in remove {
        let _ = write!(xml, "<{kind}{DELETE}><name>{}</name></{kind}>", escape(&id.name));
    }
    set.for_each(|(_, entry)| entry.render(&mut xml, kind));
    xml
}
