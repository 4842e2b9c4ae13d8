//! What NATS keeps beside what it has to keep. What is kept for somebody who is gone is kept for good, and is too little
//! to be seen in the memory of nats-server.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::Context as _;
use eno_control_plane::NatsUser;
use eno_sbi::nats::{Connection, NatsArgs, connect};
use eno_schemas::subject;
use futures::future::try_join_all;
use tokio_util::sync::CancellationToken;

use crate::sandbox::Sandbox;

/// A bucket is a stream too.
const CALLBACKS: &str = "KV_ENO_CALLBACKS";
/// All streams, and how many read each at a time: every driver its commands, and the engine that leads the others.
const STREAMS: [(&str, usize); 8] = [
    (subject::COMMANDS, 5),
    (subject::RESULTS, 1),
    (subject::TRANSITIONS, 1),
    (subject::HISTORY, 0),
    (subject::DEAD_LETTERS, 0),
    ("KV_ENO_DRIVERS", 1),
    ("KV_ENO_OWNERS", 0),
    (CALLBACKS, 1),
];
/// By when NATS has to let us in.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many messages a stream keeps, and how many read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    messages: u64,
    consumers: usize,
}

/// By the name of the stream.
pub(super) type AllKept = BTreeMap<&'static str, Kept>;

/// Connects as somebody who may look.
pub(super) async fn reach(sandbox: &Sandbox) -> anyhow::Result<Connection> {
    let nats = sandbox.control_plane().nats();
    let args = NatsArgs {
        nats_url: nats.url.clone(),
        nats_credentials: Some(nats.seed_of(NatsUser::Inspect)),
        nats_ca: None,
        nats_replicas: 1,
    };
    let stop = CancellationToken::new();
    let connection = tokio::time::timeout(PATIENCE, connect(&args, "eno-cli", &stop)).await;
    Ok(connection.context("NATS does not let us in")??)
}

/// Looks at all streams.
pub(super) async fn read(connection: &Connection) -> anyhow::Result<AllKept> {
    let kept = STREAMS.map(|(name, _)| async move {
        let stream = connection.jetstream.get_stream(name).await;
        let stream = stream.with_context(|| format!("looking at stream {name}"))?;
        let state = &stream.cached_info().state;
        anyhow::Ok((name, Kept { messages: state.messages, consumers: state.consumer_count }))
    });
    Ok(try_join_all(kept).await?.into_iter().collect())
}

/// What is kept too much or too little. `targets`: how many switches and definitions there are, and how many there would
/// be if each attachment had one; that of an attachment in error may be kept as what must not be there. `all_gone`: no
/// object ever told of is left, and all is quiet for good, so that what ends with time ends while this is waited for: consumers
/// of processes that were killed, and the marks of what was taken out.
pub(super) fn differences(kept: &AllKept, targets: &RangeInclusive<usize>, all_gone: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, readers) in STREAMS {
        let Some(kept) = kept.get(name) else {
            wrong.push(format!("stream {name} is not there"));
            continue;
        };
        let of_targets = [subject::COMMANDS, subject::RESULTS].contains(&name);
        let (least, most) = (*targets.start(), *targets.end());
        if of_targets && !(least as u64..=most as u64).contains(&kept.messages) {
            wrong.push(format!("stream {name} has {} messages for {least} to {most} targets", kept.messages));
        }
        // How far the outbox was read.
        if all_gone && name == CALLBACKS && kept.messages > 1 {
            wrong.push(format!("stream {name} has {} messages for no object", kept.messages));
        }
        if all_gone && kept.consumers > readers {
            wrong.push(format!("stream {name} has {} consumers for {readers} readers", kept.consumers));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_nobody_is_found() {
        let mut kept: AllKept =
            STREAMS.map(|(name, consumers)| (name, Kept { messages: 1, consumers })).into();
        let targets = [subject::COMMANDS, subject::RESULTS];
        let mut keep = |name: &'static str, messages, consumers| {
            kept.insert(name, Kept { messages, consumers });
            [differences(&kept, &(3..=4), false), differences(&kept, &(3..=4), true)]
        };
        for name in targets {
            keep(name, 3, 1);
        }
        assert!(keep(subject::HISTORY, 900, 0).concat().is_empty());
        assert_eq!(
            keep(CALLBACKS, 2, 1),
            [vec![], vec!["stream KV_ENO_CALLBACKS has 2 messages for no object".to_owned()]]
        );
        keep(CALLBACKS, 0, 1);
        assert_eq!(
            keep(subject::TRANSITIONS, 900, 2),
            [vec![], vec!["stream ENO_TRANSITIONS has 2 consumers for 1 readers".to_owned()]]
        );
        keep(subject::TRANSITIONS, 900, 1);
        assert!(keep(subject::RESULTS, 4, 1).concat().is_empty());
        for messages in [2, 5] {
            let found = keep(subject::RESULTS, messages, 1);
            assert_eq!(found[0], [format!("stream ENO_RESULTS has {messages} messages for 3 to 4 targets")]);
        }
        assert!(differences(&AllKept::new(), &(3..=4), false).len() == STREAMS.len());
    }
}
