//! Whether NATS stores what this process writes.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, PublishError, PublishErrorKind,
};
use async_nats::jetstream::kv::{UpdateError, UpdateErrorKind};

/// How long writes may stay unanswered before that counts as a refusal. A server that restarts takes less.
const MAX_SILENCE: Duration = Duration::from_secs(15);
/// A failure that was not repeated within this time is over: its writer gave up. Writers retry within 30 s.
const EXPIRY: Duration = Duration::from_mins(1);
/// Codes of a server without space, or without a store.
const REFUSALS: [ErrorCode; 6] = [
    ErrorCode::INSUFFICIENT_RESOURCES,
    ErrorCode::STORAGE_RESOURCES_EXCEEDED,
    ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
    // The stream is full.
    ErrorCode::STREAM_STORE_FAILED,
    ErrorCode::JETSTREAM_NOT_ENABLED,
    ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
];

/// The last failure of each stream that NATS does not store messages in. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StoreHealth(Arc<Mutex<BTreeMap<&'static str, Failure>>>);

#[derive(Debug)]
struct Failure {
    since: Instant,
    last: Instant,
    /// The server said so; else it did not answer.
    is_refused: bool,
    error: String,
}

impl StoreHealth {
    /// Takes note of the result of a write to a stream.
    pub fn note<T, E: Error + 'static>(&self, stream: &'static str, result: &Result<T, E>) {
        self.record(stream, result.as_ref().err().map(|error| error as _), Instant::now());
    }

    /// The same for an error of any type.
    pub fn note_any<T>(&self, stream: &'static str, result: &Result<T, async_nats::Error>) {
        self.record(stream, result.as_ref().err().map(|error| &**error as _), Instant::now());
    }

    fn record(&self, stream: &'static str, error: Option<&(dyn Error + 'static)>, now: Instant) {
        let mut failures = self.lock();
        let Some(error) = error else {
            failures.remove(stream);
            return;
        };
        let Some(is_refused) = is_refused(error) else { return };
        let since = failures.get(stream).filter(|one| !one.is_over(now)).map_or(now, |one| one.since);
        let error = causes(error).last().map(ToString::to_string).unwrap_or_default();
        failures.insert(stream, Failure { since, last: now, is_refused, error });
    }

    /// `Err` says which streams NATS stores nothing in, and why.
    pub fn check(&self) -> Result<(), String> {
        self.check_at(Instant::now())
    }

    fn check_at(&self, now: Instant) -> Result<(), String> {
        let failures = self.lock();
        let stalled: Vec<String> = failures
            .iter()
            .filter(|(_, one)| !one.is_over(now))
            .filter(|(_, one)| one.is_refused || one.last.duration_since(one.since) >= MAX_SILENCE)
            .map(|(stream, one)| format!("NATS stores nothing in {stream}: {}", one.error))
            .collect();
        if stalled.is_empty() { Ok(()) } else { Err(stalled.join("; ")) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failure {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= EXPIRY
    }
}

/// Whether the server refused a write or did not answer; `None`: the error says nothing about the store.
fn is_refused(error: &(dyn Error + 'static)) -> Option<bool> {
    if let Some(code) = error_code(error) {
        return REFUSALS.contains(&code).then_some(true);
    }
    // Nobody answers for the stream: its disk is full, JetStream is off, or the stream is lost.
    let is_unanswered = causes(error).any(|cause| {
        let published = cause.downcast_ref::<PublishError>().map(PublishError::kind);
        let updated = cause.downcast_ref::<UpdateError>().map(UpdateError::kind);
        matches!(published, Some(PublishErrorKind::TimedOut | PublishErrorKind::StreamNotFound))
            || updated == Some(UpdateErrorKind::TimedOut)
    });
    is_unanswered.then_some(false)
}

/// The code in the server's answer, if there was one.
pub(super) fn error_code(error: &(dyn Error + 'static)) -> Option<ErrorCode> {
    causes(error).find_map(|cause| {
        if let Some(answer) = cause.downcast_ref::<async_nats::jetstream::Error>() {
            return Some(answer.error_code());
        }
        match cause.downcast_ref::<CreateStreamError>()?.kind() {
            CreateStreamErrorKind::JetStream(answer) => Some(answer.error_code()),
            _ => None,
        }
    })
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u64) -> Result<(), PublishError> {
        let answer = serde_json::json!({ "code": 503, "err_code": code, "description": "no space" });
        let answer: async_nats::jetstream::Error = serde_json::from_value(answer).unwrap();
        Err(PublishError::with_source(PublishErrorKind::Other, answer))
    }

    #[test]
    fn refusal_counts_at_once_and_ends_with_the_next_stored_message() {
        let health = StoreHealth::default();
        health.note("A", &refused(10077));
        health.note("B", &Ok::<_, PublishError>(()));
        assert_eq!(
            health.check(),
            Err("NATS stores nothing in A: no space (code 503, error code 10077)".to_owned())
        );
        // A wrong sequence says nothing of the store.
        health.note("A", &refused(10071));
        assert!(health.check().is_err());
        health.note("A", &Ok::<_, PublishError>(()));
        assert_eq!(health.check(), Ok(()));
    }

    #[test]
    fn silence_counts_when_it_lasts_and_ends_when_nobody_writes() {
        let health = StoreHealth::default();
        let silence = PublishError::new(PublishErrorKind::TimedOut);
        let start = Instant::now();
        health.record("A", Some(&silence), start);
        assert_eq!(health.check_at(start), Ok(()));
        let later = start + MAX_SILENCE;
        health.record("A", Some(&silence), later);
        assert!(health.check_at(later).is_err());
        assert_eq!(health.check_at(later + EXPIRY), Ok(()));
        // The next silence begins anew.
        health.record("A", Some(&silence), later + EXPIRY);
        assert_eq!(health.check_at(later + EXPIRY), Ok(()));
    }
}
