//! What values change in the manifests: `eno install` applies these edits, and the Helm chart has them as templates.

use serde_json::{Map, Value, json};

/// A change that a value makes to some objects.
pub struct Edit {
    /// The path of the value, such as `nats.memoryLimit`.
    pub value: &'static str,
    /// The kinds of the objects.
    kinds: &'static [&'static str],
    /// Where in an object; objects without that place stay as they are.
    path: &'static [Step],
    /// What is written there.
    pub content: Content,
}

/// A step from a part of an object to parts of it.
#[derive(Clone, Copy)]
enum Step {
    /// The value of a key.
    Key(&'static str),
    /// The elements of a list with this `name`.
    Named(&'static str),
    /// All elements of a list.
    Each,
}

/// What an edit writes.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// A key of a mapping, which replaces one that is there.
    Key(&'static str, Form),
    /// An element of a list of environment variables, which replaces one of the same name.
    Variable(&'static str, Form),
    /// The environment variable with this text while the value is true. Otherwise there is none of this name.
    VariableIf(&'static str, &'static str),
    /// An environment variable for each entry of the value.
    Variables,
    /// A key of a mapping for each entry of the value.
    Entries,
    /// Peers of a NetworkPolicy for the networks of nodes, in place of those that stand for any address.
    NodePeers,
}

/// The form in which a value is written. A value that is null, false or empty is left out, except in the first form and
/// in `Off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A text that is always there.
    Text,
    /// A text.
    OptionalText,
    /// The elements of a list, separated by commas.
    Joined,
    /// The text `true`.
    Flag,
    /// The text `false` while the value is false. Otherwise nothing.
    Off,
    /// Objects with the elements of a list as `name`.
    Names,
    /// The value as it is.
    Verbatim,
}

use Content::{Entries, Key as Set, NodePeers, Variable, VariableIf, Variables};
use Step::{Each, Key, Named};

const PODS: &[&str] = &["Deployment", "DaemonSet", "StatefulSet"];
const OF_ENO: &[&str] = &["Deployment", "DaemonSet"];
const OF_SYSTEM: &[&str] = &["Deployment", "StatefulSet"];
const SERVERS: &[&str] = &["StatefulSet"];
const AGENTS: &[&str] = &["DaemonSet"];
const CONFIGURATION: &[&str] = &["ConfigMap"];

const POD: [Step; 3] = [Key("spec"), Key("template"), Key("spec")];
const CONTAINERS: &[Step] = &[POD[0], POD[1], POD[2], Key("containers"), Each];
const INIT_CONTAINERS: &[Step] = &[POD[0], POD[1], POD[2], Key("initContainers"), Each];
const VARIABLES: &[Step] = &[POD[0], POD[1], POD[2], Key("containers"), Named("agent"), Key("env")];
const RESOLVER_VARIABLES: &[Step] =
    &[POD[0], POD[1], POD[2], Key("containers"), Named("cri-resolver"), Key("env")];
const RUNTIME_MOUNT: &[Step] = &[
    POD[0],
    POD[1],
    POD[2],
    Key("containers"),
    Named("cri-resolver"),
    Key("volumeMounts"),
    Named("runtime"),
];
const RUNTIME: &[Step] = &[POD[0], POD[1], POD[2], Key("volumes"), Named("runtime"), Key("hostPath")];
const OPENVSWITCH: &[Step] = &[POD[0], POD[1], POD[2], Key("volumes"), Named("openvswitch"), Key("hostPath")];
const CNI: &[Step] = &[POD[0], POD[1], POD[2], Key("volumes"), Named("cni"), Key("hostPath")];
const SELECTOR: &[Step] = &[POD[0], POD[1], POD[2], Key("nodeSelector")];
const LIMITS: &[Step] =
    &[POD[0], POD[1], POD[2], Key("containers"), Named("nats"), Key("resources"), Key("limits")];
const CLAIM: &[Step] = &[Key("spec"), Key("volumeClaimTemplates"), Each, Key("spec")];
const CLAIM_REQUESTS: &[Step] = &[CLAIM[0], CLAIM[1], CLAIM[2], CLAIM[3], Key("resources"), Key("requests")];
const ENVIRONMENT: &[Step] = &[Key("data")];

const fn edit(
    value: &'static str,
    kinds: &'static [&'static str],
    path: &'static [Step],
    content: Content,
) -> Edit {
    Edit { value, kinds, path, content }
}

const fn environment(value: &'static str, name: &'static str, form: Form) -> Edit {
    edit(value, CONFIGURATION, ENVIRONMENT, Set(name, form))
}

/// A variable of agents that serve metrics.
const fn metrics(name: &'static str, text: &'static str) -> Edit {
    edit("nodeMetrics", AGENTS, VARIABLES, VariableIf(name, text))
}

/// All edits, in the order in which they are made.
pub const EDITS: &[Edit] = &[
    edit("image", OF_ENO, CONTAINERS, Set("image", Form::Text)),
    edit("image", AGENTS, INIT_CONTAINERS, Set("image", Form::Text)),
    edit("natsImage", SERVERS, CONTAINERS, Set("image", Form::Text)),
    edit("imagePullPolicy", PODS, CONTAINERS, Set("imagePullPolicy", Form::Text)),
    edit("imagePullPolicy", AGENTS, INIT_CONTAINERS, Set("imagePullPolicy", Form::Text)),
    edit("imagePullSecrets", PODS, &POD, Set("imagePullSecrets", Form::Names)),
    edit("nodeSelector", OF_SYSTEM, SELECTOR, Entries),
    edit("tolerations", OF_SYSTEM, &POD, Set("tolerations", Form::Verbatim)),
    edit("nats.memoryLimit", SERVERS, LIMITS, Set("memory", Form::Text)),
    edit("nats.storageSize", SERVERS, CLAIM_REQUESTS, Set("storage", Form::Text)),
    edit("nats.storageClass", SERVERS, CLAIM, Set("storageClassName", Form::OptionalText)),
    environment("clusterID", "ENO_CLUSTER_ID", Form::OptionalText),
    environment("callbackAllow", "ENO_CALLBACK_ALLOW", Form::Joined),
    environment("callbackDeny", "ENO_CALLBACK_DENY", Form::Joined),
    environment("callbackHttpsOnly", "ENO_CALLBACK_HTTPS_ONLY", Form::Flag),
    environment("callbackProxy", "ENO_CALLBACK_PROXY", Form::OptionalText),
    environment("bridgeDomains", "ENO_BRIDGE_DOMAINS", Form::Flag),
    environment("verify", "ENO_VERIFY", Form::Off),
    environment("sampleImage", "ENO_SAMPLE_IMAGE", Form::OptionalText),
    environment("multusNamespace", "ENO_MULTUS_NAMESPACE", Form::OptionalText),
    environment("metallbNamespace", "ENO_METALLB_NAMESPACE", Form::OptionalText),
    environment("log", "ENO_LOG", Form::Text),
    edit("nodeCIDRs", &["NetworkPolicy"], &[Key("spec"), Key("ingress"), Each, Key("from")], NodePeers),
    edit("log", AGENTS, VARIABLES, Variable("ENO_LOG", Form::Text)),
    metrics("ENO_METRICS_LISTEN", "$(ENO_NODE_ADDRESS):9616"),
    metrics("ENO_TLS_CERT", "/run/secrets/eno-metrics-tls/tls.crt"),
    metrics("ENO_TLS_KEY", "/run/secrets/eno-metrics-tls/tls.key"),
    metrics("ENO_TLS_CLIENT_CA", "/run/secrets/eno-metrics-tls/ca.crt"),
    edit("agent.allowInterfaces", AGENTS, VARIABLES, Variable("ENO_ALLOW_INTERFACES", Form::Joined)),
    edit("agent.reservedNetworks", AGENTS, VARIABLES, Variable("ENO_RESERVED_NETWORKS", Form::Joined)),
    edit("agent.ovsDatapath", AGENTS, VARIABLES, Variable("ENO_OVS_DATAPATH", Form::Text)),
    edit("agent.returnPathMask", AGENTS, VARIABLES, Variable("ENO_RETURN_PATH_MASK", Form::Text)),
    edit("agent.env", AGENTS, VARIABLES, Variables),
    edit("log", AGENTS, RESOLVER_VARIABLES, Variable("ENO_LOG", Form::Text)),
    edit("runtimeDirectory", AGENTS, RUNTIME_MOUNT, Set("mountPath", Form::Text)),
    edit("runtimeDirectory", AGENTS, RUNTIME, Set("path", Form::Text)),
    edit("openvswitchDirectory", AGENTS, OPENVSWITCH, Set("path", Form::Text)),
    edit("cniDirectory", AGENTS, CNI, Set("path", Form::Text)),
    edit("monitoring.labels", &["PodMonitor", "PrometheusRule"], &[Key("metadata"), Key("labels")], Entries),
];

impl Edit {
    /// The parts of an object that this edit changes.
    pub fn places<'a>(&self, object: &'a mut Value) -> Vec<&'a mut Value> {
        let is_ours = object["kind"].as_str().is_some_and(|kind| self.kinds.contains(&kind));
        // Of the ConfigMaps, those of the engine and the drivers are their environment.
        let is_environment = self.kinds != CONFIGURATION || object["data"].get("ENO_NATS_URL").is_some();
        if !is_ours || !is_environment {
            return Vec::new();
        }
        let mut places = vec![object];
        for step in self.path {
            places = places.into_iter().flat_map(|place| step.from(place)).collect();
        }
        if matches!(self.content, NodePeers) {
            places.retain(|place| place.as_array().is_some_and(|peers| peers.iter().any(is_any_address)));
        }
        places
    }

    /// Makes the change in an object.
    pub fn apply(&self, object: &mut Value, values: &Value) {
        match (self.given(values), self.content) {
            (Some(value), content) => {
                for place in self.places(object) {
                    content.write(place, value);
                }
            }
            (None, VariableIf(name, _)) => {
                for list in self.places(object).into_iter().filter_map(Value::as_array_mut) {
                    list.retain(|variable| variable["name"] != name);
                }
            }
            (None, _) => {}
        }
    }

    /// The value, unless it is to be left out.
    fn given<'a>(&self, values: &'a Value) -> Option<&'a Value> {
        let value = values.pointer(&format!("/{}", self.value.replace('.', "/")))?;
        if let Set(_, Form::Off) = self.content {
            return Some(value).filter(|value| **value == Value::Bool(false));
        }
        let is_empty = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(elements) => elements.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            _ => false,
        };
        (!is_empty).then_some(value)
    }
}

impl Step {
    fn from(self, place: &mut Value) -> Vec<&mut Value> {
        match self {
            // A container without variables gets its first one.
            Key("env") => place
                .as_object_mut()
                .map(|map| map.entry("env").or_insert_with(|| json!([])))
                .into_iter()
                .collect(),
            Key(key) => place.get_mut(key).into_iter().collect(),
            Named(name) => {
                place.as_array_mut().into_iter().flatten().filter(|item| item["name"] == name).collect()
            }
            Each => place.as_array_mut().into_iter().flatten().collect(),
        }
    }
}

impl Content {
    fn write(self, place: &mut Value, value: &Value) {
        match (self, place) {
            (Set(key, form), Value::Object(map)) => {
                map.insert(key.to_owned(), form.of(value));
            }
            (Variable(name, form), Value::Array(list)) => set_variable(list, name, form.of(value)),
            (VariableIf(name, text), Value::Array(list)) => set_variable(list, name, text.into()),
            (Variables, Value::Array(list)) => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    set_variable(list, name, value.clone());
                }
            }
            (Entries, Value::Object(map)) => {
                map.extend(value.as_object().cloned().unwrap_or_default());
            }
            (NodePeers, Value::Array(peers)) => {
                let networks = value.as_array().into_iter().flatten();
                replace_any_address(peers, networks.map(|cidr| json!({"ipBlock": {"cidr": cidr}})));
            }
            _ => {}
        }
    }
}

impl Form {
    fn of(self, value: &Value) -> Value {
        let elements = || value.as_array().into_iter().flatten();
        match self {
            Self::Text | Self::OptionalText | Self::Verbatim => value.clone(),
            Self::Joined => {
                let texts: Vec<_> = elements().filter_map(Value::as_str).collect();
                Value::String(texts.join(","))
            }
            Self::Flag => Value::String("true".to_owned()),
            Self::Off => Value::String("false".to_owned()),
            Self::Names => Value::Array(elements().map(|name| json!({ "name": name })).collect()),
        }
    }
}

fn set_variable(list: &mut Vec<Value>, name: &str, value: Value) {
    list.retain(|variable| variable["name"] != name);
    let entries = [("name", Value::String(name.to_owned())), ("value", value)];
    list.push(Value::Object(Map::from_iter(entries.map(|(key, value)| (key.to_owned(), value)))));
}

fn is_any_address(peer: &Value) -> bool {
    peer["ipBlock"]["cidr"].as_str().is_some_and(|cidr| ["0.0.0.0/0", "::/0"].contains(&cidr))
}

/// Replaces the peers of a NetworkPolicy that stand for any address.
pub fn replace_any_address(peers: &mut Vec<Value>, by: impl Iterator<Item = Value>) {
    let at = peers.iter().position(is_any_address).unwrap_or(peers.len());
    peers.retain(|peer| !is_any_address(peer));
    peers.splice(at..at, by);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::Values;

    #[test]
    fn every_edit_names_a_value() {
        let values = serde_json::to_value(Values::default()).expect("values");
        for edit in EDITS {
            let pointer = format!("/{}", edit.value.replace('.', "/"));
            assert!(values.pointer(&pointer).is_some(), "there is no value {}", edit.value);
        }
    }

    #[test]
    fn node_networks_replace_any_address() {
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "p"}, "spec": {"ingress": [
            {"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}, {"podSelector": {}}]},
            {"from": [{"podSelector": {}}]},
            {"ports": []},
        ]}});
        let rendered = |values: &str| {
            let values = serde_json::to_value(Values::parse(values).expect("values")).expect("values");
            let mut object = policy.clone();
            for edit in EDITS {
                edit.apply(&mut object, &values);
            }
            object
        };
        assert_eq!(rendered(""), policy);
        let changed = rendered("nodeCIDRs: [10.1.0.0/16, 10.2.0.0/16]");
        let networks = ["10.1.0.0/16", "10.2.0.0/16"].map(|cidr| json!({"ipBlock": {"cidr": cidr}}));
        let [one, two] = networks;
        assert_eq!(changed["spec"]["ingress"][0]["from"], json!([one, two, {"podSelector": {}}]));
        assert_eq!(changed["spec"]["ingress"][1], policy["spec"]["ingress"][1]);
    }
}
