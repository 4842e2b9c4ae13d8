//! The record of our configuration in a port's `external_ids`. It alone tells VLAN ownership, since Open
//! vSwitch has no VLAN objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::trunks::Trunks;

/// The configuration of a port by this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `eno-<cluster>-vlans`: those of its `trunks` that are ours, as ranges. Includes
    /// [`CLOSED`](crate::trunks::CLOSED) when we added it.
    pub vlans: Trunks,
    /// `eno-<cluster>-before`: the port was an access port with this `vlan_mode`, which we made a trunk.
    pub before: Option<AccessMode>,
}

/// How an access port's `vlan_mode` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Unset: a port with a `tag` is an access port.
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

/// `eno-<cluster>-uids`: the uids of the clusters that use this identifier on the port, separated by spaces.
/// More than one is a conflict: the clusters would take each other's VLANs for their own.
pub fn uids_key(cluster: &str) -> String {
    format!("eno-{cluster}-uids")
}

/// The cluster uids of a port.
pub fn uids<'a>(external_ids: &'a BTreeMap<String, String>, cluster: &str) -> impl Iterator<Item = &'a str> {
    external_ids.get(&uids_key(cluster)).into_iter().flat_map(|text| text.split_ascii_whitespace())
}

/// The value of [`uids_key`] after the port got, or lost, VLANs of this cluster.
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
    /// Reads this cluster's record. Invalid values count as absent.
    pub fn read(external_ids: &BTreeMap<String, String>, cluster: &str) -> Self {
        Self {
            vlans: external_ids.get(&vlans_key(cluster)).map(|text| Trunks::parse(text)).unwrap_or_default(),
            before: external_ids.get(&before_key(cluster)).and_then(|text| match text.as_str() {
                "implied" => Some(AccessMode::Implied),
                "access" => Some(AccessMode::Named),
                _ => None,
            }),
        }
    }

    /// The entries of `external_ids` for the record; `None`: the entry is absent.
    pub fn entries(&self, cluster: &str) -> [(String, Option<String>); 2] {
        let vlans = (!self.vlans.is_empty()).then(|| self.vlans.to_string());
        let before = self.before.map(|mode| mode.as_str().to_owned());
        [(vlans_key(cluster), vlans), (before_key(cluster), before)]
    }
}

/// The recorded VLANs of each other cluster on a port.
pub fn of_others<'a>(
    external_ids: &'a BTreeMap<String, String>,
    cluster: &str,
) -> impl Iterator<Item = (&'a str, Trunks)> {
    external_ids.iter().filter_map(move |(key, text)| {
        let other = key.strip_prefix("eno-")?.strip_suffix("-vlans")?;
        (other != cluster && !other.is_empty()).then(|| (other, Trunks::parse(text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trunks::CLOSED;

    #[test]
    fn cluster_records_are_kept_apart() {
        let written = Record { vlans: Trunks::from_iter([10, 11, CLOSED]), before: Some(AccessMode::Named) };
        let mut ids: BTreeMap<String, String> =
            written.entries("c1").into_iter().map(|(key, value)| (key, value.unwrap())).collect();
        ids.insert("eno-c2-vlans".into(), "20".into());
        // The key with which the node agent records uplinks of other clusters.
        ids.insert("eno-vlans-c3".into(), "30".into());
        assert_eq!(ids["eno-c1-vlans"], "10-11,4095");
        assert_eq!(Record::read(&ids, "c1"), written);
        assert_eq!(of_others(&ids, "c1").collect::<Vec<_>>(), [("c2", Trunks::from_iter([20]))]);
        assert_eq!(Record::default().entries("c1").map(|(_, value)| value), [None, None]);
    }

    #[test]
    fn cluster_uid_stays_recorded_while_port_has_its_vlans() {
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
