//! How fast pods are given interfaces, side by side with the CNI plugin `bridge`. Needs root.
//!
//! ```text
//! cargo bench -p eno-driver-node --bench pods
//! ```
//!
//! The plugins (`bridge`, `static`) are looked for in `CNI_PATH`, else in the cache of the sandbox's parts
//! (`~/.cache/eno/cni-*`). Host and pods are network namespaces of this process. A round uses the same pod, bridge and
//! address for both: one interface, up, with its address, on the bridge. The two take turns after every pod, where each
//! finds the CPU caches as the other left them, and after ten pods, as a deployment starts them.

mod agent;
mod packets;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_driver_node::netlink::{Namespace, Netlink, NetlinkError, Request};
use eno_driver_node::pods::{Options, Pods, PodsApplied, Resolve, Sandbox, Unresolved};
use eno_schemas::{HostNetwork, LinkKind, LinkName, Master, NodeDesired, NodePod, PodLink};
use futures::StreamExt as _;
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

const BRIDGE: &str = "br-bench";
const ROUNDS: u32 = 60;
const PODS: u32 = 200;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Clone)]
struct Runtime(Arc<BTreeMap<String, Namespace>>);

impl Resolve for Runtime {
    async fn resolve(&self, uid: &str, _: Option<&str>) -> std::result::Result<Sandbox, Unresolved> {
        match self.0.get(uid) {
            Some(namespace) => Ok(Sandbox { path: namespace.path(), id: namespace.id(), pid: Some(1) }),
            None => Err(Unresolved { message: "no such pod".to_owned(), retryable: false, gone: true }),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let plugins = plugins()?;
    let host = Namespace::create()?;
    host.run(bridge).await??;
    let mut namespaces = BTreeMap::new();
    for at in 0..=PODS {
        namespaces.insert(uid(at), Namespace::create()?);
    }
    let runtime = Runtime(Arc::new(namespaces));
    let options = Options {
        host: host.clone(),
        audit: Duration::ZERO,
        allowed_masters: BTreeSet::new(),
        ovs_datapath: eno_schemas::OvsDatapath::System,
        proc_sys_net: "/proc/sys/net".into(),
        namespaces: "/nonexistent".into(),
    };
    let pods = Pods::new(runtime.clone(), options);
    // As in the agent, a task waits for changes.
    let mut news = Box::pin(pods.changed());
    tokio::spawn(async move { while news.next().await.is_some() {} });
    let none = desired(0..0);
    whole(&pods.reconcile(&none).await, 0)?;

    let path = |at| {
        let path = runtime.0[&uid(at)].path();
        path.to_string_lossy().replace("self", &std::process::id().to_string())
    };
    for together in [1, 10_u32] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for first in (0..ROUNDS).step_by(together as usize) {
            let group = first..first + together;
            for at in group.clone() {
                timed(&mut ours, &pods, &desired(first..at + 1)).await?;
            }
            whole(&pods.reconcile(&none).await, 0)?;
            for at in group.clone() {
                let begun = Instant::now();
                cni(&host, &plugins, "ADD", at, &path(at)).await?;
                theirs.push(begun.elapsed());
            }
            for at in group {
                cni(&host, &plugins, "DEL", at, &path(at)).await?;
            }
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let times = theirs.div_duration_f64(ours);
        println!("attach one interface, turns of {together}, median of {ROUNDS}: {ours:.2?}");
        println!("the CNI plugin bridge on the same pods: {theirs:.2?}, {times:.1} times that");
    }

    let (mut at_once, mut again, mut detach) = (Vec::new(), Vec::new(), Vec::new());
    let (mut one_more, mut one_less) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        timed(&mut at_once, &pods, &desired(0..PODS)).await?;
        timed(&mut again, &pods, &desired(0..PODS)).await?;
        for _ in 0..5 {
            timed(&mut one_more, &pods, &desired(0..PODS + 1)).await?;
            timed(&mut one_less, &pods, &desired(0..PODS)).await?;
        }
        timed(&mut detach, &pods, &desired(0..PODS / 2)).await?;
        pods.reconcile(&none).await;
    }
    println!("{PODS} pods at once:                        {:.1?}", median(at_once));
    println!("{PODS} pods looked at, nothing to do:       {:.1?}", median(again));
    println!("one more pod with {PODS} there:             {:.1?}", median(one_more));
    println!("one less:                                {:.1?}", median(one_less));
    println!("detach {} of {PODS}:                      {:.1?}", PODS / 2, median(detach));
    let [free, guarded] = packets::measure(&runtime, &pods).await?;
    let times = guarded.div_duration_f64(free);
    println!("a datagram between two pods:             {free:.2?}, {times:.2} times that with AntiSpoof");
    drop(pods);
    let agent = agent::measure(runtime, desired(0..PODS + 1))?;
    println!("the agent, {PODS} pods over NATS:          {:.1?}", agent.applied);
    println!("one more pod with {PODS} there, over NATS:  {:.1?}", agent.one_more);
    let [now, most] = agent.memory;
    println!("its resident memory with {PODS} pods:      {now}, at most {most}");
    Ok(())
}

async fn timed(times: &mut Vec<Duration>, pods: &Pods<Runtime>, desired: &NodeDesired) -> Result<()> {
    let begun = Instant::now();
    let done = pods.reconcile(desired).await;
    times.push(begun.elapsed());
    whole(&done, desired.pods.len())
}

/// Checks that the measured reconcile realised all pods.
fn whole(done: &PodsApplied, pods: usize) -> Result<()> {
    let there = done.pods.values().filter(|links| links.len() == 1).count();
    if there == pods && done.rejected.is_empty() {
        Ok(())
    } else {
        Err(format!("{:?}", done.rejected).into())
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn uid(at: u32) -> String {
    format!("{at:08x}-0000-4000-8000-000000000000")
}

fn address(at: u32) -> String {
    format!("10.9.{}.{}/16", at / 250, at % 250 + 1)
}

fn desired(pods: std::ops::Range<u32>) -> NodeDesired {
    let network = HostNetwork::PodBridge { addresses: Vec::new(), mtu: None };
    NodeDesired {
        cluster: "bench".to_owned(),
        networks: BTreeMap::from([(BRIDGE.to_owned(), network)]),
        pods: pods.map(|at| (uid(at), pod(at))).collect(),
        ..NodeDesired::default()
    }
}

fn pod(at: u32) -> NodePod {
    let link = PodLink {
        id: "net1".to_owned(),
        revision: "1".to_owned(),
        name: LinkName::Fixed("net1".to_owned()),
        kind: LinkKind::Veth { master: Some(Master::Bridge { bridge: BRIDGE.to_owned(), vlans: None }) },
        member_of: None,
        mtu: None,
        mac: None,
        alias: None,
        addresses: address(at).parse().into_iter().collect(),
        routes: Vec::new(),
        rules: Vec::new(),
        sysctls: BTreeMap::new(),
        up: true,
        anti_spoof: false,
        parent_leads_to: None,
    };
    NodePod {
        namespace: "default".to_owned(),
        name: uid(at),
        container: format!("containerd://{at}"),
        links: vec![link],
        primary: None,
    }
}

fn bridge() -> std::result::Result<(), NetlinkError> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(BRIDGE.to_owned()));
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
    message.attributes.push(LinkAttribute::Group(eno_driver_node::host::ownership::group("bench")));
    let mut netlink = Netlink::open()?;
    netlink.execute(Request::add_link(BRIDGE, message))?;
    let index = netlink.link_named(BRIDGE)?.map(|link| link.index).unwrap_or_default();
    netlink.execute(Request::set_up(BRIDGE, index, true))
}

fn plugins() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CNI_PATH") {
        return Ok(path.into());
    }
    let cache = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/eno");
    let found = std::fs::read_dir(&cache)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.join("bridge").exists());
    found.ok_or_else(|| format!("no CNI plugins in {}: set CNI_PATH", cache.display()).into())
}

/// As a container runtime calls it, in the namespace of the host.
async fn cni(
    host: &Namespace,
    plugins: &Path,
    command: &'static str,
    at: u32,
    namespace: &str,
) -> Result<()> {
    let config = format!(
        r#"{{"cniVersion":"1.0.0","name":"bench","type":"bridge","bridge":"{BRIDGE}","ipam":{{"type":"static","addresses":[{{"address":"{}"}}]}}}}"#,
        address(at)
    );
    let mut process = Command::new(plugins.join("bridge"));
    process
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", uid(at))
        .env("CNI_NETNS", namespace)
        .env("CNI_IFNAME", "net1")
        .env("CNI_PATH", plugins)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = move || -> std::io::Result<std::process::Output> {
        let mut child = process.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(config.as_bytes())?;
        }
        child.wait_with_output()
    };
    let output = host.run(run).await??;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command}: {}", String::from_utf8_lossy(&output.stdout)).into())
}

/// The value of a line of `/proc/<pid>/status`.
fn line(status: &str, name: &str) -> String {
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap_or("unknown").trim().to_owned()
}
