//! Errors of API calls, and the failures that they mean for a target.

use eno_schemas::Failure;
use kube::core::Status;

use crate::object::CRD;

/// A call to the API server that failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server replied with an error, or the connection failed.
    #[error("{operation}: {}", error_message(.source))]
    Api {
        /// The operation.
        operation: &'static str,
        /// The client's error.
        source: kube::Error,
    },
    /// The server did not reply in time.
    #[error("{operation}: the API server gave no answer in {seconds} s")]
    Timeout {
        /// The operation.
        operation: &'static str,
        /// The time limit in seconds.
        seconds: u64,
    },
}

impl CallError {
    /// The status of the reply, if there was one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api { source: kube::Error::Api(status), .. } => Some(status),
            _ => None,
        }
    }

    /// The NAD does not exist. (A 404 for a missing CRD names no object.)
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| {
            status.code == 404
                && status.details.as_ref().is_some_and(|details| {
                    !details.name.is_empty() && details.kind == "network-attachment-definitions"
                })
        })
    }

    /// The namespace does not exist.
    pub fn is_namespace_gone(&self) -> bool {
        self.status().is_some_and(|status| {
            status.code == 404 && status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
        })
    }

    /// The object changed since it was planned for. (A uid mismatch is an invalid field when an object
    /// exists, and a conflict when none does.)
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            status.code == 409
                || status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid")
        })
    }

    fn is_crd_missing(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
            && !self.is_not_found()
            && !self.is_namespace_gone()
    }
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        if error.is_crd_missing() {
            return crd_missing();
        }
        let reason = error.to_string();
        match error.status() {
            // Overload, a restart, a lost race, or a token rotation.
            Some(status) if matches!(status.code, 401 | 408 | 409 | 429) || status.code >= 500 => {
                Self { reason: reason.into(), retryable: true, unreachable: false }
            }
            Some(_) => Self { reason: reason.into(), retryable: false, unreachable: false },
            None => match error {
                CallError::Api {
                    source: kube::Error::SerdeError(_) | kube::Error::BuildRequest(_), ..
                } => Self { reason: reason.into(), retryable: false, unreachable: false },
                _ => Self { reason: reason.into(), retryable: true, unreachable: true },
            },
        }
    }
}

/// The failure for a cluster without the NetworkAttachmentDefinition CRD.
pub fn crd_missing() -> Failure {
    Failure::retryable(format!(
        "the CustomResourceDefinition {CRD} isn't installed; it comes with Multus \
         (https://github.com/k8snetworkplumbingwg/multus-cni)"
    ))
}

/// The server's message, without the debug form that [`kube::Error`] adds.
fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("the API server answered {} {}", status.code, status.reason),
        other => {
            let mut message = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(inner) = cause {
                let inner_message = inner.to_string();
                if !message.contains(&inner_message) {
                    message = format!("{message}: {inner_message}");
                }
                cause = inner.source();
            }
            message
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::StatusDetails;

    fn answer(code: u16, reason: &str, kind: &str, name: &str) -> CallError {
        let details = StatusDetails {
            name: name.into(),
            group: String::new(),
            kind: kind.into(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        let status = Status::failure("words", reason).with_code(code).with_details(details);
        CallError::Api { operation: "apply", source: kube::Error::Api(status.boxed()) }
    }

    #[test]
    fn retries() {
        for (code, retryable) in [
            (400, false),
            (401, true),
            (403, false),
            (409, true),
            (422, false),
            (429, true),
            (500, true),
            (503, true),
        ] {
            let failure = Failure::from(&answer(code, "", "network-attachment-definitions", "n"));
            assert_eq!((failure.retryable, failure.unreachable), (retryable, false), "{code}");
            assert_eq!(failure.reason, "apply: words");
        }
        let failure = Failure::from(&CallError::Timeout { operation: "apply", seconds: 15 });
        assert!(failure.retryable && failure.unreachable);
    }

    #[test]
    fn missing_object_namespace_and_crd_are_distinguished() {
        let object = answer(404, "NotFound", "network-attachment-definitions", "n");
        assert!(object.is_not_found() && !object.is_namespace_gone() && !object.is_crd_missing());
        let namespace = answer(404, "NotFound", "namespaces", "n");
        assert!(!namespace.is_not_found() && namespace.is_namespace_gone() && !namespace.is_crd_missing());
        let crd = answer(404, "NotFound", "", "");
        assert!(!crd.is_not_found() && !crd.is_namespace_gone() && crd.is_crd_missing());
        let failure = Failure::from(&crd);
        assert!(failure.retryable && !failure.unreachable && failure.reason.contains(CRD));
    }
}
