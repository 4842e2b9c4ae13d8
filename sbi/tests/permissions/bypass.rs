//! Attempts to bypass the permissions on subjects: whatever a user publishes, with whatever reply subject, no stream is
//! changed or emptied, and no reader takes for a message of ENO what the user may not publish.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use eno_conformance::{NatsServer, Wire};
use eno_control_plane::NatsUser;
use eno_sbi::nats::{Connection, Content, Selection, ensure_streams, for_each_stored, last_stored};
use eno_schemas::{
    Command, DriverHello, PartHash, Report, Subject, Transition, decode, decode_part, subject,
};
use serde_json::{Value, json};

use crate::permissions::matrix::publishes;

const TIMEOUT: Duration = Duration::from_mins(1);
/// The driver whose messages are attacked. No user that attacks is that driver.
const VICTIM: &str = "victim";
const STREAMS: [&str; 6] = [
    subject::COMMANDS,
    subject::PARTS,
    subject::RESULTS,
    subject::TRANSITIONS,
    subject::HISTORY,
    subject::DEAD_LETTERS,
];
const FORGED_PART: &str = r#"{"part":"group","blocks":{}}"#;
const BUCKETS: [&str; 3] = [subject::DRIVERS, subject::OWNERS, subject::CALLBACKS];

/// The users that attack: all but those that may do so by purpose.
fn attackers() -> impl Iterator<Item = (NatsUser, &'static str)> {
    let attackers = NatsUser::all().filter(|user| ![NatsUser::ENGINE, NatsUser::Admin].contains(user));
    attackers.map(|user| (user, user.driver().unwrap_or("none")))
}

fn command(driver: &str) -> String {
    json!({
        "driver": driver, "target": "x", "generation": {"term": 50_000, "sequence": 1, "hash": "h"},
        "desired": {"kind": "fabric", "cluster": "c", "device": {"address": "198.51.100.1:830"}, "vlans": [], "ports": []},
    })
    .to_string()
}

fn transition() -> String {
    json!({
        "id": "u-1", "uid": "u", "counter": 1, "kind": "L2Service", "name": "x", "phase": "ready",
        "at": "2026-01-02T03:04:05Z", "object": {},
    })
    .to_string()
}

/// A part whose name is the hash of an attacker's payload.
fn forged_part() -> String {
    Subject::part(VICTIM, "x", PartHash::of(FORGED_PART.as_bytes())).to_string()
}

/// What the streams hold, and how they are made.
#[derive(Debug, PartialEq)]
struct State {
    configs: BTreeMap<String, (i128, Config)>,
    /// Whether the message of the engine is still stored.
    transition: bool,
}

async fn state(engine: &Connection) -> State {
    let mut configs = BTreeMap::new();
    for stream in STREAMS.map(str::to_owned).into_iter().chain(BUCKETS.map(subject::bucket_stream)) {
        let found =
            engine.jetstream.get_stream(&stream).await.unwrap_or_else(|error| panic!("{stream}: {error}"));
        let info = found.cached_info();
        configs.insert(stream, (info.created.unix_timestamp_nanos(), info.config.clone()));
    }
    let mut is_there = false;
    let of = "eno.v1.transition.L2Service._.victim";
    for_each_stored(&engine.jetstream, Selection::all(subject::TRANSITIONS, of), |message| {
        is_there |=
            matches!(&message.content, Content::Payload(payload) if decode::<Transition>(payload).is_ok());
    })
    .await
    .unwrap();
    State { configs, transition: is_there }
}

/// The subjects on which attackers want answers.
fn targets() -> Vec<String> {
    let mut all = vec![
        format!("eno.v1.command.{VICTIM}.x"),
        forged_part(),
        format!("eno.v1.result.{VICTIM}.x"),
        "eno.v1.transition.L2Service._.victim".into(),
        format!("$KV.ENO_DRIVERS.{VICTIM}.x"),
        format!("$KV.ENO_OWNERS.{VICTIM}.x"),
        "$JS.API.STREAM.MSG.DELETE.ENO_TRANSITIONS".into(),
    ];
    for verb in ["CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "LEADER.STEPDOWN"] {
        all.extend(
            ["ENO_COMMANDS", "ENO_TRANSITIONS"].map(|stream| format!("$JS.API.STREAM.{verb}.{stream}")),
        );
    }
    all
}

/// Payloads that do harm where they arrive.
fn payloads(own: &str) -> Vec<String> {
    let source = json!({
        "name": "ENO_COMMANDS", "subjects": ["eno.v1.command.>"], "retention": "limits", "storage": "file",
        "max_msgs_per_subject": 1, "num_replicas": 1, "discard": "old",
        "sources": [{"name": "ENO_RESULTS", "subject_transforms": [
            {"src": format!("eno.v1.result.{own}.x"), "dest": format!("eno.v1.command.{VICTIM}.x")}]}],
    });
    vec![
        String::new(),
        command(VICTIM),
        FORGED_PART.into(),
        source.to_string(),
        json!({"seq": 1}).to_string(),
    ]
}

/// A request for a consumer of the user's own messages that delivers there.
fn consumer(subject: &str, deliver: &str, index: usize) -> Option<(String, String)> {
    let rest = subject.strip_prefix("$JS.API.CONSUMER.CREATE.")?;
    let (stream, rest) = rest.split_once('.')?;
    let filter = rest.split_once('.')?.1;
    let name = format!("c{index}");
    let config = json!({
        "name": name, "deliver_subject": deliver, "deliver_policy": "all", "ack_policy": "none",
        "replay_policy": "instant", "filter_subject": filter, "idle_heartbeat": 100_000_000, "flow_control": true,
    });
    let body = json!({"stream_name": stream, "config": config, "action": ""});
    Some((format!("$JS.API.CONSUMER.CREATE.{stream}.{name}.{filter}"), body.to_string()))
}

/// A mark that comes last, so that everything before it was looked at.
async fn until_marked(engine: &Connection, mark: &str) {
    let marked = async {
        loop {
            let of = format!("eno.v1.transition.Mark._.{mark}");
            if last_stored(&engine.jetstream, subject::TRANSITIONS, &of).await.unwrap().is_some() {
                return;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, marked).await.expect("the mark");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_has_an_effect_beyond_the_permissions() {
    let server = NatsServer::with_users().await;
    let engine = server.connect_as(NatsUser::ENGINE, "eno-engine").await;
    ensure_streams(&engine.jetstream, 1).await.expect("the engine may make the streams");
    let admin = server.connect_as(NatsUser::Admin, "eno-admin").await;
    let store = async |on: &str, payload: String| {
        admin.jetstream.publish(on.to_owned(), payload.into()).await.unwrap().await.unwrap();
    };
    store("eno.v1.transition.L2Service._.victim", transition()).await;
    for bucket in [subject::DRIVERS, subject::OWNERS] {
        store(&subject::of_bucket(bucket, &subject::key(VICTIM, "x")), "one".into()).await;
    }
    for (user, own) in attackers() {
        store(&format!("eno.v1.command.{VICTIM}.x"), command("engine's")).await;
        let before = state(&engine).await;
        let mut wire = Wire::of_user(&server, user).await;
        let (all, targets, payloads) = (publishes(), targets(), payloads(own));
        // Everything to itself, to be granted an answer on a subject of its choice.
        for on in &all {
            wire.subscribe(on).await;
        }
        let mut granted = Vec::new();
        for payload in &payloads {
            // Its own report has the payload that the server may send elsewhere, with headers and without.
            let own_report = format!("eno.v1.result.{own}.x");
            let status = "\r\nNats-Expected-Last-Subject-Sequence-Subject: a";
            wire.publish_all(&[(&own_report, "", Some(status), payload), (&own_report, "", None, payload)])
                .await;
            for target in &targets {
                let messages: Vec<_> = all.iter().map(|on| (&**on, &**target, None, &**payload)).collect();
                granted.extend(wire.publish_all(&messages).await);
            }
        }
        let forged: Vec<_> = payloads
            .iter()
            .flat_map(|payload| granted.iter().map(|to| (&**to, "", None, &**payload)))
            .collect();
        wire.publish_all(&forged).await;
        // Consumers, also those of others, that deliver there.
        let mut requests = Vec::new();
        for (index, on) in all.iter().enumerate() {
            requests.extend(
                targets
                    .iter()
                    .enumerate()
                    .filter_map(|(number, target)| consumer(on, target, index * 100 + number)),
            );
        }
        let messages: Vec<_> = requests.iter().map(|(on, body)| (&**on, "", None, &**body)).collect();
        wire.publish_all(&messages).await;
        // A stored message that looks like a notice of the server.
        let notice = format!("eno.v1.result.{own}.notice");
        wire.publish_all(&[(&notice, "", Some(" 100 Idle Heartbeat"), "")]).await;
        let mark = format!("eno.v1.transition.Mark._.{own}");
        let answered = if user == NatsUser::Inspect {
            "$JS.API.STREAM.INFO.ENO_RESULTS".into()
        } else {
            format!("eno.v1.history.{own}.x")
        };
        wire.publish_all(&[(&answered, &mark, None, "")]).await;
        until_marked(&engine, own).await;

        assert_eq!(state(&engine).await, before, "{own}");
        let mut reports = Vec::new();
        for_each_stored(&engine.jetstream, Selection::last(subject::RESULTS, "eno.v1.result.>"), |message| {
            reports.push((message.subject, message.content));
        })
        .await
        .expect("no message stops a reader");
        let notice = reports.into_iter().find(|(on, _)| *on == notice);
        if user != NatsUser::Inspect {
            assert!(matches!(notice, Some((_, Content::Foreign(_) | Content::Removed))), "{notice:?}");
        }
        let unread = async |stream: &str, on: &str, is_read: fn(&[u8]) -> bool| {
            let last = last_stored(&engine.jetstream, stream, on).await.unwrap();
            match last.map(|last| last.content) {
                Some(Content::Payload(payload)) => {
                    assert!(!is_read(&payload), "{own} on {on}: {payload:?}");
                }
                Some(Content::Foreign(_) | Content::Removed) | None => {}
            }
        };
        let on = format!("eno.v1.command.{VICTIM}.x");
        unread(subject::COMMANDS, &on, |payload| {
            decode::<Command>(payload).is_ok_and(|it| it.driver == VICTIM)
        })
        .await;
        let is_part = |payload: &[u8]| decode_part(PartHash::of(FORGED_PART.as_bytes()), payload).is_ok();
        unread(subject::PARTS, &forged_part(), is_part).await;
        let on = format!("eno.v1.result.{VICTIM}.x");
        unread(subject::RESULTS, &on, |payload| decode::<Report>(payload).is_ok()).await;
        let on = format!("$KV.ENO_DRIVERS.{VICTIM}.x");
        unread("KV_ENO_DRIVERS", &on, |payload| decode::<DriverHello>(payload).is_ok()).await;
        let on = format!("$KV.ENO_OWNERS.{VICTIM}.x");
        unread("KV_ENO_OWNERS", &on, |payload| payload != b"one" && !payload.starts_with(b"{")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumer_delivers_only_its_permitted_subject() {
    let server = NatsServer::with_users().await;
    let engine = server.connect_as(NatsUser::ENGINE, "eno-engine").await;
    ensure_streams(&engine.jetstream, 1).await.unwrap();
    let foreign = "eno.v1.command.nad.x";
    engine.jetstream.publish(foreign, "secret".into()).await.unwrap().await.unwrap();
    let netconf = server.connect_as(NatsUser::Part(eno_parts::DRIVER_NETCONF), "eno-driver-netconf").await;
    let inbox = netconf.client.new_inbox();
    let own = "eno.v1.command.netconf.*";
    let consumer = |stream: &str, more: Value| {
        let mut config = json!({
            "name": "c", "deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none",
            "replay_policy": "instant",
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"stream_name": stream, "config": config, "action": ""})
    };
    for body in [
        consumer("ENO_COMMANDS", json!({"filter_subject": foreign})),
        consumer("ENO_COMMANDS", json!({"filter_subjects": [foreign]})),
        consumer("ENO_COMMANDS", json!({"filter_subject": own, "filter_subjects": [foreign]})),
        consumer("ENO_COMMANDS", json!({"filter_subjects": [own, foreign]})),
        consumer("ENO_COMMANDS", json!({})),
        consumer("ENO_TRANSITIONS", json!({"filter_subject": own})),
    ] {
        let request = format!("$JS.API.CONSUMER.CREATE.ENO_COMMANDS.c.{own}");
        let answer = netconf.client.request(request, body.to_string().into()).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        assert!(answer.get("error").is_some(), "{body} was taken: {answer}");
    }
    // A driver reads the parts of its commands, all and each alone.
    let part = PartHash::of(FORGED_PART.as_bytes());
    for driver in ["netconf", "nad"] {
        let subject = Subject::part(driver, "x", part).to_string();
        engine.jetstream.publish(subject, FORGED_PART.into()).await.unwrap().await.unwrap();
    }
    let (mut parts, of) = (Vec::new(), "eno.v1.part.netconf.*.*");
    for_each_stored(&netconf.jetstream, Selection::last(subject::PARTS, of), |message| {
        parts.push(message.subject);
    })
    .await
    .unwrap();
    assert_eq!(parts, [Subject::part("netconf", "x", part).to_string()]);
    let found = last_stored(&netconf.jetstream, subject::PARTS, &parts[0]).await.unwrap().unwrap();
    assert_eq!(found.content, Content::Payload(FORGED_PART.into()));
    // A correct request is accepted, and delivers nothing of other drivers.
    let mut read = Vec::new();
    for_each_stored(&netconf.jetstream, Selection::last(subject::COMMANDS, own), |message| {
        read.push(message);
    })
    .await
    .unwrap();
    assert!(read.is_empty(), "{read:?}");
}
