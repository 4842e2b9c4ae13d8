//! What is no command, no report or no transition, from parts that may publish there: it is counted and said in the log,
//! what it took the place of is said again, and nobody and nothing else is kept from going on.

use async_nats::jetstream::Context;
use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{PATIENCE, Receiver, System, own};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use super::nats;

const ENGINE: &str = "engine";

/// A driver, its identity on NATS, the process, and a target on which all objects of the test are.
struct Driver {
    user: NatsUser,
    child: &'static str,
    subject: &'static str,
    kind: &'static str,
    target: &'static str,
}

const DRIVERS: [Driver; 2] = [
    Driver {
        user: NatsUser::DriverNetconf,
        child: "driver-netconf",
        subject: "netconf.leaf1",
        kind: "netconf",
        target: "leaf1",
    },
    Driver {
        user: NatsUser::DriverNad,
        child: "driver-nad",
        subject: "nad.poison=2Fa0",
        kind: "nad",
        target: "poison/a0",
    },
];

/// What is not as it is to be, at all kinds of places.
struct Poison<'a> {
    system: &'a System,
    receiver: &'a Receiver,
    admin: Context,
    engine: Context,
    objects: usize,
}

impl Poison<'_> {
    /// The last message of a subject.
    async fn last(&self, stream: &str, subject: &str) -> (u64, Value) {
        let stream = self.admin.get_stream(stream).await.expect("a stream");
        let message = stream.get_last_raw_message_by_subject(subject).await.expect("a message");
        (message.sequence, serde_json::from_slice(&message.payload).unwrap_or_default())
    }

    /// Publishes it as one who may; its sequence.
    async fn put(&self, whose: &Context, subject: &str, payload: String) -> u64 {
        let sent = whose.publish(subject.to_owned(), payload.into()).await;
        sent.expect("it is sent").await.expect("it is stored").sequence
    }

    /// Waits until the last message of a subject is another one that has a generation and a sound rest.
    async fn until_replaced(&self, stream: &str, subject: &str, poison: u64, sound: &str) {
        self.until(&format!("{subject} is replaced"), async || {
            let (sequence, message) = self.last(stream, subject).await;
            sequence > poison && message.get(sound).is_some_and(Value::is_object)
        })
        .await;
    }

    async fn until(&self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        let looking = async {
            let mut looks = interval(std::time::Duration::from_millis(50));
            while !so().await {
                looks.tick().await;
            }
        };
        assert!(timeout(PATIENCE, looking).await.is_ok(), "{what}: not seen");
    }

    /// A counter of a process.
    async fn count(&self, child: &str, name: &str) -> u64 {
        let url = format!("{}/metrics", self.system.sandbox.url(child).expect("a process"));
        let Ok(answer) = self.system.http.get(url).send().await else { return 0 };
        let text = answer.text().await.unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Waits until a counter has gone up by as much as there were bad messages, and what the log says of them.
    async fn until_counted(&self, child: &str, name: &str, count: u64, words: &[&str]) {
        let what = format!("{name} of {child} is {count}");
        self.until(&what, async || self.count(child, name).await >= count).await;
        let processes = self.system.sandbox.info().processes;
        let log = processes.into_iter().find(|process| process.name == child).expect("a process").log;
        let text = std::fs::read_to_string(log).expect("its log");
        assert!(
            text.lines().any(|line| words.iter().all(|word| line.contains(word))),
            "{child} says nothing of {words:?}"
        );
    }

    /// Another service with its attachment, on the same switches, becomes ready.
    async fn another_is_made(&mut self) {
        let (n, url) = (self.objects, self.receiver.url());
        self.objects += 1;
        let vid = 1000 + n;
        self.system
            .apply(&format!(
                "apiVersion: eno.k8s.io/v1alpha1\nkind: L2Service\nmetadata: {{name: poison-{n}, labels: {{test: \
                 poison}}}}\nspec: {{SegmentationID: {vid}, PhysicalNW: [dc-gw], CallbackURL: '{url}'}}\n---\n\
                 apiVersion: eno.k8s.io/v1alpha1\nkind: L2ServiceAttachment\nmetadata: {{name: a{n}, namespace: poison, \
                 labels: {{test: poison}}}}\nspec: {{ConnectionPoint: poison, L2Services: [poison-{n}], VlanType: \
                 access, CallbackURL: '{url}'}}"
            ))
            .await;
        self.all_ready().await;
        let made = [format!("L2Service poison-{n}"), format!("L2ServiceAttachment poison/a{n}")];
        self.receiver.until(&made, "ready").await;
    }

    async fn all_ready(&self) {
        self.system.all_become::<L2Service>("poison", self.objects, Phase::Ready).await;
        self.system.all_become::<L2ServiceAttachment>("poison", self.objects, Phase::Ready).await;
        self.system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
    }

    /// What is asked of the first attachment's network changes, and is done: on the switch, and by its NAD.
    async fn a_change_is_made(&self, vid: u16) {
        self.system.patch("L2Service", "poison-0", json!({"spec": {"SegmentationID": vid}})).await;
        self.system.until_view("leaf1", "the new VLAN", |view| view.vlans.contains_key(&vid)).await;
        self.all_ready().await;
        self.system.nad("poison/a0", |configuration| configuration["vlan"] == vid).await;
    }

    /// These became ready, and of what is ready nobody was told anything else.
    fn nothing_else_was_told(&self, of: impl IntoIterator<Item = usize>) {
        for n in of {
            for object in [format!("L2Service poison-{n}"), format!("L2ServiceAttachment poison/a{n}")] {
                assert_eq!(self.receiver.phases(&object), ["pending", "ready"], "{object}");
            }
        }
    }
}

#[test]
fn what_nobody_can_read_is_counted_and_blocks_nothing() {
    own(
        |_| (),
        async |system| {
            system.point("poison").await;
            let receiver = Receiver::start().await;
            let mut poison = Poison {
                system,
                receiver: &receiver,
                admin: nats(system, NatsUser::Admin).await,
                engine: nats(system, NatsUser::Engine).await,
                objects: 0,
            };
            poison.another_is_made().await;
            commands(&mut poison).await;
            reports(&mut poison).await;
            transitions(&mut poison).await;
            forgotten_in_part(&mut poison).await;

            let objects = ["L2Service poison-0".to_owned(), "L2ServiceAttachment poison/a0".to_owned()];
            receiver.until(&objects, "ready").await;
            for object in &objects {
                let numbers: Vec<_> =
                    receiver.of(object).iter().map(|callback| callback.transition).collect();
                assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{object}");
            }
            poison.nothing_else_was_told(1..poison.objects);
            let all = (0..poison.objects).map(|n| {
                format!(
                    "{{apiVersion: eno.k8s.io/v1alpha1, kind: L2ServiceAttachment, metadata: {{name: a{n}, namespace: \
                     poison}}}}\n---\n{{apiVersion: eno.k8s.io/v1alpha1, kind: L2Service, metadata: {{name: poison-{n}}}}}"
                )
            });
            system.delete(&all.collect::<Vec<_>>().join("\n---\n")).await;
            system.until_without(1000..1100).await;
        },
    );
}

/// In the place of the last command of each driver: what is no JSON; the command with a part of it broken, under a
/// generation of its own; and the command of another target.
async fn commands(poison: &mut Poison<'_>) {
    const COUNTER: &str = "eno_driver_bad_messages_total";
    for driver in &DRIVERS {
        let subject = format!("eno.v1.command.{}", driver.subject);
        let said = poison.last("ENO_COMMANDS", &subject).await.1;
        assert_eq!((&said["driver"], &said["target"]), (&json!(driver.kind), &json!(driver.target)));
        let mut broken = said.clone();
        broken["desired"] = json!("all");
        let number = said["generation"]["sequence"].as_u64().expect("a number");
        broken["generation"]["sequence"] = json!(number + 1);
        let mut other = said.clone();
        other["target"] = json!("elsewhere");
        for (n, payload) in ["{".to_owned(), broken.to_string(), other.to_string()].into_iter().enumerate() {
            let at = poison.put(&poison.engine, &subject, payload).await;
            let words = ["ignoring a message that is no command", driver.target];
            poison.until_counted(driver.child, COUNTER, n as u64 + 1, &words).await;
            poison.until_replaced("ENO_COMMANDS", &subject, at, "desired").await;
            poison.all_ready().await;
        }
        poison.another_is_made().await;
    }
    poison.nothing_else_was_told(0..poison.objects);

    // Nobody is there to answer, and who comes has seen nothing else.
    for driver in &DRIVERS {
        let subject = format!("eno.v1.command.{}", driver.subject);
        poison.system.sandbox.stop_child(driver.child).await.expect("a driver that leaves");
        let at = poison.put(&poison.engine, &subject, "{".to_owned()).await;
        poison.system.sandbox.start_child(driver.child).await.expect("the driver again");
        poison.until_counted(driver.child, COUNTER, 1, &[]).await;
        poison.until_replaced("ENO_COMMANDS", &subject, at, "desired").await;
    }
    poison.another_is_made().await;

    // The engine finds it.
    poison.system.sandbox.stop_child(ENGINE).await.expect("an engine that leaves");
    let mut found = Vec::new();
    for driver in &DRIVERS {
        let subject = format!("eno.v1.command.{}", driver.subject);
        let before = poison.count(driver.child, COUNTER).await;
        let at = poison.put(&poison.engine, &subject, "{".to_owned()).await;
        // The driver has answered by then.
        poison.until_counted(driver.child, COUNTER, before + 1, &[]).await;
        found.push((subject, at));
    }
    poison.system.sandbox.start_child(ENGINE).await.expect("the engine again");
    let words = ["a command can't be read", "leaf1"];
    poison.until_counted(ENGINE, "eno_engine_malformed_total{what=\"command\"}", 2, &words).await;
    for (subject, at) in found {
        poison.until_replaced("ENO_COMMANDS", &subject, at, "desired").await;
    }
    poison.another_is_made().await;
    poison.nothing_else_was_told(0..poison.objects);
}

/// In the place of the last report of each driver: what is no JSON, a report with a part of it broken, and one on another
/// target.
async fn reports(poison: &mut Poison<'_>) {
    const COUNTER: &str = "eno_engine_malformed_total{what=\"report\"}";
    let mut count = poison.count(ENGINE, COUNTER).await;
    for driver in &DRIVERS {
        let whose = nats(poison.system, driver.user).await;
        let subject = format!("eno.v1.result.{}", driver.subject);
        let said = poison.last("ENO_RESULTS", &subject).await.1;
        let mut broken = said.clone();
        broken["outcome"] = json!({"status": "perfect"});
        let mut other = said.clone();
        other["target"] = json!("elsewhere");
        for payload in ["{".to_owned(), broken.to_string(), other.to_string()] {
            poison.put(&whose, &subject, payload).await;
            count += 1;
            let words = ["a report can't be read", driver.subject];
            poison.until_counted(ENGINE, COUNTER, count, &words).await;
        }
    }
    poison.another_is_made().await;
    poison.a_change_is_made(1050).await;

    // The engine finds it in the place of what it waits for.
    poison.system.sandbox.stop_child(ENGINE).await.expect("an engine that leaves");
    let mut found = Vec::new();
    for driver in &DRIVERS {
        let whose = nats(poison.system, driver.user).await;
        let subject = format!("eno.v1.result.{}", driver.subject);
        let at = poison.put(&whose, &subject, "{".to_owned()).await;
        found.push((subject, at));
    }
    poison.system.sandbox.start_child(ENGINE).await.expect("the engine again");
    poison.until_counted(ENGINE, COUNTER, 2, &["a report can't be read", "leaf1"]).await;
    for (subject, at) in found {
        poison.until_replaced("ENO_RESULTS", &subject, at, "generation").await;
    }
    poison.another_is_made().await;
    poison.a_change_is_made(1060).await;
    poison.nothing_else_was_told(1..poison.objects);
}

/// In the place of the last transition of an object.
async fn transitions(poison: &mut Poison<'_>) {
    let count = async || poison.count(ENGINE, "eno_engine_malformed_total{what=\"transition\"}").await;
    let before = count().await;
    poison.put(&poison.engine, "eno.v1.transition.L2Service._.poison-0", "{".to_owned()).await;
    poison.until("it is counted", async || count().await > before).await;
    poison.a_change_is_made(1070).await;
    poison.another_is_made().await;
}

/// A target whose command was taken out by an engine that died before it took out the report, and told nobody.
async fn forgotten_in_part(poison: &mut Poison<'_>) {
    poison.system.sandbox.stop_child(ENGINE).await.expect("an engine that leaves");
    let mut left = Vec::new();
    for (driver, target, token) in
        [(&DRIVERS[0], "ghost", "ghost"), (&DRIVERS[1], "poison/ghost", "poison=2Fghost")]
    {
        let mut report = poison.last("ENO_RESULTS", &format!("eno.v1.result.{}", driver.subject)).await.1;
        report["target"] = json!(target);
        let subject = format!("eno.v1.result.{}.{token}", driver.kind);
        poison.put(&nats(poison.system, driver.user).await, &subject, report.to_string()).await;
        left.push(subject);
    }
    poison.system.sandbox.start_child(ENGINE).await.expect("the engine again");
    let stream = poison.admin.get_stream("ENO_RESULTS").await.expect("a stream");
    for subject in left {
        poison
            .until(&format!("{subject} is taken out"), async || {
                stream.get_last_raw_message_by_subject(&subject).await.is_err()
            })
            .await;
    }
    poison.another_is_made().await;
}
