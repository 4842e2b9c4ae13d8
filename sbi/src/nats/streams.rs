//! The JetStream streams and buckets, their bounds, and their creation.
//!
//! NATS reserves the bound of each stream. So no stream takes space from another, and the sum of the bounds has to be
//! below `max_file_store`. Where the last message of a subject matters, a full stream refuses new messages. An outbox,
//! a history and dead letters drop their oldest ones.

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode};
use eno_schemas::{SubjectKind, subject};
use tracing::debug;

use super::store_health::error_code;

const WEEK: Duration = Duration::from_hours(7 * 24);
/// Lifetime of presence and ownership keys after their last renewal.
pub const LEASE: Duration = Duration::from_secs(15);
/// Time within which the server drops repeated messages by their id; later repeats are dropped by readers.
const DEDUPE_WINDOW: Duration = Duration::from_mins(10);
const MONTH: Duration = Duration::from_hours(30 * 24);

const KIB: i64 = 1024;
const MIB: i64 = 1024 * KIB;
/// 480 nodes with 4,000 services have commands of less than 400 MiB, 64 switches less than 7 MiB.
const COMMANDS: Bound = Bound { bytes: 512 * MIB, message: 2 * MIB };
/// 64 switches with 4,000 VLANs each have parts of 20 MiB.
const PARTS: Bound = Bound { bytes: 128 * MIB, message: 2 * MIB };
const MAX_PARTS: i64 = 200_000;
const RESULTS: Bound = Bound { bytes: 512 * MIB, message: 2 * MIB };
/// More targets than an installation has. The server keeps each subject in memory.
const MAX_RESULTS: i64 = 100_000;
/// A transition has the whole object, of which the API server stores at most 1.5 MiB.
const TRANSITIONS: Bound = Bound { bytes: 1024 * MIB, message: 2 * MIB };
const HISTORY: Bound = Bound { bytes: 192 * MIB, message: 2 * MIB };
const MAX_HISTORY: i64 = 500_000;
const DEAD_LETTERS: Bound = Bound { bytes: 256 * MIB, message: 2 * MIB };
const DRIVERS: Bound = Bound { bytes: 16 * MIB, message: 64 * KIB };
const OWNERS: Bound = Bound { bytes: 16 * MIB, message: 4 * KIB };
const CALLBACKS: Bound = Bound { bytes: 64 * MIB, message: 64 * KIB };

/// Maximum size of a stream and of one message in it, in bytes.
#[derive(Clone, Copy)]
struct Bound {
    bytes: i64,
    message: i64,
}

impl Bound {
    fn message(self) -> i32 {
        i32::try_from(self.message).unwrap_or(i32::MAX)
    }
}

/// Why a stream could not be created or updated. A retry helps when the server was busy or unreachable.
#[derive(Debug, thiserror::Error)]
#[error("{operation} NATS stream {stream}: {source}{remedy}")]
pub struct StreamError {
    operation: &'static str,
    stream: String,
    source: async_nats::Error,
    remedy: &'static str,
}

impl StreamError {
    fn new(operation: &'static str, stream: &str, source: impl Into<async_nats::Error>) -> Self {
        let source = source.into();
        let remedy = if lacks_space(&*source) { "; max_file_store of NATS is too small" } else { "" };
        Self { operation, stream: stream.to_owned(), source, remedy }
    }
}

fn lacks_space(error: &(dyn std::error::Error + 'static)) -> bool {
    error_code(error) == Some(ErrorCode::STORAGE_RESOURCES_EXCEEDED)
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
    /// Number of its messages.
    pub messages: u64,
    /// Maximum number of its messages; `None`: there is none.
    pub max_messages: Option<u64>,
}

impl StreamUse {
    fn of(info: &Info) -> Self {
        let limit = |limit: i64| u64::try_from(limit).ok().filter(|limit| *limit > 0);
        Self {
            stream: info.config.name.clone(),
            bytes: info.state.bytes,
            limit: limit(info.config.max_bytes),
            messages: info.state.messages,
            max_messages: limit(info.config.max_messages),
        }
    }

    /// The part of its limits that is used, from 0 to 1.
    pub fn fill_ratio(&self) -> f64 {
        // Sizes and counts are far below the limit of exact floating point.
        #[allow(clippy::cast_precision_loss)]
        let ratio = |used: u64, limit: Option<u64>| limit.map_or(0.0, |limit| used as f64 / limit as f64);
        ratio(self.bytes, self.limit).max(ratio(self.messages, self.max_messages))
    }
}

/// Creates missing streams and buckets and updates others to this version's configuration. Several processes
/// may do so at once. The engine calls it; drivers lack the permission and wait until the streams exist. Returns what
/// the streams hold that existed before. A stream that an upgrade adds has no bound if the server lacks the space.
pub async fn ensure_streams(jetstream: &Context, replicas: usize) -> Result<Vec<StreamUse>, StreamError> {
    let mut uses = Vec::new();
    for wanted in streams(replicas) {
        let ensured = match ensure_stream(jetstream, wanted.clone()).await {
            Err(error) if !uses.is_empty() && lacks_space(&*error.source) => {
                ensure_stream(jetstream, Config { max_bytes: -1, ..wanted }).await
            }
            ensured => ensured,
        };
        uses.extend(ensured?);
    }
    Ok(uses)
}

/// Returns what the stream holds if it existed before.
async fn ensure_stream(jetstream: &Context, wanted: Config) -> Result<Option<StreamUse>, StreamError> {
    let Some(info) = create(jetstream, &wanted).await? else { return Ok(None) };
    let found_use = StreamUse::of(&info);
    let wanted = without_loss(&info, wanted);
    let found = info.config;
    if differs(&found, &wanted) {
        let name = wanted.name.clone();
        let updated = jetstream.update_stream(&Config { metadata: found.metadata, ..wanted }).await;
        accept_missing_space(&name, updated)?;
    }
    Ok(Some(found_use))
}

/// Keeps the present bound of a stream that drops its oldest messages while it holds more than the wanted one.
fn without_loss(found: &Info, wanted: Config) -> Config {
    let present = found.config.max_bytes;
    let drops = wanted.discard == DiscardPolicy::Old && (present <= 0 || present > wanted.max_bytes);
    let fits =
        // Its writer goes on meanwhile.
        i64::try_from(found.state.bytes).is_ok_and(|bytes| bytes <= wanted.max_bytes / 16 * 15);
    if drops && !fits { Config { max_bytes: present, ..wanted } } else { wanted }
}

/// A server with less space than the sum of the bounds refuses a bound. The stream goes on without it.
fn accept_missing_space<T, E>(stream: &str, updated: Result<T, E>) -> Result<(), StreamError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    match updated {
        Err(error) if lacks_space(&error) => {
            debug!(stream, "NATS has no space to reserve for the stream");
            Ok(())
        }
        updated => updated.map(drop).map_err(|error| StreamError::new("updating", stream, error)),
    }
}

fn streams(replicas: usize) -> Vec<Config> {
    [plain_streams(replicas), buckets(replicas).into()].concat()
}

fn plain_streams(replicas: usize) -> Vec<Config> {
    let base = |name: &str, bound: Bound, kind: SubjectKind, description: &str| Config {
        name: name.into(),
        description: Some(description.into()),
        subjects: vec![kind.all()],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        storage: StorageType::File,
        num_replicas: replicas,
        max_messages: -1,
        max_bytes: bound.bytes,
        max_message_size: bound.message(),
        max_messages_per_subject: -1,
        duplicate_window: Duration::from_mins(2),
        ..Config::default()
    };
    // A full stream keeps the last message of each subject, and takes its successor of the same size.
    let last_value =
        |config: Config| Config { max_messages_per_subject: 1, discard: DiscardPolicy::New, ..config };
    let week = |config: Config| Config { max_age: WEEK, ..config };
    vec![
        last_value(base(
            subject::COMMANDS,
            COMMANDS,
            SubjectKind::Command,
            "The desired state of each target",
        )),
        Config {
            max_messages: MAX_PARTS,
            ..last_value(base(subject::PARTS, PARTS, SubjectKind::Part, "Parts of desired states"))
        },
        Config {
            // Direct reads carry the subject in the request's subject, so that permissions can restrict each
            // driver to its own.
            allow_direct: true,
            max_messages: MAX_RESULTS,
            ..last_value(base(
                subject::RESULTS,
                RESULTS,
                SubjectKind::Result,
                "What was last read back from each target",
            ))
        },
        Config {
            allow_direct: true,
            duplicate_window: DEDUPE_WINDOW,
            ..week(base(
                subject::TRANSITIONS,
                TRANSITIONS,
                SubjectKind::Transition,
                "The outbox: phase changes of 7 days",
            ))
        },
        Config {
            max_messages: MAX_HISTORY,
            ..week(base(subject::HISTORY, HISTORY, SubjectKind::History, "Reports of 7 days"))
        },
        Config {
            max_age: MONTH,
            // A message that is repeated after a crash is stored once.
            duplicate_window: DEDUPE_WINDOW,
            ..base(
                subject::DEAD_LETTERS,
                DEAD_LETTERS,
                SubjectKind::DeadLetter,
                "Callbacks that were given up",
            )
        },
    ]
}

/// The buckets, as the streams that they are.
fn buckets(replicas: usize) -> [Config; 3] {
    let lease = |bucket: &str, bound: Bound, description: &str| Config {
        name: subject::bucket_stream(bucket),
        description: Some(description.into()),
        subjects: vec![subject::of_bucket(bucket, ">")],
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: replicas,
        max_messages: -1,
        max_messages_per_subject: 1,
        max_bytes: bound.bytes,
        max_message_size: bound.message(),
        max_age: LEASE,
        deny_delete: true,
        allow_direct: true,
        // Servers turn it on for streams with delete markers.
        allow_rollup: true,
        // Readers are told when a key expires, and delete markers may expire themselves.
        allow_message_ttl: true,
        subject_delete_marker_ttl: Some(LEASE),
        ..Config::default()
    };
    [
        lease(subject::DRIVERS, DRIVERS, "The drivers that are alive"),
        lease(subject::OWNERS, OWNERS, "Which driver instance works on which target"),
        Config {
            max_age: Duration::ZERO,
            ..lease(subject::CALLBACKS, CALLBACKS, "How far each object's callbacks are delivered")
        },
    ]
}

/// Compares only the settings of this version: a server adds others.
fn differs(found: &Config, wanted: &Config) -> bool {
    found.subjects != wanted.subjects
        || found.max_messages_per_subject != wanted.max_messages_per_subject
        || found.max_age != wanted.max_age
        || found.max_bytes != wanted.max_bytes
        || found.max_messages != wanted.max_messages
        || found.max_message_size != wanted.max_message_size
        || found.discard != wanted.discard
        || found.allow_direct != wanted.allow_direct
        || found.subject_delete_marker_ttl != wanted.subject_delete_marker_ttl
        || (found.duplicate_window != wanted.duplicate_window && !wanted.duplicate_window.is_zero())
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

#[cfg(test)]
mod tests;
