//! What an engine's metrics say of what it has still to do.

/// What is under way when one of these gauges is not 0.
const UNDER_WAY: [&str; 4] = [
    "eno_engine_mailbox",
    "eno_engine_publish_waiting",
    "eno_engine_publish_outstanding",
    "eno_engine_outbox_lag",
];

/// A metric without labels.
pub(crate) fn value(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok())
}

/// The first gauge that says that something is under way, or that is not there.
pub(crate) fn under_way(metrics: &str) -> Option<&'static str> {
    UNDER_WAY.into_iter().find(|name| value(metrics, name) != Some(0.0))
}
