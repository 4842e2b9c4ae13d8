//! Conversions of Rust types to values.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Atom, NamedUuid, Value};

/// Converts each of these types to an atom.
macro_rules! atom_from {
    ($($type:ty: $value:ident => $atom:expr;)*) => {$(
        impl From<$type> for Atom {
            fn from($value: $type) -> Self {
                $atom
            }
        }
    )*};
}

atom_from! {
    i64: value => Self::Integer(value);
    i32: value => Self::Integer(value.into());
    u32: value => Self::Integer(value.into());
    u16: value => Self::Integer(value.into());
    f64: value => Self::Real(value);
    bool: value => Self::Boolean(value);
    &str: value => Self::String(value.to_owned());
    String: value => Self::String(value);
    Uuid: value => Self::Uuid(value);
    NamedUuid: value => Self::Named(value);
    &NamedUuid: value => Self::Named(value.clone());
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
