//! Computes the effective configuration: applies groups and interface ranges, and resolves names of VLANs.
//!
//! Settings of the interface itself take precedence, then those of interface ranges, then those of groups, nearer
//! ones first. Lists of members are joined.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use eno_sbi::TooLarge;
use eno_schemas::{VlanId, VlanSet};

use super::read::{Layer, Port, Settings, Vlan};
use super::{
    ALL, Entry, INTERFACE, INTERFACE_MODE, Layout, MEMBERS, PORT_MODE, SWITCHING, SwitchingFamily, UNIT,
    VlanSource,
};
use crate::dialect::set_unfit;
use crate::memory::Counter;
use crate::plan::{Mode, NATIVE, ObservedConfig, ObservedPort, ObservedVlan, Setting, Tagged};

/// Maximum interfaces that a `*` at the end of an interface range's member stands for.
const MAX_PORTS_PER_CARD: u16 = 128;

/// VLANs of a list of members: ranges, both ends inclusive.
type Ranges = Vec<(VlanId, VlanId)>;

/// Computes the effective configuration.
pub(super) fn effective(
    main: &Layer,
    groups: &[Layer],
    mut kept: Counter,
) -> Result<ObservedConfig, TooLarge> {
    let mut layout = Layout::default();
    let vlans = Vlans::new(main, groups);
    let mut ports = BTreeMap::new();
    let listed = vlans.listed(&mut kept)?;
    for port in &all_ports(main, &listed, &mut kept)? {
        let inherited = inherited(port, main, groups, listed.get(port.name.as_str()), &mut kept)?;
        let (observed, entries) = observed_port(port, &inherited, &vlans, &mut kept)?;
        let Settings { mode_leaf: mode, has_other_leaves, .. } = port.settings;
        layout.ports.insert(port.name.clone(), SwitchingFamily { entries, mode, has_other_leaves });
        ports.insert(port.name.clone(), observed);
    }
    let ranges = main.ranges.iter().map(|range| &range.port);
    let everywhere = main.ports.iter().chain(ranges).chain(groups.iter().flat_map(|group| &group.ports));
    let named: BTreeSet<&str> =
        everywhere.flat_map(|port| &port.settings.members).map(String::as_str).collect();
    let mut observed = BTreeMap::new();
    for (vlan, own) in &vlans.all {
        for (first, last) in vlan.ids.iter().filter_map(|id| range(id)) {
            for vid in ids(first, last) {
                kept.entry(size_of::<ObservedVlan>() + size_of::<VlanSource>() + vlan.name.len());
                kept.check()?;
                let current = ObservedVlan {
                    name: Some(vlan.name.clone()),
                    active: !vlan.inactive,
                    rename_blocker: rename_blocker(vlan, *own, named.contains(vlan.name.as_str())),
                };
                // Two VLANs may have the same VID if one is deactivated.
                if observed.get(&vid).is_none_or(|other: &ObservedVlan| current.active && !other.active) {
                    let description = vlan.description.clone();
                    layout.vlans.insert(vid, VlanSource { own: *own, description });
                    observed.insert(vid, current);
                }
            }
        }
    }
    Ok(ObservedConfig {
        vlans: observed.into(),
        ports,
        empty_opens: true,
        layout: crate::plan::Layout::new(layout),
        memory: kept.into(),
        ..ObservedConfig::default()
    })
}

/// The reason against renaming a VLAN, if any. On Junos a rename deletes the VLAN and creates another.
fn rename_blocker(vlan: &Vlan, own: bool, named: bool) -> Option<String> {
    let why = if !own {
        "it comes from a group"
    } else if vlan.list {
        "it is one of a list of VIDs under one name"
    } else if vlan.has_other_leaves {
        "it has settings beside its VID and its description, which would be lost with its name"
    } else if named {
        "interfaces name it, and would name nothing without it"
    } else {
        return None;
    };
    Some(why.to_owned())
}

struct Vlans<'a> {
    /// Each VLAN, and whether it is of the configuration itself.
    all: Vec<(&'a Vlan, bool)>,
    by_name: BTreeMap<&'a str, Ranges>,
}

impl<'a> Vlans<'a> {
    fn new(main: &'a Layer, groups: &'a [Layer]) -> Self {
        let mut all: Vec<(&Vlan, bool)> = main.vlans.iter().map(|vlan| (vlan, true)).collect();
        let applied_groups = main.groups_for_vlans.iter().chain(&main.applied_groups);
        for group in applied_groups.filter_map(|name| groups.iter().find(|group| group.name == *name)) {
            all.extend(
                group.vlans.iter().filter(|vlan| !vlan.name.starts_with('<')).map(|vlan| (vlan, false)),
            );
        }
        let mut by_name: BTreeMap<&str, Ranges> = BTreeMap::new();
        for (vlan, _) in &all {
            by_name.entry(&vlan.name).or_default().extend(vlan.ids.iter().filter_map(|id| range(id)));
        }
        Self { all, by_name }
    }

    /// The names of the VLANs that list an interface, by interface.
    fn listed(&self, kept: &mut Counter) -> Result<BTreeMap<&'a str, Vec<String>>, TooLarge> {
        let mut listed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (vlan, _) in self.all.iter().filter(|(vlan, _)| !vlan.inactive) {
            for logical in &vlan.interfaces {
                let (port, unit) = logical.rsplit_once('.').unwrap_or((logical, "0"));
                if unit == "0" {
                    kept.entry(size_of::<String>() + vlan.name.len());
                    kept.check()?;
                    listed.entry(port).or_default().push(vlan.name.clone());
                }
            }
        }
        Ok(listed)
    }

    /// The VLANs of an entry of a list of members; empty if no such VLAN exists.
    fn resolve(&self, text: &str) -> Ranges {
        match range(text) {
            Some(range) => vec![range],
            None => self.by_name.get(text).cloned().unwrap_or_default(),
        }
    }
}

/// The configured interfaces, with those that only an interface range or a VLAN names.
fn all_ports<'a>(
    main: &'a Layer,
    listed: &BTreeMap<&str, Vec<String>>,
    kept: &mut Counter,
) -> Result<Vec<Cow<'a, Port>>, TooLarge> {
    let known: BTreeSet<&str> = main.ports.iter().map(|port| port.name.as_str()).collect();
    let members = main.ranges.iter().flat_map(|range| {
        let spans = range.spans.iter().flat_map(|(first, last)| span(first, last));
        range.members.iter().flat_map(|name| wildcard(name)).chain(spans)
    });
    let mut more: BTreeSet<String> = BTreeSet::new();
    for name in members.chain(listed.keys().map(|name| (*name).to_owned())) {
        if !known.contains(name.as_str()) && !more.contains(&name) {
            kept.entry(size_of::<Cow<'_, Port>>() + name.len());
            kept.check()?;
            more.insert(name);
        }
    }
    let mut ports: Vec<Cow<'_, Port>> = main.ports.iter().map(Cow::Borrowed).collect();
    ports.extend(more.into_iter().map(|name| Cow::Owned(Port { name, ..Port::default() })));
    Ok(ports)
}

/// The settings that an interface inherits, by precedence.
fn inherited(
    port: &Port,
    main: &Layer,
    groups: &[Layer],
    listed: Option<&Vec<String>>,
    kept: &mut Counter,
) -> Result<Settings, TooLarge> {
    let mut all = Settings { members: listed.cloned().unwrap_or_default(), ..Settings::default() };
    let mut add = |more: &Settings, kept: &mut Counter| {
        kept.bytes(more.members.len() * size_of::<String>());
        kept.check()?;
        all.mode = all.mode.or(more.mode);
        all.native = all.native.take().or_else(|| more.native.clone());
        all.bundle = all.bundle.take().or_else(|| more.bundle.clone());
        all.other_family = all.other_family.take().or_else(|| more.other_family.clone());
        all.members.extend(more.members.iter().cloned());
        Ok(())
    };
    for range in &main.ranges {
        let member = range.members.iter().any(|name| glob(name, &port.name));
        if member || range.spans.iter().any(|(first, last)| is_in_span(first, last, &port.name)) {
            add(&range.port.settings, kept)?;
        }
    }
    let applied_groups = port.applied_groups.iter().chain(&main.groups_for_ports).chain(&main.applied_groups);
    for name in applied_groups.filter(|name| !port.excepted_groups.contains(name)) {
        for group in groups.iter().filter(|group| group.name == *name) {
            for current in group.ports.iter().filter(|current| matches_name(&current.name, &port.name)) {
                add(&current.settings, kept)?;
            }
        }
    }
    Ok(all)
}

fn observed_port(
    port: &Port,
    inherited: &Settings,
    vlans: &Vlans<'_>,
    kept: &mut Counter,
) -> Result<(ObservedPort, Vec<Entry>), TooLarge> {
    let own = &port.settings;
    kept.port(&port.name);
    // The inherited VLANs, the shadowed ones, and those by name.
    kept.set();
    kept.set();
    kept.set();
    let mut observed = ObservedPort {
        configured: true,
        aggregate: port
            .name
            .strip_prefix("ae")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())),
        ..ObservedPort::default()
    };
    let mut entries = Vec::new();
    for text in &own.members {
        let ranges = vlans.resolve(text);
        kept.bytes(ranges.len().max(1) * (size_of::<Entry>() + text.len()));
        kept.ranges(ranges.len());
        kept.check()?;
        if ranges.is_empty() {
            entries.push(Entry::Other(text.as_str().into()));
        }
        for (first, last) in ranges {
            entries.push(if range_text((first, last)) == *text {
                Entry::Range(first, last)
            } else {
                Entry::Text(first, last, text.as_str().into())
            });
        }
    }
    observed.tagged = entries.iter().filter_map(Entry::vids).collect();
    let of_its_own = observed.tagged().clone();
    let mut inherited_vlans = VlanSet::EMPTY;
    for text in &inherited.members {
        let ranges = vlans.resolve(text);
        kept.ranges(ranges.len());
        kept.check()?;
        for (first, last) in &ranges {
            inherited_vlans.insert_range(*first, *last);
        }
        observed.tagged.extend(ranges);
    }
    observed.shadowed = inherited_vlans.intersection(&of_its_own);
    observed.inherited = inherited_vlans.difference(&of_its_own);
    let members = || own.members.iter().chain(&inherited.members);
    for text in members().filter(|text| range(text).is_none()) {
        for (first, last) in vlans.resolve(text) {
            observed.vlans_by_name.insert_range(first, last);
        }
    }
    observed.settings = settings(port, &entries, own.mode.or(inherited.mode));
    observed.has_unresolved_members = members().any(|text| text != ALL && vlans.resolve(text).is_empty());
    let native = own.native.as_ref().or(inherited.native.as_ref());
    // 0 means priority tags.
    observed.native = native.and_then(|text| match vlans.resolve(text).as_slice() {
        [(first, last)] if first == last => Some(*first),
        _ => None,
    });
    let all = members().any(|text| text == ALL);
    observed.open_by_inheritance = inherited.members.iter().any(|text| text == ALL);
    match own.mode.or(inherited.mode) {
        // A trunk without members carries no VLAN.
        Some(Mode::Trunk) => (observed.mode, observed.open) = (Some(Mode::Trunk), all),
        // A port without mode and members is in the factory configuration.
        None if members().next().is_none() => {}
        Some(Mode::Access) | None => {
            observed.mode = Some(Mode::Access);
            observed.access = observed.tagged.entries().first().map(|(first, _)| *first);
            observed.access_by_inheritance = own.mode.is_none() && members().next().is_none();
            observed.tagged = Tagged::default();
            (observed.inherited, observed.shadowed) = (VlanSet::EMPTY, VlanSet::EMPTY);
            // On a trunk the inherited members would mean something else, above all `all`.
            if !inherited.members.is_empty() {
                let what =
                    "is an access port by a group, an interface range or a VLAN's list, which is not changed";
                observed.unfit = Some(what.to_owned());
            }
        }
    }
    if let Some(lag) = own.bundle.as_ref().or(inherited.bundle.as_ref()) {
        observed.unfit =
            Some(format!("is a member of the LAG {lag}, which carries the VLANs of its members"));
    } else if let Some(family) = own.other_family.as_ref().or(inherited.other_family.as_ref()) {
        observed.unfit = Some(format!("is no switching port: its unit 0 has family {family}"));
    } else if native.is_some_and(|text| text != "0") && observed.native.is_none() {
        observed.unfit =
            Some(format!("has a native VLAN that can't be told: {}", native.map_or("", String::as_str)));
    }
    let modes = [&own.mode_text, &inherited.mode_text];
    if let Some(mode) = modes.into_iter().find(|mode| !matches!(mode.as_str(), "" | "trunk" | "access")) {
        set_unfit(&mut observed, "interface-mode", mode);
    }
    Ok((observed, entries))
}

/// The settings that our VLANs add to an interface's own configuration, or remove from it. A container that is
/// removed takes along what was added within.
fn settings(port: &Port, entries: &[Entry], mode: Option<Mode>) -> BTreeMap<&'static str, Setting> {
    let own = &port.settings;
    let switching =
        own.switching && !own.has_other_leaves && entries.iter().all(|entry| entry.vids().is_some());
    let unit = own.unit && !own.unit_has_other_leaves && (switching || !own.switching);
    let interface = port.listed && !port.has_other_leaves && (unit || !own.unit);
    let current = |is_there: bool, ours: bool| Setting::of(is_there.then_some(""), ours);
    let leaf = |name: &str| {
        let text = own.mode_leaf.filter(|leaf| *leaf == name).map(|_| own.mode_text.as_str());
        Setting::of(text, text.is_none_or(|text| text == "trunk"))
    };
    // Members of a trunk are restored VLAN by VLAN.
    let members = (mode != Some(Mode::Trunk) && !own.members.is_empty()).then(|| own.members.join("\n"));
    [
        (INTERFACE, current(port.listed, interface)),
        (UNIT, current(own.unit, unit)),
        (SWITCHING, current(own.switching, switching)),
        (INTERFACE_MODE, leaf(INTERFACE_MODE)),
        (PORT_MODE, leaf(PORT_MODE)),
        (MEMBERS, Setting::of(members.as_deref(), mode == Some(Mode::Trunk))),
        (NATIVE, Setting::of(own.native.as_deref(), false)),
    ]
    .into()
}

/// `100` or `100-200`.
fn range(text: &str) -> Option<(VlanId, VlanId)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

/// The text of a range in Junos.
pub(super) fn range_text((first, last): (VlanId, VlanId)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// All VIDs from `first` to `last`.
pub(super) fn ids(first: VlanId, last: VlanId) -> impl Iterator<Item = VlanId> {
    (first.get()..=last.get()).filter_map(|id| VlanId::new(id).ok())
}

/// Whether `pattern`, a name in a group or a wildcard in angle brackets, matches `name`.
pub(super) fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        Some(pattern) => glob(pattern, name),
        None => pattern == name,
    }
}

/// Matches wildcards: `*`, `?`, and `[…]` of characters and ranges of them.
fn glob(pattern: &str, name: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('*') => {
            let cuts = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            cuts.into_iter().any(|at| glob(rest.as_str(), &name[at..]))
        }
        Some('[') if pattern.contains(']') => {
            let Some((set, after)) = rest.as_str().split_once(']') else { return false };
            let mut own = name.chars();
            own.next().is_some_and(|c| in_set(set, c)) && glob(after, own.as_str())
        }
        Some(literal) => {
            let mut own = name.chars();
            own.next().is_some_and(|c| literal == '?' || literal == c) && glob(rest.as_str(), own.as_str())
        }
    }
}

fn in_set(set: &str, c: char) -> bool {
    let chars: Vec<char> = set.chars().collect();
    let spans = chars.windows(3).any(|three| three[1] == '-' && (three[0]..=three[2]).contains(&c));
    spans || chars.contains(&c)
}

/// The interfaces that a member of an interface range names. A `*` at its end gives all candidates, any other
/// wildcard none.
fn wildcard(name: &str) -> Vec<String> {
    match name.strip_suffix('*') {
        Some(card) if card.ends_with('/') && !card.contains(['*', '?', '[']) => {
            (0..MAX_PORTS_PER_CARD).map(|port| format!("{card}{port}")).collect()
        }
        _ if name.contains(['*', '?', '[']) => Vec::new(),
        _ => vec![name.to_owned()],
    }
}

/// The last number of a name, and what is before it.
fn split_number(name: &str) -> Option<(&str, u16)> {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    Some((&name[..digits], name[digits..].parse().ok()?))
}

/// The interfaces from `first` to `last`, which differ in their last number.
fn span(first: &str, last: &str) -> impl Iterator<Item = String> {
    let ends = split_number(first).zip(split_number(last)).filter(|((card, _), (same, _))| card == same);
    let names = ends.map(|((card, from), (_, to))| (from..=to).map(move |port| format!("{card}{port}")));
    names.into_iter().flatten()
}

/// Whether `name` is one of these interfaces.
fn is_in_span(first: &str, last: &str, name: &str) -> bool {
    match (split_number(first), split_number(last), split_number(name)) {
        (Some((card, from)), Some((same, to)), Some((own, number))) => {
            card == same && card == own && (from..=to).contains(&number) && name == format!("{card}{number}")
        }
        _ => false,
    }
}
