//! The values of an installation: what an admin may choose.

mod forms;

use std::borrow::Cow;
use std::collections::BTreeMap;

use eno_schemas::MarkMask;
use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use forms::{
    ClusterId, Directory, Image, Interface, LabelKey, LabelValue, Log, Name, Network, Proxy, Quantity,
    Receiver, Text, Variable,
};

/// The image of ENO that this program installs by default.
const IMAGE: &str = match option_env!("ENO_IMAGE") {
    Some(image) => image,
    None => "eno:dev",
};
/// The image of nats-server that this program installs by default.
const NATS_IMAGE: &str = match option_env!("ENO_NATS_IMAGE") {
    Some(image) => image,
    None => "eno-nats:dev",
};

/// The variables of the agent that the installation sets.
pub const OWN_VARIABLES: [&str; 17] = [
    "ENO_NODE",
    "ENO_INSTANCE",
    "ENO_NATS_URL",
    "ENO_NATS_CREDENTIALS",
    "ENO_NATS_CA",
    "ENO_LISTEN",
    "ENO_NODE_ADDRESS",
    "ENO_METRICS_LISTEN",
    "ENO_TLS_CERT",
    "ENO_TLS_KEY",
    "ENO_TLS_CLIENT_CA",
    "ENO_PROC_SYS",
    "ENO_LOG",
    "ENO_ALLOW_INTERFACES",
    "ENO_OVS_DATAPATH",
    "ENO_RETURN_PATH_MASK",
    "ENO_CRI_SOCKET",
];

/// What an admin chooses about an installation. A field that is left out has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(clippy::struct_excessive_bools, reason = "they are switches of a values file")]
pub struct Values {
    /// The image with the programs of ENO.
    pub image: Image,
    /// The image with nats-server.
    pub nats_image: Image,
    /// When nodes pull the images.
    pub image_pull_policy: PullPolicy,
    /// Secrets of the type kubernetes.io/dockerconfigjson, in eno-system and in eno-node.
    pub image_pull_secrets: Vec<Name>,
    /// Labels of the nodes on which NATS, the engine and the drivers may run.
    pub node_selector: BTreeMap<LabelKey, LabelValue>,
    /// Taints of nodes that NATS, the engine and the drivers tolerate. Agents tolerate all.
    pub tolerations: Vec<Toleration>,
    /// NATS.
    pub nats: Nats,
    /// The identifier of this cluster on switches, 1 to 8 characters of a-z and 0-9; absent: the engine keeps the one
    /// in use, or derives one.
    #[serde(rename = "clusterID")]
    pub cluster_id: Option<ClusterId>,
    /// Networks and hosts that callbacks may reach although they are refused otherwise.
    pub callback_allow: Vec<Receiver>,
    /// Networks that callbacks must not reach: those of the cluster's pods and services.
    #[schemars(with = "Vec<Network>")]
    pub callback_deny: Vec<IpNet>,
    /// Whether callbacks go to https URLs only.
    pub callback_https_only: bool,
    /// The HTTP proxy of callbacks, without a user.
    pub callback_proxy: Option<Proxy>,
    /// Whether the engine makes an L2BridgeDomain per L2Service in use.
    pub bridge_domains: bool,
    /// Whether agents probe if packets pass on the VLANs of each ConnectionPoint, as its field Verify says.
    pub verify: bool,
    /// The networks of the nodes' addresses, for NetworkPolicies; empty: any address may be a node's.
    #[serde(rename = "nodeCIDRs")]
    #[schemars(with = "Vec<Network>")]
    pub node_cidrs: Vec<IpNet>,
    /// The directory of the container runtime's socket on each node.
    pub runtime_directory: Directory,
    /// The directory of Open vSwitch's sockets on each node.
    pub openvswitch_directory: Directory,
    /// The directory of CNI plugins on each node, where the container runtime and Multus look for eno-ipam.
    pub cni_directory: Directory,
    /// The image of PodConfigs' sample Deployments, with /bin/sh and sleep; absent: none are made.
    pub sample_image: Option<Image>,
    /// The namespace of Multus, as `multusNamespace` in its configuration says; absent: kube-system.
    pub multus_namespace: Option<Name>,
    /// The namespace of MetalLB, for BGPSessionGroups with it as their Speaker; absent: metallb-system.
    pub metallb_namespace: Option<Name>,
    /// What all parts log: error, warn, info, debug, trace, or module=level pairs separated by commas.
    pub log: Log,
    /// The agents of nodes.
    pub agent: Agent,
    /// Whether agents serve metrics at port 9616 of the node's address, for clients with a certificate.
    pub node_metrics: bool,
    /// Whether cert-manager makes the certificates.
    pub cert_manager: bool,
    /// Whether the API server sets finalizers; from Kubernetes 1.36 on.
    pub admission: bool,
    /// Whether the definition of NetworkAttachmentDefinitions is installed, for clusters without Multus.
    #[serde(rename = "nadDefinition")]
    pub nad_definition: bool,
    /// What Prometheus and Grafana get.
    pub monitoring: Monitoring,
}

/// What an admin chooses about NATS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Nats {
    /// The number of servers. It can't be changed later.
    pub replicas: Replicas,
    /// The StorageClass of the servers' volumes; absent: the cluster's default. It can't be changed later.
    pub storage_class: Option<Name>,
    /// The size of each server's volume. It can't be changed later.
    pub storage_size: Quantity,
    /// The memory limit of each server.
    pub memory_limit: Quantity,
}

/// What an admin chooses about the agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Agent {
    /// Interfaces of nodes that pods' interfaces may be made on, besides those that ENO made.
    pub allow_interfaces: Vec<Interface>,
    /// Networks of the cluster, such as those of its services and pods, that no bridge of pods may overlap.
    #[schemars(with = "Vec<Network>")]
    pub reserved_networks: Vec<IpNet>,
    /// The datapath of Open vSwitch bridges that ask for none in particular.
    pub ovs_datapath: Datapath,
    /// Adjacent bits of marks of packets and connections that lead answers back to gateways (ReturnPath of a
    /// BGPSessionGroup), and that nobody else on the nodes depends on.
    pub return_path_mask: MarkMask,
    /// Further environment variables ENO_… of the agent's process, none of which the installation sets itself.
    #[schemars(schema_with = "further_variables")]
    pub env: BTreeMap<Variable, Text>,
}

/// A toleration of taints, as pods have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Toleration {
    /// The key of the taints; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<LabelKey>,
    /// How the value is compared; absent: Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<Operator>,
    /// The value of the taints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<LabelValue>,
    /// The effect of the taints; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Operator {
    /// The values are equal.
    Equal,
    /// Any value fits.
    Exists,
}

/// The effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum TaintEffect {
    /// New pods are not scheduled.
    NoSchedule,
    /// New pods are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// Pods are evicted.
    NoExecute,
}

/// What Prometheus and Grafana get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Monitoring {
    /// Whether PodMonitors are installed, for clusters with the Prometheus operator.
    pub pod_monitors: bool,
    /// Whether the alerts are installed as a PrometheusRule, for clusters with the Prometheus operator.
    pub rules: bool,
    /// Whether the dashboard is installed as a ConfigMap with the label grafana_dashboard.
    pub dashboard: bool,
    /// Labels of PodMonitors and PrometheusRules, by which a Prometheus selects them.
    pub labels: BTreeMap<LabelKey, LabelValue>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            image: Image(IMAGE.to_owned()),
            nats_image: Image(NATS_IMAGE.to_owned()),
            image_pull_policy: PullPolicy::default(),
            image_pull_secrets: Vec::new(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            nats: Nats::default(),
            cluster_id: None,
            callback_allow: Vec::new(),
            callback_deny: Vec::new(),
            callback_https_only: false,
            callback_proxy: None,
            bridge_domains: false,
            verify: true,
            node_cidrs: Vec::new(),
            runtime_directory: Directory("/run/containerd".to_owned()),
            openvswitch_directory: Directory("/run/openvswitch".to_owned()),
            cni_directory: Directory("/opt/cni/bin".to_owned()),
            sample_image: None,
            multus_namespace: None,
            metallb_namespace: None,
            log: Log("info".to_owned()),
            agent: Agent::default(),
            node_metrics: false,
            cert_manager: false,
            admission: false,
            nad_definition: false,
            monitoring: Monitoring::default(),
        }
    }
}

impl Default for Nats {
    fn default() -> Self {
        Self {
            replicas: Replicas::One,
            storage_class: None,
            storage_size: Quantity("5Gi".to_owned()),
            memory_limit: Quantity("512Mi".to_owned()),
        }
    }
}

fn further_variables(generator: &mut SchemaGenerator) -> Schema {
    let name = Variable::json_schema(generator);
    let pattern = name.get("pattern").and_then(Value::as_str).unwrap_or_default();
    json_schema!({
        "type": "object",
        "properties": OWN_VARIABLES.map(|name| (name, false)).into_iter().collect::<BTreeMap<_, _>>(),
        "patternProperties": {pattern: Text::json_schema(generator)},
        "additionalProperties": false,
    })
}

/// The number of NATS servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Replicas {
    /// One server.
    One,
    /// Three servers on three nodes, each with a copy of every stream.
    Three,
}

impl JsonSchema for Replicas {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Replicas".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "enum": [1, 3]})
    }
}

impl TryFrom<u8> for Replicas {
    type Error = &'static str;

    fn try_from(count: u8) -> Result<Self, Self::Error> {
        match count {
            1 => Ok(Self::One),
            3 => Ok(Self::Three),
            _ => Err("use 1 or 3"),
        }
    }
}

impl From<Replicas> for u8 {
    fn from(replicas: Replicas) -> Self {
        match replicas {
            Replicas::One => 1,
            Replicas::Three => 3,
        }
    }
}

/// When nodes pull an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum PullPolicy {
    /// At each start of a container.
    Always,
    /// If the node does not have it.
    #[default]
    IfNotPresent,
    /// Never: the nodes have it.
    Never,
}

/// A datapath of Open vSwitch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "lowercase")]
pub enum Datapath {
    /// In the kernel.
    #[default]
    System,
    /// In user space.
    Netdev,
}

/// Values that can't be used. A retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValuesError {
    /// The text is no YAML.
    #[error("the values are not YAML: {0}")]
    Syntax(String),
    /// The text is no mapping.
    #[error("the values are no mapping of names to values, such as `image: registry.example.com/eno:v1`")]
    Form,
    /// A key is unknown.
    #[error("{path}: there is no such value; {hint}")]
    Unknown {
        /// The path of the key.
        path: String,
        /// The nearest known key, or all keys.
        hint: String,
    },
    /// A value is invalid.
    #[error("{path}: {problem}")]
    Invalid {
        /// The path of the value.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// Two values don't fit each other.
    #[error("{0}")]
    Unfit(String),
}

impl Values {
    /// Reads values from YAML. Empty text has the defaults.
    pub fn parse(text: &str) -> Result<Self, ValuesError> {
        let value: Value =
            serde_saphyr::from_str(text).map_err(|error| ValuesError::Syntax(error.to_string()))?;
        let value = match value {
            Value::Null => Value::Object(serde_json::Map::new()),
            Value::Object(_) => value,
            _ => return Err(ValuesError::Form),
        };
        let known = serde_json::to_value(Self::default()).map_err(|_| ValuesError::Form)?;
        check_keys("", &value, &known)?;
        let values: Self = serde_path_to_error::deserialize(value).map_err(|error| ValuesError::Invalid {
            path: error.path().to_string(),
            problem: error.inner().to_string(),
        })?;
        values.check()?;
        Ok(values)
    }

    /// The values as YAML, all fields written out.
    pub fn to_yaml(&self) -> Result<String, ValuesError> {
        serde_saphyr::to_string(self).map_err(|error| ValuesError::Syntax(error.to_string()))
    }

    fn check(&self) -> Result<(), ValuesError> {
        // The API server refuses it in a NetworkPolicy.
        if let Some(network) = self.node_cidrs.iter().find(|network| network.trunc() != **network) {
            return Err(ValuesError::Unfit(format!(
                "nodeCIDRs: {network} is an address of the network {}; write the network",
                network.trunc()
            )));
        }
        match self.agent.env.keys().find(|name| OWN_VARIABLES.contains(&name.0.as_str())) {
            Some(name) => Err(ValuesError::Unfit(format!(
                "agent.env.{name}: the installation sets this variable; leave it out"
            ))),
            None => Ok(()),
        }
    }
}

/// Checks that each key of `value` is one of `known`, whose objects have all keys of their level. An empty object
/// permits any keys.
fn check_keys(path: &str, value: &Value, known: &Value) -> Result<(), ValuesError> {
    let (Value::Object(value), Value::Object(known)) = (value, known) else { return Ok(()) };
    if known.is_empty() {
        return Ok(());
    }
    for (key, value) in value {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match known.get(key) {
            Some(known) => check_keys(&path, value, known)?,
            None => {
                return Err(ValuesError::Unknown { path, hint: hint(key, known.keys().map(String::as_str)) });
            }
        }
    }
    Ok(())
}

fn hint<'a>(key: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    /// Minimum similarity at which a key is taken for a misspelling.
    const ALIKE: f64 = 0.6;
    let alike = |known: &str| {
        strsim::normalized_damerau_levenshtein(&known.to_ascii_lowercase(), &key.to_ascii_lowercase())
    };
    match known.clone().filter(|known| alike(known) >= ALIKE).max_by(|a, b| alike(a).total_cmp(&alike(b))) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_name_the_field_and_the_remedy() {
        for (text, expected) in [
            ("images: a", "images: there is no such value; did you mean image?"),
            ("nats: {replica: 3}", "nats.replica: there is no such value; did you mean replicas?"),
            (
                "agent: {xyz: 3}",
                "agent.xyz: there is no such value; there are allowInterfaces, env, ovsDatapath, reservedNetworks, \
                 returnPathMask",
            ),
            (
                "agent: {returnPathMask: '0x4000'}",
                "agent.returnPathMask: 0x4000 shares bits with the marks of kube-proxy (0xc000); give other bits, such as 0x3f",
            ),
            ("nats: {replicas: 2}", "nats.replicas: use 1 or 3"),
            ("nats: {replicas: x}", "nats.replicas: invalid type: string \"x\", expected u8"),
            ("nats: {storageSize: 5 GB}", "nats.storageSize: \"5 GB\" is not a size such as 512Mi or 5Gi"),
            ("clusterID: Site-A", "clusterID: \"Site-A\" is not 1 to 8 characters of a-z and 0-9"),
            ("callbackDeny: [10.0.0.0]", "callbackDeny[0]: invalid IP address syntax"),
            (
                "runtimeDirectory: run",
                "runtimeDirectory: \"run\" is not an absolute directory such as /run/containerd",
            ),
            ("image: 'a b'", "image: \"a b\" is not an image such as registry.example.com/eno:v1"),
            (
                "agent: {env: {PATH: x}}",
                "agent.env.PATH: \"PATH\" is not a variable that the agent reads: ENO_ and A-Z, 0-9 and _",
            ),
            (
                "agent: {env: {ENO_NODE: x}}",
                "agent.env.ENO_NODE: the installation sets this variable; leave it out",
            ),
            (
                "callbackProxy: 'http://u:p@proxy:3128'",
                "callbackProxy: write a URL without a user, such as http://proxy.example.com:3128",
            ),
            (
                "callbackProxy: 'http://[::1'",
                "callbackProxy: \"http://[::1\" is not a URL without a user, such as http://proxy.example.com:3128",
            ),
            (
                "callbackAllow: ['*']",
                "callbackAllow[0]: \"*\" is not one network such as 10.0.0.0/8, address, or host such as \
                 nfvo.example.com or *.example.com",
            ),
            (
                "log: 'x=='",
                "log: \"x==\" is not error, warn, info, debug, trace, or module=level pairs separated by commas",
            ),
            (
                "nodeCIDRs: [10.1.2.3/16]",
                "nodeCIDRs: 10.1.2.3/16 is an address of the network 10.1.0.0/16; write the network",
            ),
            (
                "- a",
                "the values are no mapping of names to values, such as `image: registry.example.com/eno:v1`",
            ),
        ] {
            let error = Values::parse(text).expect_err(text);
            assert_eq!(error.to_string(), expected, "{text}");
        }
        assert!(matches!(Values::parse("a: [").expect_err("no YAML"), ValuesError::Syntax(_)));
    }

    /// What a pattern permits, the program that gets the value accepts.
    #[track_caller]
    fn assert_pattern_is_parsed<T: JsonSchema + TryFrom<String, Error = String>>(
        refused: &[&str],
        accepted: &[&str],
    ) {
        use proptest::strategy::{Strategy as _, ValueTree as _};
        let schema = T::json_schema(&mut SchemaGenerator::default());
        let text = |key: &str| schema.get(key).cloned().unwrap_or_default();
        let (pattern, length) = (text("pattern"), text("maxLength").as_u64().unwrap_or_default());
        let pattern = pattern.as_str().expect("a pattern");
        let is_match = regex::Regex::new(pattern).expect("a pattern");
        let bare = pattern.trim_start_matches('^').trim_end_matches('$');
        let strategy = proptest::string::string_regex(bare).expect("a pattern");
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..2000 {
            let text = strategy.new_tree(&mut runner).expect("a text").current();
            if text.len() as u64 <= length {
                T::try_from(text.clone())
                    .unwrap_or_else(|error| panic!("the schema permits {text:?}: {error}"));
            }
        }
        for text in accepted {
            T::try_from((*text).to_owned()).unwrap_or_else(|error| panic!("{error}"));
        }
        for text in refused {
            assert!(!is_match.is_match(text), "the schema permits {text:?}");
            assert!(T::try_from((*text).to_owned()).is_err(), "{text:?} is accepted");
        }
    }

    #[test]
    fn schema_and_installer_accept_what_the_programs_accept() {
        assert_pattern_is_parsed::<Receiver>(
            &[
                "*",
                "a b",
                "",
                "10.0.0.0/8,192.168.0.0/16",
                "10.0.0.0/33",
                "http://x",
                "*.",
                "a/8",
                ":::",
                "[::1",
            ],
            &[
                "10.0.0.0/8",
                "10.1.2.3",
                "nfvo.example.com",
                "*.example.com",
                "fd00::/8",
                "::1",
                "[fd00::1]",
                "NFVO",
            ],
        );
        assert_pattern_is_parsed::<Network>(
            &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/8,fd00::/8", ":::/64", "fd00::/129", "1.2.3/8", "x/8"],
            &["10.244.0.0/16", "0.0.0.0/0", "::/0", "fd00:1::/64", "1:2:3:4:5:6:7::/112", "::1/128"],
        );
        assert_pattern_is_parsed::<Log>(
            &["x==", "", ",", "info,", "eno=loud", "a b", "eno=[x"],
            &["info", "info,eno_engine=debug", "eno_engine::leader=trace,warn", "WARN"],
        );
        assert_pattern_is_parsed::<Proxy>(
            &[
                "http://[::1",
                "socks5://proxy",
                "http://u:p@proxy",
                "http://proxy:65536",
                "http://",
                "proxy",
                "http://1.2.3.999",
            ],
            &[
                "http://proxy.example.com:3128",
                "https://proxy",
                "http://192.0.2.1:8080/",
                "http://[fd00::1]:3128",
            ],
        );
    }

    #[test]
    fn values_survive_being_written() {
        let text = "clusterID: lab1\nnats: {replicas: 3, storageClass: fast}\nagent: {env: {ENO_OVSDB: 'tcp:127.0.0.1:6640'}}\n\
                    callbackDeny: [10.244.0.0/16, 'fd00::/8']";
        let values = Values::parse(text).expect("valid values");
        assert_eq!(Values::parse(&values.to_yaml().expect("YAML")), Ok(values));
        assert_eq!(Values::parse(""), Ok(Values::default()));
    }
}
