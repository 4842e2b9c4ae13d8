//! Ownership marks on interfaces of pods. They are stored in the kernel alone, so that the agent needs no files.
//!
//! | what | mark |
//! |---|---|
//! | any interface that ENO makes for a pod, both ends | `IFLA_GROUP` is [`GROUP`] |
//! | the host end of a veth pair | alias `eno:<cluster>:<pod uid>:<link id>` |
//! | an interface in a pod | alternative name `eno.<cluster>.<pod uid>.<digest of the link id>` (its alias is the user's) |
//! | an interface in a pod with a changed property that the kernel would not restore | alternative name `eno.<cluster>.<pod uid>.<digest of the link id>.was.<property>.<original value>` |
//! | a changed primary interface | alternative name `eno.<cluster>.<pod uid>.mtu.<original MTU>` |
//! | addresses, routes, rules | protocol [`crate::netlink::PROTOCOL`] |
//!
//! An interface in the group without an alternative name was left unfinished by an agent that died. It is finished if
//! it is desired, and deleted otherwise. A TUN device can't be made in a group: it is made under a name that only ENO
//! uses ([`stable_name`]), and renamed once it is marked.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::{check, sysctl};
use crate::netlink::Link;

/// `IFLA_GROUP` of interfaces of pods, both ends: "eno" in ASCII.
pub const GROUP: u32 = 0x0065_6e6f;

/// `IFLA_GROUP` of interfaces that are about to be deleted all at once.
pub const DELETION_GROUP: u32 = GROUP + 1;

/// An ownership mark, read from an alternative name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnershipMark {
    /// The interface of the link whose id has this digest.
    Link(String),
    /// A primary interface with this original MTU in bytes.
    Primary(u32),
}

/// The alternative name of a pod's interface.
pub fn altname(cluster: &str, uid: &str, id: &str) -> String {
    format!("eno.{cluster}.{uid}.{}", digest(&[id]))
}

/// The alternative name of a primary interface with the original MTU `mtu`.
pub fn primary_altname(cluster: &str, uid: &str, mtu: u32) -> String {
    format!("eno.{cluster}.{uid}.mtu.{mtu}")
}

/// Separates the mark of an interface from an original value.
const ORIGINAL: &str = ".was.";

/// A property of a pod's interface that is restored when it is not desired any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// `IFLA_ADDRESS`, recorded as twelve hexadecimal digits: names of interfaces must not contain colons.
    Mac,
    /// `IFLA_MTU`.
    Mtu,
    /// A sysctl that [`sysctl::check`] accepts, by its key.
    Sysctl(String),
}

/// The value of a property before ENO changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalValue {
    /// The value.
    pub value: String,
    /// The alternative name that records it.
    pub altname: String,
}

/// The alternative name that records the original value of a property of a pod's interface.
pub fn original_altname(cluster: &str, uid: &str, id: &str, property: &Property, value: &str) -> String {
    let property = match property {
        Property::Mac => "mac".to_owned(),
        Property::Mtu => "mtu".to_owned(),
        // Names of interfaces must not contain slashes, and keys contain no dots.
        Property::Sysctl(key) => key.replace('/', "."),
    };
    format!("{}{ORIGINAL}{property}.{value}", altname(cluster, uid, id))
}

/// The original values recorded on an interface of a pod. A process in the pod may write such names, too: values that
/// could not be desired are ignored.
pub fn original_values(cluster: &str, uid: &str, id: &str, link: &Link) -> BTreeMap<Property, OriginalValue> {
    let start = altname(cluster, uid, id) + ORIGINAL;
    let read = |altname: &String| {
        let (property, value) = altname.strip_prefix(&start)?.rsplit_once('.')?;
        let property = match property {
            "mac" => Property::Mac,
            "mtu" => Property::Mtu,
            key => Property::Sysctl(key.replace('.', "/")),
        };
        let fits = match &property {
            Property::Mac => original_mac(value).is_some(),
            Property::Mtu => value.parse::<u32>().is_ok(),
            Property::Sysctl(key) => sysctl::check(key, value).is_ok(),
        };
        fits.then(|| (property, OriginalValue { value: value.to_owned(), altname: altname.clone() }))
    };
    link.altnames.iter().filter_map(read).collect()
}

/// The MAC address in [`OriginalValue::value`].
pub fn original_mac(value: &str) -> Option<[u8; 6]> {
    let pairs: Vec<&str> =
        value.as_bytes().chunks(2).map(std::str::from_utf8).collect::<Result<_, _>>().ok()?;
    check::parse_mac(&pairs.join(":")).ok()
}

/// The pod's uid and the ownership mark of an interface in a pod.
pub fn read(cluster: &str, link: &Link) -> Option<(String, OwnershipMark)> {
    link.altnames.iter().find_map(|name| {
        let (uid, rest) =
            name.strip_prefix("eno.")?.strip_prefix(cluster)?.strip_prefix('.')?.split_once('.')?;
        let kind = match rest.strip_prefix("mtu.") {
            Some(mtu) => OwnershipMark::Primary(mtu.parse().ok()?),
            None if rest.contains(ORIGINAL) => return None,
            None => OwnershipMark::Link(rest.to_owned()),
        };
        Some((uid.to_owned(), kind))
    })
}

/// The alias of the host end of a veth pair.
pub fn alias(cluster: &str, uid: &str, id: &str) -> String {
    format!("eno:{cluster}:{uid}:{id}")
}

/// The pod's uid and the link's id in an alias of a host end.
pub fn read_alias<'a>(cluster: &str, alias: &'a str) -> Option<(&'a str, &'a str)> {
    alias.strip_prefix("eno:")?.strip_prefix(cluster)?.strip_prefix(':')?.split_once(':')
}

/// A name that only ENO uses: 15 bytes, derived from the pod's uid and the link's id.
pub fn stable_name(uid: &str, id: &str) -> String {
    format!("eno{}", digest(&[uid, id]))
}

/// True for names that [`stable_name`] gives.
pub fn is_stable_name(name: &str) -> bool {
    name.strip_prefix("eno").is_some_and(|rest| {
        rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// Twelve hexadecimal digits of SHA-256.
pub fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().iter().take(6).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Kind;
    use eno_schemas::safe_sysctls;

    const UID: &str = "0f6e2a4c-1111-2222-3333-444455556666";

    fn link(altnames: Vec<String>) -> Link {
        Link { altnames, ..Link::new(2, Kind::Dummy) }
    }

    #[test]
    fn original_values_round_trip_through_altnames() {
        let mut all = vec![(Property::Mac, "0a00270000ff"), (Property::Mtu, "4294967295")];
        for family in ["ipv4", "ipv6"] {
            for group in ["conf", "neigh"] {
                let keys = safe_sysctls(family, group).unwrap_or_default();
                let keys = keys.iter().map(|key| format!("{family}/{group}/{key}"));
                all.extend(keys.map(|key| (Property::Sysctl(key), "-2147483648")));
            }
        }
        let named = |(property, value): &(Property, &str)| {
            original_altname("12345678", UID, "PodConfig/c/l", property, value)
        };
        let mut names: Vec<String> = all.iter().map(named).collect();
        assert!(names.iter().all(|name| name.len() < 128 && !name.contains(['/', ':'])), "{names:?}");
        let own = altname("12345678", UID, "PodConfig/c/l");
        names.push(own);
        let link = link(names);
        let found = original_values("12345678", UID, "PodConfig/c/l", &link);
        let values = found.iter().map(|(property, original)| (property.clone(), &original.value[..]));
        all.sort();
        assert_eq!(values.collect::<Vec<_>>(), all);
        assert!(original_values("12345678", UID, "PodConfig/c/other", &link).is_empty());
        // The interface is recognised by its mark alone.
        assert_eq!(
            read("12345678", &link),
            Some((UID.to_owned(), OwnershipMark::Link(digest(&["PodConfig/c/l"]))))
        );
        assert_eq!(original_mac("0a00270000ff"), Some([10, 0, 39, 0, 0, 255]));
    }

    #[test]
    fn invalid_original_values_are_ignored() {
        let names =
            ["mac.0a:0", "mac.01000000000f", "mtu.x", "ipv4.conf.route_localnet.1", "ipv4.conf.rp_filter.x"];
        let names = names.map(|rest| format!("{}.was.{rest}", altname("t1", UID, "l"))).to_vec();
        assert_eq!(original_values("t1", UID, "l", &link(names)), BTreeMap::new());
    }
}
