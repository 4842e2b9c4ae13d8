//! Atoms, sets and maps: what a column holds (RFC 7047 section 5.1).

mod from;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;
use uuid::Uuid;

/// One row: column to value.
pub type Row = BTreeMap<String, Value>;

/// A value that has no parts: `<atom>`.
#[derive(Clone, Debug)]
pub enum Atom {
    /// A 64-bit signed integer.
    Integer(i64),
    /// A finite number.
    Real(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// Text.
    String(String),
    /// A row, by its UUID: `["uuid", "550e8400-…"]`.
    Uuid(Uuid),
    /// A row inserted by the same transaction, by the name given there: `["named-uuid", "row1"]`.
    Named(NamedUuid),
}

/// The name of a row that an `insert` creates, by which other operations of the same transaction refer to it.
/// It is an `<id>`: letters, digits and underscores, no digit first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NamedUuid(String);

impl NamedUuid {
    /// `None` when the name is not an `<id>`.
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        is_id(&name).then_some(Self(name))
    }

    /// The name `<prefix><number>` with a prefix that is an `<id>`; other characters become underscores.
    pub fn numbered(prefix: &str, number: usize) -> Self {
        let safe: String =
            prefix.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
        Self(format!("_{safe}{number}"))
    }

    /// The name, as in JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NamedUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `<id>` of RFC 7047 section 3.1.
pub(crate) fn is_id(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Atom {
    fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) => 0,
            Self::Real(_) => 1,
            Self::Boolean(_) => 2,
            Self::String(_) => 3,
            Self::Uuid(_) => 4,
            Self::Named(_) => 5,
        }
    }

    fn from_json(json: &Json) -> Result<Self, Malformed> {
        Ok(match json {
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Real(number.as_f64().ok_or_else(|| Malformed::new(json))?),
            },
            Json::Bool(boolean) => Self::Boolean(*boolean),
            Json::String(string) => Self::String(string.clone()),
            Json::Array(pair) => match pair.as_slice() {
                [Json::String(kind), Json::String(id)] if kind == "uuid" => {
                    Self::Uuid(id.parse().map_err(|_| Malformed::new(json))?)
                }
                [Json::String(kind), Json::String(id)] if kind == "named-uuid" => {
                    Self::Named(NamedUuid::new(id.as_str()).ok_or_else(|| Malformed::new(json))?)
                }
                _ => return Err(Malformed::new(json)),
            },
            Json::Null | Json::Object(_) => return Err(Malformed::new(json)),
        })
    }
}

// Reals are ordered by their bits, since a set needs a total order of its atoms.
impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Real(a), Self::Real(b)) => a.total_cmp(b),
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => a.cmp(b),
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            (Self::Named(a), Self::Named(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(integer) => serializer.serialize_i64(*integer),
            Self::Real(real) => serializer.serialize_f64(*real),
            Self::Boolean(boolean) => serializer.serialize_bool(*boolean),
            Self::String(string) => serializer.serialize_str(string),
            Self::Uuid(uuid) => ("uuid", uuid.to_string()).serialize(serializer),
            Self::Named(name) => ("named-uuid", name).serialize(serializer),
        }
    }
}

/// The value of a column: `<value>`.
///
/// OVSDB does not distinguish an atom from a set of that atom, and neither does this type: an optional column
/// is a set of none or one. The JSON of a set of one is the bare atom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Atoms, all of one type.
    Set(BTreeSet<Atom>),
    /// Pairs, in which a key occurs once.
    Map(BTreeMap<Atom, Atom>),
}

impl Value {
    /// `["set", []]`: an optional column without a value.
    pub fn empty() -> Self {
        Self::Set(BTreeSet::new())
    }

    /// A set of these atoms; duplicates count once.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Self {
        Self::Set(atoms.into_iter().map(Into::into).collect())
    }

    /// A map of these pairs; of a repeated key, the last one.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// True without atoms or pairs.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Set(set) => set.is_empty(),
            Self::Map(map) => map.is_empty(),
        }
    }

    /// The only atom, if it is one.
    pub fn atom(&self) -> Option<&Atom> {
        match self {
            Self::Set(set) if set.len() == 1 => set.first(),
            _ => None,
        }
    }

    /// The only atom, if it is an integer.
    pub fn as_integer(&self) -> Option<i64> {
        match self.atom()? {
            Atom::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    /// The only atom, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self.atom()? {
            Atom::String(string) => Some(string),
            _ => None,
        }
    }

    /// The only atom, if it is a row.
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self.atom()? {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        }
    }

    /// All atoms of a set; none of a map.
    pub fn atoms(&self) -> impl Iterator<Item = &Atom> {
        match self {
            Self::Set(set) => Some(set),
            Self::Map(_) => None,
        }
        .into_iter()
        .flatten()
    }

    /// The rows that a set refers to.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        self.atoms().filter_map(|atom| match atom {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        })
    }

    /// The integers of a set.
    pub fn integers(&self) -> impl Iterator<Item = i64> {
        self.atoms().filter_map(|atom| match atom {
            Atom::Integer(integer) => Some(*integer),
            _ => None,
        })
    }

    /// The value of a key in a map of texts.
    pub fn get(&self, key: &str) -> Option<&str> {
        let Self::Map(map) = self else { return None };
        match map.get(&Atom::from(key))? {
            Atom::String(string) => Some(string),
            _ => None,
        }
    }

    /// The pairs of a map of texts.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        match self {
            Self::Map(map) => Some(map),
            Self::Set(_) => None,
        }
        .into_iter()
        .flatten()
        .filter_map(|pair| match pair {
            (Atom::String(key), Atom::String(value)) => Some((key.as_str(), value.as_str())),
            _ => None,
        })
    }

    /// Parses `<value>`.
    pub fn from_json(json: &Json) -> Result<Self, Malformed> {
        if let Json::Array(pair) = json
            && let [Json::String(kind), Json::Array(items)] = pair.as_slice()
        {
            match kind.as_str() {
                "set" => {
                    return Ok(Self::Set(items.iter().map(Atom::from_json).collect::<Result<_, _>>()?));
                }
                "map" => {
                    let pair = |item: &Json| match item.as_array().map(Vec::as_slice) {
                        Some([key, value]) => Ok((Atom::from_json(key)?, Atom::from_json(value)?)),
                        _ => Err(Malformed::new(item)),
                    };
                    return Ok(Self::Map(items.iter().map(pair).collect::<Result<_, _>>()?));
                }
                _ => {}
            }
        }
        Ok(Self::from(Atom::from_json(json)?))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Set(set) => match self.atom() {
                Some(atom) => atom.serialize(serializer),
                None => ("set", set).serialize(serializer),
            },
            Self::Map(map) => ("map", map.iter().collect::<Vec<_>>()).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_json(&Json::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// JSON that breaks RFC 7047, or a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", if *is_too_large { "" } else { "not a value of OVSDB: " })]
pub struct Malformed {
    what: String,
    is_too_large: bool,
}

impl Malformed {
    /// An error that shows its first 200 characters.
    pub(crate) fn new(json: &Json) -> Self {
        Self { what: json.to_string().chars().take(200).collect(), is_too_large: false }
    }

    /// The rows of a replica are more than it may have.
    pub(crate) fn too_large(limit: usize) -> Self {
        let what = format!("the tables take more than {} MiB", limit >> 20);
        Self { what, is_too_large: true }
    }

    /// Whether it is well-formed, and too large.
    pub(crate) fn is_too_large(&self) -> bool {
        self.is_too_large
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn both_ways(value: &Value, json: &Json) {
        assert_eq!(&serde_json::to_value(value).unwrap(), json);
        assert_eq!(&Value::from_json(json).unwrap(), value);
    }

    #[test]
    fn values_serialize_per_rfc_7047() {
        let uuid: Uuid = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        both_ways(&Value::from(5), &json!(5));
        both_ways(&Value::from(0.5), &json!(0.5));
        both_ways(&Value::from(true), &json!(true));
        both_ways(&Value::from("a"), &json!("a"));
        both_ways(&Value::from(uuid), &json!(["uuid", "550e8400-e29b-41d4-a716-446655440000"]));
        both_ways(&Value::from(NamedUuid::new("row1").unwrap()), &json!(["named-uuid", "row1"]));
        both_ways(&Value::empty(), &json!(["set", []]));
        both_ways(&Value::set([2, 1]), &json!(["set", [1, 2]]));
        both_ways(&Value::map([("k", 1)]), &json!(["map", [["k", 1]]]));
        both_ways(&Value::map::<&str, &str>([]), &json!(["map", []]));
    }

    #[test]
    fn single_element_set_equals_its_atom() {
        assert_eq!(Value::from_json(&json!(["set", [7]])).unwrap(), Value::from(7));
        assert_eq!(serde_json::to_value(Value::set([7])).unwrap(), json!(7));
    }

    #[test]
    fn malformed_values_are_refused() {
        for bad in [
            json!(null),
            json!({}),
            json!([]),
            json!(["set"]),
            json!(["set", 1]),
            json!(["set", [null]]),
            json!(["set", [["set", []]]]),
            json!(["map", [[1]]]),
            json!(["map", [[1, 2, 3]]]),
            json!(["uuid", "no"]),
            json!(["named-uuid", "1no"]),
            json!(["other", "x"]),
        ] {
            assert!(Value::from_json(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn named_uuids_are_valid_ids() {
        assert!(NamedUuid::new("").is_none());
        assert!(NamedUuid::new("1a").is_none());
        assert!(NamedUuid::new("a-b").is_none());
        assert!(NamedUuid::new("_a1").is_some());
        assert!(NamedUuid::new(NamedUuid::numbered("br-ex", 3).as_str()).is_some());
    }

    fn atom() -> impl Strategy<Value = Atom> {
        prop_oneof![
            any::<i64>().prop_map(Atom::from),
            any::<bool>().prop_map(Atom::from),
            any::<String>().prop_map(Atom::from),
            any::<u128>().prop_map(|bits| Atom::from(Uuid::from_u128(bits))),
            any::<i32>().prop_map(|real| Atom::from(f64::from(real) / 8.0)),
        ]
    }

    proptest! {
        #[test]
        fn every_value_round_trips_through_json(
            set in proptest::collection::vec(atom(), 0..5),
            map in proptest::collection::vec((atom(), atom()), 0..5),
        ) {
            for value in [Value::set(set), Value::map(map)] {
                let text = serde_json::to_string(&value).unwrap();
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            }
        }
    }
}
