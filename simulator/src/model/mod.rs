//! Configuration data: the schema, data trees that conform to it, and the NETCONF operations on them.
//!
//! Nothing here does IO. [`schema`] defines the data nodes, [`edit`] parses and applies edits, [`filter`] selects
//! subtrees, [`tree`] stores, writes and compares data.

pub mod edit;
pub mod filter;
pub mod path;
pub mod schema;
pub mod tree;
pub mod value;
