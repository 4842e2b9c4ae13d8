//! Checks the messages and consumers that NATS retains. A message for a deleted object would stay for good, and is too
//! small to show in the memory of nats-server.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::Context as _;
use eno_sbi::nats::Connection;
use eno_schemas::subject;
use futures::future::try_join_all;

/// A bucket is a stream too.
const CALLBACKS: &str = "KV_ENO_CALLBACKS";
/// All streams with their number of consumers: each of the six driver instances reads its commands and owners, each of
/// the four that realise switches its parts, and the leading engine all but the owners.
const STREAMS: [(&str, usize); 9] = [
    (subject::COMMANDS, 7),
    (subject::PARTS, 5),
    (subject::RESULTS, 1),
    (subject::TRANSITIONS, 1),
    (subject::HISTORY, 0),
    (subject::DEAD_LETTERS, 0),
    ("KV_ENO_DRIVERS", 1),
    ("KV_ENO_OWNERS", 6),
    (CALLBACKS, 1),
];
/// A switch without VLANs has a root part and a switch part.
const PARTS_OF_AN_EMPTY_SWITCH: u64 = 2;

/// The numbers of messages and consumers of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamState {
    messages: u64,
    consumers: usize,
}

/// The states by stream name.
pub(super) type StreamStates = BTreeMap<&'static str, StreamState>;

/// Reads the states of all streams.
pub(super) async fn read(connection: &Connection) -> anyhow::Result<StreamStates> {
    let states = STREAMS.map(|(name, _)| async move {
        let stream = connection.jetstream.get_stream(name).await;
        let stream = stream.with_context(|| format!("looking at stream {name}"))?;
        let state = &stream.cached_info().state;
        anyhow::Ok((name, StreamState { messages: state.messages, consumers: state.consumer_count }))
    });
    Ok(try_join_all(states).await?.into_iter().collect())
}

/// Violations in the streams. `targets`: the number of switches and definitions, up to their number if each attachment
/// had a definition. A command may also say that a definition must not exist. `all_gone`: no object is left and all
/// stays quiet, so this waits for what expires: consumers of killed processes, and delete markers.
pub(super) fn differences(
    states: &StreamStates,
    targets: &RangeInclusive<usize>,
    all_gone: bool,
) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, readers) in STREAMS {
        let Some(state) = states.get(name) else {
            violations.push(format!("stream {name} is not there"));
            continue;
        };
        let of_targets = [subject::COMMANDS, subject::RESULTS].contains(&name);
        let (min_targets, max_targets) = (*targets.start(), *targets.end());
        if of_targets && !(min_targets as u64..=max_targets as u64).contains(&state.messages) {
            violations.push(format!(
                "stream {name} has {} messages for {min_targets} to {max_targets} targets",
                state.messages
            ));
        }
        let most_parts = PARTS_OF_AN_EMPTY_SWITCH * max_targets as u64;
        if all_gone && name == subject::PARTS && state.messages > most_parts {
            violations
                .push(format!("stream {name} has {} messages for {max_targets} targets", state.messages));
        }
        // One message holds the read position of the outbox.
        if all_gone && name == CALLBACKS && state.messages > 1 {
            violations.push(format!("stream {name} has {} messages for no object", state.messages));
        }
        if all_gone && state.consumers > readers {
            violations.push(format!("stream {name} has {} consumers for {readers} readers", state.consumers));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retained_message_without_an_object_is_found() {
        let mut states: StreamStates =
            STREAMS.map(|(name, consumers)| (name, StreamState { messages: 1, consumers })).into();
        let targets = [subject::COMMANDS, subject::RESULTS];
        let mut set_state = |name: &'static str, messages, consumers| {
            states.insert(name, StreamState { messages, consumers });
            [differences(&states, &(3..=4), false), differences(&states, &(3..=4), true)]
        };
        for name in targets {
            set_state(name, 3, 1);
        }
        assert!(set_state(subject::HISTORY, 900, 0).concat().is_empty());
        assert_eq!(
            set_state(CALLBACKS, 2, 1),
            [vec![], vec!["stream KV_ENO_CALLBACKS has 2 messages for no object".to_owned()]]
        );
        set_state(CALLBACKS, 0, 1);
        assert_eq!(
            set_state(subject::TRANSITIONS, 900, 2),
            [vec![], vec!["stream ENO_TRANSITIONS has 2 consumers for 1 readers".to_owned()]]
        );
        set_state(subject::TRANSITIONS, 900, 1);
        assert_eq!(
            set_state(subject::PARTS, 9, 5),
            [vec![], vec!["stream ENO_PARTS has 9 messages for 4 targets".to_owned()]]
        );
        set_state(subject::PARTS, 8, 5);
        assert!(set_state(subject::RESULTS, 4, 1).concat().is_empty());
        for messages in [2, 5] {
            let found = set_state(subject::RESULTS, messages, 1);
            assert_eq!(found[0], [format!("stream ENO_RESULTS has {messages} messages for 3 to 4 targets")]);
        }
        assert!(differences(&StreamStates::new(), &(3..=4), false).len() == STREAMS.len());
    }
}
