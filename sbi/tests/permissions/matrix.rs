//! Every user × every subject: exactly what the table allows is permitted.

use std::collections::BTreeSet;

use eno_conformance::{NatsServer, Wire};
use eno_control_plane::NatsUser;
use eno_parts::Part;
use serde_json::json;

/// The drivers, and one of somebody else. The driver `node` has no user: each node has rights of its own.
fn drivers() -> impl Iterator<Item = &'static str> {
    eno_parts::drivers().chain(["foreign"])
}

/// What clients call themselves in their inboxes.
fn programs() -> impl Iterator<Item = String> {
    let drivers = drivers().map(|driver| format!("eno-driver-{driver}"));
    drivers.chain(["eno-engine", "eno-cli"].map(str::to_owned))
}

const STREAMS: [&str; 10] = [
    "ENO_COMMANDS",
    "ENO_PARTS",
    "ENO_RESULTS",
    "ENO_TRANSITIONS",
    "ENO_HISTORY",
    "ENO_DEAD_LETTERS",
    "KV_ENO_DRIVERS",
    "KV_ENO_OWNERS",
    "KV_ENO_CALLBACKS",
    "SOMETHING_ELSE",
];
/// Where servers ask about logins. They let nobody publish there.
const LOGINS: &str = "$SYS.REQ.USER.AUTH";
/// Where servers wait for answers about logins.
const ANSWERS_ABOUT_LOGINS: &str = "$SYS._INBOX.server.x";

type Set = BTreeSet<String>;

fn set(subjects: &[&str]) -> Set {
    subjects.iter().map(|subject| (*subject).to_owned()).collect()
}

fn all_of<const N: usize>(sets: [Set; N]) -> Set {
    sets.into_iter().flatten().collect()
}

fn of_drivers(subjects: impl Fn(&str) -> Set) -> Set {
    drivers().flat_map(subjects).collect()
}

/// The subjects that a driver publishes on.
fn published_by(driver: &str) -> Set {
    let kinds = ["result", "history"].map(|kind| format!("eno.v1.{kind}.{driver}.x"));
    let keys = ["ENO_DRIVERS", "ENO_OWNERS"].map(|bucket| format!("$KV.{bucket}.{driver}.x"));
    all_of([kinds.into(), keys.into(), [answer(driver)].into()])
}

/// The subjects on which messages are sent to a driver.
fn sent_to(driver: &str) -> Set {
    [part(driver), format!("eno.v1.command.{driver}.x"), format!("eno.v1.forget.{driver}")].into()
}

fn part(driver: &str) -> String {
    format!("eno.v1.part.{driver}.x.h")
}

fn answer(driver: &str) -> String {
    format!("eno.v1.answer.{driver}.x.y")
}

fn preview(driver: &str) -> String {
    format!("eno.v1.preview.{driver}.x")
}

/// Direct reads of the last message of each subject that concerns a driver.
fn direct(driver: &str, streams: &[&str]) -> Set {
    let subject = |stream: &str| match stream {
        "ENO_COMMANDS" => format!("eno.v1.command.{driver}.x"),
        "ENO_PARTS" => part(driver),
        "ENO_RESULTS" => format!("eno.v1.result.{driver}.x"),
        "ENO_HISTORY" => format!("eno.v1.history.{driver}.x"),
        bucket => format!("$KV.{}.{driver}.x", bucket.trim_start_matches("KV_")),
    };
    streams.iter().map(|stream| format!("$JS.API.DIRECT.GET.{stream}.{}", subject(stream))).collect()
}

const WITH_DRIVERS: [&str; 6] =
    ["ENO_COMMANDS", "ENO_PARTS", "ENO_RESULTS", "ENO_HISTORY", "KV_ENO_DRIVERS", "KV_ENO_OWNERS"];

/// Consumers of a driver's commands, reports and owners.
fn own_consumers(driver: &str) -> Set {
    let own = |target: &str| {
        [
            format!("ENO_COMMANDS.c.eno.v1.command.{driver}.{target}"),
            format!("ENO_RESULTS.c.eno.v1.result.{driver}.{target}"),
            format!("KV_ENO_OWNERS.c.$KV.ENO_OWNERS.{driver}.{target}"),
        ]
    };
    ["x", "*"]
        .iter()
        .flat_map(|target| own(target))
        .map(|of| format!("$JS.API.CONSUMER.CREATE.{of}"))
        .collect()
}

/// Consumers of the parts of a driver's commands.
fn part_consumers(driver: &str) -> Set {
    let filters = [part(driver), format!("eno.v1.part.{driver}.*.*")];
    filters.map(|filter| format!("$JS.API.CONSUMER.CREATE.ENO_PARTS.c.{filter}")).into()
}

fn on_streams(verb: &str) -> Set {
    STREAMS.iter().map(|stream| format!("$JS.API.{verb}.{stream}")).collect()
}

fn on_consumers(verb: &str) -> Set {
    STREAMS.iter().map(|stream| format!("$JS.API.CONSUMER.{verb}.{stream}.c")).collect()
}

/// Consumers of whole streams, and of what drivers do not read.
fn wide_consumers() -> Set {
    let filters = ["eno.v1.command.>", "eno.v1.command.*.*", "eno.v1.result.netconf.*", ">"];
    let filtered = filters.iter().map(|filter| format!("$JS.API.CONSUMER.CREATE.ENO_COMMANDS.c.{filter}"));
    let others = [
        "ENO_PARTS.c.eno.v1.part.>",
        "KV_ENO_DRIVERS.c.$KV.ENO_DRIVERS.netconf.*",
        "ENO_HISTORY.c.eno.v1.history.netconf.*",
    ];
    let others = others.iter().map(|other| format!("$JS.API.CONSUMER.CREATE.{other}"));
    filtered.chain(others).collect()
}

/// Consumers whose filter stands in the body of the request only.
fn unfiltered_consumers() -> Set {
    all_of([on_streams("CONSUMER.CREATE"), on_consumers("CREATE")])
}

/// All subjects that are tried for publishing.
pub fn publishes() -> Set {
    let mut all = set(&[
        "eno.v1.callbacks",
        "eno.v1.answer.engine.callbacks.y",
        "eno.v1.transition.L2Service._.x",
        "eno.v1.history.callback.L2Service._.x",
        "eno.v1.dead.L2Service._.x",
        "eno.v1.something",
        "$KV.ENO_CALLBACKS.floor",
        "$JS.API.INFO",
        "$JS.API.STREAM.LIST",
        "$JS.API.STREAM.NAMES",
        "$JS.API.SERVER.REMOVE",
        "$JS.API.META.LEADER.STEPDOWN",
        "$SYS.REQ.SERVER.PING",
        ANSWERS_ABOUT_LOGINS,
        "anything",
    ]);
    for driver in drivers() {
        all.extend(published_by(driver));
        all.extend(sent_to(driver));
        all.insert(preview(driver));
        all.extend(direct(driver, &WITH_DRIVERS));
        all.extend(own_consumers(driver));
        all.extend(part_consumers(driver));
    }
    for verb in [
        "STREAM.CREATE",
        "STREAM.UPDATE",
        "STREAM.INFO",
        "STREAM.DELETE",
        "STREAM.PURGE",
        "STREAM.MSG.GET",
        "STREAM.MSG.DELETE",
        "STREAM.SNAPSHOT",
        "STREAM.RESTORE",
        "STREAM.LEADER.STEPDOWN",
        "STREAM.PEER.REMOVE",
        "DIRECT.GET",
        "CONSUMER.NAMES",
        "CONSUMER.LIST",
    ] {
        all.extend(on_streams(verb));
    }
    for verb in ["INFO", "DELETE", "MSG.NEXT", "DURABLE.CREATE", "PAUSE", "LEADER.STEPDOWN"] {
        all.extend(on_consumers(verb));
    }
    all.extend(wide_consumers());
    all.extend(unfiltered_consumers());
    all.extend(flow_control());
    all.extend(STREAMS.iter().map(|stream| format!("$JS.ACK.{stream}.c.1.1.1.1.1")));
    all.extend(programs().map(|program| format!("_INBOX_{program}.x")));
    all.insert("_INBOX.x".into());
    all
}

fn flow_control() -> Set {
    STREAMS.iter().map(|stream| format!("$JS.FC.{stream}.c.x")).collect()
}

/// The table of publish permissions.
fn may_publish(user: NatsUser) -> Set {
    let reads = || {
        let own = of_drivers(|driver| all_of([own_consumers(driver), part_consumers(driver)]));
        all_of([on_streams("STREAM.INFO"), wide_consumers(), own, flow_control()])
    };
    match user {
        NatsUser::Admin => publishes(),
        NatsUser::Inspect => {
            let previews = of_drivers(|driver| [preview(driver)].into());
            all_of([reads(), set(&["eno.v1.callbacks"]), previews])
        }
        NatsUser::Part(Part { driver: None, .. }) => all_of([
            reads(),
            unfiltered_consumers(),
            on_streams("STREAM.MSG.GET"),
            on_streams("DIRECT.GET"),
            of_drivers(|driver| direct(driver, &WITH_DRIVERS)),
            on_consumers("INFO"),
            on_consumers("DELETE"),
            on_consumers("MSG.NEXT"),
            of_drivers(sent_to),
            on_streams("STREAM.CREATE"),
            on_streams("STREAM.UPDATE"),
            set(&[
                "eno.v1.transition.L2Service._.x",
                "eno.v1.history.callback.L2Service._.x",
                "eno.v1.dead.L2Service._.x",
                "eno.v1.answer.engine.callbacks.y",
                "$KV.ENO_CALLBACKS.floor",
                "$JS.API.INFO",
                "$JS.API.STREAM.PURGE.ENO_COMMANDS",
                "$JS.API.STREAM.PURGE.ENO_PARTS",
                "$JS.API.STREAM.PURGE.ENO_RESULTS",
                "$JS.API.STREAM.MSG.DELETE.ENO_DEAD_LETTERS",
                "$JS.API.STREAM.MSG.DELETE.ENO_TRANSITIONS",
                ANSWERS_ABOUT_LOGINS,
            ]),
        ]),
        NatsUser::Part(Part { driver: Some(driver), parts, .. }) => {
            let read = ["ENO_COMMANDS", "ENO_RESULTS", "KV_ENO_OWNERS"];
            let of_parts = all_of([part_consumers(driver), set(&["$JS.FC.ENO_PARTS.c.x"])]);
            all_of([
                published_by(driver),
                own_consumers(driver),
                read.map(|stream| format!("$JS.FC.{stream}.c.x")).into(),
                Some(of_parts).filter(|_| *parts).unwrap_or_default(),
            ])
        }
    }
}

/// All subjects that are tried for subscribing: those to publish on, and wildcards over them.
fn subscriptions() -> Set {
    let mut all = set(&[
        ">",
        "*",
        "eno.>",
        "eno.v1.>",
        "eno.v1.command.>",
        "eno.v1.part.>",
        "eno.v1.result.>",
        "eno.v1.preview.>",
        "eno.v1.preview.*.*",
        "eno.v1.callbacks",
        "eno.v1.answer.>",
        "eno.v1.answer.*.*.*",
        "eno.v1.answer.engine.callbacks.y",
        "eno.v1.transition.>",
        "eno.v1.dead.>",
        "$KV.>",
        "$JS.>",
        "$JS.API.>",
        "$JS.EVENT.>",
        "$JS.ACK.>",
        "$SYS.>",
        LOGINS,
        "_INBOX.>",
        "_INBOX.x",
    ]);
    for driver in drivers() {
        all.extend(published_by(driver));
        all.extend(sent_to(driver));
        all.extend([preview(driver), format!("eno.v1.preview.{driver}.*")]);
    }
    for program in programs() {
        all.extend([format!("_INBOX_{program}.>"), format!("_INBOX_{program}.x.*")]);
    }
    all
}

/// The table of subscribe permissions.
fn may_subscribe(user: NatsUser) -> Set {
    let inbox = |program: &str| Set::from([format!("_INBOX_{program}.>"), format!("_INBOX_{program}.x.*")]);
    match user {
        NatsUser::Admin => subscriptions(),
        NatsUser::Inspect => {
            let answers = of_drivers(|driver| [answer(driver)].into());
            let others = set(&["eno.v1.answer.*.*.*", "eno.v1.answer.engine.callbacks.y"]);
            all_of([inbox("eno-cli"), answers, others])
        }
        NatsUser::Part(Part { driver: None, .. }) => {
            all_of([inbox("eno-engine"), set(&["eno.v1.callbacks", LOGINS])])
        }
        NatsUser::Part(Part { driver: Some(driver), .. }) => {
            let requests =
                [format!("eno.v1.forget.{driver}"), preview(driver), format!("eno.v1.preview.{driver}.*")];
            all_of([inbox(&format!("eno-driver-{driver}")), requests.into()])
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_have_exactly_the_permissions_of_the_table() {
    let server = NatsServer::with_users().await;
    let (publishes, subscriptions) = (publishes(), subscriptions());
    let mut wrong = Vec::new();
    for user in NatsUser::all() {
        let mut wire = Wire::of_user(&server, user).await;
        assert!(!wire.may_publish(LOGINS).await, "{} asks about logins", user.name());
        let (publish, subscribe) = (may_publish(user), may_subscribe(user));
        assert!(publish.is_subset(&publishes), "not tried: {:?}", publish.difference(&publishes));
        assert!(subscribe.is_subset(&subscriptions), "not tried: {:?}", subscribe.difference(&subscriptions));
        let mut wire = Wire::of_user(&server, user).await;
        for subject in &publishes {
            let (may, should) = (wire.may_publish(subject).await, publish.contains(subject));
            if may != should {
                wrong.push(format!("{} publishes {subject}: {may}", user.name()));
            }
        }
        for subject in &subscriptions {
            let (may, should) = (wire.may_subscribe(subject).await, subscribe.contains(subject));
            if may != should {
                wrong.push(format!("{} subscribes to {subject}: {may}", user.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_users_are_refused() {
    let server = NatsServer::with_users().await;
    let stranger = nkeys::KeyPair::new_user().public_key();
    for hello in [
        json!({}),
        json!({"user": "eno", "pass": "eno"}),
        json!({"auth_token": "eno"}),
        json!({"nkey": stranger, "sig": "AAAA"}),
    ] {
        let refusal = Wire::log_in(&server, |_| hello.clone()).await.err();
        assert_eq!(refusal.as_deref(), Some("-ERR 'Authorization Violation'"), "{hello}");
    }
}
