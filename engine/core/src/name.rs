//! Names.

use std::sync::Arc;

/// A name, shared by all that refer to it.
pub type Name = Arc<str>;

/// The first of some things, and how many more there are.
pub(crate) fn and_more(first: &str, count: usize) -> String {
    if count > 1 { format!("{first} and {} more", count - 1) } else { first.into() }
}
