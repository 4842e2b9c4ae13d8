//! The names of streams, buckets and subjects.

use std::fmt::Write as _;

/// Commands, one kept per subject.
pub const COMMANDS: &str = "ENO_COMMANDS";
/// Reports, one kept per subject.
pub const RESULTS: &str = "ENO_RESULTS";
/// The outbox: every phase change of the last 7 days.
pub const TRANSITIONS: &str = "ENO_TRANSITIONS";
/// Every report of the last 7 days.
pub const HISTORY: &str = "ENO_HISTORY";
/// KV bucket: the presence of running drivers ([`crate::DriverHello`]).
pub const DRIVERS: &str = "ENO_DRIVERS";
/// KV bucket: the leases of targets by driver instances, key `<driver>.<target>`.
pub const OWNERS: &str = "ENO_OWNERS";
/// Dead letters of callbacks ([`crate::DeadLetter`]).
pub const DEAD_LETTERS: &str = "ENO_DEAD_LETTERS";
/// The subject of requests about callbacks to the leading engine ([`crate::CallbackRequest`]).
pub const CALLBACK_REQUESTS: &str = "eno.v1.callbacks";
/// KV bucket: the delivery progress of each object's callbacks.
pub const CALLBACKS: &str = "ENO_CALLBACKS";

/// The subject of a target's commands: `eno.v1.command.<driver>.<target>`.
pub fn command(driver: &str, target: &str) -> String {
    format!("eno.v1.command.{}.{}", token(driver), token(target))
}

/// The subject of a target's reports: `eno.v1.result.<driver>.<target>`.
pub fn result(driver: &str, target: &str) -> String {
    format!("eno.v1.result.{}.{}", token(driver), token(target))
}

/// The subject of a target's history: `eno.v1.history.<driver>.<target>`.
pub fn history(driver: &str, target: &str) -> String {
    format!("eno.v1.history.{}.{}", token(driver), token(target))
}

/// The subject of an object's callbacks in the history: `eno.v1.history.callback.<kind>.<namespace or _>.<name>`.
pub fn deliveries(kind: &str, namespace: Option<&str>, name: &str) -> String {
    transition(kind, namespace, name).replacen("transition", "history.callback", 1)
}

/// The subject of an object's dead letters: `eno.v1.dead.<kind>.<namespace or _>.<name>`.
pub fn dead_letter(kind: &str, namespace: Option<&str>, name: &str) -> String {
    transition(kind, namespace, name).replacen("transition", "dead", 1)
}

/// The subject of preview requests to a driver: `eno.v1.preview.<driver>.<target>`.
pub fn preview(driver: &str, target: &str) -> String {
    format!("eno.v1.preview.{}.{}", token(driver), token(target))
}

/// The subject of an object's transitions: `eno.v1.transition.<kind>.<namespace or _>.<name>`.
pub fn transition(kind: &str, namespace: Option<&str>, name: &str) -> String {
    format!(
        "eno.v1.transition.{}.{}.{}",
        token(kind),
        namespace.map_or_else(|| "_".into(), token),
        token(name)
    )
}

/// A KV key of two parts, `<driver>.<target or instance>`.
pub fn key(driver: &str, name: &str) -> String {
    format!("{}.{}", token(driver), token(name))
}

/// A name as one subject token: bytes outside `[A-Za-z0-9_-]` are escaped as `=HH`.
pub fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            token.push(byte.into());
        } else {
            let _ = write!(token, "={byte:02X}");
        }
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_escape_to_subject_tokens() {
        assert_eq!(command("netconf", "leaf1.dc1"), "eno.v1.command.netconf.leaf1=2Edc1");
        assert_eq!(result("nad", "ns/a*>b"), "eno.v1.result.nad.ns=2Fa=2A=3Eb");
        assert_eq!(transition("L2Service", None, "s"), "eno.v1.transition.L2Service._.s");
        assert_eq!(transition("L2Service", Some("_"), "s"), "eno.v1.transition.L2Service._.s");
        assert_eq!(deliveries("L2Service", None, "s"), "eno.v1.history.callback.L2Service._.s");
        assert_eq!(dead_letter("L2Service", Some("a"), "s"), "eno.v1.dead.L2Service.a.s");
        assert_eq!(token("é ="), "=C3=A9=20=3D");
    }
}
