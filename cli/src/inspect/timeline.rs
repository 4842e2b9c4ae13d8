//! What happened to an object, from all that NATS remembers.

use eno_schemas::{Delivery, DeliveryEnd, Outcome, Phase, Report, Transition};
use serde::Serialize;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// RFC 3339.
    pub at: String,
    /// `phase`, `callback`, or the target that a driver worked on.
    pub what: String,
    /// In words.
    pub text: String,
}

/// A phase change.
pub(crate) fn of_transition(transition: &Transition) -> Entry {
    let message = transition.object.pointer("/status/message").and_then(serde_json::Value::as_str);
    let message = message.filter(|message| !message.is_empty()).map(|message| format!(": {message}"));
    Entry {
        at: transition.at.clone(),
        what: "phase".into(),
        text: format!("{}{}", transition.phase, message.unwrap_or_default()),
    }
}

/// A try of a callback.
pub(crate) fn of_delivery(delivery: &Delivery) -> Entry {
    let phase = delivery.phase;
    let text = match &delivery.end {
        DeliveryEnd::Delivered => format!("{phase} delivered in {} ms", delivery.took_ms),
        DeliveryEnd::Failed { error } => format!("{phase} not taken, to be tried again: {error}"),
        DeliveryEnd::GivenUp { error } => format!("{phase} given up: {error}"),
    };
    Entry { at: delivery.at.clone(), what: "callback".into(), text }
}

/// What a driver did to a target, if it is worth a line.
pub(crate) fn of_report(report: &Report) -> Option<Entry> {
    let text = match (&report.outcome, &report.change) {
        (Outcome::Applied, Some(change)) => {
            let part = change.transaction.as_ref().map(|id| format!(" in transaction {id}"));
            format!(
                "{} added, {} removed in {} ms{}",
                change.added,
                change.removed,
                change.took_ms,
                part.unwrap_or_default()
            )
        }
        (Outcome::Applied, None) if report.rejected.is_empty() => return None,
        (Outcome::Applied, None) => format!("{} refused", report.rejected[0].item),
        (Outcome::Held, _) => "verified, and held for the others".into(),
        (Outcome::RolledBack { reason }, _) => format!("rolled back: {reason}"),
        (Outcome::Failed(failure), _) => format!("failed: {}", failure.reason),
        (Outcome::Progress { .. }, _) => return None,
    };
    Some(Entry { at: report.at.clone(), what: format!("{} {}", report.driver, report.target), text })
}

/// The times in which something was under way, each from a phase that is not settled to one that is; `None`: still.
pub(crate) fn busy(transitions: &[Transition]) -> Vec<(&str, Option<&str>)> {
    let mut times: Vec<(&str, Option<&str>)> = Vec::new();
    let mut open = false;
    for transition in transitions {
        let settled = matches!(transition.phase, Phase::Ready | Phase::Error | Phase::Deleted);
        match (settled, times.last_mut()) {
            (true, Some(last)) if open => last.1 = Some(&transition.at),
            (true, _) => times.push((&transition.at, Some(&transition.at))),
            (false, _) if !open => times.push((&transition.at, None)),
            (false, _) => {}
        }
        open = !settled;
    }
    times
}

/// True when `at` is in one of `times`. Times of one length compare as text; drivers' clocks may be a little off.
pub(crate) fn is_in(at: &str, times: &[(&str, Option<&str>)]) -> bool {
    times.iter().any(|(from, until)| at >= *from && until.is_none_or(|until| cut(at) <= cut(until)))
}

/// To the second.
fn cut(at: &str) -> &str {
    at.get(..19).unwrap_or(at)
}
