//! The operations of a transaction (RFC 7047 section 5.2).

use serde::ser::{Serialize, SerializeMap, SerializeTuple, Serializer};
use uuid::Uuid;

use crate::value::{Atom, NamedUuid, Row, Value};

/// Which rows: all for which this holds (`<condition>`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    column: String,
    function: Function,
    value: Value,
}

/// How a [`Condition`] compares (`<function>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `<`, of numbers.
    Less,
    /// `<=`, of numbers.
    LessOrEqual,
    /// `==`: the whole value.
    Equal,
    /// `!=`: the whole value.
    NotEqual,
    /// `>=`, of numbers.
    GreaterOrEqual,
    /// `>`, of numbers.
    Greater,
    /// `includes`: all atoms or pairs of the argument are there.
    Includes,
    /// `excludes`: none of them is.
    Excludes,
}

impl Function {
    fn as_str(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::GreaterOrEqual => ">=",
            Self::Greater => ">",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
        }
    }
}

impl Condition {
    /// `column function value`.
    pub fn new(column: impl Into<String>, function: Function, value: impl Into<Value>) -> Self {
        Self { column: column.into(), function, value: value.into() }
    }

    /// The column has exactly this value.
    pub fn equal(column: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// The column has these atoms or pairs, and perhaps others.
    pub fn includes(column: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(column, Function::Includes, value)
    }

    /// This row.
    pub fn uuid(row: Uuid) -> Self {
        Self::equal("_uuid", row)
    }

    /// This row, inserted by the same transaction.
    pub fn named(row: &NamedUuid) -> Self {
        Self::equal("_uuid", Atom::from(row))
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        triple(serializer, &self.column, self.function.as_str(), &self.value)
    }
}

/// A change of a column that starts from what is there (`<mutation>`), so that it can't undo a change that
/// somebody else made in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    column: String,
    mutator: &'static str,
    value: Value,
}

impl Mutation {
    /// Adds a number to each number.
    pub fn add(column: impl Into<String>, number: impl Into<Atom>) -> Self {
        Self::new(column, "+=", number.into())
    }

    /// Subtracts a number from each number.
    pub fn subtract(column: impl Into<String>, number: impl Into<Atom>) -> Self {
        Self::new(column, "-=", number.into())
    }

    /// Multiplies each number.
    pub fn multiply(column: impl Into<String>, number: impl Into<Atom>) -> Self {
        Self::new(column, "*=", number.into())
    }

    /// Divides each number.
    pub fn divide(column: impl Into<String>, number: impl Into<Atom>) -> Self {
        Self::new(column, "/=", number.into())
    }

    /// The remainder of each integer.
    pub fn remainder(column: impl Into<String>, number: impl Into<Atom>) -> Self {
        Self::new(column, "%=", number.into())
    }

    /// Adds atoms to a set, or pairs to a map. A pair whose key is there already is **not** changed: delete
    /// the key first.
    pub fn insert(column: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(column, "insert", value)
    }

    /// Removes atoms from a set; from a map, these pairs, or with a set, the pairs of these keys.
    pub fn delete(column: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(column, "delete", value)
    }

    fn new(column: impl Into<String>, mutator: &'static str, value: impl Into<Value>) -> Self {
        Self { column: column.into(), mutator, value: value.into() }
    }
}

impl Serialize for Mutation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        triple(serializer, &self.column, self.mutator, &self.value)
    }
}

fn triple<S: Serializer>(serializer: S, a: &str, b: &str, c: &Value) -> Result<S::Ok, S::Error> {
    let mut triple = serializer.serialize_tuple(3)?;
    triple.serialize_element(a)?;
    triple.serialize_element(b)?;
    // The argument of `includes`, `insert` and `delete` may be a set of one: its atom is the same.
    triple.serialize_element(c)?;
    triple.end()
}

/// What a [`Operation::Wait`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The rows are these.
    Equal,
    /// The rows are not these.
    NotEqual,
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new row; columns that are not given have their type's default.
    Insert {
        /// Where.
        table: String,
        /// What is in it.
        row: Row,
        /// What other operations of the transaction call it.
        name: Option<NamedUuid>,
    },
    /// Reads rows.
    Select {
        /// Where.
        table: String,
        /// Which rows; all when there is no condition.
        conditions: Vec<Condition>,
        /// Which columns; all, and `_uuid` and `_version`, when absent.
        columns: Option<Vec<String>>,
    },
    /// Sets columns of rows.
    Update {
        /// Where.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// The new values.
        row: Row,
    },
    /// Changes columns of rows from what they are.
    Mutate {
        /// Where.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// In this order.
        mutations: Vec<Mutation>,
    },
    /// Removes rows.
    Delete {
        /// Where.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
    },
    /// Goes on when rows are, or are not, these; with a time-out of 0 it fails at once otherwise, which makes a
    /// transaction conditional on what its planner saw.
    Wait {
        /// Where.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// What is compared.
        columns: Vec<String>,
        /// How.
        until: Until,
        /// With what.
        rows: Vec<Row>,
        /// Milliseconds; without end when absent.
        timeout: Option<u64>,
    },
    /// Text for the database's log.
    Comment(String),
    /// Fails unless the client holds this lock.
    Assert {
        /// The lock's name.
        lock: String,
    },
    /// Fails: nothing of the transaction happens.
    Abort,
    /// Asks that the transaction is on disk before the reply comes.
    Commit {
        /// On disk, not only in memory.
        durable: bool,
    },
}

impl Operation {
    /// An `insert` of these columns.
    pub fn insert(table: impl Into<String>, row: Row) -> Self {
        Self::Insert { table: table.into(), row, name: None }
    }

    /// An `insert` that other operations refer to.
    pub fn insert_named(table: impl Into<String>, row: Row, name: NamedUuid) -> Self {
        Self::Insert { table: table.into(), row, name: Some(name) }
    }

    /// A `select` of these columns.
    pub fn select<C: Into<String>>(
        table: impl Into<String>,
        conditions: impl Into<Vec<Condition>>,
        columns: impl IntoIterator<Item = C>,
    ) -> Self {
        let columns = Some(columns.into_iter().map(Into::into).collect());
        Self::Select { table: table.into(), conditions: conditions.into(), columns }
    }

    /// An `update`.
    pub fn update(table: impl Into<String>, conditions: impl Into<Vec<Condition>>, row: Row) -> Self {
        Self::Update { table: table.into(), conditions: conditions.into(), row }
    }

    /// A `mutate`.
    pub fn mutate(
        table: impl Into<String>,
        conditions: impl Into<Vec<Condition>>,
        mutations: impl Into<Vec<Mutation>>,
    ) -> Self {
        Self::Mutate { table: table.into(), conditions: conditions.into(), mutations: mutations.into() }
    }

    /// A `delete`.
    pub fn delete(table: impl Into<String>, conditions: impl Into<Vec<Condition>>) -> Self {
        Self::Delete { table: table.into(), conditions: conditions.into() }
    }

    /// Fails the transaction at once unless this row still has these values.
    pub fn expect(table: impl Into<String>, row: Uuid, values: Row) -> Self {
        Self::Wait {
            table: table.into(),
            conditions: vec![Condition::uuid(row)],
            columns: values.keys().cloned().collect(),
            until: Until::Equal,
            rows: vec![values],
            timeout: Some(0),
        }
    }

    /// Fails the transaction at once when a row of these conditions exists.
    pub fn expect_none(table: impl Into<String>, conditions: impl Into<Vec<Condition>>) -> Self {
        Self::Wait {
            table: table.into(),
            conditions: conditions.into(),
            columns: vec!["_uuid".into()],
            until: Until::Equal,
            rows: vec![],
            timeout: Some(0),
        }
    }

    /// Its name and table, as in `mutate of Bridge`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Insert { table, .. } => format!("insert into {table}"),
            Self::Select { table, .. } => format!("select from {table}"),
            Self::Update { table, .. } => format!("update of {table}"),
            Self::Mutate { table, .. } => format!("mutate of {table}"),
            Self::Delete { table, .. } => format!("delete from {table}"),
            Self::Wait { table, .. } => format!("wait for {table}"),
            Self::Comment(_) => "comment".into(),
            Self::Assert { lock } => format!("assert of lock {lock:?}"),
            Self::Abort => "abort".into(),
            Self::Commit { .. } => "commit".into(),
        }
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Insert { table, row, name } => {
                map.serialize_entry("op", "insert")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("row", row)?;
                if let Some(name) = name {
                    map.serialize_entry("uuid-name", name.as_str())?;
                }
            }
            Self::Select { table, conditions, columns } => {
                map.serialize_entry("op", "select")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
                if let Some(columns) = columns {
                    map.serialize_entry("columns", columns)?;
                }
            }
            Self::Update { table, conditions, row } => {
                map.serialize_entry("op", "update")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("row", row)?;
            }
            Self::Mutate { table, conditions, mutations } => {
                map.serialize_entry("op", "mutate")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("mutations", mutations)?;
            }
            Self::Delete { table, conditions } => {
                map.serialize_entry("op", "delete")?;
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
            }
            Self::Wait { table, conditions, columns, until, rows, timeout } => {
                map.serialize_entry("op", "wait")?;
                if let Some(timeout) = timeout {
                    map.serialize_entry("timeout", timeout)?;
                }
                map.serialize_entry("table", table)?;
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("columns", columns)?;
                let until = match until {
                    Until::Equal => "==",
                    Until::NotEqual => "!=",
                };
                map.serialize_entry("until", until)?;
                map.serialize_entry("rows", rows)?;
            }
            Self::Comment(comment) => {
                map.serialize_entry("op", "comment")?;
                map.serialize_entry("comment", comment)?;
            }
            Self::Assert { lock } => {
                map.serialize_entry("op", "assert")?;
                map.serialize_entry("lock", lock)?;
            }
            Self::Abort => map.serialize_entry("op", "abort")?,
            Self::Commit { durable } => {
                map.serialize_entry("op", "commit")?;
                map.serialize_entry("durable", durable)?;
            }
        }
        map.end()
    }
}

/// A [`Row`] of `column: value` pairs.
///
/// ```
/// let row = eno_ovsdb::row([("name", "br0".into()), ("datapath_type", "netdev".into())]);
/// assert_eq!(row["name"].as_str(), Some("br0"));
/// ```
pub fn row<C: Into<String>>(columns: impl IntoIterator<Item = (C, Value)>) -> Row {
    columns.into_iter().map(|(column, value)| (column.into(), value)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_are_written_as_the_rfc_does() {
        let name = NamedUuid::new("p").unwrap();
        let uuid = Uuid::from_u128(1);
        let cases = [
            (
                Operation::insert_named("Port", row([("name", "p0".into())]), name.clone()),
                json!({"op": "insert", "table": "Port", "row": {"name": "p0"}, "uuid-name": "p"}),
            ),
            (
                Operation::select("Port", [Condition::equal("name", "p0")], ["_uuid"]),
                json!({"op": "select", "table": "Port", "where": [["name", "==", "p0"]], "columns": ["_uuid"]}),
            ),
            (
                Operation::update("Port", [Condition::named(&name)], row([("tag", Value::empty())])),
                json!({"op": "update", "table": "Port", "where": [["_uuid", "==", ["named-uuid", "p"]]],
                       "row": {"tag": ["set", []]}}),
            ),
            (
                Operation::mutate("Port", [], [Mutation::insert("trunks", Value::set([1, 2]))]),
                json!({"op": "mutate", "table": "Port", "where": [],
                       "mutations": [["trunks", "insert", ["set", [1, 2]]]]}),
            ),
            (
                Operation::delete("Port", [Condition::new("tag", Function::Less, 5)]),
                json!({"op": "delete", "table": "Port", "where": [["tag", "<", 5]]}),
            ),
            (
                Operation::expect("Port", uuid, row([("tag", 5.into())])),
                json!({"op": "wait", "timeout": 0, "table": "Port", "where": [["_uuid", "==", ["uuid", uuid.to_string()]]],
                       "columns": ["tag"], "until": "==", "rows": [{"tag": 5}]}),
            ),
            (Operation::Comment("hi".into()), json!({"op": "comment", "comment": "hi"})),
            (Operation::Assert { lock: "l".into() }, json!({"op": "assert", "lock": "l"})),
            (Operation::Abort, json!({"op": "abort"})),
            (Operation::Commit { durable: true }, json!({"op": "commit", "durable": true})),
        ];
        for (operation, written) in cases {
            assert_eq!(serde_json::to_value(&operation).unwrap(), written);
        }
    }
}
