//! The operations of a transaction (RFC 7047 section 5.2).

use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::value::{Atom, NamedUuid, Row, Value};

/// Selects the rows for which this holds (`<condition>`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    column: String,
    function: Function,
    value: Value,
}

/// The comparison of a [`Condition`] (`<function>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Function {
    /// `<`, of numbers.
    #[serde(rename = "<")]
    Less,
    /// `<=`, of numbers.
    #[serde(rename = "<=")]
    LessOrEqual,
    /// `==`: the whole value.
    #[serde(rename = "==")]
    Equal,
    /// `!=`: the whole value.
    #[serde(rename = "!=")]
    NotEqual,
    /// `>=`, of numbers.
    #[serde(rename = ">=")]
    GreaterOrEqual,
    /// `>`, of numbers.
    #[serde(rename = ">")]
    Greater,
    /// `includes`: all atoms or pairs of the argument are there.
    Includes,
    /// `excludes`: none of them is.
    Excludes,
}

impl Condition {
    /// `column function value`.
    pub fn new(column: impl Into<String>, function: Function, value: impl Into<Value>) -> Self {
        Self { column: column.into(), function, value: value.into() }
    }

    /// The column equals this value.
    pub fn equal(column: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// The column contains these atoms or pairs.
    pub fn includes(column: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(column, Function::Includes, value)
    }

    /// The row with this UUID.
    pub fn uuid(row: Uuid) -> Self {
        Self::equal("_uuid", row)
    }

    /// A row that the same transaction inserts.
    pub fn named(row: &NamedUuid) -> Self {
        Self::equal("_uuid", Atom::from(row))
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.column, self.function, &self.value).serialize(serializer)
    }
}

/// A relative change of a column (`<mutation>`). It can't undo a concurrent change of another client.
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
        // `insert` and `delete` accept the bare atom for a set of one.
        (&self.column, self.mutator, &self.value).serialize(serializer)
    }
}

/// The condition of an [`Operation::Wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Until {
    /// The rows equal the given ones.
    #[serde(rename = "==")]
    Equal,
    /// The rows differ from the given ones.
    #[serde(rename = "!=")]
    NotEqual,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Inserts a row; omitted columns get the default value of their type.
    Insert {
        /// The table.
        table: String,
        /// The row's columns.
        row: Row,
        /// The name by which other operations of the transaction refer to it.
        #[serde(rename = "uuid-name", skip_serializing_if = "Option::is_none")]
        name: Option<NamedUuid>,
    },
    /// Reads rows.
    Select {
        /// The table.
        table: String,
        /// The selected rows; all without a condition.
        #[serde(rename = "where")]
        conditions: Vec<Condition>,
        /// The columns; absent: all, with `_uuid` and `_version`.
        #[serde(skip_serializing_if = "Option::is_none")]
        columns: Option<Vec<String>>,
    },
    /// Sets columns of rows.
    Update {
        /// The table.
        table: String,
        /// The selected rows.
        #[serde(rename = "where")]
        conditions: Vec<Condition>,
        /// The new values.
        row: Row,
    },
    /// Mutates columns of rows relative to their values.
    Mutate {
        /// The table.
        table: String,
        /// The selected rows.
        #[serde(rename = "where")]
        conditions: Vec<Condition>,
        /// The mutations, in this order.
        mutations: Vec<Mutation>,
    },
    /// Deletes rows.
    Delete {
        /// The table.
        table: String,
        /// The selected rows.
        #[serde(rename = "where")]
        conditions: Vec<Condition>,
    },
    /// Waits until rows equal, or differ from, the given ones. With a timeout of 0 it fails at once
    /// otherwise, which makes a transaction conditional on the state that it was planned for.
    Wait {
        /// The table.
        table: String,
        /// The selected rows.
        #[serde(rename = "where")]
        conditions: Vec<Condition>,
        /// The compared columns.
        columns: Vec<String>,
        /// Whether the rows are to be equal or different.
        until: Until,
        /// The rows to compare with.
        rows: Vec<Row>,
        /// Milliseconds; absent: no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// Text for the database's log.
    Comment(#[serde(serialize_with = "comment")] String),
    /// Fails, so that the whole transaction is rolled back.
    Abort,
    /// Requests that the transaction is on disk before the reply.
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

    /// The operation's name and table, such as `mutate of Bridge`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Insert { table, .. } => format!("insert into {table}"),
            Self::Select { table, .. } => format!("select from {table}"),
            Self::Update { table, .. } => format!("update of {table}"),
            Self::Mutate { table, .. } => format!("mutate of {table}"),
            Self::Delete { table, .. } => format!("delete from {table}"),
            Self::Wait { table, .. } => format!("wait for {table}"),
            Self::Comment(_) => "comment".into(),
            Self::Abort => "abort".into(),
            Self::Commit { .. } => "commit".into(),
        }
    }
}

/// The field of a `comment`.
fn comment<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([("comment", text)])
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
    fn operations_serialize_per_rfc_7047() {
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
            (Operation::Abort, json!({"op": "abort"})),
            (Operation::Commit { durable: true }, json!({"op": "commit", "durable": true})),
        ];
        for (operation, written) in cases {
            assert_eq!(serde_json::to_value(&operation).unwrap(), written);
        }
    }
}
