//! Load on the operator during a disturbance: a ping between pods on two nodes, networks that come and go with
//! callbacks, and a watch of the engines' Lease.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use eno_nbi_crds::{L2Service, L2ServiceAttachment};
use eno_tests::{Receiver, System, daemon_set, service};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use super::WITHOUT_LEADER;
use super::pods::{SYSTEM, until_settled};
use crate::nodes::hot_plug::{addresses, attachment, network};

/// The VLAN of the pods that talk.
const TALK_VID: u16 = 151;
/// The first VLAN of the networks that come and go, and the number of these VLANs.
const VIDS: (u16, u16) = (1000, 2000);
/// A network comes each time, and the oldest one goes.
const PACE: Duration = Duration::from_millis(500);
/// Number of networks that are there at once. During an outage they are more.
const ALIVE: usize = 6;
/// Time without a callback after which a dump of the operator is made.
const DUMP_AFTER: Duration = Duration::from_secs(40);
/// Interval of pings.
const PING: &str = "0.2";

/// What was measured during a disturbance.
pub struct Figures {
    /// Number of echo requests, and of those without a reply.
    pub pings: (usize, usize),
    /// Number of networks that came and went.
    pub networks: usize,
    /// Number of callbacks about them. None is lost.
    pub callbacks: usize,
    /// For each change of the leader: the time from the last sign of life of one to the first one of the next.
    pub without_leader: Vec<Duration>,
    /// The time of the disturbance.
    pub took: Duration,
}

impl Figures {
    /// Checks that no time without a leader is longer than after the death of one.
    pub fn assert_leaders_follow(&self) {
        assert!(self.without_leader.iter().all(|time| *time < WITHOUT_LEADER), "{self}");
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, lost) = self.pings;
        let without: Vec<_> =
            self.without_leader.iter().map(|time| format!("{:.1}", time.as_secs_f64())).collect();
        write!(
            f,
            "{:.0} s; {lost} of {sent} pings lost; {} networks with {} callbacks; seconds without a leader: [{}]",
            self.took.as_secs_f64(),
            self.networks,
            self.callbacks,
            without.join(", ")
        )
    }
}

/// Runs a disturbance under load, waits until all pods of the operator are ready, and checks that nothing was lost: no
/// ping, no callback, no VLAN. `name` is that of the namespace, the network and the test in the output.
pub async fn under_load(system: &System, name: &str, disturb: impl AsyncFnOnce()) -> Figures {
    let receiver = Receiver::start_at(system.sandbox.control_plane().address()).await;
    let (network, oam) = (network(name, TALK_VID), attachment(name, "oam"));
    let talk = daemon_set(name, "talk", &json!({ "attach.eno.k8s.io/oam": "net1" }));
    system.apply(&network).await;
    system.apply(&oam).await;
    system.apply(&talk).await;
    let count = system.sandbox.nodes().len();
    system.running(name, "app=talk", count).await;
    let leases = addresses(system, &format!("{name}/oam"), count).await;
    let [(from, _), (_, to), ..] = &leases[..] else { panic!("{leases:?}") };
    system.pings(name, from, &to[0], true).await;
    let ping = Ping::start(system, name, from, &to[0]).await;

    let done = CancellationToken::new();
    let (networks, without_leader, took) =
        tokio::join!(change(system, name, &receiver, &done), watch_leaders(system, &done), async {
            // Nothing is disturbed before the load is there.
            receiver.until(&[format!("L2ServiceAttachment {name}/{name}-1")], "ready").await;
            let began = Instant::now();
            disturb().await;
            until_settled(system).await;
            done.cancel();
            began.elapsed()
        });

    let (networks, left) = networks;
    // Those that are still there become ready.
    let those: Vec<_> = left.iter().flat_map(|n| objects(name, *n)).collect();
    until_called_back(system, &receiver, &those, "ready").await;
    for n in left {
        system.request_deletion(&pair(name, n, &receiver)).await;
    }
    let all: Vec<_> = (0..networks).flat_map(|n| objects(name, n)).collect();
    until_called_back(system, &receiver, &all, "deleted").await;
    let callbacks = receiver.assert_complete(&all);
    let pings = ping.stop(system).await;
    system.delete(&talk).await;
    system.delete(&oam).await;
    system.delete(&network).await;
    system.none_left::<L2ServiceAttachment>(name).await;
    system.none_left::<L2Service>(name).await;
    system.until_without((VIDS.0..VIDS.0 + VIDS.1).chain([TALK_VID])).await;

    let figures = Figures { pings, networks: networks.into(), callbacks, without_leader, took };
    eprintln!("{name}: {figures}");
    assert!(pings.0 > 20 && pings.1 == 0, "{name}: {figures}");
    figures
}

/// Waits for callbacks. If they don't come in time, it leaves a dump of the operator, in which to look for the cause.
async fn until_called_back(system: &System, receiver: &Receiver, objects: &[String], phase: &str) {
    if timeout(DUMP_AFTER, receiver.until(objects, phase)).await.is_err() {
        let file = std::env::temp_dir().join(format!("eno-{}.tar.gz", std::process::id()));
        let output = system.eno(&["sysdump", "--output", &file.to_string_lossy()], "").await;
        eprintln!("eno sysdump of the operator: {}: {}", file.display(), output.status);
        receiver.until(objects, phase).await;
    }
}

/// A service and an attachment that call back.
fn pair(name: &str, number: u16, receiver: &Receiver) -> String {
    let callback = format!("CallbackURL: '{}'", receiver.url());
    let own = format!("{name}-{number}");
    let more = format!("VlanType: access, {callback}");
    service(&own, VIDS.0 + number % VIDS.1, &format!("PhysicalNW: [dc-gw], {callback}"))
        + &eno_tests::attachment(name, &own, name, &own, &more)
}

/// The objects of [`pair`], as callbacks name them.
fn objects(name: &str, number: u16) -> [String; 2] {
    [format!("L2Service {name}-{number}"), format!("L2ServiceAttachment {name}/{name}-{number}")]
}

/// Creates and deletes networks until the end. Returns the number of those created, and those that are left.
async fn change(
    system: &System,
    name: &str,
    receiver: &Receiver,
    done: &CancellationToken,
) -> (u16, VecDeque<u16>) {
    let mut tick = interval(PACE);
    let mut left = VecDeque::new();
    for number in 0.. {
        tokio::select! {
            _ = tick.tick() => {}
            () = done.cancelled() => return (number, left),
        }
        system.apply(&pair(name, number, receiver)).await;
        left.push_back(number);
        // An object that no engine has seen has no callback, also when it is deleted.
        let is_seen =
            |number: u16| objects(name, number).iter().all(|object| !receiver.of(object).is_empty());
        while left.len() > ALIVE
            && let Some(oldest) = left.pop_front_if(|oldest| is_seen(*oldest))
        {
            system.request_deletion(&pair(name, oldest, receiver)).await;
        }
    }
    unreachable!("the numbers have no end")
}

/// Watches the Lease until the end, and returns the time without a leader at each change. A leader renews its Lease
/// every 2 s, so up to that much of the time of a leader that dies is counted, too.
async fn watch_leaders(system: &System, done: &CancellationToken) -> Vec<Duration> {
    let leases: Api<Lease> = Api::namespaced(system.sandbox.client(), SYSTEM);
    let config = watcher::Config::default().fields("metadata.name=eno-engine");
    let mut events = std::pin::pin!(watcher(leases, config).default_backoff().applied_objects());
    let mut last = None;
    let mut without = Vec::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event.expect("a watch without an end"),
            () = done.cancelled() => return without,
        };
        // The watch goes on after an error.
        let Ok(lease) = event else { continue };
        let (term, now) = (lease.spec.and_then(|spec| spec.lease_transitions), Instant::now());
        if let Some((before, seen)) = last
            && before != term
        {
            without.push(now - seen);
        }
        last = Some((term, now));
    }
}

/// A ping that runs in a pod.
struct Ping {
    namespace: String,
    pod: String,
    pid: String,
}

impl Ping {
    async fn start(system: &System, namespace: &str, pod: &str, address: &str) -> Self {
        // The shell would take its own ping, which needs a raw socket.
        let command = format!("/bin/ping -i {PING} {address} >/tmp/ping 2>&1 & echo $!");
        let pid = system.exec(namespace, pod, &["sh", "-c", &command]).await.expect("a ping");
        Self { namespace: namespace.to_owned(), pod: pod.to_owned(), pid: pid.trim().to_owned() }
    }

    /// Ends it, and returns the number of requests, and of those without a reply.
    async fn stop(self, system: &System) -> (usize, usize) {
        let killed = system.exec(&self.namespace, &self.pod, &["kill", "-INT", &self.pid]).await;
        assert!(killed.is_some(), "the ping of {} still runs", self.pod);
        let is_complete = |text: Option<&str>| text.is_some_and(|text| text.contains("packets transmitted"));
        let text = system.until_inside(&self.namespace, &self.pod, &["cat", "/tmp/ping"], is_complete).await;
        count_pings(&text)
    }
}

/// The numbers of requests, and of those without a reply, in the output of ping. The last request may have been too late
/// for a reply.
fn count_pings(text: &str) -> (usize, usize) {
    let sent = text.lines().find_map(|line| line.split_once(" packets transmitted")?.0.parse().ok());
    let sent: usize = sent.unwrap_or_else(|| panic!("no output of ping:\n{text}"));
    let replies = text.lines().filter(|line| line.contains(" bytes from "));
    let answered: BTreeSet<usize> =
        replies.filter_map(|line| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok()).collect();
    let missing = (1..sent).filter(|sequence| !answered.contains(sequence)).count();
    (sent, missing)
}

#[test]
fn lost_pings_are_counted_by_their_numbers() {
    let text = "64 bytes from 10.1.0.1: icmp_seq=1 ttl=64 time=0.1 ms\nFrom 10.1.0.2 icmp_seq=2 Destination Host Unreachable\n\
                64 bytes from 10.1.0.1: icmp_seq=4 ttl=64 time=0.1 ms\n\n--- 10.1.0.1 ping statistics ---\n\
                5 packets transmitted, 2 received, 60% packet loss, time 800ms\n";
    assert_eq!(count_pings(text), (5, 2));
}
