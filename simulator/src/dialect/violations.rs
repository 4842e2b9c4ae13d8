//! Validation errors that several dialects report.

use crate::model::path::Path;
use crate::netconf::error::{RpcError, Tag};

/// The value or the entry is invalid on this switch.
pub(super) fn invalid(path: &Path<'_>, message: impl Into<String>) -> RpcError {
    RpcError::application(Tag::InvalidValue, message).at(path)
}

/// The switch refuses the configuration for another reason.
pub(super) fn refused(path: &Path<'_>, message: impl Into<String>) -> RpcError {
    RpcError::application(Tag::OperationFailed, message).at(path)
}

/// The target of a leafref is missing (RFC 7950 section 15.5).
pub(super) fn missing_instance(path: &Path<'_>, message: impl Into<String>) -> RpcError {
    RpcError::application(Tag::DataMissing, message).app_tag("instance-required").at(path)
}

/// The mandatory leaf `name` below `path` is missing.
pub(super) fn missing_leaf(path: &Path<'_>, name: &str) -> RpcError {
    RpcError::application(Tag::DataMissing, format!("{name} is mandatory")).at(&path.child(name))
}

/// The node `name` below `path` exists, although its `when` is false.
pub(super) fn unmet_when(path: &Path<'_>, name: &str, condition: &str) -> RpcError {
    let message = format!("the when condition \"{condition}\" of {name} is not satisfied");
    RpcError::application(Tag::UnknownElement, message).at(&path.child(name)).info("bad-element", name)
}
