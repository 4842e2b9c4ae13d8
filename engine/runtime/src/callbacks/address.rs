//! The addresses that callbacks may go to. Pure.
//!
//! Any user who may write an object sets its CallbackURL, and the engine has network access that the user may lack.
//! Without this policy the engine could be made to post to itself or to the metadata service of its cloud (server-side
//! request forgery).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::Url;

/// An exception from the refused addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// All addresses of a network.
    Net(IpNet),
    /// The host of this name, whatever its addresses.
    Host(String),
    /// All hosts whose names end with this text, which begins with a dot.
    Subdomains(String),
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self::Net(net));
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Self::Net(address.into()));
        }
        let (name, below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if name.is_empty() || !name.bytes().all(good) {
            return Err(format!(
                "{text:?} is no network such as 10.0.0.0/8, no address and no host such as nfvo.example.com"
            ));
        }
        let name = name.to_ascii_lowercase();
        Ok(if below { Self::Subdomains(format!(".{name}")) } else { Self::Host(name) })
    }
}

/// Why a callback is refused. It is permanent: the same URL is refused again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// Plain HTTP is refused.
    #[error("http is refused by --callback-https-only: use https")]
    Plain,
    /// An address is refused.
    #[error("the address {address} is refused, since it is {why}; --callback-allow can allow it")]
    Address {
        /// The address.
        address: IpAddr,
        /// The class of the address.
        why: Reason,
    },
}

impl Forbidden {
    /// The same without the address.
    pub fn without_address(&self) -> String {
        match self {
            Self::Plain => self.to_string(),
            Self::Address { why, .. } => {
                format!("the host's address is refused, since it is {why}; --callback-allow can allow it")
            }
        }
    }
}

/// Classes of refused addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Loopback: the engine's own host.
    Loopback,
    /// The unspecified address.
    Unspecified,
    /// Link-local, which most metadata services are.
    LinkLocal,
    /// The metadata service of a cloud.
    Metadata,
    /// Multicast.
    Multicast,
    /// Reserved for protocols or future use.
    Reserved,
    /// Named by --callback-deny, or the API server.
    Internal,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::Unspecified => "the unspecified address",
            Self::LinkLocal => "link-local",
            Self::Metadata => "that of a cloud's metadata service",
            Self::Multicast => "a multicast address",
            Self::Reserved => "reserved",
            Self::Internal => "internal to the cluster",
        })
    }
}

/// From the IANA registries of special-purpose addresses, and from the clouds' documentation of metadata services.
const V4: &[(Ipv4Addr, u8, Reason)] = &[
    (Ipv4Addr::UNSPECIFIED, 8, Reason::Unspecified),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Reason::Loopback),
    (Ipv4Addr::new(169, 254, 169, 254), 32, Reason::Metadata),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Reason::LinkLocal),
    (Ipv4Addr::new(100, 100, 100, 200), 32, Reason::Metadata),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Reason::Reserved),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Reason::Multicast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Reason::Reserved),
];

const V6: &[(Ipv6Addr, u8, Reason)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, Reason::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, Reason::Loopback),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, Reason::Metadata),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Reason::Metadata),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Reason::LinkLocal),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Reason::Reserved),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Reason::Multicast),
];

/// The refused addresses and their exceptions.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    allow: Vec<Allowed>,
    deny: Vec<IpNet>,
    https_only: bool,
}

impl Policy {
    /// `allow` overrides `deny` and the classes of refused addresses.
    pub fn new(allow: Vec<Allowed>, deny: Vec<IpNet>, https_only: bool) -> Self {
        Self { allow, deny, https_only }
    }

    /// Checks a URL before its host name is resolved.
    pub fn url(&self, url: &Url) -> Result<(), Forbidden> {
        if self.https_only && url.scheme() != "https" {
            return Err(Forbidden::Plain);
        }
        let host = url.host_str().unwrap_or_default();
        // The URL parser has converted every notation that a resolver takes for an address, such as 0x7f.1.
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) => self.address(address),
            Err(_) => Ok(()),
        }
    }

    /// True when a host may be reached whatever its addresses.
    pub fn host_is_allowed(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.allow.iter().any(|allowed| match allowed {
            Allowed::Net(_) => false,
            Allowed::Host(name) => host == *name,
            Allowed::Subdomains(end) => host.ends_with(end.as_str()),
        })
    }

    /// Whether an exception names the host of a URL, or its address.
    pub fn names(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => self.allows(address),
            Err(_) => self.host_is_allowed(host),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|allowed| match allowed {
            Allowed::Net(net) => net.contains(&address) || net.contains(&meant(address)),
            Allowed::Host(_) | Allowed::Subdomains(_) => false,
        })
    }

    /// Checks an address before a connection. One that embeds an IPv4 address is checked as that.
    pub fn address(&self, address: IpAddr) -> Result<(), Forbidden> {
        if self.allows(address) {
            return Ok(());
        }
        let meant = meant(address);
        let denied = self.deny.iter().any(|net| net.contains(&address) || net.contains(&meant));
        match special(address).or_else(|| special(meant)).or(denied.then_some(Reason::Internal)) {
            None => Ok(()),
            Some(why) => Err(Forbidden::Address { address, why }),
        }
    }
}

/// The IPv4 address that an address embeds, or the address itself.
fn meant(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn special(address: IpAddr) -> Option<Reason> {
    match address {
        IpAddr::V4(v4) => {
            let within = |net: Ipv4Addr, length| Ipv4Net::new(net, length).is_ok_and(|net| net.contains(&v4));
            V4.iter().find(|(net, length, _)| within(*net, *length)).map(|(_, _, why)| *why)
        }
        IpAddr::V6(v6) => {
            let within = |net: Ipv6Addr, length| Ipv6Net::new(net, length).is_ok_and(|net| net.contains(&v6));
            V6.iter().find(|(net, length, _)| within(*net, *length)).map(|(_, _, why)| *why)
        }
    }
}

/// The IPv4 address that an IPv6 address embeds: mapped (RFC 4291), compatible, translated (RFC 6052, RFC 8215) or
/// 6to4 (RFC 3056).
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = v6.octets();
    let last = || Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]);
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] | [0x64, 0xff9b, 0 | 1, ..] => {
            Some(last())
        }
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => Some(last()),
        [0x2002, ..] => Some(Ipv4Addr::new(octets[2], octets[3], octets[4], octets[5])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        Policy::new(allow, deny.iter().map(|text| text.parse().unwrap()).collect(), false)
    }

    fn url(policy: &Policy, text: &str) -> Result<(), Forbidden> {
        policy.url(&Url::parse(text).unwrap())
    }

    #[test]
    fn special_addresses_are_refused_in_every_notation() {
        let policy = Policy::default();
        for (host, expected) in [
            ("127.0.0.1", Reason::Loopback),
            ("127.1", Reason::Loopback),
            ("0x7f000001", Reason::Loopback),
            ("2130706433", Reason::Loopback),
            ("0177.0.0.1", Reason::Loopback),
            ("[::1]", Reason::Loopback),
            ("[::ffff:127.0.0.1]", Reason::Loopback),
            ("[::ffff:7f00:1]", Reason::Loopback),
            ("[::127.0.0.1]", Reason::Loopback),
            ("[64:ff9b::127.0.0.1]", Reason::Loopback),
            ("[2002:7f00:1::]", Reason::Loopback),
            ("0.0.0.0", Reason::Unspecified),
            ("0.1.2.3", Reason::Unspecified),
            ("[::]", Reason::Unspecified),
            ("169.254.169.254", Reason::Metadata),
            ("[::ffff:169.254.169.254]", Reason::Metadata),
            ("[fd00:ec2::254]", Reason::Metadata),
            ("100.100.100.200", Reason::Metadata),
            ("169.254.1.1", Reason::LinkLocal),
            ("[fe80::1]", Reason::LinkLocal),
            ("[febf::1]", Reason::LinkLocal),
            ("224.0.0.1", Reason::Multicast),
            ("[ff02::1]", Reason::Multicast),
            ("255.255.255.255", Reason::Reserved),
            ("192.0.0.8", Reason::Reserved),
        ] {
            let found = url(&policy, &format!("http://{host}:8080/a"));
            assert!(
                matches!(found, Err(Forbidden::Address { why, .. }) if why == expected),
                "{host}: {found:?}"
            );
        }
        for host in
            ["10.1.2.3", "192.168.1.1", "203.0.113.9", "[fd12::1]", "[2001:db8::1]", "nfvo.example.com"]
        {
            assert_eq!(url(&policy, &format!("https://{host}/")), Ok(()), "{host}");
        }
    }

    #[test]
    fn deny_list_refuses_and_allow_list_overrides() {
        let policy =
            policy(&["127.0.0.0/8", "10.96.7.7", "*.example.com", "NFVO"], &["10.96.0.0/12", "fd10::/64"]);
        for (host, good) in [
            ("127.0.0.1", true),
            ("[::ffff:127.0.0.1]", true),
            ("[::1]", false),
            ("10.96.7.7", true),
            ("10.96.7.8", false),
            ("[::ffff:10.96.7.8]", false),
            ("[fd10::5]", false),
            ("10.112.0.1", true),
        ] {
            assert_eq!(url(&policy, &format!("http://{host}/")).is_ok(), good, "{host}");
        }
        for (host, good) in [
            ("a.example.com", true),
            ("A.B.EXAMPLE.com.", true),
            ("example.com", false),
            ("badexample.com", false),
            ("nfvo", true),
            ("nfvo.evil", false),
        ] {
            assert_eq!(policy.host_is_allowed(host), good, "{host}");
        }
        for text in ["", "10.0.0.0/33", "a b", "http://x", "*."] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }

    #[test]
    fn https_only_refuses_http() {
        let policy = Policy::new(Vec::new(), Vec::new(), true);
        assert_eq!(url(&policy, "http://nfvo/"), Err(Forbidden::Plain));
        assert_eq!(url(&policy, "https://nfvo/"), Ok(()));
    }
}
