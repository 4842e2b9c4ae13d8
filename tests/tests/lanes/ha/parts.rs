//! The processes, and what they have written.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, Context};
use eno_control_plane::NatsUser;
use eno_nbi_crds::{FabricDevice, L2Service, L2ServiceAttachment, NodePool, PhysicalNetwork};
use eno_tests::{PATIENCE, System};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{interval, timeout};

/// Between two looks at what has no common way to tell.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until something that has no common way to tell is so, and says how long that took.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    let looking = async {
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            if so().await {
                return;
            }
        }
    };
    assert!(timeout(PATIENCE, looking).await.is_ok(), "{what}: not seen");
    began.elapsed()
}

/// Stops a child where it stands.
pub fn pause(system: &System, child: &str) {
    system.sandbox.pause_child(child).expect("a child to pause");
}

/// Has a child go on that was paused.
pub fn resume(system: &System, child: &str) {
    system.sandbox.resume_child(child).expect("a paused child");
}

/// How long a child has kept processors busy, in hundredths of a second: `utime` and `stime` of proc(5).
pub fn busy(system: &System, child: &str) -> u64 {
    let pid = system.sandbox.pid(child).unwrap_or_else(|| panic!("{child} does not run"));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let after_name = stat.rsplit_once(") ").expect("a name in brackets").1;
    after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// A value of a process's metrics; `None`: it does not answer, or has no such one.
pub async fn metric(system: &System, child: &str, name: &str) -> Option<String> {
    let url = format!("{}/metrics", system.sandbox.url(child)?);
    let answer = system.http.get(url).timeout(Duration::from_secs(1)).send().await.ok()?;
    let text = answer.text().await.ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map(str::to_owned)
}

/// Whether an engine leads.
pub async fn leads(system: &System, engine: &str) -> bool {
    metric(system, engine, "eno_engine_leading").await.as_deref() == Some("1")
}

/// Whether a process answers that it is ready.
pub async fn is_ready(system: &System, child: &str) -> bool {
    let Some(url) = system.sandbox.url(child) else { return false };
    let asked = system.http.get(format!("{url}/readyz")).timeout(Duration::from_secs(1)).send().await;
    asked.is_ok_and(|answer| answer.status().is_success())
}

/// NATS, with all rights.
pub async fn jetstream(system: &System) -> Context {
    let nats = system.sandbox.control_plane().nats();
    let seed = std::fs::read_to_string(nats.seed_of(NatsUser::Admin)).expect("a seed");
    let admin = ConnectOptions::with_nkey(seed.trim().to_owned()).connect(&nats.url).await;
    jetstream::new(admin.expect("a connection"))
}

/// Which instance of a driver owns a target.
pub async fn owner(jetstream: &Context, driver: &str, target: &str) -> Option<String> {
    let bucket = jetstream.get_key_value("ENO_OWNERS").await.expect("the owners");
    let value = bucket.get(format!("{driver}.{target}")).await.expect("an answer")?;
    Some(String::from_utf8(value.to_vec()).expect("a name"))
}

/// How often all that counts was written: objects, commands, the outbox, switches.
pub async fn written(system: &System, jetstream: &Context) -> BTreeMap<String, String> {
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
        let running = eno::switch::running(&system.http, info).await.expect("the control API");
        all.insert(info.name.clone(), running.version.to_string());
    }
    all
}

/// Waits until nothing was written for a while.
pub async fn quiet(system: &System, jetstream: &Context) -> BTreeMap<String, String> {
    const WHILE: Duration = Duration::from_secs(2);
    let (mut last, mut since) = (written(system, jetstream).await, Instant::now());
    until("a time without writes", async || {
        let now = written(system, jetstream).await;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > WHILE
    })
    .await;
    last
}
