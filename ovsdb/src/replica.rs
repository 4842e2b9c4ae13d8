//! A copy of selected tables and columns, updated by the server (RFC 7047 section 4.1.6, ovsdb-server(7)
//! sections 4.1.12 to 4.1.16).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;

use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use crate::memory::{ENTRY, MAP, Size, VALUE};
use crate::operation::Condition;
use crate::outcome::parse_row;
use crate::schema::{ColumnType, DatabaseSchema};
use crate::value::{Atom, Malformed, Row, Value};

/// The tables, columns and rows of a mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorRequest {
    tables: BTreeMap<String, MonitoredTable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MonitoredTable {
    columns: Vec<String>,
    conditions: Vec<Condition>,
}

impl MonitorRequest {
    /// A request without tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// These columns of all rows of a table.
    #[must_use]
    pub fn table<C: Into<String>>(
        self,
        table: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
    ) -> Self {
        self.rows(table, columns, [])
    }

    /// These columns of the rows of a table that match one of the conditions.
    #[must_use]
    pub fn rows<C: Into<String>>(
        mut self,
        table: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
        conditions: impl Into<Vec<Condition>>,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into).collect();
        self.tables.insert(table.into(), MonitoredTable { columns, conditions: conditions.into() });
        self
    }

    /// True with conditions, which plain `monitor` does not support.
    pub(crate) fn is_conditional(&self) -> bool {
        self.tables.values().any(|table| !table.conditions.is_empty())
    }

    /// `<monitor-cond-requests>`; without conditions also `<monitor-requests>`.
    pub(crate) fn to_json(&self) -> Json {
        let table = |table: &MonitoredTable| {
            let mut request = json!({ "columns": table.columns });
            if !table.conditions.is_empty() {
                request["where"] = json!(table.conditions);
            }
            json!([request])
        };
        Json::Object(self.tables.iter().map(|(name, request)| (name.clone(), table(request))).collect())
    }
}

/// The format of updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `<table-updates>`: old and new rows.
    Whole,
    /// `<table-updates2>`: differences, without default values.
    Differences,
}

/// The rows of the selected tables, with the selected columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    tables: BTreeMap<String, BTreeMap<Uuid, Row>>,
    size: Size,
}

/// The bytes of all replicas of the process.
static ALL: AtomicUsize = AtomicUsize::new(0);

impl Default for Replica {
    fn default() -> Self {
        Self { tables: BTreeMap::new(), size: Size::new(&ALL) }
    }
}

/// Maximum bytes: of a replica, and of all replicas of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) replica: usize,
    pub(crate) all: usize,
}

impl Limits {
    fn check(self, size: &Size) -> Result<(), Malformed> {
        if size.bytes() > self.replica {
            return Err(Malformed::too_large(self.replica));
        }
        if size.is_one_of_too_many(self.all) {
            return Err(Malformed::too_large(self.all));
        }
        Ok(())
    }
}

/// The bytes that a row takes, about.
fn row_size(row: &Row) -> usize {
    let atom = |atom: &Atom| if let Atom::String(text) = atom { text.len() } else { 0 };
    let value = |value: &Value| -> usize {
        match value {
            Value::Set(set) if set.is_empty() => 0,
            Value::Map(map) if map.is_empty() => 0,
            Value::Set(set) => MAP / 2 + set.iter().map(|one| VALUE + atom(one)).sum::<usize>(),
            Value::Map(map) => {
                MAP + map.iter().map(|(key, value)| ENTRY + atom(key) + atom(value)).sum::<usize>()
            }
        }
    };
    MAP + row.iter().map(|(column, of)| VALUE + column.len() + value(of)).sum::<usize>()
}

impl Replica {
    /// The rows of a table, by UUID.
    pub fn table(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.tables.get(table).into_iter().flatten().map(|(uuid, row)| (*uuid, row))
    }

    /// One row.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&uuid)
    }

    /// The first row that has this value in this column.
    pub fn find(&self, table: &str, column: &str, value: &Value) -> Option<(Uuid, &Row)> {
        self.table(table).find(|(_, row)| row.get(column) == Some(value))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Applies `<table-updates>` or `<table-updates2>`. After an error the replica is invalid.
    pub(crate) fn apply(
        &mut self,
        format: Format,
        updates: &Json,
        request: &MonitorRequest,
        schema: &DatabaseSchema,
        limits: Limits,
    ) -> Result<(), Malformed> {
        for (table, rows) in object(updates)? {
            let Some(monitored) = request.tables.get(table) else { return Err(Malformed::new(rows)) };
            let types = Types { schema, table, columns: &monitored.columns };
            let copy = self.tables.entry(table.clone()).or_default();
            for (uuid, update) in object(rows)? {
                let uuid: Uuid = uuid.parse().map_err(|_| Malformed::new(rows))?;
                self.size.remove(copy.get(&uuid).map_or(0, row_size));
                match format {
                    Format::Whole => whole(copy, uuid, update, &types)?,
                    Format::Differences => difference(copy, uuid, update, &types)?,
                }
                self.size.add(copy.get(&uuid).map_or(0, row_size));
                limits.check(&self.size)?;
            }
        }
        Ok(())
    }
}

struct Types<'a> {
    schema: &'a DatabaseSchema,
    table: &'a str,
    columns: &'a [String],
}

impl Types<'_> {
    fn of(&self, column: &str) -> Option<&ColumnType> {
        self.schema.column(self.table, column)
    }

    fn normalize(&self, row: Row) -> Row {
        row.into_iter()
            .map(|(column, value)| {
                let value = match self.of(&column) {
                    Some(kind) => kind.normalize(value),
                    None => value,
                };
                (column, value)
            })
            .collect()
    }

    fn with_defaults(&self, row: Row) -> Row {
        let mut row = self.normalize(row);
        for column in self.columns {
            if let Some(kind) = self.of(column)
                && !row.contains_key(column)
            {
                row.insert(column.clone(), kind.default_value());
            }
        }
        row
    }
}

fn object(json: &Json) -> Result<&Map<String, Json>, Malformed> {
    json.as_object().ok_or_else(|| Malformed::new(json))
}

/// `<row-update>`: `new` is the whole row.
fn whole(
    copy: &mut BTreeMap<Uuid, Row>,
    uuid: Uuid,
    update: &Json,
    types: &Types<'_>,
) -> Result<(), Malformed> {
    match object(update)?.get("new") {
        Some(new) => {
            copy.insert(uuid, types.normalize(parse_row(new)?));
        }
        None => {
            copy.remove(&uuid);
        }
    }
    Ok(())
}

/// `<row-update2>`: one of `initial`, `insert`, `modify`, `delete`.
fn difference(
    copy: &mut BTreeMap<Uuid, Row>,
    uuid: Uuid,
    update: &Json,
    types: &Types<'_>,
) -> Result<(), Malformed> {
    let (kind, row) = object(update)?.iter().next().ok_or_else(|| Malformed::new(update))?;
    match kind.as_str() {
        "initial" | "insert" => {
            copy.insert(uuid, types.with_defaults(parse_row(row)?));
        }
        "delete" => {
            copy.remove(&uuid);
        }
        "modify" => {
            let present = copy.get_mut(&uuid).ok_or_else(|| Malformed::new(update))?;
            for (column, change) in types.normalize(parse_row(row)?) {
                let composite = types.of(&column).is_some_and(ColumnType::is_composite);
                match present.get_mut(&column) {
                    Some(value) if composite => merge(value, change)?,
                    _ => {
                        present.insert(column, change);
                    }
                }
            }
        }
        _ => return Err(Malformed::new(update)),
    }
    Ok(())
}

/// Of sets, `change` has the elements that only the old or only the new value has. Of maps, it has the pairs
/// that only one of them has, and for changed keys the new value.
fn merge(value: &mut Value, change: Value) -> Result<(), Malformed> {
    match (value, change) {
        (Value::Set(set), Value::Set(change)) => {
            let both: BTreeSet<Atom> = set.symmetric_difference(&change).cloned().collect();
            *set = both;
        }
        (Value::Map(map), Value::Map(change)) => {
            for (key, new) in change {
                if map.get(&key) == Some(&new) {
                    map.remove(&key);
                } else {
                    map.insert(key, new);
                }
            }
        }
        (_, change) => return Err(Malformed::new(&json!(change))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::row;

    const LIMITS: Limits = Limits { replica: usize::MAX, all: usize::MAX };

    fn schema() -> DatabaseSchema {
        serde_json::from_value(json!({"name": "D", "tables": {"T": {"columns": {
            "name": {"type": "string"},
            "tag": {"type": {"key": "integer", "min": 0, "max": 1}},
            "trunks": {"type": {"key": "integer", "min": 0, "max": 4096}},
            "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
            "load": {"type": "real"},
        }}}}))
        .unwrap()
    }

    fn request() -> MonitorRequest {
        MonitorRequest::new().table("T", ["name", "tag", "trunks", "ids", "load"])
    }

    const ROW: Uuid = Uuid::from_u128(1);

    fn replica(updates: &[Json]) -> Result<Replica, Malformed> {
        let mut replica = Replica::default();
        for update in updates {
            let updates = json!({"T": {ROW.to_string(): update}});
            replica.apply(Format::Differences, &updates, &request(), &schema(), LIMITS)?;
        }
        Ok(replica)
    }

    #[test]
    fn omitted_columns_get_default_values() {
        let replica = replica(&[json!({"initial": {"name": "a", "load": 1}})]).unwrap();
        let expected = row([
            ("name", "a".into()),
            ("tag", Value::empty()),
            ("trunks", Value::empty()),
            ("ids", Value::map::<&str, &str>([])),
            ("load", 1.0.into()),
        ]);
        assert_eq!(replica.row("T", ROW), Some(&expected));
        assert_eq!(replica.find("T", "name", &"a".into()), Some((ROW, &expected)));
    }

    #[test]
    fn update2_modifications_are_merged() {
        let replica = replica(&[
            json!({"insert": {"name": "a", "tag": 5, "trunks": ["set", [1, 2]],
                              "ids": ["map", [["keep", "1"], ["change", "2"], ["drop", "3"]]]}}),
            json!({"modify": {"name": "b", "tag": ["set", []], "trunks": ["set", [2, 3]],
                              "ids": ["map", [["change", "9"], ["drop", "3"], ["new", "4"]]]}}),
        ])
        .unwrap();
        let row = replica.row("T", ROW).unwrap();
        assert_eq!(row["name"], "b".into());
        assert_eq!(row["tag"], Value::empty());
        assert_eq!(row["trunks"], Value::set([1, 3]));
        assert_eq!(row["ids"], Value::map([("keep", "1"), ("change", "9"), ("new", "4")]));
    }

    #[test]
    fn deleted_rows_are_removed() {
        let replica = replica(&[json!({"insert": {"name": "a"}}), json!({"delete": null})]).unwrap();
        assert_eq!(replica.table("T").count(), 0);
    }

    #[test]
    fn full_row_updates_replace_the_row() {
        let mut replica = Replica::default();
        let mut apply = |update: Json| {
            let updates = json!({"T": {ROW.to_string(): update}});
            replica.apply(Format::Whole, &updates, &request(), &schema(), LIMITS).unwrap();
            replica.row("T", ROW).cloned()
        };
        assert!(apply(json!({"new": {"name": "a", "tag": 1}})).is_some());
        let second = apply(json!({"old": {"tag": 1}, "new": {"name": "a", "tag": 2}})).unwrap();
        assert_eq!(second["tag"], 2.into());
        assert!(apply(json!({"old": {"name": "a"}})).is_none());
    }

    #[test]
    fn size_is_bounded_and_follows_the_rows() {
        let mut replica = Replica::default();
        let limits = Limits { replica: 100_000, all: usize::MAX };
        let mut add = |number: u128, update: Json| {
            let updates = json!({"T": {Uuid::from_u128(number).to_string(): update}});
            replica.apply(Format::Differences, &updates, &request(), &schema(), limits)?;
            Ok::<usize, Malformed>(replica.size.bytes())
        };
        let name = "x".repeat(1000);
        let one = add(1, json!({"insert": {"name": name}})).unwrap();
        assert!((1000..4000).contains(&one), "{one}");
        assert_eq!(add(2, json!({"insert": {"name": name}})).unwrap(), 2 * one);
        assert_eq!(add(2, json!({"modify": {"name": ""}})).unwrap(), 2 * one - name.len(), "an empty text");
        assert_eq!(add(2, json!({"delete": null})).unwrap(), one);
        let refused =
            (2..200).find_map(|number| add(number, json!({"insert": {"name": name}})).err()).unwrap();
        assert!(refused.is_too_large());
        replica.clear();
        assert_eq!(replica.size.bytes(), 0);
    }

    #[test]
    fn updates_violating_the_schema_are_refused() {
        for bad in [
            json!([]),
            json!({}),
            json!({"modify": {"name": "a"}}),
            json!({"other": {}}),
            json!({"insert": {"name": null}}),
        ] {
            assert!(replica(std::slice::from_ref(&bad)).is_err(), "{bad}");
        }
        let other = json!({"Other": {}});
        assert!(Replica::default().apply(Format::Whole, &other, &request(), &schema(), LIMITS).is_err());
    }
}
