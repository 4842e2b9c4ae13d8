//! Configuration as data: a schema table, trees that follow it, and what NETCONF does to them.
//!
//! Everything here is pure. A [`schema::Definition`] says what may exist, [`edit`] parses and applies an
//! edit, [`filter`] selects, [`tree`] holds, writes and compares.

pub mod edit;
pub mod filter;
pub mod path;
pub mod schema;
pub mod tree;
pub mod value;
