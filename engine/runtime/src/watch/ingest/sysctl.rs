//! Kernel parameters of one interface that affect only its pod.

use eno_core::kinds::Invalid;
use eno_schemas::safe_sysctls;

/// Placeholder for the name of the interface.
const PLACEHOLDER: &str = "IFNAME";

/// Converts the spelling of `sysctl` (`net.ipv4.conf.IFNAME.rp_filter`, with dots or slashes) to a path such as
/// `ipv4/conf/rp_filter`.
pub(super) fn key(field: &str, text: &str) -> Result<String, Invalid> {
    let path = if text.contains('/') { text.to_owned() } else { text.replace('.', "/") };
    let path = path.strip_prefix("net/").unwrap_or(&path);
    let parts: Vec<&str> = path.split('/').collect();
    let known = match parts.as_slice() {
        [family, table, name] | [family, table, PLACEHOLDER, name] => Some((*family, *table, *name)),
        _ => None,
    };
    let list = known.and_then(|(family, table, _)| safe_sysctls(family, table));
    match (known, list) {
        (Some((family, table, name)), Some(list)) if list.contains(&name) => {
            Ok(format!("{family}/{table}/{name}"))
        }
        (Some((family, table, _)), Some(list)) => {
            let problem = format!(
                "unsafe sysctl {text:?}; of net.{family}.{table}.{PLACEHOLDER} those may be set: {}",
                list.join(", ")
            );
            Err(Invalid::new(field, problem))
        }
        _ => {
            let names = |family, table| safe_sysctls(family, table).unwrap_or_default().join(",");
            let problem = format!(
                "unsafe sysctl {text:?}; only those of the interface itself may be set, such as \
                 net.ipv4.conf.{PLACEHOLDER}.rp_filter: net.ipv4.conf.{PLACEHOLDER}.{{{}}}, \
                 net.ipv6.conf.{PLACEHOLDER}.{{{}}}, net.{{ipv4,ipv6}}.neigh.{PLACEHOLDER}.{{{}}}",
                names("ipv4", "conf"),
                names("ipv6", "conf"),
                names("ipv4", "neigh")
            );
            Err(Invalid::new(field, problem))
        }
    }
}

/// All values are integers.
pub(super) fn value(field: &str, text: &str) -> Result<String, Invalid> {
    match text.trim().parse::<i32>() {
        Ok(number) if number >= -1 => Ok(number.to_string()),
        _ => Err(Invalid::new(field, format!("{text:?} is not a whole number from -1 to {}", i32::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_sysctls_parse_in_any_spelling() {
        for text in
            ["net.ipv4.conf.IFNAME.rp_filter", "net/ipv4/conf/IFNAME/rp_filter", "ipv4/conf/rp_filter"]
        {
            assert_eq!(key("f", text).unwrap(), "ipv4/conf/rp_filter");
        }
        let neighbours = "net.ipv6.neigh.IFNAME.base_reachable_time_ms";
        assert_eq!(key("f", neighbours).unwrap(), "ipv6/neigh/base_reachable_time_ms");
        assert_eq!(value("f", " 2 ").unwrap(), "2");
    }

    #[test]
    fn unsafe_sysctls_are_refused_by_name() {
        for text in [
            "net.ipv4.ip_forward",
            "net.ipv4.conf.all.rp_filter",
            "net.ipv4.conf.eth0.rp_filter",
            "net.ipv4.conf.IFNAME.route_localnet",
            "net/ipv4/conf/../../core/somaxconn",
            "ipv4/conf/IFNAME/../rp_filter",
            "kernel.core_pattern",
            "",
        ] {
            let refused = key("networkAttachments[0].sysctls", text).unwrap_err();
            assert!(refused.problem.starts_with(&format!("unsafe sysctl {text:?}")), "{refused}");
            assert!(
                refused.problem.contains("rp_filter, secure_redirects")
                    || refused.problem.contains("rp_filter,secure")
            );
        }
        for text in ["", "x", "-2", "1 2", "99999999999"] {
            assert!(value("f", text).is_err(), "{text}");
        }
    }
}
