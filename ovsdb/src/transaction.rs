//! Transactions.

use serde_json::{Value as Json, json};

use crate::operation::Operation;

/// Operations that are committed together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    operations: Vec<Operation>,
}

impl Transaction {
    /// A transaction without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an operation and returns its index, which is also that of its result.
    pub fn push(&mut self, operation: Operation) -> usize {
        self.operations.push(operation);
        self.operations.len() - 1
    }

    /// Returns the transaction with an additional operation.
    #[must_use]
    pub fn with(mut self, operation: Operation) -> Self {
        self.push(operation);
        self
    }

    /// The operations in their order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// True without operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// `[<db-name>, <operation>*]`.
    pub(crate) fn params(&self, database: &str) -> serde_json::Result<Json> {
        let mut params = vec![json!(database)];
        for operation in &self.operations {
            params.push(serde_json::to_value(operation)?);
        }
        Ok(Json::Array(params))
    }
}

impl FromIterator<Operation> for Transaction {
    fn from_iter<T: IntoIterator<Item = Operation>>(operations: T) -> Self {
        Self { operations: operations.into_iter().collect() }
    }
}

impl Extend<Operation> for Transaction {
    fn extend<T: IntoIterator<Item = Operation>>(&mut self, operations: T) {
        self.operations.extend(operations);
    }
}
