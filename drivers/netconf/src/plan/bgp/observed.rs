//! BGP groups as a device has them, and as they are to be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use eno_device_secrets::Hidden;
use eno_schemas::BgpGroup;

use super::tree::{Built, Shapes, Tree};
use crate::memory::Kept;

/// Maximum bytes of the name of an object that are part of a name on a device.
const MAX_NAME: usize = 32;

/// How a dialect writes BGP groups. Pure.
pub trait BgpModel: Send + Sync {
    /// What its entries have.
    fn shapes(&self) -> &'static Shapes;

    /// The entries of a group. Those of the device's routing policy come with those of the VRF.
    fn entries(&self, values: &GroupValues<'_>) -> Vec<WantedEntry>;

    /// A VRF needs an instance of BGP, with the AS, before a group.
    fn has_instances(&self) -> bool {
        true
    }

    /// An instance needs a router ID, which is the first IPv4 address of the VRF.
    fn needs_router_id(&self) -> bool {
        false
    }

    /// Why the device can't have this group; `None`: it can.
    fn refuses(&self, group: &BgpGroup) -> Option<String> {
        let _ = group;
        None
    }
}

impl fmt::Debug for dyn BgpModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BgpModel")
    }
}

/// The values of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupValues<'a> {
    /// Its name on the device.
    pub name: &'a str,
    /// The device's name of its VRF.
    pub vrf: &'a str,
    /// What it is to be.
    pub group: &'a BgpGroup,
    /// The AS that its neighbours see, where the instance has another one.
    pub local_as: Option<u32>,
    /// The password.
    pub password: Option<&'a Hidden>,
}

/// The name of a list entry of ours on a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// The dialect's name of the list, the name of its elements.
    pub kind: &'static str,
    /// The VRF that it is in; `None`: it is of the whole device.
    pub vrf: Option<String>,
    /// Its key.
    pub name: String,
}

/// An entry as it is to be.
#[derive(Clone, Debug)]
pub struct WantedEntry {
    /// Its name.
    pub id: EntryId,
    /// The element. It may have the password.
    pub xml: Hidden,
    /// It has the password.
    pub has_password: bool,
}

/// An entry of ours on a device.
#[derive(Clone, Debug)]
pub struct OwnEntry {
    /// The name of its group on the device.
    pub(crate) group: String,
    /// What it has.
    pub(crate) tree: Tree,
    /// It has a password, of which nothing more is known.
    pub(crate) has_password: bool,
}

impl OwnEntry {
    /// An entry of this group.
    pub(crate) fn new(group: impl Into<String>, built: Built) -> Self {
        let Built { tree, has_password, .. } = built;
        Self { group: group.into(), tree, has_password }
    }
}

/// The BGP groups of a device.
#[derive(Clone, Debug)]
pub struct ObservedBgp {
    /// How the dialect writes them.
    pub model: &'static dyn BgpModel,
    /// The entries of ours.
    pub entries: BTreeMap<EntryId, OwnEntry>,
    /// The instances of BGP, by VRF.
    pub instances: BTreeMap<String, ObservedInstance>,
    /// The passwords of the desired groups.
    pub passwords: Passwords,
    /// The memory that it takes.
    pub memory: Kept,
}

impl ObservedBgp {
    /// Nothing is there yet.
    pub(crate) fn new(model: &'static dyn BgpModel) -> Self {
        Self {
            model,
            entries: BTreeMap::new(),
            instances: BTreeMap::new(),
            passwords: Passwords::default(),
            memory: Kept::default(),
        }
    }
}

/// The instance of BGP of a VRF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedInstance {
    /// The device's name of it.
    pub name: String,
    /// Its AS.
    pub local_as: Option<u32>,
    /// It has what is not ours.
    pub has_others: bool,
    /// It is as the driver makes it, and a group of ours has its AS.
    pub is_made: bool,
    /// The addresses and the prefixes of its neighbours that are not ours.
    pub neighbours: BTreeSet<String>,
}

/// The passwords of groups, by owner. Those that could not be read have the reason.
#[derive(Clone, Debug, Default)]
pub struct Passwords(pub BTreeMap<String, Result<Password, String>>);

/// The password of a group.
#[derive(Clone, Debug)]
pub struct Password {
    /// The password.
    pub text: Hidden,
    /// This process has not written it yet. No device tells which one it has.
    pub is_unwritten: bool,
}

impl Passwords {
    /// All of them are on the device.
    pub(crate) fn assume_written(&mut self) {
        self.0.values_mut().flatten().for_each(|password| password.is_unwritten = false);
    }
}

/// The mark of names of ours.
fn mark(cluster: &str) -> String {
    format!("eno-{cluster}-")
}

/// Whether the name of a group, or of what it uses, is ours.
pub(crate) fn is_own_name(cluster: &str, name: &str) -> bool {
    name.strip_prefix(&*mark(cluster)).is_some_and(|rest| !rest.is_empty())
}

/// The name of a group on a device: `eno-<cluster>-<name of the object>`. A long name is cut, and has a hash at its end.
/// An ID of a cluster has no `-`, so no name has two readings.
pub fn group_name(cluster: &str, owner: &str) -> String {
    let name = owner.rsplit('/').next().unwrap_or(owner);
    if name.len() <= MAX_NAME {
        return mark(cluster) + name;
    }
    // FNV-1a. The name has to be the same in all versions.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let start = &name[..name.floor_char_boundary(MAX_NAME - 9)];
    format!("{}{start}-{hash:08x}", mark(cluster))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_differ() {
        assert_eq!(group_name("c1", "BGPSessionGroup/blue"), "eno-c1-blue");
        let long = |end: &str| group_name("c1", &format!("BGPSessionGroup/{}{end}", "x".repeat(250)));
        assert_eq!(long("a").len(), "eno-c1-".len() + MAX_NAME);
        assert_ne!(long("a"), long("b"));
        assert!(is_own_name("c1", &long("a")));
        for foreign in ["eno-c1-", "eno-c10-blue", "eno-c2-blue", "blue", "xeno-c1-blue"] {
            assert!(!is_own_name("c1", foreign), "{foreign}");
        }
    }
}
