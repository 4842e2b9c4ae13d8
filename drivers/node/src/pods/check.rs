//! Checks of desired interfaces, made before anything is changed.

use eno_schemas::{LinkKind, LinkName, PodLink};

use super::sysctl;

/// Why an item of the desired state is not realised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The reason, as a message for administrators.
    pub reason: String,
    /// True when a retry may succeed.
    pub retryable: bool,
}

impl Refusal {
    /// A refusal that stays until the desired state changes.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retryable: false }
    }

    /// A refusal whose cause may pass.
    pub fn temporary(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retryable: true }
    }
}

/// Maximum bytes of an interface name (`IFNAMSIZ` without the NUL).
const MAX_NAME_LEN: usize = 15;

/// Maximum bytes of a link's id. It leaves room for the rest of the alias in `IFALIASZ`.
const MAX_ID_LEN: usize = 160;

/// Checks an interface name: valid for the kernel (`dev_valid_name`), no template (`%`), and not reserved (`lo`, `all`,
/// `default`).
pub fn interface_name(name: &str) -> Result<(), Refusal> {
    if name.len() > MAX_NAME_LEN {
        return Err(Refusal::permanent(format!(
            "the interface name {name} has {} bytes, {MAX_NAME_LEN} are possible",
            name.len()
        )));
    }
    let odd = |c: char| c == '/' || c == ':' || c == '%' || c.is_whitespace() || c.is_control();
    let reserved = matches!(name, "" | "." | ".." | "lo" | "all" | "default");
    if reserved || name.contains(odd) {
        return Err(Refusal::permanent(format!("{name:?} can't be the name of an interface")));
    }
    Ok(())
}

/// The name of a new interface in a pod; `pid`: that of the pod's first container.
pub fn pod_name(name: &LinkName, pid: Option<u32>) -> Result<String, Refusal> {
    let name = match name {
        LinkName::Fixed(name) => name.clone(),
        LinkName::WithPid(base) => {
            let pid = pid.ok_or_else(|| {
                Refusal::temporary("the container runtime does not say which process is the pod's first")
            })?;
            format!("{base}{pid}")
        }
    };
    interface_name(&name)?;
    Ok(name)
}

/// Checks a link without reading the node's state.
pub fn link(link: &PodLink, pid: Option<u32>) -> Result<(), Refusal> {
    if link.id.is_empty() || link.id.len() > MAX_ID_LEN {
        return Err(Refusal::permanent(format!("the id of an interface has 1 to {MAX_ID_LEN} bytes")));
    }
    match &link.name {
        LinkName::Fixed(name) => interface_name(name)?,
        LinkName::WithPid(base) => {
            // The name of the host end is longer by one letter.
            let name = pod_name(&link.name, pid)?;
            if matches!(link.kind, LinkKind::Veth { .. }) {
                interface_name(&format!("h{name}"))?;
            }
            interface_name(base)?;
        }
    }
    if let Some(mac) = &link.mac {
        if matches!(
            link.kind,
            LinkKind::Ipvlan { .. } | LinkKind::Gre(_) | LinkKind::Ipip(_) | LinkKind::Tun(_)
        ) {
            return Err(Refusal::permanent("an interface of this kind has no MAC address of its own"));
        }
        parse_mac(mac)?;
    }
    if link.anti_spoof && !matches!(link.kind, LinkKind::Veth { .. }) {
        return Err(Refusal::permanent(
            "AntiSpoof can't be enforced: packets of an interface of this kind reach other pods without passing the host",
        ));
    }
    if let LinkKind::Vrf { table } = link.kind
        && matches!(table, 0 | 253..=255)
    {
        return Err(Refusal::permanent(format!("table {table} is the kernel's own")));
    }
    if link.routes.iter().any(|route| matches!(route.table, Some(0 | 255)))
        || link.rules.iter().any(|r| r.table == 0)
    {
        return Err(Refusal::permanent("tables 0 and 255 are the kernel's own"));
    }
    if let Some(route) = link.routes.iter().find(|route| {
        let v6 = route.prefix.addr().is_ipv6();
        route.next_hop.is_some_and(|ip| ip.is_ipv6() != v6)
            || route.source.is_some_and(|ip| ip.is_ipv6() != v6)
    }) {
        return Err(Refusal::permanent(format!("the route to {} mixes IPv4 and IPv6", route.prefix)));
    }
    link.sysctls.iter().try_for_each(|(key, value)| sysctl::check(key, value))
}

/// Refuses the link at index `at` if an earlier link of the pod has the same id or name.
pub fn duplicate(links: &[PodLink], at: usize) -> Result<(), Refusal> {
    let (earlier, [link, ..]) = links.split_at(at) else { return Ok(()) };
    if earlier.iter().any(|other| other.id == link.id) {
        return Err(Refusal::permanent(format!("the pod has two interfaces with the id {}", link.id)));
    }
    if earlier.iter().any(|other| other.name == link.name) {
        let (LinkName::Fixed(name) | LinkName::WithPid(name)) = &link.name;
        return Err(Refusal::permanent(format!("the pod has another interface that is to be called {name}")));
    }
    Ok(())
}

/// Parses a unicast MAC address.
pub fn parse_mac(text: &str) -> Result<[u8; 6], Refusal> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|part| {
            let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            digits.then(|| u8::from_str_radix(part, 16).ok()).flatten()
        })
        .collect();
    let mac: Option<[u8; 6]> = bytes.and_then(|bytes| bytes.try_into().ok());
    match mac {
        Some(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Ok(mac),
        Some(_) => Err(Refusal::permanent(format!("{text} is not the MAC address of one interface"))),
        None => Err(Refusal::permanent(format!("{text:?} is not a MAC address"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_interface_names_are_refused() {
        for good in ["net1", "a", "ifname123456789", "eth0.100", "Ω"] {
            assert!(interface_name(good).is_ok(), "{good}");
        }
        for bad in
            ["", ".", "..", "lo", "all", "default", "a b", "a/b", "a:b", "a%d", "a\n", "sixteen-bytes-xx"]
        {
            assert!(interface_name(bad).is_err(), "{bad}");
        }
        assert_eq!(pod_name(&LinkName::WithPid("pn".into()), Some(4711)).unwrap(), "pn4711");
        assert!(pod_name(&LinkName::WithPid("pn".into()), None).unwrap_err().retryable);
    }

    #[test]
    fn invalid_mac_addresses_are_refused() {
        assert_eq!(parse_mac("02:00:5e:00:00:01").unwrap(), [2, 0, 0x5e, 0, 0, 1]);
        for bad in [
            "",
            "02:00:5e:00:00",
            "02:00:5e:00:00:0g",
            "+2:00:5e:00:00:01",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
        ] {
            assert!(parse_mac(bad).is_err(), "{bad}");
        }
    }
}
