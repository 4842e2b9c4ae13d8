//! The result of a transaction (RFC 7047 sections 3.1, 4.1.3 and 5.2).

use serde_json::Value as Json;
use uuid::Uuid;

use crate::operation::Operation;
use crate::transaction::Transaction;
use crate::value::{Malformed, Row, Value};

/// Why the server refused an operation or a request: the string of `<error>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A `wait` timed out: the state that the transaction was planned for has changed.
    TimedOut,
    /// Out of memory or another resource.
    ResourcesExhausted,
    /// The database could not be written.
    IoError,
    /// The request was cancelled.
    Canceled,
    /// The transaction has an `abort`.
    Aborted,
    /// A reference to a missing row, or a deleted row with references. A concurrent change of another client
    /// may cause it.
    ReferentialIntegrity,
    /// A value, the number of rows, or an index breaks the schema.
    Constraint,
    /// A value is outside its domain, such as a division by zero.
    Domain,
    /// A number outside its range.
    Range,
    /// Two rows of the transaction have the same name.
    DuplicateName,
    /// The server does not support it, such as a durable commit in memory.
    NotSupported,
    /// No database of this name.
    UnknownDatabase,
    /// No method of this name: an older server.
    UnknownMethod,
    /// Not understood: most often a table or column that the schema lacks.
    Syntax,
    /// The client's role does not permit it.
    Permission,
    /// This server of a cluster is not the leader, or has lost contact to it.
    NotLeader,
    /// Any other string.
    Other(String),
}

impl Cause {
    pub(crate) fn new(error: &str) -> Self {
        match error {
            "timed out" => Self::TimedOut,
            "resources exhausted" => Self::ResourcesExhausted,
            "I/O error" => Self::IoError,
            "canceled" => Self::Canceled,
            "aborted" => Self::Aborted,
            "referential integrity violation" => Self::ReferentialIntegrity,
            "constraint violation" => Self::Constraint,
            "domain error" => Self::Domain,
            "range error" => Self::Range,
            "duplicate uuid-name" => Self::DuplicateName,
            "not supported" => Self::NotSupported,
            "unknown database" => Self::UnknownDatabase,
            "unknown method" => Self::UnknownMethod,
            "syntax error" | "unknown column" | "syntax error or unknown column" => Self::Syntax,
            "permission error" => Self::Permission,
            "not leader" | "not allowed" | "cluster error" => Self::NotLeader,
            other => Self::Other(other.to_owned()),
        }
    }

    /// True when a retry, or a new plan for the current state, may succeed.
    pub fn retry_helps(&self) -> bool {
        match self {
            Self::TimedOut
            | Self::ResourcesExhausted
            | Self::IoError
            | Self::Canceled
            | Self::ReferentialIntegrity
            | Self::NotLeader => true,
            Self::Aborted
            | Self::Constraint
            | Self::Domain
            | Self::Range
            | Self::DuplicateName
            | Self::NotSupported
            | Self::UnknownDatabase
            | Self::UnknownMethod
            | Self::Syntax
            | Self::Permission
            | Self::Other(_) => false,
        }
    }
}

/// `<error>` of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of error.
    pub cause: Cause,
    /// The server's text: the kind, and the details if there are any.
    pub message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl Refusal {
    /// Parses `<error>`: an object, a string (as for unknown methods), or anything else.
    pub(crate) fn from_json(json: &Json) -> Self {
        let kind = json.get("error").and_then(Json::as_str).or_else(|| json.as_str());
        let details = json.get("details").and_then(Json::as_str);
        match (kind, details) {
            (Some(kind), Some(details)) => {
                Self { cause: Cause::new(kind), message: format!("{kind}: {details}") }
            }
            (Some(kind), None) => Self { cause: Cause::new(kind), message: kind.to_owned() },
            (None, _) => {
                let text: String = json.to_string().chars().take(200).collect();
                Self { cause: Cause::Other(text.clone()), message: text }
            }
        }
    }
}

/// A transaction that failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {refusal}", self.place())]
pub struct Failed {
    /// The failed operation; `None`: the commit failed.
    pub index: Option<usize>,
    /// The operation and its table; otherwise `commit`.
    pub operation: String,
    /// The server's error.
    pub refusal: Refusal,
}

impl Failed {
    fn place(&self) -> String {
        match self.index {
            Some(index) => format!("operation {index} ({})", self.operation),
            None => self.operation.clone(),
        }
    }

    /// True when a retry, or a new plan, may succeed.
    pub fn retry_helps(&self) -> bool {
        self.refusal.cause.retry_helps()
    }
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// An `insert`: the new row.
    Inserted(Uuid),
    /// A `select`: the rows, in no order.
    Rows(Vec<Row>),
    /// An `update`, `mutate` or `delete`: the number of matched rows.
    Count(u64),
    /// `wait`, `comment`, `assert`, `commit`.
    Done,
}

/// The results of a committed transaction, in the order of its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    results: Vec<OperationResult>,
}

impl Outcome {
    /// All of them.
    pub fn results(&self) -> &[OperationResult] {
        &self.results
    }

    /// The rows of a `select`; empty for other operations.
    pub fn rows(&self, index: usize) -> &[Row] {
        match self.results.get(index) {
            Some(OperationResult::Rows(rows)) => rows,
            _ => &[],
        }
    }

    /// The number of rows that an `update`, `mutate` or `delete` matched.
    pub fn count(&self, index: usize) -> Option<u64> {
        match self.results.get(index)? {
            OperationResult::Count(count) => Some(*count),
            _ => None,
        }
    }

    /// Parses the reply to a transaction: an array with one result per operation, `null` after the failed
    /// one, and an additional element when the commit failed.
    pub(crate) fn parse(transaction: &Transaction, reply: &Json) -> Result<Result<Self, Failed>, Malformed> {
        let results = reply.as_array().ok_or_else(|| Malformed::new(reply))?;
        let operations = transaction.operations();
        if let Some((index, error)) =
            results.iter().enumerate().find(|(_, result)| result.get("error").is_some())
        {
            let operation = operations.get(index);
            return Ok(Err(Failed {
                index: operation.map(|_| index),
                operation: operation.map_or_else(|| "commit".into(), Operation::describe),
                refusal: Refusal::from_json(error),
            }));
        }
        if results.len() != operations.len() {
            return Err(Malformed::new(reply));
        }
        let results = operations.iter().zip(results).map(|(operation, result)| one(operation, result));
        Ok(Ok(Self { results: results.collect::<Result<_, _>>()? }))
    }
}

fn one(operation: &Operation, result: &Json) -> Result<OperationResult, Malformed> {
    let malformed = || Malformed::new(result);
    Ok(match operation {
        Operation::Insert { .. } => {
            let uuid = Value::from_json(result.get("uuid").ok_or_else(malformed)?)?;
            OperationResult::Inserted(uuid.as_uuid().ok_or_else(malformed)?)
        }
        Operation::Select { .. } => {
            let rows = result.get("rows").and_then(Json::as_array).ok_or_else(malformed)?;
            OperationResult::Rows(rows.iter().map(parse_row).collect::<Result<_, _>>()?)
        }
        Operation::Update { .. } | Operation::Mutate { .. } | Operation::Delete { .. } => {
            OperationResult::Count(result.get("count").and_then(Json::as_u64).ok_or_else(malformed)?)
        }
        Operation::Wait { .. } | Operation::Comment(_) | Operation::Abort | Operation::Commit { .. } => {
            OperationResult::Done
        }
    })
}

/// Parses `<row>`.
pub(crate) fn parse_row(json: &Json) -> Result<Row, Malformed> {
    let columns = json.as_object().ok_or_else(|| Malformed::new(json))?;
    columns.iter().map(|(column, value)| Ok((column.clone(), Value::from_json(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operation::row;

    fn three() -> Transaction {
        Transaction::new()
            .with(Operation::insert("Port", row([("name", "p".into())])))
            .with(Operation::delete("Port", []))
            .with(Operation::select("Port", [], ["name"]))
    }

    #[test]
    fn reply_yields_one_result_per_operation() {
        let uuid = Uuid::from_u128(7);
        let reply = json!([{"uuid": ["uuid", uuid.to_string()]}, {"count": 3}, {"rows": [{"name": "p"}]}]);
        let outcome = Outcome::parse(&three(), &reply).unwrap().unwrap();
        assert_eq!(outcome.results[0], OperationResult::Inserted(uuid));
        assert_eq!(outcome.count(1), Some(3));
        assert_eq!(outcome.rows(2), [row([("name", "p".into())])]);
    }

    #[test]
    fn error_names_its_operation() {
        let reply = json!([{"uuid": ["uuid", Uuid::nil().to_string()]}, {"error": "timed out", "details": "too late"}, null]);
        let failed = Outcome::parse(&three(), &reply).unwrap().unwrap_err();
        assert_eq!(failed.index, Some(1));
        assert_eq!(failed.refusal.cause, Cause::TimedOut);
        assert!(failed.retry_helps());
        assert_eq!(failed.to_string(), "operation 1 (delete from Port): timed out: too late");
    }

    #[test]
    fn commit_failure_is_the_extra_trailing_element() {
        let reply = json!([{"uuid": ["uuid", Uuid::nil().to_string()]}, {"count": 0}, {"rows": []}, {"error": "constraint violation"}]);
        let failed = Outcome::parse(&three(), &reply).unwrap().unwrap_err();
        assert_eq!((failed.index, failed.operation.as_str()), (None, "commit"));
        assert!(!failed.retry_helps());
    }

    #[test]
    fn malformed_replies_are_refused() {
        for bad in [
            json!({}),
            json!([]),
            json!([null, null, null]),
            json!([{"uuid": 1}, {"count": 1}, {"rows": []}]),
        ] {
            assert!(Outcome::parse(&three(), &bad).is_err(), "{bad}");
        }
    }
}
