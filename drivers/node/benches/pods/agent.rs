//! Latency and memory of the program itself with as many pods. It runs in a namespace that acts as its node, with a
//! real nats-server and a fake resolver.

use std::error::Error;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use eno_conformance::{Engine, NatsServer};
use eno_driver_node::driver::NAME;
use eno_driver_node::netlink::{Namespace, Netlink, Request};
use eno_driver_node::pods::Resolve as _;
use eno_schemas::{Applied, Command, Desired, NodeDesired, Report};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;

use crate::{Result, Runtime};

/// The measured values.
pub struct Agent {
    /// Time from the first command to the report that all pods are applied, over NATS.
    pub applied: Duration,
    /// The same for one more pod with all others in place: the median of several.
    pub one_more: Duration,
    /// `VmRSS` and `VmHWM`.
    pub memory: [String; 2],
}

/// Kills the program when this is dropped.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures the program with these pods; the last one is added later than the others.
pub fn measure(pods: Runtime, desired: NodeDesired) -> Result<Agent> {
    let node = Namespace::create()?;
    // What this thread starts, and its sockets, are in the node's namespace.
    let inside = std::thread::spawn(move || -> std::result::Result<Agent, String> {
        let run = || -> Result<Agent> {
            node.enter()?;
            Netlink::open()?.execute(Request::set_up("lo", 1, true))?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(life(pods, desired))
        };
        run().map_err(|error| error.to_string())
    });
    inside.join().map_err(|_| "the agent's thread crashed")?.map_err(Into::into)
}

async fn life(pods: Runtime, desired: NodeDesired) -> Result<Agent> {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("cri.sock");
    let resolver = tokio::spawn(resolve(UnixListener::bind(&socket)?, pods));
    let agent = Process::new(env!("CARGO_BIN_EXE_eno-driver-node"))
        .args(["--node", "node1", "--instance", "node1", "--nats-url", &server.args().nats_url])
        .arg("--cri-resolver")
        .arg(&socket)
        .arg("--ovsdb")
        .arg(format!("unix:{}", folder.path().join("no-ovsdb").display()))
        .arg("--namespaces")
        .arg(folder.path())
        .arg("--ipam-dir")
        .arg(folder.path().join("no-ipam"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let agent = Child(agent);
    let nothing = NodeDesired { cluster: desired.cluster.clone(), ..NodeDesired::default() };
    let mut less = desired.clone();
    less.pods.pop_last();
    timed(&engine, 1, &nothing).await;
    let applied = timed(&engine, 2, &less).await;
    let mut one_more = Vec::new();
    for at in 0..20 {
        one_more.push(timed(&engine, 3 + 2 * at, &desired).await);
        timed(&engine, 4 + 2 * at, &less).await;
    }
    let one_more = crate::median(one_more);
    let status = std::fs::read_to_string(Path::new("/proc").join(agent.0.id().to_string()).join("status"))?;
    resolver.abort();
    Ok(Agent { applied, one_more, memory: ["VmRSS:", "VmHWM:"].map(|name| crate::line(&status, name)) })
}

async fn timed(engine: &Engine, sequence: u64, desired: &NodeDesired) -> Duration {
    let count = desired.pods.len();
    let desired = Desired::Node(desired.clone());
    let begun = Instant::now();
    engine.command(&Command::new(NAME, "node1", (1, sequence), desired)).await;
    engine.report(NAME, "node1", |report| whole(report, sequence, count)).await;
    begun.elapsed()
}

fn whole(report: &Report, sequence: u64, count: usize) -> bool {
    let there = match &report.applied {
        Some(Applied::Node { pods, .. }) => pods.values().filter(|links| links.len() == 1).count(),
        _ => 0,
    };
    report.generation.sequence == sequence && there == count && report.rejected.is_empty()
}

/// Answers like `eno-cri-resolver`.
async fn resolve(listener: UnixListener, pods: Runtime) {
    while let Ok((stream, _)) = listener.accept().await {
        let pods = pods.clone();
        tokio::spawn(async move {
            let answer = answer(stream, &pods).await;
            if let Err(error) = answer {
                eprintln!("the resolver: {error}");
            }
        });
    }
}

async fn answer(
    stream: tokio::net::UnixStream,
    pods: &Runtime,
) -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
    let mut stream = BufReader::new(stream);
    let mut question = String::new();
    stream.read_line(&mut question).await?;
    let question: eno_cri::protocol::Request = serde_json::from_str(&question)?;
    let found = pods.resolve(question.pod.as_str(), None).await?;
    let own = std::process::id().to_string();
    let resolved = eno_cri::Resolved {
        path: found.path.to_string_lossy().replace("self", &own).into(),
        inode: found.id.inode,
        device: found.id.device,
        pid: found.pid,
    };
    let mut line = serde_json::to_vec(&resolved)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    Ok(())
}
