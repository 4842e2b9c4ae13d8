//! Classes of errors: what a device means, by tag, application tag and message. Pure.

use crate::reply::{RpcError, RpcErrors};

/// What an error means for the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Somebody else holds a lock: a matter of time.
    Locked,
    /// The device lacks resources at present.
    Exhausted,
    /// The login may not do it.
    Denied,
    /// The device does not have the operation.
    Unsupported,
    /// The request itself is wrong; of an edit, its content.
    Request,
    /// The configuration is refused.
    Content,
    /// The operation failed for a reason of the device's own.
    Failed,
    /// The error does not tell. A retry may help.
    Unknown,
}

/// Errors of one class.
struct Row {
    /// `error-tag`; empty: errors without a tag of RFC 6241, and `operation-failed`.
    tag: &'static str,
    /// `error-app-tag`; empty: any.
    app_tag: &'static str,
    /// A part of `error-message` in lower case; empty: any.
    message: &'static str,
    class: Class,
}

const fn tag(tag: &'static str, class: Class) -> Row {
    Row { tag, app_tag: "", message: "", class }
}

const fn app_tag(app_tag: &'static str, class: Class) -> Row {
    Row { tag: "operation-failed", app_tag, message: "", class }
}

const fn message(message: &'static str, class: Class) -> Row {
    Row { tag: "", app_tag: "", message, class }
}

/// The known errors of all devices. The first row that fits decides.
const ROWS: [Row; 35] = [
    // Junos: `<error-message>` of `<lock-configuration>` and `<lock>`, without a tag on some releases.
    message("configuration database locked", Class::Locked),
    message("configuration database modified", Class::Locked),
    message("permission denied", Class::Denied),
    // sysrepo (netopeer2): a candidate that a session left behind.
    message("data have already been modified", Class::Locked),
    // Devices that send a message only.
    message("database is locked", Class::Locked),
    message("datastore is locked", Class::Locked),
    message("lock denied", Class::Locked),
    message("already locked", Class::Locked),
    message("not authorized", Class::Denied),
    // RFC 7950 section 15: the configuration violates its model.
    app_tag("data-not-unique", Class::Content),
    app_tag("too-many-elements", Class::Content),
    app_tag("too-few-elements", Class::Content),
    app_tag("must-violation", Class::Content),
    app_tag("instance-required", Class::Content),
    app_tag("missing-choice", Class::Content),
    app_tag("missing-instance", Class::Content),
    // RFC 6241 appendix A.
    tag("in-use", Class::Locked),
    tag("lock-denied", Class::Locked),
    tag("resource-denied", Class::Exhausted),
    tag("access-denied", Class::Denied),
    tag("operation-not-supported", Class::Unsupported),
    tag("unknown-element", Class::Request),
    tag("unknown-attribute", Class::Request),
    tag("malformed-message", Class::Request),
    tag("invalid-value", Class::Content),
    tag("missing-attribute", Class::Content),
    tag("bad-attribute", Class::Content),
    tag("missing-element", Class::Content),
    tag("bad-element", Class::Content),
    tag("unknown-namespace", Class::Content),
    tag("data-exists", Class::Content),
    tag("data-missing", Class::Content),
    tag("too-big", Class::Content),
    tag("rollback-failed", Class::Failed),
    tag("operation-failed", Class::Failed),
];

impl Row {
    fn fits(&self, error: &RpcError, message: &str) -> bool {
        let of_tag = match self.tag {
            "" => {
                matches!(&*error.tag, "" | "operation-failed") || !ROWS.iter().any(|row| row.tag == error.tag)
            }
            tag => error.tag == tag,
        };
        of_tag
            && (self.app_tag.is_empty() || error.app_tag.as_deref() == Some(self.app_tag))
            && message.contains(self.message)
    }
}

/// The class of one error.
pub(super) fn class(error: &RpcError) -> Class {
    let message = error.message.as_deref().unwrap_or_default().to_ascii_lowercase();
    ROWS.iter().find(|row| row.fits(error, &message)).map_or(Class::Unknown, |row| row.class)
}

impl RpcErrors {
    /// Whether one of the errors is of this class.
    pub(super) fn any(&self, of: Class) -> bool {
        self.0.iter().any(|error| class(error) == of)
    }

    /// Whether all errors are of this class.
    pub(super) fn all(&self, of: Class) -> bool {
        self.0.iter().all(|error| class(error) == of)
    }

    /// The errors are about a temporary condition.
    pub(super) fn are_transient(&self) -> bool {
        self.any(Class::Locked) || self.any(Class::Exhausted)
    }

    /// The same request may succeed later.
    pub(super) fn are_retryable(&self) -> bool {
        self.are_transient() || self.any(Class::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_application_tag_and_message_tell_the_class() {
        for (tag, app_tag, message, expected) in [
            ("lock-denied", "", "", Class::Locked),
            ("", "", "configuration database locked by:\n bob terminal p0", Class::Locked),
            ("operation-failed", "", "Configuration database modified", Class::Locked),
            ("operation-failed", "", "candidate datastore data have already been modified", Class::Locked),
            ("no-such-tag", "", "Lock denied", Class::Locked),
            ("", "", "something else", Class::Unknown),
            ("no-such-tag", "", "", Class::Unknown),
            ("operation-failed", "must-violation", "", Class::Content),
            ("operation-failed", "other", "VLAN 7 is in use", Class::Failed),
            ("operation-failed", "", "", Class::Failed),
            ("invalid-value", "must-violation", "lock denied", Class::Content),
            ("access-denied", "", "", Class::Denied),
            ("", "", "permission denied", Class::Denied),
            ("operation-not-supported", "", "", Class::Unsupported),
        ] {
            let error = RpcError {
                tag: tag.into(),
                app_tag: (!app_tag.is_empty()).then(|| app_tag.into()),
                message: Some(message.into()),
                ..RpcError::default()
            };
            assert_eq!(class(&error), expected, "{tag} {app_tag} {message}");
        }
    }
}
