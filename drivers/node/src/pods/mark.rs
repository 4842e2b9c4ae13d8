//! How what is ours is told from the kernel alone, with no memory and no file.
//!
//! | what | mark |
//! |---|---|
//! | any interface of ours, either end | `IFLA_GROUP` is [`GROUP`] |
//! | the host's end of a pair | alias `eno:<cluster>:<pod uid>:<link id>` |
//! | an interface in a pod | alternative name `eno.<cluster>.<pod uid>.<digest of the link id>` (its alias is the user's) |
//! | a primary interface that was changed | alternative name `eno.<cluster>.<pod uid>.mtu.<what it had>` |
//! | addresses, routes, rules | protocol [`crate::netlink::PROTOCOL`] |
//!
//! An interface in the group without an alternative name was left half-made by a process that died: it is finished
//! if it is what is wanted, and deleted otherwise. A TUN device can't be born into a group; it is born with a name
//! that only we make ([`stable_name`]) and gets its own when it is marked.

use sha2::{Digest as _, Sha256};

use crate::netlink::Link;

/// `IFLA_GROUP` of interfaces of pods, both ends: "eno".
pub const GROUP: u32 = 0x0065_6e6f;

/// `IFLA_GROUP` of those that are about to be deleted, all at once.
pub const LEAVING: u32 = GROUP + 1;

/// What an alternative name of ours says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is the link whose id has this digest.
    Link(String),
    /// It had this MTU before.
    Primary(u32),
}

/// The alternative name of a pod's interface.
pub fn altname(cluster: &str, uid: &str, id: &str) -> String {
    format!("eno.{cluster}.{uid}.{}", digest(&[id]))
}

/// The alternative name of a primary interface that had the MTU `mtu`.
pub fn primary_altname(cluster: &str, uid: &str, mtu: u32) -> String {
    format!("eno.{cluster}.{uid}.mtu.{mtu}")
}

/// The mark that an interface in a pod carries, and the pod's uid.
pub fn read(cluster: &str, link: &Link) -> Option<(String, Mark)> {
    link.altnames.iter().find_map(|name| {
        let (uid, rest) =
            name.strip_prefix("eno.")?.strip_prefix(cluster)?.strip_prefix('.')?.split_once('.')?;
        let mark = match rest.strip_prefix("mtu.") {
            Some(mtu) => Mark::Primary(mtu.parse().ok()?),
            None => Mark::Link(rest.to_owned()),
        };
        Some((uid.to_owned(), mark))
    })
}

/// The alias of the host's end of a pair.
pub fn alias(cluster: &str, uid: &str, id: &str) -> String {
    format!("eno:{cluster}:{uid}:{id}")
}

/// The pod and the link that an alias names.
pub fn read_alias<'a>(cluster: &str, alias: &'a str) -> Option<(&'a str, &'a str)> {
    alias.strip_prefix("eno:")?.strip_prefix(cluster)?.strip_prefix(':')?.split_once(':')
}

/// A name that only we make: 15 bytes, the same at every call.
pub fn stable_name(uid: &str, id: &str) -> String {
    format!("eno{}", digest(&[uid, id]))
}

/// True for what [`stable_name`] makes.
pub fn is_stable_name(name: &str) -> bool {
    name.strip_prefix("eno").is_some_and(|rest| {
        rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// Twelve hexadecimal digits.
pub fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().iter().take(6).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
