//! The file of `eno sysdump`: what is in it, and how it is written and read.
//!
//! It is a tar archive, compressed by gzip. The first entry is [`INDEX`]; it names all others with their sizes. Lists are
//! files with one JSON document in each line. Nothing in them is the value of a Secret ([`redact`]).

mod archive;
mod collector;
mod kubernetes;
mod messages;
mod nats;
mod reader;
pub(crate) mod redact;
#[cfg(test)]
mod tests;

use eno_engine::forecast::{Part, Unlisted};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use collector::{Collector, Limits, Made, with_causes};
pub(crate) use kubernetes::collect as collect_cluster;
pub(crate) use nats::collect as collect_nats;
pub(crate) use reader::{Dump, DumpError};

/// The version of the format that this program writes, and the latest one that it reads.
pub(crate) const FORMAT: u32 = 1;
/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The path of the index, the first entry.
const INDEX: &str = "index.json";
/// The Events of the operator's objects and namespaces.
const EVENTS: &str = "kubernetes/events.jsonl";
/// Maximum size of the index, in bytes.
const MAX_INDEX: u64 = 16 << 20;
/// Maximum size of another file, in bytes. A longer one is cut off when it is written.
const MAX_FILE: u64 = 512 << 20;
/// Maximum size of all files, in bytes.
const MAX_TOTAL: u64 = 4 << 30;
/// Maximum length of a line that is read, in bytes. NATS takes messages of 1 MiB, etcd objects of 1.5 MiB, which JSON
/// makes longer.
const MAX_LINE: u64 = 4 << 20;
/// Maximum number of JSON values that are read from files at once: one takes up to 72 bytes of memory, and two of text.
const MAX_VALUES: usize = 20_000_000;

/// The content of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    /// The version of the format.
    pub format: u32,
    /// The version of eno that wrote it.
    pub eno: String,
    /// When the reading began.
    pub made_at: Timestamp,
    /// The namespace of the kubeconfig's context; absent: no kubeconfig was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// All other files.
    pub files: Vec<IndexedFile>,
    /// Resources that could not be listed, in whole or outside one namespace.
    pub left_out: Vec<LeftOut>,
    /// Everything that could not be read.
    pub not_read: Vec<NotRead>,
    /// Everything that was taken out of files, for people.
    #[serde(skip_deserializing)]
    pub redacted: Vec<Redacted>,
}

/// A file of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IndexedFile {
    /// Its path, relative and with `/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The number of its lines.
    pub lines: u64,
    /// It was longer than this format allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// What was taken out of one place of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Redacted {
    /// The path of the file.
    pub path: String,
    /// The names of the fields that lead there; empty: anywhere in a text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Why.
    pub why: redact::Why,
    /// How many values.
    pub count: u64,
}

/// A part of the cluster's state that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeftOut {
    /// The resource, in the plural.
    pub resource: String,
    /// The namespace in which it could be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<String>,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotRead {
    /// What it is, such as `pods of namespace eno-system`.
    pub what: String,
    /// The error.
    pub reason: String,
}

impl LeftOut {
    /// In the terms of the cluster's state; `None`: it is not a part of it.
    fn unlisted(&self) -> Option<Unlisted> {
        let part = Part::all().find(|part| part.name() == self.resource)?;
        Some(part.unlisted(self.except.as_deref()))
    }
}

/// The path of a part of the cluster's state.
fn part_path(part: Part) -> String {
    format!("cluster/{}.jsonl", part.name())
}

/// The path of the messages of a stream.
fn stream_path(stream: &str) -> String {
    format!("nats/{stream}.jsonl")
}

/// True for the messages of a stream.
pub(crate) fn is_stream(path: &str) -> bool {
    eno_engine::trace::STREAMS.iter().any(|stream| stream_path(stream) == path)
}
