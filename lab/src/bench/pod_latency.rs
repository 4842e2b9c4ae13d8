//! Measures the time from a running pod's label to its first reply over the fabric.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use eno_control_plane::node::is_root;
use eno_nbi_crds::{ATTACH_LABEL_PREFIX, L2ServiceAttachment, Phase, manifest};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, timeout};

use super::load::{self, EVERYWHERE, NAMESPACE};
use super::report::percentile;
use crate::sandbox::{Sandbox, TEST_IMAGE};
use eno::apply::apply_all;

/// Interval of the pod's requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum wait for a reply or another condition.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The name of the service, the Subnet and the attachment.
const NAME: &str = "answers";
const INTERFACE: &str = "net1";
/// The requesting and the replying pod: name, node, and seconds that its process sleeps, which identify the process on
/// the node.
const CLIENT: (&str, &str, &str) = ("asking", "node1", "1000001");
const PEER: (&str, &str, &str) = ("peer", "node2", "1000002");

/// Times from the write of a pod's label to its first reply over the network, in milliseconds.
#[derive(Debug, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answers {
    pub(super) tries: usize,
    pub(super) minimum: f64,
    pub(super) median: f64,
    pub(super) maximum: f64,
}

/// Whether this process may run nodes.
pub(super) fn can_be_measured() -> bool {
    is_root()
}

/// Labels a running pod repeatedly, in a sandbox with `node1` and `node2`.
pub(super) async fn measure(sandbox: &Sandbox, tries: usize) -> anyhow::Result<Answers> {
    let client = sandbox.client();
    let mut objects = load::base(&[EVERYWHERE])?;
    for object in objects_of_the_network().into_iter().chain([pod(CLIENT, &json!({})), pod(PEER, &label())]) {
        objects.push(serde_json::from_value::<DynamicObject>(object).context("an object of the benchmark")?);
    }
    apply_all(&client, "eno-bench", &objects).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let attachments: Api<L2ServiceAttachment> = Api::namespaced(client, NAMESPACE);
    for (name, ..) in [CLIENT, PEER] {
        let is_ready = |pod: Option<&Pod>| {
            let status = pod.and_then(|pod| pod.status.as_ref());
            let containers = status.and_then(|status| status.container_statuses.as_deref());
            containers.is_some_and(|all| all.iter().any(|one| one.ready))
        };
        with_timeout(&format!("pod {name}"), await_condition(pods.clone(), name, is_ready).boxed()).await??;
    }
    let users = |count: usize| {
        move |attachment: Option<&L2ServiceAttachment>| {
            let status = attachment.and_then(|attachment| attachment.status.as_ref());
            status.is_some_and(|status| {
                let configured = status.pod_configurations.iter().filter(|pod| !pod.config_list.is_empty());
                status.phase == Some(Phase::Ready)
                    && configured.count() == count
                    && status.addresses.len() == count
            })
        }
    };
    let until_attached = |count| {
        let what = format!("{count} pods on the network");
        let condition = await_condition(attachments.clone(), NAME, users(count)).boxed();
        async move { with_timeout(&what, condition).await?.context("watching the attachment") }
    };
    let attachment = until_attached(1).await?.context("the attachment is gone")?;
    let leases = attachment.status.map(|status| status.addresses).unwrap_or_default();
    let address = leases.first().and_then(|lease| lease.addresses.first());
    let address = address.and_then(|address| address.split('/').next()).context("the peer has no address")?;
    let address: Ipv4Addr = address.parse().context("the peer's address")?;

    let client_socket = socket_of(sandbox, CLIENT).await?;
    let mut samples = Vec::with_capacity(tries);
    for number in 0..tries {
        let (started, labelled) = (Instant::now(), set_label(&pods, label()));
        let answer =
            with_timeout("the first answer", first_answer(&client_socket, address, number as u64).boxed());
        let (answered, labelled) = tokio::join!(answer, labelled);
        labelled?;
        samples.push(answered?.duration_since(started).as_secs_f64() * 1000.0);
        // The label is removed once the attachment is complete.
        until_attached(2).await?;
        set_label(&pods, json!({ label_key(): Value::Null })).await?;
        until_attached(1).await?;
    }
    Ok(Answers {
        tries,
        minimum: percentile(&mut samples, 0),
        median: percentile(&mut samples, 50),
        maximum: percentile(&mut samples, 100),
    })
}

/// Sends echo requests (RFC 792) until a reply of this try comes. Errors mean that the network does not exist yet.
async fn first_answer(client_socket: &UdpSocket, peer: Ipv4Addr, number: u64) -> Instant {
    const ECHO: u8 = 8;
    const REPLY: u8 = 0;
    const HEADER: usize = 8;
    // The kernel sets the rest of the header.
    let mut request = vec![ECHO, 0, 0, 0, 0, 0, 0, 0];
    request.extend(number.to_be_bytes());
    let (to, mut reply) = (SocketAddr::new(peer.into(), 0), [0; 64]);
    let mut ticks = tokio::time::interval(REQUEST_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            received = client_socket.recv(&mut reply) => {
                let reply = received.ok().and_then(|length| reply.get(..length)).unwrap_or_default();
                if reply.first() == Some(&REPLY) && reply.get(HEADER..) == request.get(HEADER..) {
                    return Instant::now();
                }
            }
            _ = ticks.tick() => drop(client_socket.send_to(&request, to).await),
        }
    }
}

/// An ICMP socket in the network namespace of a pod. (UDP would need checksum offloading switched off, which Open
/// vSwitch's user space datapath does not do.)
async fn socket_of(sandbox: &Sandbox, (pod, node, sleeps): (&str, &str, &str)) -> anyhow::Result<UdpSocket> {
    let machine = sandbox.machine(node).with_context(|| format!("there is no {node}"))?;
    let processes = machine.inside("/proc");
    let path =
        find_process(&processes, &["sleep", sleeps]).with_context(|| format!("pod {pod} has no process"))?;
    let namespace = File::open(path.join("ns/net")).with_context(|| format!("the namespace of pod {pod}"))?;
    let made = tokio::task::spawn_blocking(|| {
        // The thread can't leave the namespace, so it is not one of the runtime.
        let thread = std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            socket(AddressFamily::Inet, SockType::Datagram, flags, SockProtocol::Icmp)
        });
        thread.join()
    });
    let Ok(socket) = made.await? else { bail!("the thread in the namespace of pod {pod} ended") };
    let socket: OwnedFd = socket.with_context(|| format!("a socket in pod {pod}"))?;
    Ok(UdpSocket::from_std(socket.into())?)
}

/// The directory in `/proc` of the process with these arguments.
fn find_process(proc: &std::path::Path, arguments: &[&str]) -> Option<PathBuf> {
    let wanted = arguments.iter().fold(String::new(), |line, argument| line + argument + "\0");
    let directories = fs::read_dir(proc).ok()?.flatten().map(|entry| entry.path());
    // A process may end meanwhile.
    let mut found =
        directories.filter(|path| fs::read(path.join("cmdline")).is_ok_and(|line| line == wanted.as_bytes()));
    found.next()
}

async fn set_label(pods: &Api<Pod>, labels: Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
    pods.patch(CLIENT.0, &PatchParams::default(), &patch).await.context("labelling the pod")?;
    Ok(())
}

async fn with_timeout<T>(what: &str, future: BoxFuture<'_, T>) -> anyhow::Result<T> {
    timeout(TIMEOUT, future).await.with_context(|| format!("{what}: not within {} s", TIMEOUT.as_secs()))
}

fn label_key() -> String {
    format!("{ATTACH_LABEL_PREFIX}{NAME}")
}

fn label() -> Value {
    json!({ label_key(): INTERFACE })
}

/// The network's objects, with addresses of a documentation range and no more than are needed.
fn objects_of_the_network() -> [Value; 3] {
    let subnet = json!({
        "Ipam": "whereabouts", "Address": "192.0.2.0", "Mask": 24, "Type": "v4",
        "HotPlugPool": [{ "Start": "192.0.2.10", "End": "192.0.2.13" }],
    });
    let attachment =
        json!({ "L2Services": [NAME], "ConnectionPoint": EVERYWHERE.name, "VlanType": "access" });
    [
        manifest("Subnet", NAME, subnet),
        manifest("L2Service", NAME, json!({ "SegmentationID": 100, "Subnets": [NAME] })),
        manifest("L2ServiceAttachment", &format!("{NAMESPACE}/{NAME}"), attachment),
    ]
}

fn pod((name, node, sleeps): (&str, &str, &str), labels: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "pod", "image": TEST_IMAGE, "command": ["sleep", sleeps] }],
        },
    })
}
