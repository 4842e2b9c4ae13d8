//! What goes over the resolver's socket: one JSON object per line, a question and then its answer, as often as the
//! asker likes. Answers come in the order of the questions.
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

/// The longest question, its newline included, in bytes. A longer one is refused and ends the connection.
pub const MAX_QUESTION: usize = 512;

/// The longest answer, its newline included, in bytes: a path and an error text are cut or refused before that.
pub const MAX_ANSWER: usize = 8 * 1024;

/// Which pod, and which of its containers gives the PID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// `metadata.uid` of the pod.
    pub pod: PodUid,
    /// One of its containers. Absent: the PID is that of the sandbox, where it has a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerId>,
}

/// A resolver's whole vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// The pod has a namespace of its own.
    Resolved(Resolved),
    /// There is none to name.
    Refused(Refusal),
}

impl From<Result<Resolved, Refusal>> for Answer {
    fn from(result: Result<Resolved, Refusal>) -> Self {
        match result {
            Ok(resolved) => Self::Resolved(resolved),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

/// A pod's network namespace. It is never that of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// Where it is bound, as the resolver sees it: `/run/netns/…` with containerd and CRI-O.
    pub path: PathBuf,
    /// The namespace's inode in nsfs. With `device` it tells the namespace from any other that lives at the same
    /// time; compare it with what was opened at `path` before use.
    pub inode: u64,
    /// The device number of nsfs, as `st_dev`.
    pub device: u64,
    /// The process, numbered as the runtime sees it, of the container that was asked for, else of the sandbox.
    /// `None`: the sandbox has no process (CRI-O without an infra container).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// Why no namespace is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WireRefusal", into = "WireRefusal")]
pub struct Refusal {
    /// The kind of refusal.
    pub reason: Reason,
    /// For people.
    pub error: String,
}

/// With `retryable` written out, for askers in other languages.
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
    /// One with its text, cut to a length that fits an answer.
    pub fn new(reason: Reason, error: impl fmt::Display) -> Self {
        const LONGEST: usize = 1024;
        let mut error = error.to_string();
        if let Some((cut, _)) = error.char_indices().nth(LONGEST) {
            error.truncate(cut);
            error.push('…');
        }
        Self { reason, error }
    }
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The question is none.
    BadRequest,
    /// The asker is not among those who may ask.
    Denied,
    /// The runtime knows no ready sandbox of that pod: it is not there yet, or is gone.
    NotFound,
    /// The container that was named is not there or doesn't run (yet, or any more), so it has no PID.
    NotRunning,
    /// The pod uses the node's own network: there is nothing that may be configured.
    HostNetwork,
    /// The runtime can't be reached, restarts, is too slow, or the namespace is just being made or unmade.
    Unavailable,
    /// The runtime doesn't tell what is needed.
    Unsupported,
}

impl Reason {
    /// Whether the same question may be answered later without anyone changing it or the installation.
    pub fn retryable(self) -> bool {
        match self {
            Self::NotFound | Self::NotRunning | Self::Unavailable => true,
            Self::BadRequest | Self::Denied | Self::HostNetwork | Self::Unsupported => false,
        }
    }
}

/// A pod's uid: 1 to 64 of `0-9`, `a-f` and `-`. (Pods of the API server have UUIDs, static ones a hash.)
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodUid(String);

/// A container's id: 1 to 64 of `0-9` and `a-f`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerId(String);

/// A name that is none. A retry doesn't help. It doesn't repeat what was given, which may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No [`PodUid`].
    #[error("a pod's uid is 1 to 64 of 0-9, a-f and -")]
    PodUid,
    /// No [`ContainerId`].
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
    /// Takes what is one.
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
    /// Takes what is one, also as a pod's status writes it: `containerd://…`, `cri-o://…`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let id = text.split_once("://").map_or(text, |(_, id)| id);
        if is_name(id, is_hex) { Ok(Self(id.to_owned())) } else { Err(NameError::ContainerId) }
    }

    /// The text, without a runtime's name.
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

impl From<PodUid> for String {
    fn from(PodUid(text): PodUid) -> Self {
        text
    }
}

impl From<ContainerId> for String {
    fn from(ContainerId(text): ContainerId) -> Self {
        text
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
    fn uids() {
        let longest = "f".repeat(64);
        for good in [UID, "a", "0123456789abcdef0123456789abcdef", &longest] {
            assert_eq!(PodUid::parse(good).map(String::from).as_deref(), Ok(good));
        }
        let too_long = "f".repeat(65);
        for bad in ["", "../../etc", "A", "a b", "a\n", "g", "é", "a/b", "a\0", &too_long] {
            assert_eq!(PodUid::parse(bad), Err(NameError::PodUid), "{bad:?}");
        }
    }

    #[test]
    fn container_ids_with_and_without_their_runtime() {
        let id = "3f".repeat(32);
        for text in [id.clone(), format!("containerd://{id}"), format!("cri-o://{id}")] {
            assert_eq!(ContainerId::parse(&text).map(String::from), Ok(id.clone()));
        }
        for bad in ["", "containerd://", "a-b", "containerd://../x", "a://b://c"] {
            assert_eq!(ContainerId::parse(bad), Err(NameError::ContainerId), "{bad:?}");
        }
    }

    #[test]
    fn questions() {
        let question: Question = from_str(&format!(r#"{{"pod":"{UID}"}}"#)).unwrap();
        assert_eq!(question, Question { pod: PodUid::parse(UID).unwrap(), container: None });
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"pod":7}"#,
            r#"{"pod":"../x"}"#,
            r#"{"pod":"a","container":""}"#,
            r#"{"pod":"a","exec":"b"}"#,
        ] {
            assert!(from_str::<Question>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_question_fits() {
        let longest = Question {
            pod: PodUid::parse(&"f".repeat(64)).unwrap(),
            container: Some(ContainerId::parse(&"f".repeat(64)).unwrap()),
        };
        assert!(serde_json::to_string(&longest).unwrap().len() < MAX_QUESTION);
    }

    #[test]
    fn answers_keep_their_shape() {
        let resolved =
            Resolved { path: "/run/netns/cni-1".into(), inode: 4_026_532_281, device: 4, pid: Some(7) };
        let shape = json!({ "path": "/run/netns/cni-1", "inode": 4_026_532_281_u64, "device": 4, "pid": 7 });
        assert_eq!(to_value(Answer::Resolved(resolved.clone())).unwrap(), shape);
        assert_eq!(from_str::<Answer>(&shape.to_string()).unwrap(), Answer::Resolved(resolved));

        let refusal = Refusal::new(Reason::NotFound, "none");
        let shape = json!({ "error": "none", "reason": "NotFound", "retryable": true });
        assert_eq!(to_value(Answer::Refused(refusal.clone())).unwrap(), shape);
        assert_eq!(from_str::<Answer>(&shape.to_string()).unwrap(), Answer::Refused(refusal));
    }

    #[test]
    fn long_errors_are_cut() {
        let refusal = Refusal::new(Reason::Unavailable, "é".repeat(5000));
        let answer = serde_json::to_string(&Answer::Refused(refusal)).unwrap();
        assert!(answer.contains("é…") && answer.len() < MAX_ANSWER);
    }
}
