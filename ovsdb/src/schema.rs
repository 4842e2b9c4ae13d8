//! What tables and columns a database has (RFC 7047 section 3.2), as far as a client needs it.

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
    /// As `8.3.1`; ovsdb-server lets it be absent.
    #[serde(default)]
    pub version: Option<String>,
    /// By name.
    pub tables: BTreeMap<String, TableSchema>,
}

impl DatabaseSchema {
    /// The type of a column; `_uuid` and `_version` have one in each table.
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
    /// Rows live without a reference to them.
    #[serde(default)]
    pub is_root: bool,
    /// How many rows there may be; no limit when absent.
    #[serde(default)]
    pub max_rows: Option<u64>,
    /// Sets of columns whose values are unique.
    #[serde(default)]
    pub indexes: Vec<Vec<String>>,
}

/// `<column-schema>`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ColumnSchema {
    /// What it holds.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// It is lost when the server ends.
    #[serde(default)]
    pub ephemeral: bool,
    /// It may change after the row's insertion.
    #[serde(default = "yes")]
    pub mutable: bool,
}

fn yes() -> bool {
    true
}

/// `<type>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// Of atoms, or of a map's keys.
    pub key: BaseType,
    /// Of a map's values; not a map when absent.
    pub value: Option<BaseType>,
    /// 0 or 1.
    pub min: u64,
    /// `u64::MAX` for `"unlimited"`.
    pub max: u64,
}

impl ColumnType {
    const UUID: Self =
        Self { key: BaseType { atom: AtomType::Uuid, ref_table: None }, value: None, min: 1, max: 1 };

    /// What the column has in a row that was inserted without it.
    pub fn default_value(&self) -> Value {
        match (&self.value, self.min) {
            (None, 0) => Value::empty(),
            (None, _) => self.key.atom.default_atom().into(),
            (Some(_), 0) => Value::Map(BTreeMap::new()),
            (Some(value), _) => Value::map([(self.key.atom.default_atom(), value.atom.default_atom())]),
        }
    }

    /// More than one atom or pair fits in.
    pub(crate) fn is_composite(&self) -> bool {
        self.max > 1
    }

    /// Numbers of the type that the column has: JSON doesn't tell `1` from `1.0`.
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

/// `<base-type>`, without its bounds: the server checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseType {
    /// What it is.
    pub atom: AtomType,
    /// Of UUIDs: the table of the rows they name.
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
    fn types_have_defaults() {
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
    fn numbers_become_what_the_column_holds() {
        let real: ColumnType = serde_json::from_value(json!("real")).unwrap();
        assert_eq!(real.normalize(Value::from(1)), Value::from(1.0));
        let map: ColumnType =
            serde_json::from_value(json!({"key": "integer", "value": "real", "min": 0, "max": 9})).unwrap();
        assert_eq!(map.normalize(Value::map([(1, 2)])), Value::map([(1, 2.0)]));
        assert_eq!(map.normalize(Value::empty()), Value::map::<i64, f64>([]));
    }
}
