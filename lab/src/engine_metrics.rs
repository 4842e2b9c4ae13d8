//! Reads the metrics of the engine and of drivers: pending work, and bytes sent.

/// Gauges of pending work.
const PENDING_WORK: [&str; 4] = [
    "eno_engine_mailbox",
    "eno_engine_publish_waiting",
    "eno_engine_publish_outstanding",
    "eno_engine_outbox_lag",
];

/// The value of a metric without labels.
pub(crate) fn value(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok())
}

/// Seconds from the start of leading until everything was computed and published; 0: not yet. Before that, the other
/// gauges are 0 and mean nothing.
pub(crate) const CAUGHT_UP: &str = "eno_engine_catch_up_seconds";

/// The bytes that a process sent to NATS: the engine's and the drivers' metric.
pub(crate) const SENT_BYTES: [&str; 2] =
    ["eno_engine_nats_sent_bytes_total", "eno_driver_nats_sent_bytes_total"];

/// A description of the pending work; `None`: there is none.
pub(crate) fn pending_work(metrics: &str) -> Option<String> {
    if value(metrics, CAUGHT_UP).is_none_or(|seconds| seconds <= 0.0) {
        return Some(format!("{CAUGHT_UP} is 0"));
    }
    let pending = PENDING_WORK.into_iter().find(|name| value(metrics, name) != Some(0.0));
    pending.map(|name| format!("{name} is not 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_without_publishes_is_not_idle() {
        let metrics = |seconds: &str, waiting: u32| {
            format!(
                "eno_engine_mailbox 0\neno_engine_publish_waiting {waiting}\neno_engine_publish_outstanding 0\n\
                 eno_engine_outbox_lag 0\neno_engine_settle_seconds_count 1\neno_engine_catch_up_seconds {seconds}\n"
            )
        };
        assert_eq!(pending_work(&metrics("0.25", 0)), None);
        // It has computed the outcome, and has not yet compared it with what is published.
        assert_eq!(pending_work(&metrics("0.0", 0)).as_deref(), Some("eno_engine_catch_up_seconds is 0"));
        assert_eq!(pending_work(&metrics("0.25", 1)).as_deref(), Some("eno_engine_publish_waiting is not 0"));
        assert!(pending_work("").is_some());
    }
}
