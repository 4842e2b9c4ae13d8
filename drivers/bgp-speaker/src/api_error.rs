//! Errors of API calls, and the failures that they mean for a target.

use std::error::Error as _;

use eno_schemas::Failure;
use kube::core::Status;

/// The release of MetalLB with the definitions that a current API server takes AS numbers by.
const DEFINITIONS: &str = "v0.16.2";

/// A call to the API server that failed.
#[derive(Debug)]
pub(crate) struct CallError {
    operation: String,
    /// `None`: there was no answer in time.
    source: Option<kube::Error>,
}

impl CallError {
    /// A call failed; `source: None`: there was no answer in time.
    pub(crate) fn new(operation: String, source: Option<kube::Error>) -> Self {
        Self { operation, source }
    }

    /// The status of the answer, if there was one.
    fn status(&self) -> Option<&Status> {
        match &self.source {
            Some(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    /// The code of the answer; 0: there was none.
    pub(crate) fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    /// The object that the call was about, or its kind or namespace, does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    fn message(&self) -> String {
        let Some(source) = &self.source else { return "the API server gave no answer in time".to_owned() };
        match source {
            kube::Error::Api(status) => format!("{}{}", status.message, remedy(&status.message)),
            other => {
                let (mut text, mut cause) = (other.to_string(), other.source());
                while let Some(inner) = cause {
                    text = format!("{text}: {inner}");
                    cause = inner.source();
                }
                text
            }
        }
    }
}

/// What helps against an answer whose text does not say it.
fn remedy(message: &str) -> String {
    let is_about_as = ["myASN", "peerASN"].iter().any(|field| message.contains(field));
    if is_about_as && message.contains("int32") {
        return format!(
            "; install the CustomResourceDefinitions of MetalLB {DEFINITIONS}: older ones refuse each AS number on this Kubernetes"
        );
    }
    if message.contains("native bgp mode") {
        return "; run MetalLB in its FRR mode, or leave the field out of the BGPSessionGroup".to_owned();
    }
    String::new()
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let reason = format!("{}: {}", error.operation, error.message());
        match error.code() {
            // No answer: the API server is away.
            0 => Self { unreachable: true, ..Self::retryable(reason) },
            404 => Self {
                unreachable: true,
                ..Self::retryable(format!(
                    "{reason}; install MetalLB, or give the driver bgp-speaker its namespace"
                ))
            },
            // Overload, a restart, a lost race, or a token rotation.
            401 | 408 | 409 | 429 | 500.. => Self::retryable(reason),
            _ => Self::permanent(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: u16, message: &str) -> Failure {
        let status = Status::failure(message, "").with_code(code);
        CallError::new("applying".to_owned(), Some(kube::Error::Api(status.boxed()))).into()
    }

    #[test]
    fn failures_say_whether_a_retry_helps() {
        for (code, retryable, unreachable) in [
            (403, false, false),
            (404, true, true),
            (409, true, false),
            (422, false, false),
            (500, true, false),
        ] {
            let failure = failure(code, "words");
            assert_eq!((failure.retryable, failure.unreachable), (retryable, unreachable), "{code}");
            assert!(failure.reason.starts_with("applying: words"), "{failure:?}");
        }
        let silent = Failure::from(CallError::new("applying".to_owned(), None));
        assert!(silent.retryable && silent.unreachable);
    }
}
