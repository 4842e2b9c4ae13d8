//! Malformed commands, reports and transitions from parts that may publish there. The receiver counts and logs each,
//! its sender publishes the message again, and all other work goes on.

use async_nats::jetstream::Context;
use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{Receiver, System, attachment, object, service, until, with_new_sandbox};
use serde_json::{Value, json};

const ENGINE: &str = "engine";
const BAD_MESSAGES: &str = "eno_driver_bad_messages_total";

/// A driver: its NATS user, its process, and a target that all objects of the test share.
struct Driver {
    user: NatsUser,
    child: &'static str,
    subject: &'static str,
    kind: &'static str,
    target: &'static str,
}

const DRIVERS: [Driver; 2] = [
    Driver {
        user: NatsUser::Part(eno_parts::DRIVER_NETCONF),
        child: "driver-netconf",
        subject: "netconf.leaf1",
        kind: "netconf",
        target: "leaf1",
    },
    Driver {
        user: NatsUser::Part(eno_parts::DRIVER_NAD),
        child: "driver-nad",
        subject: "nad.poison=2Fa0",
        kind: "nad",
        target: "poison/a0",
    },
];

/// Publishes malformed messages and checks that new objects still become ready.
struct MalformedMessages<'a> {
    system: &'a System,
    receiver: &'a Receiver,
    admin: Context,
    engine: Context,
    objects: usize,
}

impl MalformedMessages<'_> {
    /// The last message of a subject.
    async fn last(&self, stream: &str, subject: &str) -> (u64, Value) {
        let stream = self.admin.get_stream(stream).await.expect("a stream");
        let message = stream.get_last_raw_message_by_subject(subject).await.expect("a message");
        (message.sequence, serde_json::from_slice(&message.payload).unwrap_or_default())
    }

    /// Publishes a message over a client with the permission; returns its sequence number.
    async fn put(&self, client: &Context, subject: &str, payload: String) -> u64 {
        let sent = client.publish(subject.to_owned(), payload.into()).await;
        sent.expect("it is sent").await.expect("it is stored").sequence
    }

    /// Puts a message in the place of a driver's command until the driver has counted it: the engine may put its command
    /// back before the driver reads the other. Returns the sequence number.
    async fn put_until_counted(&self, driver: &Driver, subject: &str, payload: &str, count: u64) -> u64 {
        let mut at = self.put(&self.engine, subject, payload.to_owned()).await;
        let what = format!("{} counts {count} messages that are no commands", driver.child);
        until(&what, async || {
            let counted = self.count(driver.child, BAD_MESSAGES).await >= count;
            if !counted && self.last("ENO_COMMANDS", subject).await.0 > at {
                at = self.put(&self.engine, subject, payload.to_owned()).await;
            }
            counted
        })
        .await;
        at
    }

    /// Waits until the last message of a subject is a newer one in which `object_field` is an object.
    async fn until_replaced(&self, stream: &str, subject: &str, test: u64, object_field: &str) {
        until(&format!("{subject} is replaced"), async || {
            let (sequence, message) = self.last(stream, subject).await;
            sequence > test && message.get(object_field).is_some_and(Value::is_object)
        })
        .await;
    }

    /// The value of a process's counter; 0 when it is absent.
    async fn count(&self, child: &str, name: &str) -> u64 {
        let value = self.system.metric(child, name).await;
        value.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Waits until a counter reaches `count`, and checks that a log line contains all parts.
    async fn until_counted(&self, child: &str, name: &str, count: u64, message_parts: &[&str]) {
        let what = format!("{name} of {child} is {count}");
        until(&what, async || self.count(child, name).await >= count).await;
        let processes = self.system.sandbox.info().processes;
        let log = processes.into_iter().find(|process| process.name == child).expect("a process").log;
        let text = std::fs::read_to_string(log).expect("its log");
        assert!(
            text.lines().any(|line| message_parts.iter().all(|part| line.contains(part))),
            "{child} says nothing of {message_parts:?}"
        );
    }

    /// Creates another service and attachment on the same switches, which must become ready.
    async fn check_new_service(&mut self) {
        let (n, url) = (self.objects, self.receiver.url());
        self.objects += 1;
        let (name, vid) = (format!("poison-{n}"), 1000 + u16::try_from(n).expect("a few"));
        let service = service(&name, vid, &format!("PhysicalNW: [dc-gw], CallbackURL: '{url}'"));
        let more = format!("VlanType: access, CallbackURL: '{url}'");
        let attachment = attachment("poison", &format!("a{n}"), "poison", &name, &more);
        self.system.apply(&[service, attachment].concat()).await;
        self.all_ready().await;
        let made = [format!("L2Service poison-{n}"), format!("L2ServiceAttachment poison/a{n}")];
        self.receiver.until(&made, "ready").await;
    }

    async fn all_ready(&self) {
        self.system.all_become::<L2Service>("poison", self.objects, Phase::Ready).await;
        self.system.all_become::<L2ServiceAttachment>("poison", self.objects, Phase::Ready).await;
        self.system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
    }

    /// Changes the VLAN of the first attachment's service, on the switch and in its NetworkAttachmentDefinition.
    async fn check_change(&self, vid: u16) {
        self.system.patch("L2Service", "poison-0", json!({"spec": {"SegmentationID": vid}})).await;
        self.system.until_view("leaf1", "the new VLAN", |view| view.vlans.contains_key(&vid)).await;
        self.all_ready().await;
        self.system.nad("poison/a0", |configuration| configuration["vlan"] == vid).await;
    }

    /// Checks that callbacks of these objects posted pending and ready, and nothing else.
    fn assert_only_ready_callbacks(&self, of: impl IntoIterator<Item = usize>) {
        for n in of {
            for object in [format!("L2Service poison-{n}"), format!("L2ServiceAttachment poison/a{n}")] {
                assert_eq!(self.receiver.phases(&object), ["pending", "ready"], "{object}");
            }
        }
    }
}

#[test]
fn malformed_messages_are_counted_and_block_nothing() {
    with_new_sandbox(async |system| {
        system.create_connection_point("poison").await;
        let receiver = Receiver::start().await;
        let mut test = MalformedMessages {
            system,
            receiver: &receiver,
            admin: system.nats(NatsUser::Admin).await,
            engine: system.nats(NatsUser::ENGINE).await,
            objects: 0,
        };
        test.check_new_service().await;
        check_commands(&mut test).await;
        check_reports(&mut test).await;
        check_transitions(&mut test).await;
        check_orphaned_reports(&mut test).await;

        let objects = ["L2Service poison-0".to_owned(), "L2ServiceAttachment poison/a0".to_owned()];
        receiver.until(&objects, "ready").await;
        for object in &objects {
            let numbers: Vec<_> = receiver.of(object).iter().map(|callback| callback.transition).collect();
            assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{object}");
        }
        test.assert_only_ready_callbacks(1..test.objects);
        let all = (0..test.objects).map(|n| {
            object("L2ServiceAttachment", &format!("name: a{n}, namespace: poison"), "")
                + &object("L2Service", &format!("name: poison-{n}"), "")
        });
        system.delete_with_vlans(&all.collect::<String>(), 1000..1100).await;
    });
}

/// Replaces each driver's last command by text that is no JSON, by a command with a broken part, and by another
/// target's command.
async fn check_commands(test: &mut MalformedMessages<'_>) {
    for driver in &DRIVERS {
        let subject = format!("eno.v1.command.{}", driver.subject);
        let original = test.last("ENO_COMMANDS", &subject).await.1;
        assert_eq!((&original["driver"], &original["target"]), (&json!(driver.kind), &json!(driver.target)));
        let mut broken = original.clone();
        broken["desired"] = json!("all");
        let number = original["generation"]["sequence"].as_u64().expect("a number");
        broken["generation"]["sequence"] = json!(number + 1);
        let mut other = original.clone();
        other["target"] = json!("elsewhere");
        for (n, payload) in ["{".to_owned(), broken.to_string(), other.to_string()].into_iter().enumerate() {
            let count = n as u64 + 1;
            let at = test.put_until_counted(driver, &subject, &payload, count).await;
            let message_parts = ["ignoring a message that is no command", driver.target];
            test.until_counted(driver.child, BAD_MESSAGES, count, &message_parts).await;
            test.until_replaced("ENO_COMMANDS", &subject, at, "desired").await;
            test.all_ready().await;
        }
        test.check_new_service().await;
    }
    test.assert_only_ready_callbacks(0..test.objects);

    // The driver is stopped meanwhile.
    for driver in &DRIVERS {
        let subject = format!("eno.v1.command.{}", driver.subject);
        test.system.sandbox.stop_child(driver.child).await.expect("a driver that leaves");
        let at = test.put(&test.engine, &subject, "{".to_owned()).await;
        test.system.sandbox.start_child(driver.child).await.expect("the driver again");
        test.until_replaced("ENO_COMMANDS", &subject, at, "desired").await;
    }
    test.check_new_service().await;

    // The engine finds the malformed command at its start.
    test.system.sandbox.stop_child(ENGINE).await.expect("an engine that leaves");
    let mut found = Vec::new();
    for driver in &DRIVERS {
        let subject = format!("eno.v1.command.{}", driver.subject);
        let before = test.count(driver.child, BAD_MESSAGES).await;
        let at = test.put(&test.engine, &subject, "{".to_owned()).await;
        // The driver has reported the command by then.
        test.until_counted(driver.child, BAD_MESSAGES, before + 1, &[]).await;
        found.push((subject, at));
    }
    test.system.sandbox.start_child(ENGINE).await.expect("the engine again");
    let message_parts = ["a command can't be read", "leaf1"];
    test.until_counted(ENGINE, "eno_engine_malformed_total{what=\"command\"}", 2, &message_parts).await;
    for (subject, at) in found {
        test.until_replaced("ENO_COMMANDS", &subject, at, "desired").await;
    }
    test.check_new_service().await;
    test.assert_only_ready_callbacks(0..test.objects);
}

/// Replaces each driver's last report by text that is no JSON, by a report with a broken part, and by another target's
/// report.
async fn check_reports(test: &mut MalformedMessages<'_>) {
    const COUNTER: &str = "eno_engine_malformed_total{what=\"report\"}";
    let mut count = test.count(ENGINE, COUNTER).await;
    for driver in &DRIVERS {
        let client = test.system.nats(driver.user).await;
        let subject = format!("eno.v1.result.{}", driver.subject);
        let original = test.last("ENO_RESULTS", &subject).await.1;
        let mut broken = original.clone();
        broken["outcome"] = json!({"status": "perfect"});
        let mut other = original.clone();
        other["target"] = json!("elsewhere");
        for payload in ["{".to_owned(), broken.to_string(), other.to_string()] {
            test.put(&client, &subject, payload).await;
            count += 1;
            let message_parts = ["a report can't be read", driver.subject];
            test.until_counted(ENGINE, COUNTER, count, &message_parts).await;
        }
    }
    test.check_new_service().await;
    test.check_change(1050).await;

    // The engine finds the malformed report at its start.
    test.system.sandbox.stop_child(ENGINE).await.expect("an engine that leaves");
    let mut found = Vec::new();
    for driver in &DRIVERS {
        let client = test.system.nats(driver.user).await;
        let subject = format!("eno.v1.result.{}", driver.subject);
        let at = test.put(&client, &subject, "{".to_owned()).await;
        found.push((subject, at));
    }
    test.system.sandbox.start_child(ENGINE).await.expect("the engine again");
    test.until_counted(ENGINE, COUNTER, 2, &["a report can't be read", "leaf1"]).await;
    for (subject, at) in found {
        test.until_replaced("ENO_RESULTS", &subject, at, "generation").await;
    }
    test.check_new_service().await;
    test.check_change(1060).await;
    test.assert_only_ready_callbacks(1..test.objects);
}

/// Replaces the last transition of an object by malformed text.
async fn check_transitions(test: &mut MalformedMessages<'_>) {
    let count = async || test.count(ENGINE, "eno_engine_malformed_total{what=\"transition\"}").await;
    let before = count().await;
    test.put(&test.engine, "eno.v1.transition.L2Service._.poison-0", "{".to_owned()).await;
    until("it is counted", async || count().await > before).await;
    test.check_change(1070).await;
    test.check_new_service().await;
}

/// Reports without a command: an engine deleted the command and crashed before it deleted the report.
async fn check_orphaned_reports(test: &mut MalformedMessages<'_>) {
    test.system.sandbox.stop_child(ENGINE).await.expect("an engine that leaves");
    let mut subjects = Vec::new();
    for (driver, target, token) in
        [(&DRIVERS[0], "ghost", "ghost"), (&DRIVERS[1], "poison/ghost", "poison=2Fghost")]
    {
        let mut report = test.last("ENO_RESULTS", &format!("eno.v1.result.{}", driver.subject)).await.1;
        report["target"] = json!(target);
        let subject = format!("eno.v1.result.{}.{token}", driver.kind);
        test.put(&test.system.nats(driver.user).await, &subject, report.to_string()).await;
        subjects.push(subject);
    }
    test.system.sandbox.start_child(ENGINE).await.expect("the engine again");
    let stream = test.admin.get_stream("ENO_RESULTS").await.expect("a stream");
    for subject in subjects {
        until(&format!("{subject} is taken out"), async || {
            stream.get_last_raw_message_by_subject(&subject).await.is_err()
        })
        .await;
    }
    test.check_new_service().await;
}
