//! Why a spec can't be used.

use std::fmt;

/// Why a spec can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// The path of the field, from `spec.` on.
    pub field: String,
    /// The problem and the remedy.
    pub problem: String,
    /// The kind of the problem.
    pub cause: Cause,
}

impl Invalid {
    /// `field` is written below `spec`. The cause is [`Cause::Incompatible`].
    pub fn new(field: impl fmt::Display, problem: impl Into<String>) -> Self {
        Self { field: format!("spec.{field}"), problem: problem.into(), cause: Cause::Incompatible }
    }

    /// With this cause.
    #[must_use]
    pub fn because(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }
}

/// The machine-readable cause. Every cause but [`Cause::Spec`] may pass while the spec stays the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The object's own fields make it impossible: only another spec helps.
    Spec,
    /// It does not fit what it names, or what is there.
    #[default]
    Incompatible,
    /// It names an object that does not exist.
    ReferenceNotFound,
    /// It names an object that is in error.
    ReferenceNotReady,
    /// It names an object that is being deleted.
    ReferenceTerminating,
    /// Another object holds the VLAN ID.
    IdConflict,
    /// Another object holds the name.
    NameConflict,
    /// An object that it names does not allow it.
    NotPermitted,
}
