//! One element of an annotation in JSON, read as Go's `encoding/json` reads `NetworkSelectionElement` of Multus: keys
//! count in any case, of equal keys the last one counts, and null changes nothing.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The namespace and the name of an element. Either may be empty.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub namespace: String,
    pub name: String,
}

/// Why nothing was read.
#[derive(Debug)]
pub(super) enum Unread {
    /// Multus refuses it.
    Refused,
    /// Go may read what `serde_json` does not, such as half of a surrogate pair.
    Unclear(String),
}

/// The fields of a JSON object in their order.
#[derive(Debug)]
pub(super) struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Unread {
    /// The verdict on text that was not read. A value of another type is no matter of syntax.
    pub fn of(error: &serde_json::Error) -> Self {
        if error.is_data() { Self::Refused } else { Self::Unclear(error.to_string()) }
    }
}

impl Element {
    pub fn read(fields: &Fields<'_>) -> Result<Self, Unread> {
        let mut element = Self::default();
        let (mut mac, mut guid) = (String::new(), String::new());
        let mut ips: Option<Vec<Option<String>>> = None;
        for (key, value) in &fields.0 {
            match folded(key).as_str() {
                "name" => set(&mut element.name, value)?,
                "namespace" => set(&mut element.namespace, value)?,
                "mac" => set(&mut mac, value)?,
                "infiniband-guid" => set(&mut guid, value)?,
                "ips" if ips.is_some() => {
                    return Err(Unread::Unclear("an element has two lists of ips".to_owned()));
                }
                "ips" => ips = parse(value)?,
                "interface" | "interfacerequest" | "deviceid" => drop(parse::<Option<String>>(value)?),
                "cni-args" => drop(parse::<Option<Fields<'_>>>(value)?),
                "default-route" => check_routes(value)?,
                "portmappings" => {
                    let mappings: Option<Vec<Option<Fields<'_>>>> = parse(value)?;
                    for fields in mappings.iter().flatten().flatten() {
                        check(fields, &["hostport", "containerport"], &["protocol", "hostip"])?;
                    }
                }
                "bandwidth" => {
                    let numbers = ["ingressrate", "ingressburst", "egressrate", "egressburst"];
                    if let Some(fields) = parse(value)? {
                        check(&fields, &numbers, &[])?;
                    }
                }
                _ => {}
            }
        }
        let has_address = |ip: &Option<String>| ip.as_deref().is_some_and(is_address_or_network);
        let is_taken = [mac, guid].iter().all(|mac| mac.is_empty() || is_mac(mac))
            && ips.iter().flatten().all(has_address);
        if is_taken { Ok(element) } else { Err(Unread::Refused) }
    }
}

/// A key as Go compares it: in lower case. Of the letters outside of ASCII that fold to one of ASCII, the keys can have
/// the long s alone.
fn folded(key: &str) -> String {
    key.chars().map(|c| if c == 'ſ' { 's' } else { c.to_ascii_lowercase() }).collect()
}

fn parse<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Result<T, Unread> {
    serde_json::from_str(value.get()).map_err(|error| Unread::of(&error))
}

/// Null changes nothing.
fn set(text: &mut String, value: &RawValue) -> Result<(), Unread> {
    if let Some(new) = parse(value)? {
        *text = new;
    }
    Ok(())
}

/// Checks the types of an object's fields.
fn check(fields: &Fields<'_>, numbers: &[&str], texts: &[&str]) -> Result<(), Unread> {
    for (key, value) in &fields.0 {
        let key = folded(key);
        if numbers.contains(&key.as_str()) {
            // Go takes -0 for a number, and serde_json for a fraction.
            if value.get() != "-0" {
                parse::<Option<i64>>(value)?;
            }
        } else if texts.contains(&key.as_str()) {
            parse::<Option<String>>(value)?;
        }
    }
    Ok(())
}

fn check_routes(value: &RawValue) -> Result<(), Unread> {
    let routes: Option<Vec<Option<String>>> = parse(value)?;
    let is_address = |text: &String| text.is_empty() || text.parse::<IpAddr>().is_ok();
    if routes.iter().flatten().flatten().all(is_address) { Ok(()) } else { Err(Unread::Refused) }
}

/// An address, or one with the length of its network's prefix.
fn is_address_or_network(text: &str) -> bool {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, length)| (a, Some(length)));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let fits = |length: &str| {
        length.bytes().all(|byte| byte.is_ascii_digit()) && length.parse::<u32>().is_ok_and(|n| n <= bits)
    };
    length.is_none_or(fits)
}

/// An EUI-48, an EUI-64 or an InfiniBand address in one of its notations.
fn is_mac(text: &str) -> bool {
    let is_of = |separator: char, digits: usize, counts: [usize; 3]| {
        let is_group =
            |group: &str| group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit());
        counts.contains(&text.split(separator).count()) && text.split(separator).all(is_group)
    };
    is_of(':', 2, [6, 8, 20]) || is_of('-', 2, [6, 8, 20]) || is_of('.', 4, [3, 4, 10])
}
