//! The JetStream streams and buckets, and their creation.

use std::time::Duration;

use async_nats::jetstream::context::{CreateKeyValueErrorKind, CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode, kv};
use eno_schemas::{SubjectKind, subject};

const WEEK: Duration = Duration::from_hours(7 * 24);
/// Lifetime of presence and ownership keys after their last renewal.
pub const LEASE: Duration = Duration::from_secs(15);
/// Time within which the server drops repeated messages by their id; later repeats are dropped by readers.
const DEDUPE_WINDOW: Duration = Duration::from_mins(10);
const HISTORY_BYTES: i64 = 256 * 1024 * 1024;
const MONTH: Duration = Duration::from_hours(30 * 24);
const DEAD_LETTER_BYTES: i64 = 256 * 1024 * 1024;

/// Why a stream could not be created or updated. A retry helps when the server was busy or unreachable.
#[derive(Debug, thiserror::Error)]
#[error("{operation} NATS stream {stream}: {source}")]
pub struct StreamError {
    operation: &'static str,
    stream: String,
    source: async_nats::Error,
}

impl StreamError {
    fn new(operation: &'static str, stream: &str, source: impl Into<async_nats::Error>) -> Self {
        Self { operation, stream: stream.to_owned(), source: source.into() }
    }
}

/// What a stream holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamUse {
    /// Its name.
    pub stream: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its maximum size in bytes; `None`: it has no limit of its own.
    pub limit: Option<u64>,
}

impl StreamUse {
    fn of(info: &Info) -> Self {
        Self {
            stream: info.config.name.clone(),
            bytes: info.state.bytes,
            limit: u64::try_from(info.config.max_bytes).ok().filter(|limit| *limit > 0),
        }
    }
}

/// Creates missing streams and buckets and updates others to this version's configuration. Several processes
/// may do so at once. The engine calls it; drivers lack the permission and wait until the streams exist. Returns what
/// the streams hold that existed before.
pub async fn ensure_streams(jetstream: &Context, replicas: usize) -> Result<Vec<StreamUse>, StreamError> {
    let mut uses = Vec::new();
    for wanted in streams(replicas) {
        let Some(info) = create(jetstream, &wanted).await? else { continue };
        uses.push(StreamUse::of(&info));
        let found = info.config;
        if differs(&found, &wanted) {
            let name = wanted.name.clone();
            jetstream
                .update_stream(&Config { metadata: found.metadata, ..wanted })
                .await
                .map_err(|error| StreamError::new("updating", &name, error))?;
        }
    }
    for wanted in buckets(replicas) {
        let Some(info) = create_bucket(jetstream, &wanted).await? else { continue };
        uses.push(StreamUse::of(&info));
        let found = info.config;
        if found.max_age != wanted.max_age
            || found.num_replicas != wanted.num_replicas
            || found.subject_delete_marker_ttl != wanted.limit_markers
        {
            let name = wanted.bucket.clone();
            jetstream
                .update_key_value(wanted)
                .await
                .map_err(|error| StreamError::new("updating", &name, error))?;
        }
    }
    Ok(uses)
}

fn streams(replicas: usize) -> Vec<Config> {
    let base = |name: &str, kind: SubjectKind, description: &str| Config {
        name: name.into(),
        description: Some(description.into()),
        subjects: vec![kind.all()],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        storage: StorageType::File,
        num_replicas: replicas,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        duplicate_window: Duration::from_mins(2),
        ..Config::default()
    };
    let last_value = |config: Config| Config { max_messages_per_subject: 1, ..config };
    let week = |config: Config| Config { max_age: WEEK, ..config };
    vec![
        last_value(base(subject::COMMANDS, SubjectKind::Command, "The desired state of each target")),
        Config {
            // Direct reads carry the subject in the request's subject, so that permissions can restrict each
            // driver to its own.
            allow_direct: true,
            ..last_value(base(
                subject::RESULTS,
                SubjectKind::Result,
                "What was last read back from each target",
            ))
        },
        Config {
            allow_direct: true,
            duplicate_window: DEDUPE_WINDOW,
            ..week(base(subject::TRANSITIONS, SubjectKind::Transition, "The outbox: phase changes of 7 days"))
        },
        Config {
            max_bytes: HISTORY_BYTES,
            ..week(base(subject::HISTORY, SubjectKind::History, "Reports of 7 days"))
        },
        Config {
            max_bytes: DEAD_LETTER_BYTES,
            max_age: MONTH,
            // A message that is repeated after a crash is stored once.
            duplicate_window: DEDUPE_WINDOW,
            ..base(subject::DEAD_LETTERS, SubjectKind::DeadLetter, "Callbacks that were given up")
        },
    ]
}

fn buckets(replicas: usize) -> Vec<kv::Config> {
    let lease = |bucket: &str, description: &str| kv::Config {
        bucket: bucket.into(),
        description: description.into(),
        history: 1,
        max_age: LEASE,
        storage: StorageType::File,
        num_replicas: replicas,
        // Watchers are notified when a key expires, and delete markers may expire themselves.
        limit_markers: Some(LEASE),
        ..kv::Config::default()
    };
    vec![
        lease(subject::DRIVERS, "The drivers that are alive"),
        lease(subject::OWNERS, "Which driver instance works on which target"),
        kv::Config {
            max_age: Duration::ZERO,
            ..lease(subject::CALLBACKS, "How far each object's callbacks are delivered")
        },
    ]
}

/// Compares only the settings of this version: a server adds others.
fn differs(found: &Config, wanted: &Config) -> bool {
    found.subjects != wanted.subjects
        || found.max_messages_per_subject != wanted.max_messages_per_subject
        || found.max_age != wanted.max_age
        || found.max_bytes != wanted.max_bytes
        || found.discard != wanted.discard
        || found.allow_direct != wanted.allow_direct
        || found.duplicate_window != wanted.duplicate_window
        || found.num_replicas != wanted.num_replicas
}

/// Creates the stream. `Some`: it exists already.
async fn create(jetstream: &Context, wanted: &Config) -> Result<Option<Info>, StreamError> {
    if let Some(found) = find(jetstream, &wanted.name).await? {
        return Ok(Some(found));
    }
    match jetstream.create_stream(wanted).await {
        Ok(_) => Ok(None),
        // Another process was faster and may want another configuration.
        Err(error)
            if matches!(error.kind(), CreateStreamErrorKind::JetStream(e)
                if e.error_code() == ErrorCode::STREAM_NAME_EXIST) =>
        {
            find(jetstream, &wanted.name).await
        }
        Err(error) => Err(StreamError::new("creating", &wanted.name, error)),
    }
}

async fn create_bucket(jetstream: &Context, wanted: &kv::Config) -> Result<Option<Info>, StreamError> {
    let name = format!("KV_{}", wanted.bucket);
    if let Some(found) = find(jetstream, &name).await? {
        return Ok(Some(found));
    }
    match jetstream.create_key_value(wanted.clone()).await {
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), CreateKeyValueErrorKind::BucketCreate) => {
            match find(jetstream, &name).await? {
                Some(found) => Ok(Some(found)),
                None => Err(StreamError::new("creating", &name, error)),
            }
        }
        Err(error) => Err(StreamError::new("creating", &name, error)),
    }
}

async fn find(jetstream: &Context, name: &str) -> Result<Option<Info>, StreamError> {
    match jetstream.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().clone())),
        Err(error)
            if matches!(error.kind(), GetStreamErrorKind::JetStream(e)
                if e.error_code() == ErrorCode::STREAM_NOT_FOUND) =>
        {
            Ok(None)
        }
        Err(error) => Err(StreamError::new("looking for", name, error)),
    }
}
