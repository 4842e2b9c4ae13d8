//! The history of an object from the streams of NATS.

use eno_schemas::{Delivery, DeliveryEnd, Outcome, Phase, Report, Text, Transition};
use serde::Serialize;

use crate::inspect::output::name;

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
    /// What kind of thing happened.
    pub kind: EntryKind,
    /// The object, or the driver and the target.
    pub subject: String,
    /// It is a failure.
    pub failed: bool,
    /// How long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The transaction over several switches that it was a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction: Option<String>,
    /// The phase that the object is in since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EntryKind {
    /// A change of the phase.
    Phase,
    /// An attempt to post a callback.
    Callback,
    /// A report of a driver.
    Report,
    /// A command to a driver.
    Command,
    /// An Event of Kubernetes.
    Event,
}

impl Entry {
    pub(crate) fn new(at: &str, kind: EntryKind, subject: String, what: String, text: &str) -> Self {
        Self {
            at: at.to_owned(),
            what,
            text: Text::new(text).into(),
            kind,
            subject,
            failed: false,
            took_ms: None,
            transaction: None,
            phase: None,
        }
    }
}

/// A transition's object, as `KIND/NAME` or `KIND/NAMESPACE/NAME`.
fn object_of(transition: &Transition) -> String {
    name(&transition.kind, transition.namespace.as_deref(), &transition.name)
}

/// The entry of a transition.
pub(crate) fn of_transition(transition: &Transition) -> Entry {
    let message = transition.object.pointer("/status/message").and_then(serde_json::Value::as_str);
    let message = message.filter(|message| !message.is_empty()).map(|message| format!(": {message}"));
    let text = format!("{}{}", transition.phase, message.unwrap_or_default());
    Entry {
        failed: transition.phase == Phase::Error,
        phase: Some(transition.phase),
        ..Entry::new(&transition.at, EntryKind::Phase, object_of(transition), "phase".into(), &text)
    }
}

/// The entry of an attempt to post a callback of an object.
pub(crate) fn of_delivery(delivery: &Delivery, object: &str) -> Entry {
    let phase = delivery.phase;
    let text = match &delivery.end {
        DeliveryEnd::Delivered => format!("{phase} delivered in {} ms", delivery.took_ms),
        DeliveryEnd::Failed { error } => format!("{phase} not taken, to be tried again: {error}"),
        DeliveryEnd::GivenUp { error } => format!("{phase} given up: {error}"),
    };
    Entry {
        failed: !matches!(delivery.end, DeliveryEnd::Delivered),
        took_ms: Some(delivery.took_ms),
        ..Entry::new(&delivery.at, EntryKind::Callback, object.to_owned(), "callback".into(), &text)
    }
}

/// The entry of a report, if it is relevant. Its texts may name any object: without `texts` they are left out.
pub(crate) fn of_report(report: &Report, texts: bool) -> Option<Entry> {
    let reason = |reason: &str| if texts { format!(": {reason}") } else { String::new() };
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
        (Outcome::Applied, None) => {
            format!("{} refused{}", report.rejected[0].item, reason(&report.rejected[0].reason))
        }
        (Outcome::Held, _) => "verified, and held for the others".into(),
        (Outcome::RolledBack { reason: why }, _) => format!("rolled back{}", reason(why)),
        (Outcome::Failed(failure), _) => format!("failed{}", reason(&failure.reason)),
        (Outcome::Progress { .. }, _) => return None,
    };
    let target = format!("{} {}", report.driver, report.target);
    Some(Entry {
        failed: matches!(report.outcome, Outcome::Failed(_) | Outcome::RolledBack { .. })
            || !report.rejected.is_empty(),
        took_ms: report.change.as_ref().map(|change| change.took_ms),
        transaction: report.change.as_ref().and_then(|change| change.transaction.clone()),
        ..Entry::new(&report.at, EntryKind::Report, target.clone(), target, &text)
    })
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
