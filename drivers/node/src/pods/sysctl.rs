//! Sysctls of one interface, below `/proc/sys/net`. The allow list is checked here too, independently of the engine.

use std::path::{Path, PathBuf};

use eno_schemas::safe_sysctls;

use super::check::Refusal;

/// The sysctl that disables IPv6 on an interface. It must be 0 on an interface with an IPv6 address.
pub const DISABLE_IPV6: &str = "ipv6/conf/disable_ipv6";

/// Maximum characters of a value, with its sign.
const MAX_VALUE_LEN: usize = 11;

/// Refuses sysctls that are not on the allow list, and values that are no numbers.
pub fn check(key: &str, value: &str) -> Result<(), Refusal> {
    let list = |(family, group, name)| Some((safe_sysctls(family, group)?, name));
    let known = parts(key).and_then(list).is_some_and(|(safe, name)| safe.contains(&name));
    if !known {
        return Err(Refusal::permanent(format!(
            "the sysctl {key} is not on the list of those that are safe"
        )));
    }
    if value.is_empty() || value.len() > MAX_VALUE_LEN || value.parse::<i64>().is_err() {
        return Err(Refusal::permanent(format!("the value of the sysctl {key} is not a number")));
    }
    Ok(())
}

/// The path of an interface's sysctl, below `/proc/sys/net`. Interface names contain no `/`.
pub fn path(key: &str, interface: &str) -> Option<PathBuf> {
    let (family, group, name) = parts(key)?;
    Some(Path::new(family).join(group).join(interface).join(name))
}

/// True when two values are the same number, or the same text.
pub fn is_same(a: &str, b: &str) -> bool {
    match (a.trim().parse::<i64>(), b.trim().parse::<i64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a.trim() == b.trim(),
    }
}

fn parts(key: &str) -> Option<(&str, &str, &str)> {
    let mut parts = key.split('/');
    let found = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_sysctls_with_numbers_are_accepted() {
        assert!(check("ipv4/conf/rp_filter", "2").is_ok());
        assert!(check("ipv6/conf/accept_ra", "0").is_ok());
        assert!(check("ipv4/neigh/gc_stale_time", "60").is_ok());
        assert!(check(DISABLE_IPV6, "0").is_ok());
        for bad in [
            "ipv4/conf/route_localnet",
            "ipv4/conf/accept_source_route",
            "ipv4/conf/../rp_filter",
            "ipv4/conf/rp_filter/x",
            "ipv4/ip_forward",
            "ipv4/neigh/unres_qlen_bytes",
            "core/conf/rp_filter",
            "",
        ] {
            assert!(check(bad, "1").is_err(), "{bad}");
        }
        for bad in ["", "x", "1 2", "1\n", "123456789012"] {
            assert!(check("ipv4/conf/rp_filter", bad).is_err(), "{bad:?}");
        }
        assert_eq!(path("ipv4/conf/rp_filter", "eth0.1"), Some("ipv4/conf/eth0.1/rp_filter".into()));
        assert!(is_same("1\n", "1") && is_same("-1", " -1 ") && !is_same("1", "2"));
    }
}
