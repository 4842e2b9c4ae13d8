//! Routing instances: types of their leaves, and checks that several dialects share.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::dialect::view::VrfView;
use crate::model::value::StringRule;

/// `ipv4-address` (RFC 6991), without a zone.
pub(super) static IPV4_ADDRESS: StringRule = StringRule {
    length: (7, 15),
    matches: |text| text.parse::<Ipv4Addr>().is_ok(),
    expected: "an IPv4 address",
};
/// `ipv6-address` (RFC 6991), without a zone.
pub(super) static IPV6_ADDRESS: StringRule = StringRule {
    length: (2, 45),
    matches: |text| text.parse::<Ipv6Addr>().is_ok(),
    expected: "an IPv6 address",
};
/// `ip-address` (RFC 6991), without a zone.
pub(super) static IP_ADDRESS: StringRule =
    StringRule { length: (2, 45), matches: |text| text.parse::<IpAddr>().is_ok(), expected: "an IP address" };
/// An IPv4 address with a prefix length.
pub(super) static IPV4_PREFIX: StringRule = StringRule {
    length: (9, 18),
    matches: |text| text.parse::<Ipv4Net>().is_ok(),
    expected: "an IPv4 address with a prefix length",
};
/// An IPv6 address with a prefix length.
pub(super) static IPV6_PREFIX: StringRule = StringRule {
    length: (4, 49),
    matches: |text| text.parse::<Ipv6Net>().is_ok(),
    expected: "an IPv6 address with a prefix length",
};
/// `ip-prefix` (RFC 6991).
pub(super) static IP_PREFIX: StringRule =
    StringRule { length: (4, 49), matches: |text| text.parse::<IpNet>().is_ok(), expected: "an IP prefix" };
/// A route distinguisher (RFC 4364 section 4.2).
pub(super) static DISTINGUISHER: StringRule = StringRule {
    length: (3, 21),
    matches: is_distinguisher,
    expected: "a route distinguisher such as 65000:100 or 192.0.2.1:100",
};

/// Whether the text has the form of a route distinguisher: a number of 16 bits and one of 32, an IPv4 address or a
/// number of 32 bits and one of 16.
pub(super) fn is_distinguisher(text: &str) -> bool {
    let Some((administrator, assigned)) = text.split_once(':') else { return false };
    let Some(assigned) = number(assigned) else { return false };
    let short = u16::try_from(assigned).is_ok();
    match number(administrator) {
        Some(n) => short || u16::try_from(n).is_ok(),
        None => short && administrator.parse::<Ipv4Addr>().is_ok(),
    }
}

/// A number without leading zeros.
fn number(text: &str) -> Option<u32> {
    let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    plain.then(|| text.parse().ok()).flatten()
}

/// An address that is on several interfaces of one VRF.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DuplicateAddress {
    /// The VRF.
    pub(super) vrf: String,
    /// What is wrong.
    pub(super) message: String,
}

/// The addresses that are on several interfaces of one VRF.
pub(super) fn duplicate_addresses(vrfs: &BTreeMap<String, VrfView>) -> Vec<DuplicateAddress> {
    let mut duplicates = Vec::new();
    for (name, vrf) in vrfs {
        let mut users: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for (interface, routed) in &vrf.interfaces {
            for address in &routed.addresses {
                if let Some(first) = users.insert(address.addr(), interface) {
                    let address = address.addr();
                    let message = format!("address {address} of {interface} is on {first} already");
                    duplicates.push(DuplicateAddress { vrf: name.clone(), message });
                }
            }
        }
    }
    duplicates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishers_have_the_three_forms_of_the_rfc() {
        for good in ["65000:100", "0:4294967295", "4200000000:1", "192.0.2.1:65535"] {
            assert!(is_distinguisher(good), "{good}");
        }
        for bad in
            ["", "65000", "65000:", ":1", "4200000000:65536", "192.0.2.1:65536", "1:2:3", "01:1", "a:b"]
        {
            assert!(!is_distinguisher(bad), "{bad}");
        }
    }
}
