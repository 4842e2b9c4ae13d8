//! The protocol of the resolver's socket: one JSON object per line, requests and their responses. Responses come in the
//! order of the requests.
//!
//! ```text
//! {"pod":"0b9a1c3e-5d7f-4a2b-8c6d-1e2f3a4b5c6d","container":"3f…"}
//! {"path":"/run/netns/cni-1b2c…","inode":4026532281,"device":4,"pid":1234}
//! {"pod":"ffffffff-0000-4000-8000-000000000000"}
//! {"error":"the runtime knows no ready sandbox of it","reason":"NotFound","retryable":true}
//! ```

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Maximum bytes of a request, including its newline. A longer one is refused and closes the connection.
pub const MAX_REQUEST_BYTES: usize = 512;

/// Maximum bytes of a response, including its newline. Paths and error texts are limited accordingly.
pub const MAX_RESPONSE_BYTES: usize = 8 * 1024;

/// A request for the network namespace of a pod, and the PID of one of its containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// `metadata.uid` of the pod.
    pub pod: PodUid,
    /// One of its containers. Absent: the PID is the sandbox's, if it has a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
}

/// A response of the resolver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Response {
    /// The pod has a network namespace of its own.
    Resolved(Resolved),
    /// There is none to return.
    Refused(Refusal),
}

impl From<Result<Resolved, Refusal>> for Response {
    fn from(result: Result<Resolved, Refusal>) -> Self {
        match result {
            Ok(resolved) => Self::Resolved(resolved),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

/// A pod's network namespace. It is never the host's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The path where it is bound, as the resolver sees it: `/run/netns/…` with containerd and CRI-O.
    pub path: PathBuf,
    /// The namespace's inode in nsfs, unique together with `device` among living namespaces. Compare it with
    /// the file opened at `path` before use.
    pub inode: u64,
    /// The device number of nsfs, as `st_dev`.
    pub device: u64,
    /// PID, as the runtime sees it, of the requested container, otherwise of the sandbox. `None`: the sandbox
    /// has no process (CRI-O without an infra container).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// Why no namespace is returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WireRefusal", into = "WireRefusal")]
pub struct Refusal {
    /// The kind of refusal.
    pub reason: Reason,
    /// The message.
    pub error: String,
}

/// Adds `retryable` for clients in other languages.
#[derive(Serialize, Deserialize)]
struct WireRefusal {
    error: String,
    reason: Reason,
    #[serde(default)]
    retryable: bool,
}

impl From<WireRefusal> for Refusal {
    fn from(WireRefusal { error, reason, .. }: WireRefusal) -> Self {
        Self { reason, error }
    }
}

impl From<Refusal> for WireRefusal {
    fn from(Refusal { reason, error }: Refusal) -> Self {
        Self { error, reason, retryable: reason.retryable() }
    }
}

impl Refusal {
    /// A refusal with its message, truncated to fit a response.
    pub fn new(reason: Reason, error: impl fmt::Display) -> Self {
        const MAX_ERROR_CHARS: usize = 1024;
        let mut error = error.to_string();
        if let Some((cut, _)) = error.char_indices().nth(MAX_ERROR_CHARS) {
            error.truncate(cut);
            error.push('…');
        }
        Self { reason, error }
    }
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The request is invalid.
    BadRequest,
    /// The client is not permitted.
    Denied,
    /// The runtime has no ready sandbox of the pod: it does not exist yet, or any more.
    NotFound,
    /// The requested container does not run, so it has no PID.
    NotRunning,
    /// The pod uses the host's network, where nothing may be configured.
    HostNetwork,
    /// The runtime is unreachable, restarting or too slow, or the namespace is being created or removed.
    Unavailable,
    /// The runtime does not provide the needed information.
    Unsupported,
}

impl Reason {
    /// True when the same request may succeed later without a change of it or of the installation.
    pub fn retryable(self) -> bool {
        match self {
            Self::NotFound | Self::NotRunning | Self::Unavailable => true,
            Self::BadRequest | Self::Denied | Self::HostNetwork | Self::Unsupported => false,
        }
    }
}

/// A pod's uid: 1 to 64 of `0-9`, `a-f` and `-`. (Pods of the API server have UUIDs, static ones a hash.)
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct PodUid(String);

/// A container's id: 1 to 64 of `0-9` and `a-f`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ContainerId(String);

/// An invalid name. A retry does not help. The error does not repeat the input, which may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a [`PodUid`].
    #[error("a pod's uid is 1 to 64 of 0-9, a-f and -")]
    PodUid,
    /// Not a [`ContainerId`].
    #[error("a container's id is 1 to 64 of 0-9 and a-f")]
    ContainerId,
}

fn is_name(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

impl PodUid {
    /// Parses a pod uid.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if is_name(text, |byte| is_hex(byte) || byte == b'-') {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError::PodUid)
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ContainerId {
    /// Parses a container id, also in the form of a pod's status: `containerd://…`, `cri-o://…`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let id = text.split_once("://").map_or(text, |(_, id)| id);
        if is_name(id, is_hex) { Ok(Self(id.to_owned())) } else { Err(NameError::ContainerId) }
    }

    /// The text, without the runtime's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PodUid {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl TryFrom<String> for ContainerId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_value};

    use super::*;

    const UID: &str = "0b9a1c3e-5d7f-4a2b-8c6d-1e2f3a4b5c6d";

    #[test]
    fn pod_uids_are_validated() {
        let longest = "f".repeat(64);
        for good in [UID, "a", "0123456789abcdef0123456789abcdef", &longest] {
            assert_eq!(PodUid::parse(good).unwrap().as_str(), good);
        }
        let too_long = "f".repeat(65);
        for bad in ["", "../../etc", "A", "a b", "a\n", "g", "é", "a/b", "a\0", &too_long] {
            assert_eq!(PodUid::parse(bad), Err(NameError::PodUid), "{bad:?}");
        }
    }

    #[test]
    fn container_ids_parse_with_and_without_runtime_prefix() {
        let id = "3f".repeat(32);
        for text in [id.clone(), format!("containerd://{id}"), format!("cri-o://{id}")] {
            assert_eq!(ContainerId::parse(&text).unwrap().as_str(), id);
        }
        for bad in ["", "containerd://", "a-b", "containerd://../x", "a://b://c"] {
            assert_eq!(ContainerId::parse(bad), Err(NameError::ContainerId), "{bad:?}");
        }
    }

    #[test]
    fn requests() {
        let request: Request = from_str(&format!(r#"{{"pod":"{UID}"}}"#)).unwrap();
        assert_eq!(request, Request { pod: PodUid::parse(UID).unwrap(), container: None });
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"pod":7}"#,
            r#"{"pod":"../x"}"#,
            r#"{"pod":"a","container":""}"#,
            r#"{"pod":"a","exec":"b"}"#,
        ] {
            assert!(from_str::<Request>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn longest_request_fits_the_size_limit() {
        let longest = Request {
            pod: PodUid::parse(&"f".repeat(64)).unwrap(),
            container: Some(ContainerId::parse(&"f".repeat(64)).unwrap()),
        };
        assert!(serde_json::to_string(&longest).unwrap().len() < MAX_REQUEST_BYTES);
    }

    #[test]
    fn response_json_format_is_stable() {
        let resolved =
            Resolved { path: "/run/netns/cni-1".into(), inode: 4_026_532_281, device: 4, pid: Some(7) };
        let shape = json!({ "path": "/run/netns/cni-1", "inode": 4_026_532_281_u64, "device": 4, "pid": 7 });
        assert_eq!(to_value(Response::Resolved(resolved.clone())).unwrap(), shape);
        assert_eq!(from_str::<Response>(&shape.to_string()).unwrap(), Response::Resolved(resolved));

        let refusal = Refusal::new(Reason::NotFound, "none");
        let shape = json!({ "error": "none", "reason": "NotFound", "retryable": true });
        assert_eq!(to_value(Response::Refused(refusal.clone())).unwrap(), shape);
        assert_eq!(from_str::<Response>(&shape.to_string()).unwrap(), Response::Refused(refusal));
    }

    #[test]
    fn long_error_messages_are_truncated() {
        let refusal = Refusal::new(Reason::Unavailable, "é".repeat(5000));
        let answer = serde_json::to_string(&Response::Refused(refusal)).unwrap();
        assert!(answer.contains("é…") && answer.len() < MAX_RESPONSE_BYTES);
    }
}
