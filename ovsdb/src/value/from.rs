//! Conversions of Rust types to values.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Atom, NamedUuid, Value};

impl From<i64> for Atom {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<i32> for Atom {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<u32> for Atom {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<u16> for Atom {
    fn from(value: u16) -> Self {
        Self::Integer(value.into())
    }
}

impl From<f64> for Atom {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<bool> for Atom {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<&str> for Atom {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Atom {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl From<Uuid> for Atom {
    fn from(value: Uuid) -> Self {
        Self::Uuid(value)
    }
}

impl From<NamedUuid> for Atom {
    fn from(value: NamedUuid) -> Self {
        Self::Named(value)
    }
}

impl From<&NamedUuid> for Atom {
    fn from(value: &NamedUuid) -> Self {
        Self::Named(value.clone())
    }
}

impl<A: Into<Atom>> From<A> for Value {
    fn from(atom: A) -> Self {
        Self::Set(BTreeSet::from([atom.into()]))
    }
}

impl<A: Into<Atom>> From<Option<A>> for Value {
    fn from(atom: Option<A>) -> Self {
        Self::Set(atom.into_iter().map(Into::into).collect())
    }
}
