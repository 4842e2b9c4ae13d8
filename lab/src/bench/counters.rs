//! Counters of the parts: the API server's requests, the switches' transactions, and processes' CPU time and memory.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use anyhow::Context as _;
use axum::http::Request;
use kube::Client;

use crate::engine_metrics::{self, SENT_BYTES};
use crate::manifests;
use crate::sandbox::Sandbox;
use crate::switch;
use crate::usage;

/// Write requests of the relevant API groups, by `VERB resource[/subresource]`.
pub(super) type Writes = BTreeMap<String, u64>;

const VERBS: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
/// The API groups of the operator, NetworkAttachmentDefinitions and Events. Leases are left out, since they are renewed
/// anyway.
const GROUPS: [&str; 3] = ["eno.k8s.io", "k8s.cni.cncf.io", "events.k8s.io"];

/// Reads `apiserver_request_total`.
pub(super) async fn writes(client: &Client) -> anyhow::Result<Writes> {
    let request = Request::get("/metrics").body(Vec::new()).context("the request for metrics")?;
    let text = client.request_text(request).await.context("reading the API server's metrics")?;
    let mut writes = Writes::new();
    for line in text.lines() {
        let Some((labels, value)) =
            line.strip_prefix("apiserver_request_total{").and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            let start = format!("{name}=\"");
            let found = labels.split("\",").find_map(|pair| pair.strip_prefix(start.as_str()));
            found.unwrap_or_default().trim_end_matches('"')
        };
        if !VERBS.contains(&label("verb"))
            || !GROUPS.contains(&label("group"))
            || !label("code").starts_with('2')
        {
            continue;
        }
        let subresource = label("subresource");
        let slash = if subresource.is_empty() { "" } else { "/" };
        let key = format!("{} {}{slash}{subresource}", label("verb"), label("resource"));
        // Prometheus writes counts as floating point numbers, with an exponent from a million on.
        let count: f64 = value.trim().parse().with_context(|| format!("the metric {line}"))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of requests")]
        let count = count as u64;
        *writes.entry(key).or_default() += count;
    }
    Ok(writes)
}

/// The increases since `before`.
pub(super) fn since(now: &Writes, before: &Writes) -> Writes {
    now.iter()
        .map(|(key, count)| (key.clone(), count - before.get(key).copied().unwrap_or(0)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The number of transactions of each switch.
pub(super) async fn transactions(
    http: &reqwest::Client,
    sandbox: &Sandbox,
) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    for info in sandbox.switches() {
        let stats = switch::stats(http, info).await.with_context(|| format!("asking {}", info.name))?;
        all.insert(info.name.clone(), stats.transactions);
    }
    Ok(all)
}

/// The bytes that the engine and the driver of switches sent to NATS so far.
pub(super) async fn sent_bytes(http: &reqwest::Client, sandbox: &Sandbox) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for part in [eno_parts::ENGINE.name, eno_parts::DRIVER_NETCONF.name] {
        let url = sandbox.url(part).with_context(|| format!("{part} does not run"))?;
        let metrics = http.get(format!("{url}/metrics")).send().await?.error_for_status()?.text().await?;
        let sent = SENT_BYTES.into_iter().find_map(|name| engine_metrics::value(&metrics, name));
        sum += sent.with_context(|| format!("the metrics of {part} have no bytes sent to NATS"))?;
    }
    Ok(sum)
}

/// The operator's processes.
fn own() -> impl Iterator<Item = &'static str> {
    eno_parts::ALL.into_iter().filter(|part| part.sandbox).map(|part| part.name)
}

/// The other parts that share the machine's cores.
const OTHERS: [&str; 5] = ["kube-apiserver", "etcd", "kube-controller-manager", NATS_SERVER, "simulator"];
pub(super) const NATS_SERVER: &str = "nats-server";

/// Seconds on CPUs, by part; `client` is this process.
pub(super) type Cpu = BTreeMap<String, f64>;

/// The CPU time of each part so far.
pub(super) fn cpu(sandbox: &Sandbox) -> anyhow::Result<Cpu> {
    let running = own().chain(OTHERS).filter_map(|part| Some((part, sandbox.pid(part)?)));
    let all = running.chain([("client", std::process::id())]);
    all.map(|(part, pid)| Ok((part.to_owned(), usage::cpu_seconds(pid)?))).collect()
}

/// Adds the counts of another period.
pub(super) fn add<T: Default + AddAssign>(sum: &mut BTreeMap<String, T>, period: BTreeMap<String, T>) {
    for (key, count) in period {
        *sum.entry(key).or_default() += count;
    }
}

/// The CPU time of each part since `before`, without negligible ones.
pub(super) fn cpu_since(now: Cpu, before: &Cpu) -> Cpu {
    let mut used = all_cpu_since(now, before);
    used.retain(|_, seconds| *seconds >= 0.05);
    used
}

/// The CPU time of each part since `before`.
pub(super) fn all_cpu_since(now: Cpu, before: &Cpu) -> Cpu {
    let since = |(part, seconds): (String, f64)| {
        let earlier = before.get(&part).copied().unwrap_or_default();
        (part, seconds - earlier)
    };
    now.into_iter().map(since).collect()
}

/// The largest resident memory since its start, in MiB, of each part whose memory limit in `deploy/` comes from this
/// benchmark.
pub(super) fn peak_memory_mib(sandbox: &Sandbox) -> anyhow::Result<BTreeMap<String, u64>> {
    let running = own().chain([NATS_SERVER]).filter_map(|part| Some((part, sandbox.pid(part)?)));
    running.map(|(part, pid)| Ok((part.to_owned(), usage::peak_kib(pid)? / 1024))).collect()
}

/// The memory limits of the engine's and NATS' containers in the manifests, in MiB, by the names of
/// [`peak_memory_mib`].
pub(super) fn memory_limits_mib() -> anyhow::Result<BTreeMap<String, u64>> {
    let mut limits = BTreeMap::new();
    for (name, part) in [(eno_parts::ENGINE.name, eno_parts::ENGINE), (NATS_SERVER, eno_parts::NATS)] {
        let limit = manifests::memory_limit_mib(part)?;
        limits.extend(limit.map(|limit| (name.to_owned(), limit)));
    }
    Ok(limits)
}

/// Resident memory of a child, in KiB.
pub(super) fn resident_kib(sandbox: &Sandbox, child: &str) -> anyhow::Result<u64> {
    usage::resident_kib(sandbox.pid(child).with_context(|| format!("{child} does not run"))?)
}
