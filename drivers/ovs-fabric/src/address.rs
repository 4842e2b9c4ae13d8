//! Device addresses in the syntax of ovs-vsctl(8): `unix:/path`, `tcp:host:port`, `ssl:host:port`.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The longest path of a unix socket, in bytes (unix(7), `sun_path` without its end).
const MAX_PATH_BYTES: usize = 107;

/// The address of a device's database server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket with an absolute path.
    Unix(PathBuf),
    /// Plain TCP.
    Tcp(HostPort),
    /// TLS over TCP; the server's certificate must be for this host.
    Tls(HostPort),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address, without brackets.
    pub host: String,
    /// 1 to 65535, usually 6640.
    pub port: u16,
}

/// Text that is no address. A retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Address {text:?} of the FabricDevice {problem}; an Open vSwitch is reached at unix:/path, tcp:host:port or \
     ssl:host:port, such as tcp:192.0.2.1:6640 or ssl:[2001:db8::1]:6640"
)]
pub struct BadAddress {
    text: String,
    problem: &'static str,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = |problem| BadAddress { text: text.to_owned(), problem };
        match text.split_once(':') {
            Some(("unix", path)) if !path.starts_with('/') => Err(bad("has no absolute path")),
            Some(("unix", path)) if path.len() > MAX_PATH_BYTES => {
                Err(bad("has a path of more than 107 bytes, which no socket can have"))
            }
            Some(("unix", path)) if path.contains('\0') => Err(bad("has a zero byte in its path")),
            Some(("unix", path)) => Ok(Self::Unix(path.into())),
            Some(("tcp", rest)) => host_port(rest).map(Self::Tcp).map_err(bad),
            Some(("ssl", rest)) => host_port(rest).map(Self::Tls).map_err(bad),
            _ => Err(bad("starts with neither unix:, tcp: nor ssl:")),
        }
    }
}

fn host_port(text: &str) -> Result<HostPort, &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("has a bracket that is not closed")?;
            host.parse::<Ipv6Addr>().map_err(|_| "has no IPv6 address in its brackets")?;
            (host, rest.strip_prefix(':').ok_or("has no port")?)
        }
        None => text.rsplit_once(':').ok_or("has no port")?,
    };
    if !text.starts_with('[') {
        if host.contains(':') {
            return Err("has an IPv6 address without brackets");
        }
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = host.as_bytes();
        if !end(bytes.first()) || !end(bytes.last()) || !host.bytes().all(inner) {
            return Err("has no host name or address");
        }
    }
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(number) if digits && number > 0 => Ok(HostPort { host: host.to_owned(), port: number }),
        _ => Err("has a port that is no number from 1 to 65535"),
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(to) => write!(f, "tcp:{to}"),
            Self::Tls(to) => write!(f, "ssl:{to}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in [
            "unix:/run/openvswitch/db.sock",
            "tcp:192.0.2.1:6640",
            "tcp:[2001:db8::1]:1",
            "ssl:leaf1.example.com:65535",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_addresses_are_refused_with_a_reason() {
        let long = format!("unix:/{}", "a".repeat(107));
        for (text, problem) in [
            ("", "starts with neither"),
            ("leaf1:830", "starts with neither"),
            ("ptcp:6640", "starts with neither"),
            ("unix:run/db.sock", "no absolute path"),
            ("unix:", "no absolute path"),
            (long.as_str(), "more than 107 bytes"),
            ("tcp:192.0.2.1", "no port"),
            ("tcp::6640", "no host name"),
            ("tcp:a b:6640", "no host name"),
            ("tcp:-a:6640", "no host name"),
            ("tcp:a:0", "no number from 1 to 65535"),
            ("tcp:a:+1", "no number from 1 to 65535"),
            ("ssl:a:70000", "no number from 1 to 65535"),
            ("ssl:a:", "no number from 1 to 65535"),
            ("ssl:[::1]", "no port"),
            ("ssl:[::1:6640", "not closed"),
            ("ssl:[a]:6640", "no IPv6 address"),
            ("tcp:2001:db8::1:6640", "without brackets"),
        ] {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(
                message.contains(problem) && message.contains("tcp:192.0.2.1:6640"),
                "{text:?}: {message}"
            );
        }
    }
}
