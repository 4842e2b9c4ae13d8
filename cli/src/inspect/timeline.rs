//! The history of an object from the streams of NATS.

use eno_schemas::{Delivery, DeliveryEnd, Outcome, Phase, Report, Transition};
use serde::Serialize;

/// An entry of the history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// RFC 3339.
    pub at: String,
    /// `phase`, `callback`, or the driver and target of a report.
    pub what: String,
    /// The description.
    pub text: String,
}

/// The entry of a transition.
pub(crate) fn of_transition(transition: &Transition) -> Entry {
    let message = transition.object.pointer("/status/message").and_then(serde_json::Value::as_str);
    let message = message.filter(|message| !message.is_empty()).map(|message| format!(": {message}"));
    Entry {
        at: transition.at.clone(),
        what: "phase".into(),
        text: format!("{}{}", transition.phase, message.unwrap_or_default()),
    }
}

/// The entry of a callback attempt.
pub(crate) fn of_delivery(delivery: &Delivery) -> Entry {
    let phase = delivery.phase;
    let text = match &delivery.end {
        DeliveryEnd::Delivered => format!("{phase} delivered in {} ms", delivery.took_ms),
        DeliveryEnd::Failed { error } => format!("{phase} not taken, to be tried again: {error}"),
        DeliveryEnd::GivenUp { error } => format!("{phase} given up: {error}"),
    };
    Entry { at: delivery.at.clone(), what: "callback".into(), text }
}

/// The entry of a report, if it is relevant.
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

/// The periods in which the object was not settled; end `None`: it still is not.
pub(crate) fn unsettled_periods(transitions: &[Transition]) -> Vec<(&str, Option<&str>)> {
    let mut periods: Vec<(&str, Option<&str>)> = Vec::new();
    let mut unsettled = false;
    for transition in transitions {
        let settled = matches!(transition.phase, Phase::Ready | Phase::Error | Phase::Deleted);
        match (settled, periods.last_mut()) {
            (true, Some(last)) if unsettled => last.1 = Some(&transition.at),
            (true, _) => periods.push((&transition.at, Some(&transition.at))),
            (false, _) if !unsettled => periods.push((&transition.at, None)),
            (false, _) => {}
        }
        unsettled = !settled;
    }
    periods
}

/// Whether `at` is in one of `periods`. RFC 3339 times compare as text; ends are compared by the second, since drivers'
/// clocks may differ.
pub(crate) fn is_within(at: &str, periods: &[(&str, Option<&str>)]) -> bool {
    periods
        .iter()
        .any(|(from, until)| at >= *from && until.is_none_or(|until| to_second(at) <= to_second(until)))
}

/// Truncates a time to seconds.
fn to_second(at: &str) -> &str {
    at.get(..19).unwrap_or(at)
}
