//! Controls processes and reads what they have written.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use eno_nbi_crds::{FabricDevice, L2Service, L2ServiceAttachment, NodePool, PhysicalNetwork};
use eno_tests::{System, until};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

/// Pauses a child with SIGSTOP.
pub fn pause(system: &System, child: &str) {
    system.sandbox.pause_child(child).expect("a child to pause");
}

/// Resumes a paused child.
pub fn resume(system: &System, child: &str) {
    system.sandbox.resume_child(child).expect("a paused child");
}

/// CPU time of a child in hundredths of a second: `utime` and `stime` of proc(5).
pub fn cpu_ticks(system: &System, child: &str) -> u64 {
    let pid = system.sandbox.pid(child).unwrap_or_else(|| panic!("{child} does not run"));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let after_name = stat.rsplit_once(") ").expect("a name in brackets").1;
    after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// Whether an engine leads.
pub async fn leads(system: &System, engine: &str) -> bool {
    system.metric(engine, "eno_engine_leading").await.as_deref() == Some("1")
}

/// Whether a process's `/readyz` succeeds.
pub async fn is_ready(system: &System, child: &str) -> bool {
    let Some(url) = system.sandbox.url(child) else { return false };
    let response = system.http.get(format!("{url}/readyz")).timeout(Duration::from_secs(1)).send().await;
    response.is_ok_and(|answer| answer.status().is_success())
}

/// The instance of a driver that owns a target.
pub async fn owner(jetstream: &Context, driver: &str, target: &str) -> Option<String> {
    let bucket = jetstream.get_key_value("ENO_OWNERS").await.expect("the owners");
    let value = bucket.get(format!("{driver}.{target}")).await.expect("an answer")?;
    Some(String::from_utf8(value.to_vec()).expect("a name"))
}

/// Versions of everything that the operator writes: objects, commands, the outbox and switches.
pub async fn write_versions(system: &System, jetstream: &Context) -> BTreeMap<String, String> {
    async fn objects<K>(api: Api<K>, all: &mut BTreeMap<String, String>)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        for object in api.list(&ListParams::default()).await.expect("a list") {
            let name = format!("{} {:?}/{}", K::kind(&()), object.namespace(), object.name_any());
            all.insert(name, object.resource_version().unwrap_or_default());
        }
    }
    let mut all = BTreeMap::new();
    objects::<L2Service>(system.all(), &mut all).await;
    objects::<L2ServiceAttachment>(system.all(), &mut all).await;
    objects::<FabricDevice>(system.all(), &mut all).await;
    objects::<PhysicalNetwork>(system.all(), &mut all).await;
    objects::<NodePool>(system.all(), &mut all).await;
    for name in ["ENO_COMMANDS", "ENO_TRANSITIONS"] {
        let stream = jetstream.get_stream(name).await.expect("a stream");
        all.insert(name.to_owned(), stream.cached_info().state.last_sequence.to_string());
    }
    for info in system.sandbox.switches() {
        let running = eno_lab::switch::running(&system.http, info).await.expect("the control API");
        all.insert(info.name.clone(), running.version.to_string());
    }
    all
}

/// Waits until nothing was written for [`QUIET_PERIOD`], and returns the versions.
pub async fn until_quiet(system: &System, jetstream: &Context) -> BTreeMap<String, String> {
    const QUIET_PERIOD: Duration = Duration::from_secs(2);
    let (mut last, mut since) = (write_versions(system, jetstream).await, Instant::now());
    until("a time without writes", async || {
        let now = write_versions(system, jetstream).await;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > QUIET_PERIOD
    })
    .await;
    last
}
