//! The condition `Stalled`. kstatus, and with it Flux and Helm, takes it for a failure, and any other error for
//! progress.
//!
//! It holds at once for an error that only another spec can end. For a transient error it holds after
//! [`crate::STALLED_AFTER`]. Until then it is present with the status False, and its time is when the error began, so
//! that the next leader knows it.

use eno_schemas::Phase;

use crate::{Condition, ConditionReason, ConditionType, Effect, Key, Name};

use crate::store::record::Record;
use crate::work::Work;

const TRANSIENT_MESSAGE: &str = "the error may pass; it counts as stalled once it has stood for 60 s";

/// Requests the deadline of a transient error, once.
pub(crate) fn start_deadline(record: &mut Record, key: &Key, work: &mut Work) {
    let since = stalled(record).filter(|stalled| !stalled.holds).map(|stalled| stalled.since.clone());
    if since.as_ref() == record.deadline.as_ref().map(|(since, _)| since) {
        return;
    }
    record.deadline = since.clone().map(|since| (since, false));
    work.effects.extend(since.map(|since| Effect::Deadline { key: key.clone(), since }));
}

/// The deadline of an error that began at `since` is over.
pub(crate) fn deadline_exceeded(record: &mut Record, key: &Key, since: &Name, work: &mut Work) {
    if let Some((_, exceeded)) = record.deadline.as_mut().filter(|(own, _)| own == since) {
        *exceeded = true;
        work.evaluate.insert(key.clone());
    }
}

/// The condition of an object in error. `permanent`: only another spec helps.
pub(crate) fn condition(
    record: &Record,
    reason: ConditionReason,
    message: &str,
    permanent: bool,
    now: &Name,
) -> Condition {
    let last = &record.status;
    let same = last.phase == Some(Phase::Error)
        && last.observed_generation == record.generation
        && last.message == message;
    let before = stalled(record).filter(|_| same);
    let exceeded = record.deadline.as_ref().is_some_and(|(_, exceeded)| *exceeded);
    let holds = permanent || before.is_some_and(|before| before.holds || exceeded);
    let since = before.filter(|before| before.holds == holds).map_or(now, |before| &before.since).clone();
    let (reason, message) =
        if holds { (reason, message) } else { (ConditionReason::Recoverable, TRANSIENT_MESSAGE) };
    Condition { kind: ConditionType::Stalled, holds, reason, message: message.to_owned(), since }
}

fn stalled(record: &Record) -> Option<&Condition> {
    record.status.conditions.iter().find(|condition| condition.kind == ConditionType::Stalled)
}
