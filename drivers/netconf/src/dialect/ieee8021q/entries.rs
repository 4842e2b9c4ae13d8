//! Static VLAN registration entries, and how one VID of them is changed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::text::Text;
use crate::xml::escape;
use eno_schemas::{VlanId, VlanSet};

/// A static VLAN registration entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) database: u32,
    /// Its VIDs as the device writes them; they are part of its key.
    pub(super) text: String,
    pub(super) vids: VlanSet,
    /// Registrations by port number. Successive entries with equal registrations share them.
    pub(super) ports: Arc<BTreeMap<u32, Registration>>,
}

/// Placeholder for an unset leaf in remembered registrations.
const NOT_SET: &str = "-";

/// The registration of a port in an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Registration {
    /// `registrar-admin-control`
    pub(super) control: Option<Cow<'static, str>>,
    /// `vlan-transmitted`
    pub(super) transmitted: Option<Cow<'static, str>>,
}

impl Registration {
    /// The value of a leaf, without an allocation for known values.
    pub(super) fn word(text: &str) -> Cow<'static, str> {
        const WORDS: [&str; 6] =
            ["fixed-new-ignored", "fixed-new-propagated", "forbidden", "normal", "tagged", "untagged"];
        let known = WORDS.into_iter().find(|word| *word == text);
        known.map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed)
    }

    /// The registration that the driver writes.
    pub(super) fn ours() -> Self {
        Self { control: Some("fixed-new-ignored".into()), transmitted: Some("tagged".into()) }
    }

    /// The port is a member, whatever its neighbour registers.
    pub(super) fn is_fixed(&self) -> bool {
        self.control.as_deref().is_some_and(|control| control.starts_with("fixed-"))
    }

    pub(super) fn is_forbidden(&self) -> bool {
        self.control.as_deref() == Some("forbidden")
    }

    pub(super) fn is_untagged(&self) -> bool {
        self.transmitted.as_deref() == Some("untagged")
    }
}

/// Changes of port registrations for one VID, by port number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PortChanges {
    pub(super) set: BTreeMap<u32, Registration>,
    pub(super) remove: Vec<u32>,
}

/// The registrations of a port that differ from the driver's: `normal/tagged=10-20;forbidden/-=30`.
pub(super) fn registrations_text(entries: &[Entry], number: u32) -> Option<String> {
    let mut by_kind: BTreeMap<String, VlanSet> = BTreeMap::new();
    for entry in entries {
        let Some(registration) =
            entry.ports.get(&number).filter(|registration| **registration != Registration::ours())
        else {
            continue;
        };
        let word = |word: &Option<Cow<'static, str>>| word.as_deref().unwrap_or(NOT_SET).to_owned();
        let kind = format!("{}/{}", word(&registration.control), word(&registration.transmitted));
        let vids = by_kind.entry(kind).or_default();
        *vids = vids.union(&entry.vids);
    }
    let texts: Vec<String> =
        by_kind.iter().map(|(kind, vids)| format!("{kind}={}", vids_text(vids))).collect();
    (!texts.is_empty()).then(|| texts.join(";"))
}

/// The registration of a VID in such a text.
pub(super) fn registration_of(text: &str, vid: VlanId) -> Option<Registration> {
    let of_it = |part: &&str| {
        part.split_once('=').and_then(|(_, of)| vids(of)).is_some_and(|vids| vids.contains(vid))
    };
    let (control, transmitted) = text.split(';').find(of_it)?.split_once('=')?.0.split_once('/')?;
    let word = |word: &str| (word != NOT_SET).then(|| Registration::word(word));
    Some(Registration { control: word(control), transmitted: word(transmitted) })
}

/// `1,10-100,250` (ieee802-dot1q-types: vid-range-type).
pub(super) fn vids(text: &str) -> Option<VlanSet> {
    let mut vids = VlanSet::EMPTY;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (VlanId, VlanId) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last {
            return None;
        }
        vids.insert_range(first, last);
    }
    Some(vids)
}

/// The inverse of [`vids`]. Writing to memory can't fail, so results of `write!` are dropped in this dialect.
pub(super) fn vids_text(vids: &VlanSet) -> String {
    let mut text = String::new();
    for (first, last) in vids.ranges() {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = write!(text, "{first}");
        if first != last {
            let _ = write!(text, "-{last}");
        }
    }
    text
}

/// The content of `<filtering-database>` that applies `changes` to a component's entries.
pub(super) fn edit(entries: &[Entry], changes: &BTreeMap<VlanId, PortChanges>) -> Text {
    let mut xml = Text::new();
    // New entries go to the first database that exists.
    let database = entries.iter().map(|entry| entry.database).min().unwrap_or(0);
    let changed: VlanSet = changes.keys().copied().collect();
    for entry in entries.iter().filter(|entry| entry.vids.len() > 1) {
        if entry.vids.intersection(&changed).is_empty() {
            continue;
        }
        remove(&mut xml, entry.database, &entry.text);
        let rest = entry.vids.difference(&changed);
        if !rest.is_empty() && !entry.ports.is_empty() {
            write_entry(&mut xml, entry.database, &vids_text(&rest), &entry.ports, &[]);
        }
    }
    for (vid, change) in changes {
        let with_it: Vec<&Entry> = entries.iter().filter(|entry| entry.vids.contains(*vid)).collect();
        let of_it = |entry: &&&Entry| entry.vids.len() == 1;
        let own = with_it.iter().find(of_it);
        let mut ports = BTreeMap::new();
        for entry in &with_it {
            // The VID's own entry keeps its ports but for those that are added and removed.
            for (number, registration) in entry.ports.iter() {
                if own.is_none_or(|own| !own.ports.contains_key(number)) {
                    ports.entry(*number).or_insert_with(|| registration.clone());
                }
            }
        }
        for number in &change.remove {
            ports.remove(number);
        }
        ports.extend(change.set.iter().map(|(number, registration)| (*number, registration.clone())));
        // Entries of the VID alone in other databases lose the removed ports too.
        for other in with_it.iter().filter(of_it).filter(|other| own.is_none_or(|own| own != *other)) {
            write_removal(&mut xml, other, &change.remove);
        }
        let new = Entry {
            database: with_it.first().map_or(database, |entry| entry.database),
            text: vid.to_string(),
            ..Entry::default()
        };
        let Entry { database, text, ports: current, .. } = own.copied().unwrap_or(&new);
        let stay = current.keys().filter(|number| !change.remove.contains(number)).count();
        if stay == 0 && ports.is_empty() {
            if own.is_some() {
                remove(&mut xml, *database, text);
            }
            continue;
        }
        let gone: Vec<u32> =
            change.remove.iter().copied().filter(|number| current.contains_key(number)).collect();
        write_entry(&mut xml, *database, text, &ports, &gone);
    }
    xml
}

fn remove(xml: &mut Text, database: u32, vids: &str) {
    let _ = write!(
        xml,
        "<vlan-registration-entry nc:operation=\"remove\"><database-id>{database}</database-id><vids>{vids}</vids>\
         </vlan-registration-entry>"
    );
}

/// Removes ports from an entry, or the entry with its last port.
fn write_removal(xml: &mut Text, entry: &Entry, gone: &[u32]) {
    let gone: Vec<u32> = gone.iter().copied().filter(|number| entry.ports.contains_key(number)).collect();
    if gone.is_empty() {
        return;
    }
    if gone.len() == entry.ports.len() {
        remove(xml, entry.database, &entry.text);
    } else {
        write_entry(xml, entry.database, &entry.text, &BTreeMap::new(), &gone);
    }
}

fn write_entry(xml: &mut Text, database: u32, vids: &str, ports: &BTreeMap<u32, Registration>, gone: &[u32]) {
    let _ = write!(
        xml,
        "<vlan-registration-entry><database-id>{database}</database-id><vids>{vids}</vids>\
         <entry-type>static</entry-type>"
    );
    for (number, registration) in ports {
        let _ = write!(xml, "<port-map><port-ref>{number}</port-ref><static-vlan-registration-entries>");
        if let Some(control) = &registration.control {
            let _ = write!(xml, "<registrar-admin-control>{}</registrar-admin-control>", escape(control));
        }
        if let Some(transmitted) = &registration.transmitted {
            let _ = write!(xml, "<vlan-transmitted>{}</vlan-transmitted>", escape(transmitted));
        }
        xml.push_str("</static-vlan-registration-entries></port-map>");
    }
    for number in gone {
        let _ = write!(xml, "<port-map nc:operation=\"remove\"><port-ref>{number}</port-ref></port-map>");
    }
    xml.push_str("</vlan-registration-entry>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vid_lists_are_parsed_and_written() {
        for text in ["1", "1,10-100,250,500-1000", "4094"] {
            assert_eq!(vids_text(&vids(text).unwrap()), text);
        }
        for text in ["", "0", "4095", "5-1", "1-", "a"] {
            assert_eq!(vids(text), None, "{text}");
        }
    }

    #[test]
    fn vid_is_removed_from_a_range_entry() {
        let vid = |id| VlanId::new(id).unwrap();
        let entry = Entry {
            database: 3,
            text: "10-12".into(),
            vids: vids("10-12").unwrap(),
            ports: Arc::new([(1, Registration::ours()), (2, Registration::ours())].into()),
        };
        let change = PortChanges { set: BTreeMap::new(), remove: vec![2] };
        let xml = edit(std::slice::from_ref(&entry), &[(vid(11), change)].into());
        let map = |number| {
            format!(
                "<port-map><port-ref>{number}</port-ref><static-vlan-registration-entries><registrar-admin-control>\
                 fixed-new-ignored</registrar-admin-control><vlan-transmitted>tagged</vlan-transmitted>\
                 </static-vlan-registration-entries></port-map>"
            )
        };
        let written = |vids, ports: &str| {
            format!(
                "<vlan-registration-entry><database-id>3</database-id><vids>{vids}</vids>\
                 <entry-type>static</entry-type>{ports}</vlan-registration-entry>"
            )
        };
        let removed = "<vlan-registration-entry nc:operation=\"remove\"><database-id>3</database-id>\
                       <vids>10-12</vids></vlan-registration-entry>";
        let both = map(1) + &map(2);
        assert_eq!(
            xml.to_string(),
            format!("{removed}{}{}", written("10,12", &both), written("11", &map(1)))
        );
    }
}
