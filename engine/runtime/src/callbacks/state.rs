//! The stored state of callbacks, in the bucket `ENO_CALLBACKS`. The key `floor` has the creation time of the outbox
//! and a sequence in it. `at.<object>` is the entry of an object whose endpoint failed, with the object as in the
//! subject of its transitions. `told.<object>` records that an object has the condition, as [`Undelivered`].

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::kv::{Entry, Operation, PurgeError, Store, Watch};
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use bytes::Bytes;
use eno_core::Name;
use eno_schemas::SubjectKind;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use tracing::warn;

use super::Newest;
use super::attempt::if_found;
use super::message::address;
use super::notices::{Notices, Undelivered};
use super::schedule::{self, Schedule};

const FLOOR_KEY: &str = "floor";
const ENTRY_PREFIX: &str = "at.";
/// Key prefix of an [`Undelivered`], before the object.
pub const UNDELIVERED_PREFIX: &str = "told.";
/// Maximum concurrent requests to NATS.
const MAX_CONCURRENT_READS: usize = 64;
/// How long NATS keeps the tombstone of a deleted key. Permanent ones would add up to two for each object that ever
/// had a failing callback.
const TOMBSTONE_TTL: Duration = Duration::from_secs(15);

/// The last sequence up to which the outbox is unchanged since the newest transition was read. A server that was
/// killed may lose the end of the outbox and reuse its sequences.
pub async fn intact_until(stream: &Stream, newest: Newest) -> Result<u64, async_nats::Error> {
    let info = stream.get_info().await?;
    let last = info.state.last_sequence;
    let Some((sequence, published)) = newest else { return Ok(last) };
    match if_found(stream.get_raw_message(sequence).await)? {
        Some(message) if message.time.unix_timestamp_nanos() == published => return Ok(last),
        // The message has expired.
        None if last >= sequence => return Ok(last),
        Some(_) | None => {}
    }
    let since = published + 1 - info.created.unix_timestamp_nanos();
    let start_time = info.created + Duration::from_nanos(u64::try_from(since).unwrap_or_default());
    let consumer = stream.create_consumer(pull::OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartTime { start_time },
        ..pull::OrderedConfig::default()
    });
    Ok(consumer.await?.info().await?.delivered.stream_sequence)
}

/// Loads the stored state. `newest`: the newest transition that this process read before.
pub async fn load(
    bucket: &Store,
    stream: &Stream,
    newest: &mut Newest,
    notice_delay: i64,
) -> Result<(Schedule, Notices), async_nats::Error> {
    let outbox = stream.get_info().await?.created.unix_timestamp_nanos();
    let floor = bucket.get(FLOOR_KEY).await?.and_then(|value| parse(&value));
    let keys: Vec<String> = bucket.keys().await?.try_collect().await?;
    let (undelivered_keys, keys): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|key| key.starts_with(UNDELIVERED_PREFIX));
    let keys: Vec<_> = keys.into_iter().filter(|key| key.starts_with(ENTRY_PREFIX)).collect();
    let written = match floor {
        Some((created, floor)) if created == outbox => floor,
        None => 0,
        Some(_) => {
            warn!(objects = keys.len(), "the outbox was lost, and the callbacks that were waiting in it");
            for key in keys {
                delete_key(bucket, &key).await?;
            }
            *newest = None;
            let schedule = Schedule::new(outbox, 0);
            let notices = notices(bucket, undelivered_keys, &schedule, true, notice_delay).await?;
            return Ok((schedule, notices));
        }
    };
    let end = intact_until(stream, *newest).await?;
    *newest = newest.filter(|(sequence, _)| *sequence <= end);
    let floor = written.min(end);
    let mut schedule = Schedule::new(outbox, floor);
    schedule.saved = written;
    let entries = stream::iter(keys).map(async |key| {
        let object = Name::from(key.strip_prefix(ENTRY_PREFIX).unwrap_or(&key));
        let Some(value) = bucket.get(key).await? else { return Ok(None) };
        let entry: schedule::Entry = match serde_json::from_slice(&value) {
            Ok(entry) => entry,
            Err(error) => {
                warn!(object = &*object, %error, "what is remembered of an object's callbacks can't be read");
                schedule::Entry { from: 0, attempts: 0, next_try: 0, last_error: String::new() }
            }
        };
        let pending = pending(stream, &object, entry.from, floor).await?;
        Ok::<_, async_nats::Error>(Some((object, entry, pending)))
    });
    let entries: Vec<_> = entries.buffer_unordered(MAX_CONCURRENT_READS).try_collect().await?;
    for (object, entry, pending) in entries.into_iter().flatten() {
        schedule.restore(object, entry, pending);
    }
    let notices = notices(bucket, undelivered_keys, &schedule, false, notice_delay).await?;
    Ok((schedule, notices))
}

/// Restores the notices. `lost`: the outbox was lost, so nothing is pending.
async fn notices(
    bucket: &Store,
    keys: Vec<String>,
    schedule: &Schedule,
    lost: bool,
    delay: i64,
) -> Result<Notices, async_nats::Error> {
    let now = Timestamp::now().as_millisecond();
    let read = stream::iter(keys).map(async |key| {
        let value = bucket.get(&key).await?;
        Ok::<_, async_nats::Error>((key, value))
    });
    let read: Vec<_> = read.buffer_unordered(MAX_CONCURRENT_READS).try_collect().await?;
    let mut notices = Notices::new(delay);
    for (key, value) in read {
        let Some(mut about) = value.and_then(|value| undelivered(&key, &value)) else { continue };
        if lost && about.next_try.take().is_some() {
            "the outbox was lost, and the callback in it".clone_into(&mut about.error);
            about.shown = Some(about.error.clone());
        }
        restore(&mut notices, &key, about, schedule, now);
    }
    Ok(notices)
}

/// Decodes the record of an object's condition.
fn undelivered(key: &str, value: &[u8]) -> Option<Undelivered> {
    let about = serde_json::from_slice(value);
    about.inspect_err(|error| warn!(key, %error, "the state of an object's callbacks can't be read")).ok()
}

fn restore(notices: &mut Notices, key: &str, about: Undelivered, schedule: &Schedule, now: i64) {
    let object = Name::from(key.strip_prefix(UNDELIVERED_PREFIX).unwrap_or(key));
    // It was to be retried, and is not pending any more.
    let settled =
        about.next_try.is_some() && about.sequence <= schedule.read() && !schedule.is_waiting(&object);
    notices.restore(&object, about, settled, now);
}

/// Follows the entries of the bucket. A NATS server that was killed may restore deleted entries and never expire their
/// tombstones. So all entries are read again after the tombstones should have expired.
pub struct EntryWatch {
    changes: Watch,
    /// When all entries are read again, and the last revision of tombstones that have to be expired by then.
    reread: Option<(Instant, u64)>,
    /// Tombstones up to this revision have to be expired.
    expired: u64,
}

impl EntryWatch {
    pub async fn read(bucket: &Store) -> Result<Self, async_nats::Error> {
        let last = bucket.stream.get_info().await?.state.last_sequence;
        let reread = Some((Instant::now() + 2 * TOMBSTONE_TTL, last));
        Ok(Self { changes: watch_all(bucket).await?, reread, expired: 0 })
    }

    /// Reads all entries again when that is due.
    pub async fn read_again(&mut self, bucket: &Store) -> Result<(), async_nats::Error> {
        if let Some((_, last)) = self.reread.filter(|(at, _)| *at <= Instant::now()) {
            self.changes = watch_all(bucket).await?;
            (self.expired, self.reread) = (last, None);
        }
        Ok(())
    }

    /// Makes the next reading due.
    #[cfg(test)]
    pub fn make_reread_due(&mut self) {
        self.reread = self.reread.map(|(_, last)| (Instant::now(), last));
    }

    pub async fn next(&mut self) -> Result<Entry, async_nats::Error> {
        Ok(self.changes.next().await.ok_or("the bucket is no longer watched")??)
    }

    /// Applies an entry that is not known here: NATS restored it, or a paused former leader wrote it. True: it is not
    /// needed and has to be deleted.
    pub fn apply_entry(
        &self,
        entry: &Entry,
        schedule: &mut Schedule,
        notices: &mut Notices,
        now: i64,
    ) -> bool {
        let expired = entry.revision <= self.expired;
        if let Some(object) = entry.key.strip_prefix(ENTRY_PREFIX).map(Name::from) {
            if entry.operation == Operation::Put {
                if serde_json::from_slice::<schedule::Entry>(&entry.value).is_err() {
                    return !schedule.entry_missing(&object);
                }
                schedule.entry_found(&object);
                return false;
            }
            return !schedule.entry_missing(&object) && expired;
        }
        let Some(object) = entry.key.strip_prefix(UNDELIVERED_PREFIX).map(Name::from) else {
            // Somebody else wrote the floor: it is written again.
            if entry.key == FLOOR_KEY && parse(&entry.value).is_none() {
                schedule.saved = 0;
            }
            return false;
        };
        if notices.contains(&object) {
            return false;
        }
        if entry.operation != Operation::Put {
            return expired;
        }
        match undelivered(&entry.key, &entry.value) {
            Some(about) if about.next_try.is_some() || schedule.is_waiting(&object) => {
                restore(notices, &entry.key, about, schedule, now);
                false
            }
            // The final failure is recorded already, possibly with later ones.
            Some(_) | None => true,
        }
    }
}

/// All entries of the bucket by sequence, and then their changes. After a kill, the server's index by subject may lack
/// restored entries.
async fn watch_all(bucket: &Store) -> Result<Watch, async_nats::Error> {
    Ok(bucket.watch_all_from_revision(1).await?)
}

/// Deletes a key.
pub async fn delete_key(bucket: &Store, key: &str) -> Result<(), PurgeError> {
    bucket.purge_with_ttl(key, TOMBSTONE_TTL).await
}

/// The creation time of the outbox, and the sequence in it.
fn parse(value: &[u8]) -> Option<(i128, u64)> {
    let (created, floor) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((created.parse().ok()?, floor.parse().ok()?))
}

/// The transitions of an object with an endpoint, between two sequences inclusive.
async fn pending(
    stream: &Stream,
    object: &str,
    from: u64,
    to: u64,
) -> Result<Vec<(u64, Name)>, async_nats::Error> {
    let subject = SubjectKind::Transition.with_tokens(object);
    let mut waiting = Vec::new();
    let mut next = from.max(1);
    while next <= to {
        let message = match stream.direct_get_next_for_subject(&subject, Some(next)).await {
            // A replica may lag behind and not have the message yet.
            Err(error) if matches!(error.kind(), DirectGetErrorKind::NotFound) => {
                if_found(stream.get_first_raw_message_by_subject(&subject, next).await)?
            }
            read => Some(read?),
        };
        let Some(message) = message.filter(|message| message.sequence <= to) else { break };
        next = message.sequence + 1;
        let host = address(&message.payload).ok().and_then(|address| address.host);
        waiting.extend(host.map(|host| (message.sequence, host)));
    }
    Ok(waiting)
}

/// Writes the changes: new entries before the floor that relies on them, deletions after it.
pub async fn save(bucket: &Store, schedule: &mut Schedule) -> Result<(), async_nats::Error> {
    let (entries, ends): (Vec<_>, Vec<_>) =
        schedule.changes().into_iter().partition(|change| change.entry.is_some());
    let written = stream::iter(entries).map(async |change| {
        let value = Bytes::from(serde_json::to_vec(&change.entry)?);
        bucket.put(format!("{ENTRY_PREFIX}{}", change.object), value).await?;
        Ok::<_, async_nats::Error>(change)
    });
    let written: Vec<_> = written.buffer_unordered(MAX_CONCURRENT_READS).try_collect().await?;
    for change in &written {
        schedule.change_saved(change);
    }
    let floor = schedule.floor();
    if schedule.saved != floor {
        bucket.put(FLOOR_KEY, Bytes::from(format!("{} {floor}", schedule.outbox))).await?;
        schedule.saved = floor;
    }
    let ended = stream::iter(ends).map(async |change| {
        delete_key(bucket, &format!("{ENTRY_PREFIX}{}", change.object)).await?;
        Ok::<_, async_nats::Error>(change)
    });
    let ended: Vec<_> = ended.buffer_unordered(MAX_CONCURRENT_READS).try_collect().await?;
    for change in &ended {
        schedule.change_saved(change);
    }
    Ok(())
}
