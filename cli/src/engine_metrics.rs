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

/// After how many seconds of leading everything was worked out and published; 0: not yet, and then the gauges say
/// nothing, as they begin with 0.
pub(crate) const CAUGHT_UP: &str = "eno_engine_catch_up_seconds";

/// What is still under way, in words.
pub(crate) fn under_way(metrics: &str) -> Option<String> {
    if value(metrics, CAUGHT_UP).is_none_or(|seconds| seconds <= 0.0) {
        return Some(format!("{CAUGHT_UP} is 0"));
    }
    let busy = UNDER_WAY.into_iter().find(|name| value(metrics, name) != Some(0.0));
    busy.map(|name| format!("{name} is not 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_has_published_nothing_yet_is_not_done() {
        let metrics = |seconds: &str, waiting: u32| {
            format!(
                "eno_engine_mailbox 0\neno_engine_publish_waiting {waiting}\neno_engine_publish_outstanding 0\n\
                 eno_engine_outbox_lag 0\neno_engine_settle_seconds_count 1\neno_engine_catch_up_seconds {seconds}\n"
            )
        };
        assert_eq!(under_way(&metrics("0.25", 0)), None);
        // It has worked out what follows, and not begun to look at what of that is published already.
        assert_eq!(under_way(&metrics("0.0", 0)).as_deref(), Some("eno_engine_catch_up_seconds is 0"));
        assert_eq!(under_way(&metrics("0.25", 1)).as_deref(), Some("eno_engine_publish_waiting is not 0"));
        assert!(under_way("").is_some());
    }
}
