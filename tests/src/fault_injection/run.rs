//! Runs of the scenario, with and without faults.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use eno_control_plane::NatsUser;
use eno_lab::sandbox::ProcessOverrides;
use eno_nbi_crds::{FabricDevice, Phase};
use eno_simulator::When;
use futures::future::{Either, select};
use k8s_openapi::api::admissionregistration::v1::MutatingAdmissionPolicyBinding;
use kube::api::{Api, DeleteParams};
use serde_json::Value;
use tokio::time::timeout;

use super::api::ApiProxy;
use super::final_state::{self, FinalState, callbacks, difference, transitions};
use super::injection::{Injection, InjectionSite, OPERATIONS};
use super::nats::NatsProxy;
use super::scenario::{NAMESPACE, SPARE, Stage, expected_statuses, manifests, objects};
use super::write_counter::Fault;
use crate::{Receiver, System, TIMEOUT, object, poll, until};

/// Interval of polls of conditions without a watch.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
pub(super) const ENGINE: &str = "engine";
/// Time without writes and changes after which a stage is over: longer than the engine delays informative statuses.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// Minimum number of unchanged polls in that time.
const QUIET_POLLS: u32 = 10;
/// The gauges of the engine's pending work.
const PENDING_WORK: [&str; 5] =
    ["mailbox", "publish_waiting", "publish_outstanding", "outbox_lag", "callbacks_pending"];

/// The final states of an undisturbed run.
#[derive(Debug)]
pub struct Reference {
    stages: BTreeMap<Stage, End>,
}

#[derive(Debug)]
struct End {
    found: FinalState,
    callbacks: BTreeMap<String, Vec<String>>,
    /// The counted writes of the stage to the API server.
    api: Vec<String>,
    nats: Vec<String>,
}

impl Reference {
    /// All faults of a site, at each of its writes.
    pub fn injections(&self, place: InjectionSite) -> Vec<Injection> {
        let longest = |writes: fn(&End) -> &Vec<String>| {
            1..=self.stages.values().map(|end| writes(end).len()).max().unwrap_or_default()
        };
        match place {
            InjectionSite::Api => {
                let at = |at| Fault::OF_API.map(|fault| Injection::Api(fault, at));
                longest(|end| &end.api).flat_map(at).collect()
            }
            InjectionSite::Nats => {
                let at = |at| Fault::OF_NATS.map(|fault| Injection::Nats(fault, at));
                longest(|end| &end.nats).flat_map(at).collect()
            }
            InjectionSite::Netconf => {
                let at =
                    |operation| [When::Before, When::After].map(|when| Injection::Netconf(operation, when));
                OPERATIONS.into_iter().flat_map(at).collect()
            }
        }
    }

    /// The numbers of writes to the API server and to NATS in each stage, as text.
    pub fn counts(&self) -> String {
        let count = |(stage, end): (&Stage, &End)| {
            format!("{stage:?}: {} to the API server, {} to NATS", end.api.len(), end.nats.len())
        };
        self.stages.iter().map(count).collect::<Vec<_>>().join("; ")
    }
}

/// A difference from the undisturbed run.
#[derive(Debug)]
pub struct Deviation {
    /// The run, the fault and the difference.
    pub what: String,
    /// What the cleanup could not remove; no run can follow it.
    pub leftover: Option<String>,
}

/// A sandbox whose engine connects through proxies.
pub struct FaultInjectionTest<'a> {
    /// The sandbox.
    pub(super) system: &'a System,
    /// The engine's proxy to the API server.
    pub(super) api: ApiProxy,
    /// The engine's proxy to NATS.
    pub(super) nats: NatsProxy,
    /// The switch that had fallen silent when the driver was killed.
    pub(super) silent: Mutex<Option<String>>,
    /// The receiver of callbacks.
    receiver: Receiver,
    /// A connection that no fault cuts.
    undisturbed: Context,
    /// Number of runs so far.
    runs: AtomicU32,
}

impl<'a> FaultInjectionTest<'a> {
    /// Starts the engine in a sandbox of [`super::topology`] that has none.
    pub async fn start(system: &'a System) -> Self {
        let sandbox = &system.sandbox;
        // Without the admission policy, the engine writes finalizers itself.
        sandbox.admission_bound().await;
        let bindings: Api<MutatingAdmissionPolicyBinding> = Api::all(sandbox.client());
        bindings.delete("eno-finalizer", &DeleteParams::default()).await.expect("the policy is unbound");
        let client = sandbox
            .client_for(&eno_parts::ENGINE.account.user(), None)
            .await
            .expect("a client as the engine");
        let info = sandbox.info();
        let api = ApiProxy::start(client, &info.dir.join("proxy")).await;
        let nats = NatsProxy::start(&info.nats_url, |subject| {
            subject.starts_with("eno.v1.") || subject.starts_with("$KV.ENO_CALLBACKS")
        })
        .await;
        let overrides = ProcessOverrides {
            kubeconfig: Some(api.kubeconfig().to_owned()),
            nats_url: Some(nats.url().to_owned()),
            ..ProcessOverrides::default()
        };
        sandbox.add_with(eno_parts::ENGINE, ENGINE, overrides).await.expect("an engine");
        let test = Self {
            system,
            api,
            nats,
            silent: Mutex::default(),
            receiver: Receiver::start().await,
            undisturbed: system.nats(NatsUser::Admin).await,
            runs: AtomicU32::new(0),
        };
        test.until_synced().await;
        system.namespace(NAMESPACE).await;
        // This network's switch exists only during a run. As unmanaged, it makes the order of service and switch
        // irrelevant.
        let unmanaged = serde_json::json!({"spec": {"Unmanaged": true}});
        system.patch("PhysicalNetwork", "spare-gw", unmanaged).await;
        // The driver has configured all switches, so its first writes don't fall into a run.
        for switch in sandbox.switches() {
            system.becomes::<FabricDevice>(&switch.name, Phase::Ready).await;
        }
        system.delete(&object("FabricDevice", &format!("name: {SPARE}"), "")).await;
        test
    }

    /// Runs the scenario twice without faults; both runs must end in the same state.
    pub async fn reference(&self) -> Reference {
        let first = self.run_without_fault().await;
        let second = self.run_without_fault().await;
        for (stage, end) in &first.stages {
            let again = &second.stages[stage];
            let different =
                difference(&end.found, &again.found) + &difference(&end.callbacks, &again.callbacks);
            assert!(different.is_empty(), "two undisturbed runs differ in {stage:?}:{different}");
        }
        second
    }

    async fn run_without_fault(&self) -> Reference {
        let run = self.name();
        let mut stages = BTreeMap::new();
        for stage in Stage::ALL {
            self.disarm().await;
            self.apply_stage(&run, stage).await;
            let found = self.until_settled(&run, stage).await;
            let end = End {
                found: found.unwrap_or_else(|why| panic!("undisturbed, {stage:?}: {why}")),
                callbacks: callbacks(&self.receiver, &run).unwrap_or_else(|why| panic!("undisturbed: {why}")),
                api: self.api.counter.writes(),
                nats: self.nats.counter.writes(),
            };
            stages.insert(stage, end);
        }
        Reference { stages }
    }

    /// Runs the scenario with a fault in each stage that has enough writes. Returns the writes at which faults were
    /// injected; an error names the difference from the undisturbed run.
    pub async fn run_with_fault(
        &self,
        reference: &Reference,
        injection: Injection,
    ) -> Result<Vec<(Stage, String)>, Deviation> {
        let run = self.name();
        let mut injected = Vec::new();
        for stage in Stage::ALL {
            self.arm(injection).await;
            self.apply_stage(&run, stage).await;
            let result = self.run_stage(reference, &run, stage, injection).await;
            let hit = self.injected_at(injection);
            self.disarm().await;
            if let Err(why) = result {
                let write = hit.unwrap_or_else(|| "not reached".to_owned());
                let what = format!("{run}: {injection} in {stage:?} ({write}): {why}");
                return Err(Deviation { what, leftover: self.clean_up(reference, &run).await });
            }
            injected.extend(hit.map(|hit| (stage, hit)));
        }
        self.until_forgotten(&run).await.map_err(|what| Deviation { what, leftover: None })?;
        Ok(injected)
    }

    /// Waits until the driver was told to forget the run's own target, which has the same switch as that of the next run.
    /// The engine purges the report last.
    async fn until_forgotten(&self, run: &str) -> Result<(), String> {
        let target = format!("{run}-{SPARE}");
        let messages = [
            ("ENO_COMMANDS", format!("eno.v1.command.netconf.{target}")),
            ("ENO_PARTS", format!("eno.v1.part.netconf.{target}.*")),
            ("ENO_RESULTS", format!("eno.v1.result.netconf.{target}")),
        ];
        let forgotten = poll(async || {
            for (stream, subject) in &messages {
                let stream = self.undisturbed.get_stream(stream).await.ok()?;
                let last = stream.get_last_raw_message_by_subject(subject).await;
                last.is_err_and(|error| error.kind() == LastRawMessageErrorKind::NoMessageFound)
                    .then_some(())?;
            }
            Some(())
        });
        forgotten.await.ok_or_else(|| format!("{target} is not forgotten, though its FabricDevice is gone"))
    }

    /// Deletes what a failed run left, so that the next run starts like the first; returns what remains.
    async fn clean_up(&self, reference: &Reference, run: &str) -> Option<String> {
        self.apply_stage(run, Stage::Delete).await;
        let wanted = &reference.stages[&Stage::Delete].found;
        let mut leftover = String::new();
        let cleaned = poll(async || {
            leftover = difference(wanted, &final_state::found(self.system, run).await);
            leftover.is_empty().then_some(())
        })
        .await;
        cleaned.is_none().then_some(leftover)
    }

    /// Runs one stage to its end, with the fault.
    async fn run_stage(
        &self,
        reference: &Reference,
        run: &str,
        stage: Stage,
        injection: Injection,
    ) -> Result<(), String> {
        let recovered = pin!(self.recover(injection, run, stage));
        let converged = pin!(self.until_same_as_reference(reference, run, stage, injection));
        match select(recovered, converged).await {
            Either::Left(((), converged)) => converged.await,
            // The fault was triggered, but its recovery is not complete.
            Either::Right((_, recovered)) if self.has_begun(injection).await => {
                if timeout(TIMEOUT, recovered).await.is_err() {
                    return Err("what was injected did not come back".to_owned());
                }
                self.until_same_as_reference(reference, run, stage, injection).await
            }
            Either::Right((result, _)) => result,
        }
    }

    async fn until_same_as_reference(
        &self,
        reference: &Reference,
        run: &str,
        stage: Stage,
        injection: Injection,
    ) -> Result<(), String> {
        let end = &reference.stages[&stage];
        let comparable = |state| match injection {
            Injection::Netconf(..) => final_state::without_ports_before(state),
            Injection::Api(..) | Injection::Nats(..) => state,
        };
        let wanted = comparable(end.found.clone());
        let mut last = String::new();
        let converged = poll(async || {
            last = difference(&wanted, &comparable(final_state::found(self.system, run).await));
            if last.is_empty() {
                last = match self.received_callbacks(run).await {
                    Ok(callbacks) => difference(&end.callbacks, &callbacks),
                    Err(why) => why,
                };
            }
            last.is_empty().then_some(())
        })
        .await;
        converged.ok_or_else(|| format!("it does not end as the undisturbed run:{last}"))
    }

    /// The callbacks so far; an error if there are fewer than the statuses' transitions.
    async fn received_callbacks(&self, run: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
        for (object, count) in transitions(self.system, run).await {
            let received = self.receiver.of(&object).len() as u64;
            if received < count {
                return Err(format!("{object} has had {count} transitions, {received} callbacks came"));
            }
        }
        callbacks(&self.receiver, run)
    }

    /// Waits until a stage is over, and returns its final state. All objects are in the expected phase with all
    /// callbacks received, the engine has no pending work, and nothing changes for a while.
    async fn until_settled(&self, run: &str, stage: Stage) -> Result<FinalState, String> {
        let mut last = String::new();
        let settling = async {
            let mut ticks = tokio::time::interval(POLL_INTERVAL);
            let (mut before, mut since, mut quiet_polls) = (None, Instant::now(), 0);
            loop {
                ticks.tick().await;
                let written = (self.api.counter.writes().len(), self.nats.counter.writes().len());
                let found = final_state::found(self.system, run).await;
                let unfinished = self.unfinished(run, stage, &found).await;
                let now = Some((written, found));
                if unfinished.is_some() || now != before {
                    last =
                        format!("{}: {now:#?}", unfinished.as_deref().unwrap_or("it does not come to rest"));
                    (before, since, quiet_polls) = (now, Instant::now(), 0);
                    continue;
                }
                quiet_polls += 1;
                if quiet_polls >= QUIET_POLLS
                    && since.elapsed() >= QUIET_PERIOD
                    && let Some((_, found)) = now
                {
                    return found;
                }
            }
        };
        timeout(TIMEOUT, settling).await.map_err(|_| last)
    }

    /// Why a stage is not over yet.
    async fn unfinished(&self, run: &str, stage: Stage, found: &FinalState) -> Option<String> {
        let phase = if stage == Stage::Delete { "deleted" } else { "ready" };
        let current: Vec<_> = found.iter().filter(|(_, one)| one.get("current").is_some()).collect();
        let wanted = if stage == Stage::Delete { 0 } else { objects(run).len() };
        if current.len() != wanted {
            return Some(format!("{} objects instead of {wanted}", current.len()));
        }
        if let Some((name, _)) = current.into_iter().find(|(_, one)| !is_done(one, phase)) {
            return Some(format!("{name} is not {phase}"));
        }
        for (name, fields) in expected_statuses(stage) {
            let status = found.get(name).map_or(&Value::Null, |one| &one["status"]);
            let differs = |(field, value): (&String, &Value)| status[field] != *value;
            if fields.as_object().into_iter().flatten().any(differs) {
                return Some(format!("{name} does not say {fields}"));
            }
        }
        match self.received_callbacks(run).await {
            Err(why) => return Some(why),
            Ok(received) => {
                let late = received.iter().find(|(_, phases)| phases.last().is_none_or(|last| last != phase));
                if let Some((object, phases)) = late {
                    return Some(format!("{object} was called back with {phases:?}"));
                }
            }
        }
        self.pending_work().await
    }

    /// The engine's pending work according to its metrics.
    async fn pending_work(&self) -> Option<String> {
        let Some(metrics) = self.metrics().await else {
            return Some("the engine does not answer".to_owned());
        };
        let busy = PENDING_WORK.iter().find(|name| gauge(&metrics, name) != Some(0));
        busy.map(|name| format!("the engine's {name} is {:?}", gauge(&metrics, name)))
    }

    /// Applies or deletes the objects of a stage.
    async fn apply_stage(&self, run: &str, stage: Stage) {
        let spare = self.system.sandbox.switch(SPARE).expect("the switch of the topology");
        let yaml = manifests(run, stage, spare, self.receiver.url());
        match stage {
            Stage::Create | Stage::Change => self.system.apply(&yaml).await,
            Stage::Delete => self.system.request_deletion(&yaml).await,
        }
    }

    fn name(&self) -> String {
        format!("run{:04}", self.runs.fetch_add(1, Ordering::Relaxed))
    }

    /// Waits until the engine leads and has seen all objects.
    pub(super) async fn until_synced(&self) {
        until("an engine in step with the cluster", async || {
            let metrics = self.metrics().await.unwrap_or_default();
            gauge(&metrics, "synced_timestamp_seconds").is_some_and(|at| at != 0)
        })
        .await;
    }

    /// The engine's metrics; `None`: the engine does not listen yet.
    async fn metrics(&self) -> Option<String> {
        let url = format!("{}/metrics", self.system.sandbox.url(ENGINE).expect("the engine"));
        self.system.http.get(&url).send().await.ok()?.text().await.ok()
    }
}

/// The value of a gauge of the engine.
fn gauge(metrics: &str, name: &str) -> Option<i64> {
    let of_it =
        |line: &str| line.strip_prefix("eno_engine_")?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(of_it)
}

/// Whether an object has its expected phase and no pending changes.
fn is_done(object: &Value, phase: &str) -> bool {
    let status = &object["status"];
    object["current"] == true
        && status["phase"] == phase
        && status["pendingChanges"].as_i64().unwrap_or(0) == 0
}
