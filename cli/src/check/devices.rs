//! The FabricDevices: whether they answer, are who they should be, and are configured.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::Phase;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::{Check, Fact, Name, Problem, count, listed};

/// Words in the messages of the netconf driver about a device's host key.
const HOST_KEY_WORDS: [&str; 2] = ["host key", "HostKey of the FabricDevice"];

/// A condition of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `True` or `False`.
    pub status: String,
    /// Text for people.
    pub message: String,
}

/// A FabricDevice, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Its phase; empty: the engine has not seen it.
    pub phase: String,
    /// The message of its status.
    pub message: String,
    /// The identifier of the cluster in the names of its VLANs.
    pub cluster: Option<String>,
    /// Its conditions by type.
    pub conditions: BTreeMap<String, Condition>,
}

impl Device {
    /// Of a FabricDevice of the API server.
    pub fn new(object: &DynamicObject) -> Self {
        let text = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            name: object.name_any(),
            driver: text("/spec/Driver").unwrap_or_else(|| "netconf".to_owned()),
            phase: text("/status/phase").unwrap_or_default(),
            message: text("/status/message").unwrap_or_default(),
            cluster: text("/status/clusterID"),
            conditions: conditions(object),
        }
    }

    fn has(&self, condition: &str, status: &str) -> bool {
        self.conditions.get(condition).is_some_and(|condition| condition.status == status)
    }

    fn is_unreachable(&self) -> bool {
        self.has("Reachable", "False")
    }

    fn has_wrong_host_key(&self) -> bool {
        self.phase == Phase::Error.as_str() && HOST_KEY_WORDS.iter().any(|words| self.message.contains(words))
    }

    fn with_message(&self) -> String {
        if self.message.is_empty() { self.name.clone() } else { format!("{}: {}", self.name, self.message) }
    }
}

/// The conditions of an object by type.
pub fn conditions(object: &DynamicObject) -> BTreeMap<String, Condition> {
    let listed = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let conditions = listed.into_iter().flatten().map(|one| {
        let condition = Condition { status: text(one, "status"), message: text(one, "message") };
        (text(one, "type"), condition)
    });
    conditions.collect()
}

/// The checks of all FabricDevices. `own` is the identifier of this cluster in the engine's Lease.
pub fn judge(devices: &Fact<Vec<Device>>, own: Option<&str>) -> Vec<Check> {
    let names = [Name::DevicesReachable, Name::HostKeys, Name::DevicesReady, Name::ClusterIdentifier];
    let devices = match devices {
        Ok(devices) => devices,
        Err(unread) => return names.map(|name| Check::unread(name, "", unread)).into(),
    };
    if devices.is_empty() {
        return vec![Check::skipped(Name::DevicesReady, "0 devices", "there is no FabricDevice yet")];
    }
    vec![reachable(devices), host_keys(devices), ready(devices), identifier(devices, own)]
}

/// A check that fails for the devices of which `is_bad` is true.
fn failing(
    name: Name,
    devices: &[Device],
    is_bad: impl Fn(&Device) -> bool,
    text: impl Fn(&Device) -> String,
    remedy: &str,
) -> Check {
    let subject = count(devices.len(), "device");
    let bad: Vec<String> = devices.iter().filter(|device| is_bad(device)).map(text).collect();
    if bad.is_empty() {
        return Check::ok(name, subject);
    }
    let what = format!("{}: {}", count(bad.len(), "device"), listed(bad));
    Check::failed(name, subject, Problem::new(what, remedy))
}

fn reachable(devices: &[Device]) -> Check {
    let message = |device: &Device| {
        let condition = device.conditions.get("Reachable").map(|one| one.message.as_str());
        let message = condition.filter(|message| !message.is_empty()).unwrap_or(device.message.as_str());
        format!("{}: {message}", device.name)
    };
    let remedy = "check the address and the way from the driver to the switch; the driver keeps trying";
    failing(Name::DevicesReachable, devices, Device::is_unreachable, message, remedy)
}

fn host_keys(devices: &[Device]) -> Check {
    let remedy =
        "compare the fingerprint with that on the switch's console, then set HostKey of the FabricDevice";
    failing(Name::HostKeys, devices, Device::has_wrong_host_key, Device::with_message, remedy)
}

fn ready(devices: &[Device]) -> Check {
    let name = Name::DevicesReady;
    let is_other = |device: &&Device| {
        device.phase != Phase::Ready.as_str() && !device.is_unreachable() && !device.has_wrong_host_key()
    };
    let unready: Vec<&Device> = devices.iter().filter(is_other).collect();
    let subject = count(devices.len(), "device");
    let in_error: Vec<String> = unready
        .iter()
        .filter(|device| device.phase == Phase::Error.as_str())
        .map(|device| device.with_message())
        .collect();
    if !in_error.is_empty() {
        let what = format!("{} in error: {}", count(in_error.len(), "device"), listed(in_error));
        let remedy = "see eno status fd/NAME, and docs/src/reference/errors.md for the message";
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    if unready.is_empty() {
        return Check::ok(name, subject);
    }
    let texts = unready.iter().map(|device| {
        let phase = if device.phase.is_empty() { "not seen by an engine" } else { &device.phase };
        format!("{} ({phase})", device.with_message())
    });
    let what = format!("{} not ready: {}", count(unready.len(), "device"), listed(texts));
    Check::warning(name, subject, Problem::new(what, "see eno status fd/NAME; check again in a minute"))
}

fn identifier(devices: &[Device], own: Option<&str>) -> Check {
    let name = Name::ClusterIdentifier;
    let clashes: Vec<String> = devices
        .iter()
        .filter(|device| device.has("ClusterIDClash", "True"))
        .map(|device| {
            let message = device.conditions.get("ClusterIDClash").map_or("", |one| one.message.as_str());
            format!("{}: {message}", device.name)
        })
        .collect();
    let found: BTreeSet<&str> =
        own.into_iter().chain(devices.iter().filter_map(|one| one.cluster.as_deref())).collect();
    let subject = match found.len() {
        0 => "not known yet".to_owned(),
        _ => listed(&found),
    };
    if !clashes.is_empty() {
        let what = format!("another cluster uses the cluster ID {subject}, too: {}", listed(clashes));
        let remedy =
            "give one of the two another ID: docs/src/how-to/two-clusters.md#if-both-have-the-same-id";
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    if found.len() > 1 {
        let what = format!("the engine and the devices have different cluster IDs: {subject}");
        let remedy = "wait until the engine has reported every device; if it stays so, set ENO_CLUSTER_ID to the ID \
                      under which the VLANs are";
        return Check::warning(name, subject, Problem::new(what, remedy));
    }
    Check::ok(name, subject)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Unread;
    use super::super::tests::{assert_outcome, object, text};
    use super::*;

    fn device(name: &str, phase: &str, message: &str) -> Device {
        Device {
            name: name.into(),
            driver: "netconf".into(),
            phase: phase.into(),
            message: message.into(),
            cluster: Some("k1".into()),
            conditions: BTreeMap::new(),
        }
    }

    fn with(device: Device, condition: &str, status: &str, message: &str) -> Device {
        let value = Condition { status: status.into(), message: message.into() };
        Device { conditions: BTreeMap::from([(condition.to_owned(), value)]), ..device }
    }

    #[test]
    fn each_way_in_which_a_device_fails_has_its_check() {
        let unreachable =
            with(device("b", "pending", ""), "Reachable", "False", "127.0.0.1:1 can't be reached");
        let unknown_key = device("b", "error", "the device's host key is not known: it showed SHA256:x");
        let other_key = device("b", "error", "the device showed host key x and not y, which HostKey pins");
        let login = device("b", "error", "the device refuses the login of user admin");
        let forged =
            device("b", "error", "no login: HostKey of FabricDevice b is absent, and the command says x");
        let waiting = device("b", "pending", "waits: driver nosuch is not running");
        let clash = with(device("b", "ready", ""), "ClusterIDClash", "True", "VLAN eno-k1-100 comes back");
        let other = Device { cluster: Some("k2".into()), ..device("b", "ready", "") };
        for (bad, expected) in [
            (device("b", "ready", ""), ["ok", "ok", "ok", "ok"]),
            (unreachable, ["failed: 127.0.0.1:1", "ok", "ok", "ok"]),
            (unknown_key, ["ok", "failed: SHA256:x", "ok", "ok"]),
            (other_key, ["ok", "failed: showed host key", "ok", "ok"]),
            (login, ["ok", "ok", "failed: b: the device refuses the login", "ok"]),
            (forged, ["ok", "ok", "failed: b: no login: HostKey", "ok"]),
            (waiting, ["ok", "ok", "warning: not running (pending)", "ok"]),
            (device("b", "", ""), ["ok", "ok", "warning: b (not seen by an engine)", "ok"]),
            (clash, ["ok", "ok", "ok", "failed: eno-k1-100 comes back"]),
            (other, ["ok", "ok", "ok", "warning: k1, k2"]),
        ] {
            let checks = judge(&Ok(vec![device("a", "ready", ""), bad]), Some("k1"));
            assert_eq!(checks.len(), expected.len());
            for (check, expected) in checks.iter().zip(expected) {
                assert_outcome(check, expected);
            }
        }
        let unread = judge(&Err(Unread::Forbidden("list fabricdevices".into())), None);
        assert!(unread.iter().all(|check| text(check).starts_with("skipped")));
        assert_outcome(&judge(&Ok(Vec::new()), None)[0], "skipped: no FabricDevice yet");
    }

    #[test]
    fn device_facts_come_from_spec_and_status() {
        let found = Device::new(&object(json!({
            "apiVersion": "eno.k8s.io/v1alpha1", "kind": "FabricDevice", "metadata": {"name": "b"}, "spec": {},
            "status": {
                "phase": "pending", "message": "no answer", "clusterID": "k1",
                "conditions": [{"type": "Reachable", "status": "False", "message": "no answer"}],
            },
        })));
        assert_eq!(found, with(device("b", "pending", "no answer"), "Reachable", "False", "no answer"));
    }
}
