//! Tables and columns of a database (RFC 7047 section 3.2), as far as a client needs them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use uuid::Uuid;

use crate::value::{Atom, Value};

/// `<database-schema>`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DatabaseSchema {
    /// The database's name, as in `Open_vSwitch`.
    pub name: String,
    /// Such as `8.3.1`; ovsdb-server may omit it.
    pub version: Option<String>,
    /// By name.
    pub tables: BTreeMap<String, TableSchema>,
}

impl DatabaseSchema {
    /// The type of a column, including `_uuid` and `_version` of each table.
    pub fn column(&self, table: &str, column: &str) -> Option<&ColumnType> {
        let table = self.tables.get(table)?;
        match column {
            "_uuid" | "_version" => Some(&ColumnType::UUID),
            _ => table.columns.get(column).map(|column| &column.column_type),
        }
    }
}

/// `<table-schema>`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableSchema {
    /// By name.
    pub columns: BTreeMap<String, ColumnSchema>,
    /// Rows exist without a reference to them.
    #[serde(default)]
    pub is_root: bool,
    /// Maximum rows; absent: no limit.
    pub max_rows: Option<u64>,
    /// Sets of columns with unique values.
    #[serde(default)]
    pub indexes: Vec<Vec<String>>,
}

/// `<column-schema>`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ColumnSchema {
    /// The column's type.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// The value is lost when the server ends.
    #[serde(default)]
    pub ephemeral: bool,
    /// The value may change after the insertion of the row.
    #[serde(default = "yes")]
    pub mutable: bool,
}

fn yes() -> bool {
    true
}

/// `<type>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// The type of its atoms, or of a map's keys.
    pub key: BaseType,
    /// The type of a map's values; absent: not a map.
    pub value: Option<BaseType>,
    /// 0 or 1.
    pub min: u64,
    /// `u64::MAX` for `"unlimited"`.
    pub max: u64,
}

impl ColumnType {
    const UUID: Self =
        Self { key: BaseType { atom: AtomType::Uuid, ref_table: None }, value: None, min: 1, max: 1 };

    /// The column's value in a row that was inserted without it.
    pub fn default_value(&self) -> Value {
        match (&self.value, self.min) {
            (None, 0) => Value::empty(),
            (None, _) => self.key.atom.default_atom().into(),
            (Some(_), 0) => Value::Map(BTreeMap::new()),
            (Some(value), _) => Value::map([(self.key.atom.default_atom(), value.atom.default_atom())]),
        }
    }

    /// True when it can hold more than one atom or pair.
    pub(crate) fn is_composite(&self) -> bool {
        self.max > 1
    }

    /// Converts numbers to the column's type: JSON does not distinguish `1` from `1.0`.
    pub(crate) fn normalize(&self, value: Value) -> Value {
        match value {
            Value::Set(set) if self.value.is_some() && set.is_empty() => Value::Map(BTreeMap::new()),
            Value::Set(set) if self.key.atom == AtomType::Real => {
                Value::Set(set.into_iter().map(real).collect())
            }
            Value::Map(map) => {
                let is_real = |base: &BaseType| base.atom == AtomType::Real;
                let (keys, values) = (is_real(&self.key), self.value.as_ref().is_some_and(is_real));
                if !keys && !values {
                    return Value::Map(map);
                }
                let convert = |atom, yes: bool| if yes { real(atom) } else { atom };
                Value::Map(map.into_iter().map(|(k, v)| (convert(k, keys), convert(v, values))).collect())
            }
            other @ Value::Set(_) => other,
        }
    }
}

fn real(atom: Atom) -> Atom {
    match atom {
        #[expect(clippy::cast_precision_loss, reason = "a real has that precision in the database as well")]
        Atom::Integer(integer) => Atom::Real(integer as f64),
        other => other,
    }
}

/// `<base-type>` without its bounds, which the server checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseType {
    /// The atomic type.
    pub atom: AtomType,
    /// For UUIDs: the table of the referenced rows.
    pub ref_table: Option<String>,
}

/// `<atomic-type>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtomType {
    /// 64 bits, signed.
    Integer,
    /// A finite number.
    Real,
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// A row.
    Uuid,
}

impl AtomType {
    fn default_atom(self) -> Atom {
        match self {
            Self::Integer => Atom::Integer(0),
            Self::Real => Atom::Real(0.0),
            Self::Boolean => Atom::Boolean(false),
            Self::String => Atom::String(String::new()),
            Self::Uuid => Atom::Uuid(Uuid::nil()),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BaseJson {
    Short(AtomType),
    Long {
        #[serde(rename = "type")]
        atom: AtomType,
        #[serde(rename = "refTable")]
        ref_table: Option<String>,
    },
}

impl From<BaseJson> for BaseType {
    fn from(json: BaseJson) -> Self {
        match json {
            BaseJson::Short(atom) => Self { atom, ref_table: None },
            BaseJson::Long { atom, ref_table } => Self { atom, ref_table },
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TypeJson {
    Short(AtomType),
    Long { key: BaseJson, value: Option<BaseJson>, min: Option<u64>, max: Option<MaxJson> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MaxJson {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for ColumnType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match TypeJson::deserialize(deserializer)? {
            TypeJson::Short(atom) => {
                Self { key: BaseType { atom, ref_table: None }, value: None, min: 1, max: 1 }
            }
            TypeJson::Long { key, value, min, max } => {
                let max = match max {
                    None => 1,
                    Some(MaxJson::Number(max)) => max,
                    Some(MaxJson::Text(text)) if text == "unlimited" => u64::MAX,
                    Some(MaxJson::Text(text)) => return Err(D::Error::custom(format!("max {text:?}"))),
                };
                Self { key: key.into(), value: value.map(Into::into), min: min.unwrap_or(1), max }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn column_types_have_default_values() {
        let cases = [
            (json!("integer"), Value::from(0)),
            (json!({"key": "string"}), Value::from("")),
            (json!({"key": {"type": "uuid", "refTable": "T"}, "min": 0, "max": "unlimited"}), Value::empty()),
            (json!({"key": "real"}), Value::from(0.0)),
            (json!({"key": "string", "value": "integer", "min": 0, "max": 5}), Value::map::<&str, i64>([])),
            (json!({"key": "boolean", "value": "integer"}), Value::map([(false, 0)])),
        ];
        for (json, value) in cases {
            let column: ColumnType = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(column.default_value(), value, "{json}");
        }
        assert!(serde_json::from_value::<ColumnType>(json!({"key": "string", "max": "many"})).is_err());
    }

    #[test]
    fn integers_normalize_to_the_column_type() {
        let real: ColumnType = serde_json::from_value(json!("real")).unwrap();
        assert_eq!(real.normalize(Value::from(1)), Value::from(1.0));
        let map: ColumnType =
            serde_json::from_value(json!({"key": "integer", "value": "real", "min": 0, "max": 9})).unwrap();
        assert_eq!(map.normalize(Value::map([(1, 2)])), Value::map([(1, 2.0)]));
        assert_eq!(map.normalize(Value::empty()), Value::map::<i64, f64>([]));
    }
}
