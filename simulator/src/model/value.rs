//! Leaf values in canonical form.

use std::fmt;
use std::sync::Arc;

use crate::model::schema::Identity;
use crate::netconf::xml::Element;

/// The type of a leaf or leaf-list.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// `string` with a maximum length.
    Text {
        /// Maximum number of characters.
        max_length: usize,
    },
    /// An unsigned integer within inclusive bounds.
    Uint(u64, u64),
    /// `boolean`.
    Bool,
    /// `enumeration`.
    Enum(&'static [&'static str]),
    /// `identityref`: one of these.
    Identity(&'static [&'static Identity]),
    /// A VLAN id or a range `x..y` of them (openconfig-vlan-types `vlan-id` and `vlan-range`).
    VlanIdOrRange,
    /// A MAC address as OpenConfig writes it, `00:1b:44:11:3a:b7`.
    Mac,
    /// A MAC address as IEEE 802 writes it, `00-1B-44-11-3A-B7`.
    IeeeMac,
    /// `empty`.
    Empty,
    /// `string` with a length and a pattern.
    Restricted(&'static StringRule),
    /// VLAN ids and ranges in ascending order, `1,10-100,250` (ieee802-dot1q-types `vid-range-type`).
    VidRanges,
}

/// The restrictions of a string type.
#[derive(Debug)]
pub struct StringRule {
    /// Minimum and maximum number of characters.
    pub length: (usize, usize),
    /// Whether the text matches the pattern.
    pub matches: fn(&str) -> bool,
    /// A description of valid text, for error messages.
    pub expected: &'static str,
}

/// A value in canonical form. Numbers are ordered numerically.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number.
    Uint(u64),
    /// A range of VLAN ids, inclusive.
    Range(u16, u16),
    /// An enumeration's or boolean's name.
    Keyword(&'static str),
    /// Text.
    Text(Arc<str>),
    /// An identity.
    Identity(IdentityRef),
}

/// An identity, ordered by the names of its module and of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdentityRef(pub &'static Identity);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Uint(n) => write!(f, "{n}"),
            Value::Range(low, high) => write!(f, "{low}..{high}"),
            Value::Keyword(keyword) => f.write_str(keyword),
            Value::Text(text) => f.write_str(text),
            Value::Identity(IdentityRef(identity)) => {
                write!(f, "{}:{}", identity.module.prefix, identity.name)
            }
        }
    }
}

impl Value {
    /// The VLAN ids of a number or range; empty for other values.
    pub fn vlans(&self) -> std::ops::RangeInclusive<u16> {
        match self {
            Value::Uint(n) => u16::try_from(*n).map_or(EMPTY, |n| n..=n),
            Value::Range(low, high) => *low..=*high,
            Value::Keyword(_) | Value::Text(_) | Value::Identity(_) => EMPTY,
        }
    }

    /// Whether the value is or contains this VLAN id, as a number, a range or text such as `1,10-100` or `vlan-7`.
    pub fn names_vlan(&self, vlan: u16) -> bool {
        match self {
            Value::Text(text) => vid_ranges(text.strip_prefix("vlan-").unwrap_or(text))
                .is_some_and(|ranges| ranges.iter().any(|(low, high)| (*low..=*high).contains(&vlan))),
            other => other.vlans().contains(&vlan),
        }
    }

    /// The value of a number.
    pub fn number(&self) -> Option<u64> {
        match self {
            Value::Uint(n) => Some(*n),
            _ => None,
        }
    }

    /// The value of a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is the enumeration value, boolean or identity of this name.
    pub fn is(&self, name: &str) -> bool {
        match self {
            Value::Keyword(keyword) => *keyword == name,
            Value::Identity(IdentityRef(identity)) => identity.name == name,
            _ => false,
        }
    }
}

#[allow(clippy::reversed_empty_ranges, reason = "an empty range is what is meant")]
const EMPTY: std::ops::RangeInclusive<u16> = 1..=0;

impl Type {
    /// Parses the text of an element. The error describes valid text.
    pub fn parse(&self, element: &Element) -> Result<Value, String> {
        let text = element.text.trim();
        match self {
            Type::Text { max_length } => {
                let text = element.text.as_str();
                if text.chars().count() > *max_length {
                    return Err(format!("longer than {max_length} characters"));
                }
                Ok(Value::Text(Arc::from(text)))
            }
            Type::Uint(low, high) => number(text)
                .filter(|n| (low..=high).contains(&n))
                .map(Value::Uint)
                .ok_or_else(|| format!("not a number in {low}..{high}")),
            Type::Bool => match text {
                "true" => Ok(Value::Keyword("true")),
                "false" => Ok(Value::Keyword("false")),
                _ => Err("neither true nor false".to_owned()),
            },
            Type::Enum(names) => names
                .iter()
                .find(|name| **name == text)
                .map(|name| Value::Keyword(name))
                .ok_or_else(|| format!("not one of {}", names.join(", "))),
            Type::Identity(identities) => {
                let (prefix, name) = text.split_once(':').unwrap_or(("", text));
                let namespace =
                    element.namespace_of(prefix).ok_or_else(|| format!("prefix {prefix} is not declared"))?;
                identities
                    .iter()
                    .find(|identity| identity.name == name && identity.module.namespace == &*namespace)
                    .map(|identity| Value::Identity(IdentityRef(identity)))
                    .ok_or_else(|| "not an identity of the leaf's base".to_owned())
            }
            Type::VlanIdOrRange => {
                let bad = || "neither a VLAN id in 1..4094 nor a range x..y of them".to_owned();
                let id = |text| {
                    number(text).and_then(|n| u16::try_from(n).ok()).filter(|n| (1..=4094).contains(n))
                };
                match text.split_once("..") {
                    None => id(text).map(|n| Value::Uint(u64::from(n))).ok_or_else(bad),
                    Some((low, high)) => match (id(low), id(high)) {
                        (Some(low), Some(high)) if low <= high => Ok(Value::Range(low, high)),
                        _ => Err(bad()),
                    },
                }
            }
            Type::Mac if is_mac(text, ':') => Ok(Value::Text(Arc::from(text.to_lowercase()))),
            Type::IeeeMac if is_mac(text, '-') => Ok(Value::Text(Arc::from(text.to_uppercase()))),
            Type::Mac | Type::IeeeMac => Err("not a MAC address".to_owned()),
            Type::Empty if text.is_empty() => Ok(Value::Keyword("")),
            Type::Empty => Err("this leaf has no value".to_owned()),
            Type::Restricted(name) => {
                let text = element.text.as_str();
                let (min_length, max_length) = name.length;
                if !(min_length..=max_length).contains(&text.chars().count()) {
                    Err(format!("not of {min_length} to {max_length} characters"))
                } else if (name.matches)(text) {
                    Ok(Value::Text(Arc::from(text)))
                } else {
                    Err(format!("not {}", name.expected))
                }
            }
            Type::VidRanges => match vid_ranges(text) {
                Some(ranges) if ranges.windows(2).all(|pair| pair[0].1 < pair[1].0) => {
                    Ok(Value::Text(Arc::from(text)))
                }
                _ => Err("no VLAN ids and ranges of them in ascending order such as 1,10-100".to_owned()),
            },
        }
    }
}

fn is_mac(text: &str, separator: char) -> bool {
    let octets: Vec<_> = text.split(separator).collect();
    octets.len() == 6 && octets.iter().all(|o| o.len() == 2 && o.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Parses `1,10-100,250` into inclusive ranges. Returns `None` for ids outside 1..4094 and reversed ranges.
pub fn vid_ranges(text: &str) -> Option<Vec<(u16, u16)>> {
    let id = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        plain.then(|| text.parse::<u16>().ok()).flatten().filter(|n| *n <= 4094)
    };
    text.split(',')
        .map(|part| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high) = (id(low)?, id(high)?);
            (low <= high).then_some((low, high))
        })
        .collect()
}

/// Parses an unsigned decimal number; RFC 7950 allows a sign `+` and leading zeros.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}
