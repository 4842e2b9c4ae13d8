//! What happens to a part of the operator, and what the world around it does then.

use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use eno_simulator::When;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::api::merge_patch;
use super::counter::{Counter, Fault};
use super::run::{ENGINE, LOOK, Rig};
use super::scenario::{Stage, service_id};

/// The driver whose operations on switches are struck.
const DRIVER: &str = "driver-netconf";

/// Watches are frozen for so long: longer than the engine waits before it looks for what it has not seen.
const FROST: Duration = Duration::from_secs(3);

/// What the netconf driver asks of a switch on the way of a change.
pub(super) const OPERATIONS: [&str; 8] =
    ["get-config", "lock", "discard-changes", "edit-config", "validate", "commit", "cancel-commit", "unlock"];

/// Whose writes are struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// What the engine writes to the API server.
    Api,
    /// What the engine publishes on NATS.
    Nats,
    /// What the netconf driver asks of switches.
    Netconf,
}

/// What happens in each stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// At the engine's write of this number to the API server.
    Api(Fault, usize),
    /// At the engine's message of this number to NATS.
    Nats(Fault, usize),
    /// The netconf driver is killed at the first operation of this name on any switch, before it takes effect or after
    /// that and before its reply.
    Netconf(&'static str, When),
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(fault, at) => write!(f, "{fault:?} at write {at} to the API server"),
            Self::Nats(fault, at) => write!(f, "{fault:?} at message {at} to NATS"),
            Self::Netconf(operation, when) => write!(f, "driver killed {when:?} the effect of {operation}"),
        }
    }
}

impl Rig<'_> {
    fn counter(&self, blow: Blow) -> Option<(&Counter, Fault, usize)> {
        match blow {
            Blow::Api(fault, at) => Some((&self.api.counter, fault, at)),
            Blow::Nats(fault, at) => Some((&self.nats.counter, fault, at)),
            Blow::Netconf(..) => None,
        }
    }

    /// Prepares what is to happen.
    pub(super) async fn arm(&self, blow: Blow) {
        self.disarm().await;
        if let Some((counter, fault, at)) = self.counter(blow) {
            counter.arm(Some((at, fault)));
        }
        if let Blow::Netconf(operation, when) = blow {
            for switch in self.system.sandbox.switches() {
                let hang = json!({"kind": "hang", "operation": operation, "when": when, "times": 1});
                self.system.fault(&switch.name, hang).await;
            }
        }
    }

    /// The switch at which the driver was killed.
    fn remembered(&self) -> Option<String> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, switch: Option<String>) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = switch;
    }

    /// Nothing happens any more.
    pub(super) async fn disarm(&self) {
        self.remember(None);
        for counter in [&self.api.counter, &self.nats.counter] {
            counter.arm(None);
            counter.release();
        }
        for switch in self.system.sandbox.switches() {
            self.system.fault(&switch.name, json!({"kind": "clear"})).await;
        }
    }

    /// Whether it has begun to happen.
    pub(super) async fn reached(&self, blow: Blow) -> bool {
        match self.counter(blow) {
            Some((counter, _, at)) => counter.writes().len() >= at,
            None => self.remembered().is_some() || self.struck_switch().await.is_some(),
        }
    }

    /// At what it has happened.
    pub(super) fn struck_at(&self, blow: Blow) -> Option<String> {
        match self.counter(blow) {
            Some((counter, ..)) => counter.struck_at(),
            None => self.remembered(),
        }
    }

    /// The first switch that has had its fault.
    async fn struck_switch(&self) -> Option<String> {
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

    /// Waits for the blow, and does what the world around does then.
    pub(super) async fn mend(&self, blow: Blow, run: &str, stage: Stage) {
        let sandbox = &self.system.sandbox;
        let Some((counter, fault, _)) = self.counter(blow) else {
            let mut looks = tokio::time::interval(LOOK);
            let struck = loop {
                looks.tick().await;
                if let Some(struck) = self.struck_switch().await {
                    break struck;
                }
            };
            sandbox.kill_child(DRIVER).await.expect("a driver to kill");
            // One death is enough: the others answer.
            for switch in sandbox.switches().iter().filter(|switch| switch.name != struck) {
                self.system.fault(&switch.name, json!({"kind": "clear"})).await;
            }
            self.remember(Some(struck));
            sandbox.start_child(DRIVER).await.expect("the driver again");
            return;
        };
        let struck = counter.until_struck().await;
        match fault {
            Fault::KilledBefore | Fault::KilledAfter | Fault::StatusFirst => {
                sandbox.kill_child(ENGINE).await.expect("an engine to kill");
                if fault == Fault::StatusFirst {
                    self.write_status(&struck).await;
                }
                self.free_lead().await;
                counter.release();
                sandbox.start_child(ENGINE).await.expect("the engine again");
                self.until_in_step().await;
            }
            Fault::Frozen => {
                if stage != Stage::Delete {
                    // Somewhere and back: it is never seen.
                    for id in [150, service_id(stage)] {
                        let patch = json!({"spec": {"SegmentationID": id}});
                        self.system.patch("L2Service", &format!("{run}-a"), patch).await;
                    }
                }
                tokio::time::sleep(FROST).await;
                counter.release();
            }
            _ => {}
        }
    }

    /// Writes the status that a transition tells of.
    async fn write_status(&self, transition: &str) {
        let Ok(told) = serde_json::from_str::<Value>(transition) else { return };
        let text = |field: &str| told[field].as_str().unwrap_or_default();
        if told["object"].is_null() {
            return;
        }
        let namespace = match text("namespace") {
            "" => String::new(),
            namespace => format!("namespaces/{namespace}/"),
        };
        let (kind, name) = (text("kind").to_lowercase(), text("name"));
        let path = format!("/apis/eno.k8s.io/v1alpha1/{namespace}{kind}s/{name}/status");
        let request = merge_patch(&path, &json!({"status": told["object"]["status"]}));
        let written = self.system.sandbox.client().request::<Value>(request).await;
        written.unwrap_or_else(|why| panic!("{path} is written: {why}"));
    }

    /// An engine that was killed would keep the lead until its Lease runs out.
    async fn free_lead(&self) {
        let leases: Api<Lease> = Api::namespaced(self.system.sandbox.client(), "eno-system");
        let nobody = json!({"spec": {"holderIdentity": null, "leaseDurationSeconds": 1}});
        let freed = leases.patch("eno-engine", &PatchParams::default(), &Patch::Merge(nobody)).await;
        freed.expect("the Lease is freed");
    }
}
