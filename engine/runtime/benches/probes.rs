//! CPU time of the engine, its writes and its messages with 200 VLANs on 50 nodes that probe: a real API server and a
//! real nats-server, and agents that find by themselves that all packets pass.
//!
//! Agents report only what has changed (the bench of the agent counts that), so they are silent here as well while nothing
//! changes. Then each of them finds that packets of one VLAN are lost, and that they pass again.

mod cluster;

use std::time::{Duration, Instant};

use eno_nbi_crds::{L2Service, L2ServiceAttachment};
use eno_sbi::nats::Connection;
use eno_sbi::{Driver, Identity, Reconciled, VISITS, Work};
use eno_schemas::{Applied, Desired, PayloadKind, VlanId, VlanSet, subject};
use futures::{Stream, StreamExt as _, stream};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use cluster::{Cluster, NAMESPACE, cpu_of_the_engine, create_network, writes};

const NODES: usize = 50;
const VLANS: u16 = 200;
const FIRST_VLAN: u16 = 100;
/// Seconds for which nothing changes.
const QUIET: u16 = 60;
/// How often packets of a VLAN are lost and pass again.
const ROUNDS: u16 = 5;

/// An agent that has carried out everything.
struct Simulated {
    node: String,
    /// The VLANs whose packets are lost.
    lost: watch::Receiver<VlanSet>,
}

impl Driver for Simulated {
    fn identity(&self) -> Identity {
        Identity { name: "node".into(), kinds: vec![PayloadKind::Node], capabilities: vec![VISITS.into()] }
    }

    fn only_target(&self) -> Option<String> {
        Some(self.node.clone())
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let Desired::Node(desired) = &work.command.desired else { panic!("{:?}", work.command) };
        let mut applied = desired.carried_out(|_, link| link.carried_out("1"));
        if let Applied::Node { probes, .. } = &mut applied {
            for found in probes {
                found.lost = found.passed.intersection(&self.lost.borrow());
                found.passed = found.passed.difference(&found.lost);
            }
        }
        Reconciled::applied(applied)
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let changes = stream::unfold(self.lost.clone(), |mut lost| async move {
            lost.changed().await.ok()?;
            Some(((), lost))
        });
        let node = self.node.clone();
        changes.map(move |()| node.clone())
    }
}

/// What was used in some time.
struct Used {
    seconds: f64,
    /// Milliseconds of CPU time of the engine.
    cpu: f64,
    /// Messages on the streams of commands and reports, and writes to the API.
    commands: u64,
    reports: u64,
    writes: f64,
}

/// What was used so far.
async fn used(started: Instant, cluster: &Cluster) -> Used {
    Used {
        seconds: started.elapsed().as_secs_f64(),
        cpu: cpu_of_the_engine(),
        commands: messages(&cluster.connection, subject::COMMANDS).await,
        reports: messages(&cluster.connection, subject::RESULTS).await,
        writes: writes(&cluster.client).await,
    }
}

impl Used {
    fn print(&self, what: &str, before: &Self) {
        let seconds = self.seconds - before.seconds;
        let cpu = self.cpu - before.cpu;
        println!(
            "{what}: {seconds:.1} s, engine {cpu:.0} ms of CPU ({:.3} % of a core), {} commands, {} reports, {} writes",
            cpu / seconds / 10.0,
            self.commands - before.commands,
            self.reports - before.reports,
            self.writes - before.writes,
        );
    }
}

fn main() {
    cluster::measure(measure);
}

async fn measure(engine: Handle) {
    let mut cluster = Cluster::start(&engine, NODES).await;
    let (lost, seen) = watch::channel(VlanSet::EMPTY);
    for node in cluster.nodes.clone() {
        cluster.run(Simulated { node, lost: seen.clone() }).await;
    }
    let client = cluster.client.clone();
    let started = Instant::now();
    cluster.until_quiet().await;
    let alone = used(started, &cluster).await;
    // The measured time.
    sleep(Duration::from_secs(QUIET.into())).await;
    let before = used(started, &cluster).await;
    before.print(&format!("{NODES} nodes without a VLAN"), &alone);
    for vlan in 0..VLANS {
        let service = json!({ "SegmentationID": FIRST_VLAN + vlan });
        create_network(&client, &format!("s{vlan}"), service).await;
    }
    until_verified(&client, VLANS.into()).await;
    cluster.until_quiet().await;
    let ready = used(started, &cluster).await;
    ready.print(&format!("{VLANS} VLANs on {NODES} nodes are verified"), &before);
    // The measured time.
    sleep(Duration::from_secs(QUIET.into())).await;
    let quiet = used(started, &cluster).await;
    quiet.print("nothing changes", &ready);
    for round in 0..ROUNDS {
        lost.send_replace(VlanSet::from_iter([VlanId::new(FIRST_VLAN + round).unwrap()]));
        until_verified(&client, usize::from(VLANS) - 1).await;
        lost.send_replace(VlanSet::EMPTY);
        until_verified(&client, VLANS.into()).await;
    }
    cluster.until_quiet().await;
    used(started, &cluster)
        .await
        .print(&format!("packets of a VLAN are lost on all nodes, and pass again, {ROUNDS} times"), &quiet);
    cluster.end().await;
}

/// Waits until as many attachments are verified, and services.
async fn until_verified(client: &Client, count: usize) {
    let services: Api<L2Service> = Api::all(client.clone());
    let attachments: Api<L2ServiceAttachment> = Api::namespaced(client.clone(), NAMESPACE);
    let is_true = |conditions: Option<&[eno_nbi_crds::Condition]>| {
        conditions.into_iter().flatten().any(|one| one.type_ == "Verified" && one.status == "True")
    };
    loop {
        let all = attachments.list(&ListParams::default()).await.unwrap();
        let of = |one: &&L2ServiceAttachment| is_true(one.status.as_ref().map(|status| &*status.conditions));
        let verified = all.iter().filter(of).count();
        let all = services.list(&ListParams::default()).await.unwrap();
        let of = |one: &&L2Service| is_true(one.status.as_ref().map(|status| &*status.conditions));
        if (verified, all.iter().filter(of).count()) == (count, count) {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// The messages that a stream has got so far.
async fn messages(connection: &Connection, stream: &str) -> u64 {
    let stream = connection.jetstream.get_stream(stream).await.unwrap();
    stream.get_info().await.unwrap().state.last_sequence
}
