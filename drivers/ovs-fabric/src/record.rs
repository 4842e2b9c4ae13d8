//! What a port remembers of us, in its `external_ids`: nothing else says whose a VLAN on it is, since Open vSwitch has
//! no objects for VLANs.

use std::collections::{BTreeMap, BTreeSet};

use eno_ovsdb::{read_ranges, write_ranges};

/// The only entry of the list of a trunk that carries nothing: reserved by IEEE 802.1Q-2022, so never a VLAN. In Open
/// vSwitch a trunk port with an empty list carries every VLAN.
pub const CLOSED: u16 = 4095;

/// What our cluster did to a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `eno-<cluster>-vlans`: of its `trunks` those that are ours, as ranges; [`CLOSED`] among them when we put that
    /// there.
    pub vlans: BTreeSet<u16>,
    /// `eno-<cluster>-before`: it was an access port that we made a trunk, with this `vlan_mode`.
    pub before: Option<AccessMode>,
}

/// How `vlan_mode` says that a port with a `tag` is an access port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Not at all: a port with a `tag` is one.
    Implied,
    /// `access`.
    Named,
}

impl AccessMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Implied => "implied",
            Self::Named => "access",
        }
    }
}

fn vlans_key(cluster: &str) -> String {
    format!("eno-{cluster}-vlans")
}

fn before_key(cluster: &str) -> String {
    format!("eno-{cluster}-before")
}

/// `eno-<cluster>-uids`: the uids of the clusters that use this identifier on the port, separated by spaces. It is to
/// be one; two clusters with one identifier take each other's VLANs for their own.
pub fn uids_key(cluster: &str) -> String {
    format!("eno-{cluster}-uids")
}

/// The uids on a port.
pub fn uids<'a>(external_ids: &'a BTreeMap<String, String>, cluster: &str) -> impl Iterator<Item = &'a str> {
    external_ids.get(&uids_key(cluster)).into_iter().flat_map(|text| text.split_ascii_whitespace())
}

/// What [`uids`] says once the port has, or no longer has, VLANs of this cluster.
pub fn uids_after(
    external_ids: &BTreeMap<String, String>,
    cluster: &str,
    uid: &str,
    has_vlans: bool,
) -> Option<String> {
    let others = uids(external_ids, cluster).filter(|other| *other != uid);
    let all: BTreeSet<&str> = others.chain(has_vlans.then_some(uid)).collect();
    (!all.is_empty()).then(|| Vec::from_iter(all).join(" "))
}

impl Record {
    /// What this cluster did. What somebody else wrote there and does not make sense is nothing of ours.
    pub fn read(external_ids: &BTreeMap<String, String>, cluster: &str) -> Self {
        Self {
            vlans: external_ids.get(&vlans_key(cluster)).map(|text| parse_list(text)).unwrap_or_default(),
            before: external_ids.get(&before_key(cluster)).and_then(|text| match text.as_str() {
                "implied" => Some(AccessMode::Implied),
                "access" => Some(AccessMode::Named),
                _ => None,
            }),
        }
    }

    /// The entries of `external_ids` that say it; an absent value: no such entry.
    pub fn entries(&self, cluster: &str) -> [(String, Option<String>); 2] {
        let vlans = (!self.vlans.is_empty()).then(|| write_ranges(&self.vlans));
        let before = self.before.map(|mode| mode.as_str().to_owned());
        [(vlans_key(cluster), vlans), (before_key(cluster), before)]
    }
}

/// The VLANs that each other cluster has on a port.
pub fn of_others<'a>(
    external_ids: &'a BTreeMap<String, String>,
    cluster: &str,
) -> impl Iterator<Item = (&'a str, BTreeSet<u16>)> {
    external_ids.iter().filter_map(move |(key, text)| {
        let other = key.strip_prefix("eno-")?.strip_suffix("-vlans")?;
        (other != cluster && !other.is_empty()).then(|| (other, parse_list(text)))
    })
}

/// Reads what [`write_ranges`] wrote.
fn parse_list(text: &str) -> BTreeSet<u16> {
    read_ranges(text, 1..=CLOSED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_reads_its_own() {
        let written = Record { vlans: BTreeSet::from([10, 11, CLOSED]), before: Some(AccessMode::Named) };
        let mut ids: BTreeMap<String, String> =
            written.entries("c1").into_iter().map(|(key, value)| (key, value.unwrap())).collect();
        ids.insert("eno-c2-vlans".into(), "20".into());
        // As the agent of a node marks the uplinks of others.
        ids.insert("eno-vlans-c3".into(), "30".into());
        assert_eq!(ids["eno-c1-vlans"], "10-11,4095");
        assert_eq!(Record::read(&ids, "c1"), written);
        assert_eq!(of_others(&ids, "c1").collect::<Vec<_>>(), [("c2", BTreeSet::from([20]))]);
        assert_eq!(Record::default().entries("c1").map(|(_, value)| value), [None, None]);
    }

    #[test]
    fn each_cluster_leaves_its_uid_while_it_has_vlans_on_the_port() {
        let after = |before: &str, has| {
            let ids = BTreeMap::from([("eno-c1-uids".to_owned(), before.to_owned())]);
            uids_after(&ids, "c1", "b", has)
        };
        assert_eq!(after("", true).as_deref(), Some("b"));
        assert_eq!(after("a", true).as_deref(), Some("a b"));
        assert_eq!(after("a b", false).as_deref(), Some("a"));
        assert_eq!(after("b", false), None);
    }
}
