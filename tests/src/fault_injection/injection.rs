//! Faults of a part of the operator, and the recovery of its environment.

use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use eno_simulator::When;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::api::merge_patch;
use super::run::{ENGINE, FaultInjectionTest, POLL_INTERVAL};
use super::scenario::{Stage, service_id};
use super::write_counter::{Fault, WriteCounter};

/// The driver whose operations on switches are interrupted.
const DRIVER: &str = "driver-netconf";

/// Duration of frozen watches: longer than the engine waits before it reads objects that it has not seen.
const FREEZE_TIME: Duration = Duration::from_secs(3);

/// The NETCONF operations of a change, in order.
pub(super) const OPERATIONS: [&str; 8] =
    ["get-config", "lock", "discard-changes", "edit-config", "validate", "commit", "cancel-commit", "unlock"];

/// The writes at which faults are injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectionSite {
    /// The engine's writes to the API server.
    Api,
    /// The engine's messages to NATS.
    Nats,
    /// The netconf driver's operations on switches.
    Netconf,
}

/// The fault that is injected in each stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injection {
    /// A fault at the engine's nth write to the API server.
    Api(Fault, usize),
    /// A fault at the engine's nth message to NATS.
    Nats(Fault, usize),
    /// The netconf driver is killed at the first operation of this name on any switch. It is killed before the
    /// operation takes effect, or after that and before the reply.
    Netconf(&'static str, When),
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(fault, at) => write!(f, "{fault:?} at write {at} to the API server"),
            Self::Nats(fault, at) => write!(f, "{fault:?} at message {at} to NATS"),
            Self::Netconf(operation, when) => write!(f, "driver killed {when:?} the effect of {operation}"),
        }
    }
}

impl FaultInjectionTest<'_> {
    fn counter(&self, injection: Injection) -> Option<(&WriteCounter, Fault, usize)> {
        match injection {
            Injection::Api(fault, at) => Some((&self.api.counter, fault, at)),
            Injection::Nats(fault, at) => Some((&self.nats.counter, fault, at)),
            Injection::Netconf(..) => None,
        }
    }

    /// Arms the injection.
    pub(super) async fn arm(&self, injection: Injection) {
        self.disarm().await;
        if let Some((counter, fault, at)) = self.counter(injection) {
            counter.arm(Some((at, fault)));
        }
        if let Injection::Netconf(operation, when) = injection {
            for switch in self.system.sandbox.switches() {
                let hang = json!({"kind": "hang", "operation": operation, "when": when, "times": 1});
                self.system.fault(&switch.name, hang).await;
            }
        }
    }

    /// The switch at which the driver was killed.
    fn silent_switch(&self) -> Option<String> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_silent_switch(&self, switch: Option<String>) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = switch;
    }

    /// Ends all faults.
    pub(super) async fn disarm(&self) {
        self.set_silent_switch(None);
        for counter in [&self.api.counter, &self.nats.counter] {
            counter.arm(None);
            counter.release();
        }
        for switch in self.system.sandbox.switches() {
            self.system.fault(&switch.name, json!({"kind": "clear"})).await;
        }
    }

    /// Whether the fault has been triggered.
    pub(super) async fn has_begun(&self, injection: Injection) -> bool {
        match self.counter(injection) {
            Some((counter, _, at)) => counter.writes().len() >= at,
            None => self.silent_switch().is_some() || self.hanging_switch().await.is_some(),
        }
    }

    /// The write or switch at which the fault was injected.
    pub(super) fn injected_at(&self, injection: Injection) -> Option<String> {
        match self.counter(injection) {
            Some((counter, ..)) => counter.injected_at(),
            None => self.silent_switch(),
        }
    }

    /// The first switch whose fault was triggered.
    async fn hanging_switch(&self) -> Option<String> {
        for switch in self.system.sandbox.switches() {
            let url = format!("{}/faults", switch.control_url);
            let answer = self.system.http.get(url).send().await.expect("the control API of the simulator");
            let faults: Vec<Value> = answer.json().await.expect("JSON");
            if faults.is_empty() {
                return Some(switch.name.clone());
            }
        }
        None
    }

    /// Waits for the fault, and recovers from it like a supervisor or an administrator.
    pub(super) async fn recover(&self, injection: Injection, run: &str, stage: Stage) {
        let sandbox = &self.system.sandbox;
        let Some((counter, fault, _)) = self.counter(injection) else {
            let mut ticks = tokio::time::interval(POLL_INTERVAL);
            let injected = loop {
                ticks.tick().await;
                if let Some(injected) = self.hanging_switch().await {
                    break injected;
                }
            };
            sandbox.kill_child(DRIVER).await.expect("a driver to kill");
            // The other switches answer normally: one crash is enough.
            for switch in sandbox.switches().iter().filter(|switch| switch.name != injected) {
                self.system.fault(&switch.name, json!({"kind": "clear"})).await;
            }
            self.set_silent_switch(Some(injected));
            sandbox.start_child(DRIVER).await.expect("the driver again");
            return;
        };
        let injected = counter.until_injected().await;
        match fault {
            Fault::KilledBefore | Fault::KilledAfter | Fault::StatusBeforeOutbox => {
                sandbox.kill_child(ENGINE).await.expect("an engine to kill");
                if fault == Fault::StatusBeforeOutbox {
                    self.write_status(&injected).await;
                }
                self.release_lease().await;
                counter.release();
                sandbox.start_child(ENGINE).await.expect("the engine again");
                self.until_synced().await;
            }
            Fault::Frozen => {
                if stage != Stage::Delete {
                    // The service's ID changes and returns while watches are frozen, so the engine never sees the
                    // change.
                    for id in [150, service_id(stage)] {
                        let patch = json!({"spec": {"SegmentationID": id}});
                        self.system.patch("L2Service", &format!("{run}-a"), patch).await;
                    }
                }
                tokio::time::sleep(FREEZE_TIME).await;
                counter.release();
            }
            _ => {}
        }
    }

    /// Writes the status in a transition.
    async fn write_status(&self, transition_text: &str) {
        let Ok(transition_json) = serde_json::from_str::<Value>(transition_text) else { return };
        let text = |field: &str| transition_json[field].as_str().unwrap_or_default();
        if transition_json["object"].is_null() {
            return;
        }
        let namespace = match text("namespace") {
            "" => String::new(),
            namespace => format!("namespaces/{namespace}/"),
        };
        let (kind, name) = (text("kind").to_lowercase(), text("name"));
        let path = format!("/apis/eno.k8s.io/v1alpha1/{namespace}{kind}s/{name}/status");
        let request = merge_patch(&path, &json!({"status": transition_json["object"]["status"]}));
        let written = self.system.sandbox.client().request::<Value>(request).await;
        written.unwrap_or_else(|why| panic!("{path} is written: {why}"));
    }

    /// Releases the Lease, which a killed engine would hold until it expires.
    async fn release_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.system.sandbox.client(), "eno-system");
        let nobody = json!({"spec": {"holderIdentity": null, "leaseDurationSeconds": 1}});
        let freed = leases.patch("eno-engine", &PatchParams::default(), &Patch::Merge(nobody)).await;
        freed.expect("the Lease is freed");
    }
}
