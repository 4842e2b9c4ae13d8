//! The program is killed at the changes that its probes make, by which it asks and is visited.

use std::sync::{Arc, Mutex};

use eno_conformance::soon;
use eno_schemas::{Applied, NetworkProbes, ProbeResults, Report, Subject, decode};
use futures::StreamExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::fixture::AgentProcess;
use super::proxy::Proxy;
use super::tracer::TracedAgent;
use super::{DEFAULT_KILLS, KillPoint, RUN_TIMEOUT, StageProgress, in_a_node, kill_points, print_uncaptured};
use crate::agent::process::agent;
use crate::ovs::fixture as ovs;
use crate::probes::fixture::{World, gateway, name, ring, vlans};

const GATEWAY: &str = "192.0.2.1";

/// Two nodes that ask each other. The program on the first one is killed; the agent of the second one goes on.
struct Pair {
    world: World,
    changes_seen: watch::Sender<StageProgress>,
    /// The number of the last path.
    revision: u32,
    /// The reports of lost VLANs.
    lost: Arc<Mutex<Vec<Report>>>,
    _proxy: Proxy,
    _listeners: [JoinHandle<()>; 2],
}

impl Pair {
    /// `first`: the node of the program, in whose namespace the calling thread is.
    async fn start(first: ovs::Node) -> Self {
        let mut world = World::of(vec![first, ovs::Node::start()]).await;
        world.host("gw", 10, &["192.0.2.1/24"]);
        world.start_agent(1).await;
        let changes_seen = watch::Sender::default();
        let database = &world.nodes[0].switch.database;
        let proxy = Proxy::start(&database.path("proxy.sock"), &database.path("db.sock"), &changes_seen);
        let lost = Arc::default();
        let listeners = [listen(&world, 0, &lost).await, listen(&world, 1, &lost).await];
        Self { world, changes_seen, revision: 0, lost, _proxy: proxy, _listeners: listeners }
    }

    fn command(&self) -> std::process::Command {
        let database = self.world.nodes[0].switch.database.path("proxy.sock");
        let folder = self.world.folder.path();
        let mut command =
            agent(&self.world.server.args().nats_url, &database, folder, &folder.join("no-ipam"));
        command.args(["--ovs-datapath", "netdev"]);
        command
    }

    /// Starts the program.
    fn program(&self) -> AgentProcess {
        AgentProcess::start(self.command())
    }

    /// Starts the program, which is killed at its changes.
    fn traced_program(&self) -> TracedAgent {
        TracedAgent::start(&self.command(), self.changes_seen.clone())
    }

    /// Commands both nodes to probe; another path each time.
    async fn probe(&mut self) {
        self.revision += 1;
        for node in 0..2 {
            let mut probes = NetworkProbes { gateways: vec![gateway(GATEWAY, "10")], ..ring(node, "10-11") };
            probes.paths[0].revision = self.revision.to_string();
            self.world.command(node, vec![probes]).await;
        }
    }

    /// Waits until both nodes have found that packets pass.
    async fn pass(&self) {
        let is_good = |found: &ProbeResults| {
            found.passed == vlans("10-11") && found.gateways.iter().any(|answer| !answer.macs.is_empty())
        };
        for node in 0..2 {
            self.world.results(node, is_good).await;
        }
    }

    /// Kills the program at a change, and starts it again. Returns the changes, and whether it was killed.
    async fn live(&mut self, kill_point: Option<KillPoint>) -> (Vec<String>, bool) {
        self.changes_seen.send_replace(StageProgress { kill_point, ..StageProgress::default() });
        self.probe().await;
        let program = self.traced_program();
        let mut changes_seen = self.changes_seen.subscribe();
        let killed = tokio::select! {
            () = self.pass() => false,
            killed = changes_seen.wait_for(|changes_seen| changes_seen.killed) => { killed.unwrap(); true }
        };
        drop(program);
        let StageProgress { changes, .. } = self.changes_seen.send_replace(StageProgress::default());
        let node = &self.world.nodes[0];
        let gone = async { while !node.ends().await.is_empty() {} };
        soon("no interface is left", gone).await;

        let program = self.program();
        self.probe().await;
        self.pass().await;
        let mut ends = node_ends(&self.world).await;
        let mut rows = self.world.nodes[0].rows();
        ends.sort();
        rows.sort();
        assert_eq!(ends, rows, "killed {kill_point:?}: others are left");
        let lost = std::mem::take(&mut *self.lost.lock().unwrap());
        assert!(lost.is_empty(), "killed {kill_point:?}: {lost:?}");
        drop(program);
        (changes, killed)
    }
}

/// The names of the interfaces of probes on the first node.
async fn node_ends(world: &World) -> Vec<String> {
    world.nodes[0].ends().await.into_iter().map(|end| end.name).collect()
}

/// Collects the reports of a node in which a VLAN is lost.
async fn listen(world: &World, node: usize, lost: &Arc<Mutex<Vec<Report>>>) -> JoinHandle<()> {
    let subject = Subject::result("node", &name(node)).to_string();
    let mut reports = world.engine.connection.client.subscribe(subject).await.unwrap();
    let lost = Arc::clone(lost);
    tokio::spawn(async move {
        while let Some(message) = reports.next().await {
            let report: Report = decode(&message.payload).unwrap();
            let Some(Applied::Node { probes, .. }) = &report.applied else { continue };
            if probes.iter().any(|found| !found.lost.is_empty()) {
                lost.lock().unwrap().push(report);
            }
        }
    })
}

#[test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
fn agent_killed_at_any_step_of_a_probe_leaves_nothing_and_loses_no_vlan() {
    in_a_node(async |switch| check(Pair::start(switch).await).await);
}

async fn check(mut pair: Pair) {
    let begun = std::time::Instant::now();
    // The bridge is there before.
    pair.world.command(0, Vec::new()).await;
    let program = pair.program();
    pair.world.reported(0).await;
    drop(program);
    let (changes, _) = pair.live(None).await;
    let all = changes.join("; ");
    for what in ["write", "new rule", "new link", "set link", "new address", "new neighbour", "insert Port"] {
        assert!(all.contains(what), "no {what} was seen: {all}");
    }
    let mut deaths = 0;
    let points = kill_points("step", changes.len(), DEFAULT_KILLS);
    let ran = points.len();
    for kill_point in points {
        let life = tokio::time::timeout(RUN_TIMEOUT, pair.live(Some(kill_point))).await;
        let (_, killed) = life.unwrap_or_else(|_| panic!("killed {kill_point}: it has no end"));
        deaths += usize::from(killed);
    }
    let seconds = begun.elapsed().as_secs();
    print_uncaptured(&format!(
        "probes: {} changes undisturbed, {ran} lives, {deaths} deaths, {seconds} s",
        changes.len()
    ));

    // Nothing is wanted any more.
    pair.world.command(0, Vec::new()).await;
    let program = pair.program();
    pair.world.reported(0).await;
    assert_eq!((node_ends(&pair.world).await, pair.world.nodes[0].rows()), (Vec::new(), Vec::new()));
    drop(program);
}
