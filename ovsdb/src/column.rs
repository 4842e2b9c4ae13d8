//! Typed access to the columns of a row. A monitored row has only the selected columns.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::value::{Row, Value};

/// A string; `None`: no such column, or an empty optional one.
pub fn text(row: &Row, column: &str) -> Option<String> {
    row.get(column).and_then(Value::as_str).map(str::to_owned)
}

/// An integer; `None`: no such column, or an empty optional one.
pub fn integer(row: &Row, column: &str) -> Option<i64> {
    row.get(column).and_then(Value::as_integer)
}

/// The rows that a column refers to.
pub fn uuids(row: &Row, column: &str) -> BTreeSet<Uuid> {
    row.get(column).map(|value| value.uuids().collect()).unwrap_or_default()
}

/// A map of strings, such as `external_ids`.
pub fn map(row: &Row, column: &str) -> BTreeMap<String, String> {
    let Some(value) = row.get(column) else { return BTreeMap::new() };
    value.pairs().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
