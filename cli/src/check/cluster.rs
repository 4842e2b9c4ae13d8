//! What ENO needs of the cluster: NetworkAttachmentDefinitions, Multus, a StorageClass, nodes and Pod Security.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{Check, DEVICES, Fact, NODE, Name, Problem, SYSTEM, Unread, count, listed};

/// The CustomResourceDefinition of NADs.
pub const NAD: &str = "network-attachment-definitions.k8s.cni.cncf.io";
/// The version of NADs that the driver writes.
const NAD_VERSION: &str = "v1";
/// Annotation of a default StorageClass.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
/// Label with the level that a namespace enforces.
pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// The architectures of the image, in Kubernetes' terms.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// The check of the definition of NADs; `None`: there is none.
pub fn judge_nad(definition: &Fact<Option<CustomResourceDefinition>>) -> Check {
    let name = Name::NadDefinition;
    let install = "install Multus, or kubectl apply -k deploy/nad-crd";
    match definition {
        Err(unread) => Check::unread(name, NAD, unread),
        Ok(None) => {
            let what =
                format!("the CustomResourceDefinition {NAD} does not exist, so pods get no networks by NADs");
            Check::failed(name, NAD, Problem::new(what, install))
        }
        Ok(Some(definition)) if !is_established(definition) => {
            let what = format!("the CustomResourceDefinition {NAD} is not established");
            let remedy = format!("see its conditions: kubectl describe crd {NAD}");
            Check::failed(name, NAD, Problem::new(what, remedy))
        }
        Ok(Some(definition)) => {
            let served: Vec<&str> = definition
                .spec
                .versions
                .iter()
                .filter(|version| version.served)
                .map(|version| version.name.as_str())
                .collect();
            let subject = format!("{NAD} {}", served.join(", "));
            if served.contains(&NAD_VERSION) {
                return Check::ok(name, subject);
            }
            let what = format!("the definition of NADs does not serve version {NAD_VERSION}");
            Check::failed(name, subject, Problem::new(what, "upgrade Multus"))
        }
    }
}

/// Whether a CustomResourceDefinition has the condition `Established`.
pub fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// A DaemonSet of Multus.
#[derive(Clone, Debug)]
pub struct MultusDaemonSet {
    /// `<namespace>/<name>`.
    pub name: String,
    /// Number of nodes that should have a pod.
    pub desired: i32,
    /// Number of nodes with a ready pod.
    pub ready: i32,
}

/// The check of Multus, by the DaemonSets whose name or image names it.
pub fn judge_multus(found: &Fact<Vec<MultusDaemonSet>>) -> Check {
    let name = Name::Multus;
    let found = match found {
        Ok(found) => found,
        Err(unread) => return Check::unread(name, "", unread),
    };
    if found.is_empty() {
        let what = "no DaemonSet of Multus was found by name or image: pods then get no networks by NADs";
        let remedy = "install Multus, unless it runs under another name";
        return Check::warning(name, "no DaemonSet", Problem::new(what, remedy));
    }
    let subject =
        listed(found.iter().map(|set| format!("{}: {} of {} ready", set.name, set.ready, set.desired)));
    let unready: Vec<&str> =
        found.iter().filter(|set| set.ready < set.desired).map(|set| set.name.as_str()).collect();
    if unready.is_empty() {
        return Check::ok(name, subject);
    }
    let what = format!("Multus is not ready on all nodes: {}", listed(&unready));
    Check::warning(name, subject, Problem::new(what, "look at the pods of that DaemonSet"))
}

/// The check of the StorageClass for NATS: the named one, or the default one.
pub fn judge_storage(classes: &Fact<Vec<StorageClass>>, wanted: Option<&str>) -> Check {
    let name = Name::StorageClass;
    let classes = match classes {
        Ok(classes) => classes,
        Err(unread) => return Check::unread(name, wanted.unwrap_or_default(), unread),
    };
    let class_name = |class: &StorageClass| class.metadata.name.clone().unwrap_or_default();
    if let Some(wanted) = wanted {
        if classes.iter().any(|class| class_name(class) == wanted) {
            return Check::ok(name, wanted);
        }
        let what = format!("there is no StorageClass {wanted}; there are: {}", names(classes));
        return Check::failed(name, wanted, Problem::new(what, "name one that exists"));
    }
    let is_default = |class: &&StorageClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(IS_DEFAULT)).is_some_and(|value| value == "true")
    };
    let defaults: Vec<String> = classes.iter().filter(is_default).map(class_name).collect();
    match defaults.as_slice() {
        [] => {
            let what = format!(
                "there is no default StorageClass for the volume of NATS; there are: {}",
                names(classes)
            );
            let remedy =
                format!("annotate one with {IS_DEFAULT}=true, or name one in the value nats.storageClass");
            Check::failed(name, count(classes.len(), "StorageClass"), Problem::new(what, remedy))
        }
        [one] => Check::ok(name, format!("{one} is the default")),
        several => {
            let what =
                format!("several StorageClasses are the default: {}; the newest is taken", listed(several));
            let remedy = format!("keep the annotation {IS_DEFAULT} on one of them");
            Check::warning(name, listed(several), Problem::new(what, remedy))
        }
    }
}

fn names(classes: &[StorageClass]) -> String {
    match classes {
        [] => "none".to_owned(),
        classes => listed(classes.iter().map(|class| class.metadata.name.as_deref().unwrap_or_default())),
    }
}

/// A node, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFact {
    /// Its name.
    pub name: String,
    /// Such as `linux`; empty: unknown.
    pub system: String,
    /// Such as `amd64`; empty: its kubelet has not reported.
    pub architecture: String,
    /// Such as `containerd://2.1.0`; empty: its kubelet has not reported.
    pub runtime: String,
    /// Whether its kubelet answers.
    pub is_ready: bool,
    /// Whether new pods may go there.
    pub is_schedulable: bool,
    /// The networks of its pods, and its own addresses.
    pub networks: Vec<IpNet>,
}

impl NodeFact {
    /// Of a Node.
    pub fn new(node: &Node) -> Self {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let labels = node.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|all| all.get(name)).cloned();
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let pods = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
        let pods = pods.filter_map(|text| text.parse::<IpNet>().ok());
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let addresses = addresses.filter_map(|address| address.address.parse::<IpAddr>().ok());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            system: label("kubernetes.io/os")
                .or_else(|| info.map(|info| info.operating_system.clone()))
                .unwrap_or_default(),
            architecture: info.map(|info| info.architecture.clone()).unwrap_or_default(),
            runtime: info.map(|info| info.container_runtime_version.clone()).unwrap_or_default(),
            is_ready: conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True"),
            is_schedulable: !node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default(),
            networks: pods.chain(addresses.map(IpNet::from)).collect(),
        }
    }

    /// Whether the agent belongs there.
    pub fn is_linux(&self) -> bool {
        self.system.is_empty() || self.system == "linux"
    }

    /// Why the image or the agent can't run there.
    fn obstacle(&self) -> Option<String> {
        let name = &self.name;
        if self.runtime.is_empty() {
            return Some(format!("{name} (its kubelet has not reported)"));
        }
        if !ARCHITECTURES.contains(&self.architecture.as_str()) {
            return Some(format!("{name} ({})", self.architecture));
        }
        let is_known = ["containerd://", "cri-o://"].iter().any(|runtime| self.runtime.starts_with(runtime));
        (!is_known).then(|| format!("{name} ({})", self.runtime))
    }
}

/// The check that nodes can run the image and the agent.
pub fn judge_nodes(nodes: &Fact<Vec<NodeFact>>) -> Check {
    let name = Name::Nodes;
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let linux: Vec<&NodeFact> = nodes.iter().filter(|node| node.is_linux()).collect();
    let subject = count(linux.len(), "Linux node");
    let obstacles: Vec<String> = linux.iter().filter_map(|node| node.obstacle()).collect();
    let remedy = format!("use nodes with {} and containerd or CRI-O", ARCHITECTURES.join(" or "));
    if obstacles.len() == linux.len() {
        let what = match obstacles.as_slice() {
            [] => "there is no Linux node".to_owned(),
            all => format!("no node can run the operator: {}", listed(all)),
        };
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    if !obstacles.is_empty() {
        let what = format!("nodes that can't run the operator: {}", listed(obstacles));
        return Check::warning(name, subject, Problem::new(what, remedy));
    }
    let crio: Vec<&str> = linux
        .iter()
        .filter(|node| node.runtime.starts_with("cri-o://"))
        .map(|node| node.name.as_str())
        .collect();
    if !crio.is_empty() {
        let what =
            format!("nodes with CRI-O: {}; the agent looks for containerd in /run/containerd", listed(crio));
        let remedy = "mount /run/crio in the place of /run/containerd in the DaemonSet eno-agent";
        return Check::warning(name, subject, Problem::new(what, remedy));
    }
    if linux.iter().all(|node| !node.is_ready || !node.is_schedulable) {
        let what = "no Linux node is ready and takes pods";
        return Check::failed(name, subject, Problem::new(what, "look at the nodes: kubectl get nodes"));
    }
    Check::ok(name, subject)
}

/// The labels of a namespace; `None`: it does not exist.
pub type NamespaceLabels = Fact<Option<BTreeMap<String, String>>>;

/// The check of the Pod Security levels of the operator's namespaces, one of each that exists.
pub fn judge_pod_security(namespaces: &[(&'static str, NamespaceLabels)]) -> Vec<Check> {
    let check = |(namespace, labels): &(&'static str, NamespaceLabels)| {
        let name = Name::PodSecurity;
        let labels = match labels {
            Ok(Some(labels)) => labels,
            Ok(None) => return None,
            Err(unread) => return Some(Check::unread(name, *namespace, unread)),
        };
        let level = labels.get(ENFORCE).map(String::as_str);
        let subject = format!("{namespace}: {}", level.unwrap_or("no level"));
        let wanted = wanted_level(namespace);
        let label = format!("kubectl label --overwrite namespace {namespace} {ENFORCE}={wanted}");
        if level == Some(wanted) {
            return Some(Check::ok(name, subject));
        }
        if *namespace == NODE && level.is_none_or(|level| level != "privileged") {
            let what = format!(
                "namespace {NODE} does not have {ENFORCE}={wanted}, so the agent's pods may be refused: they need the \
                 host's network and paths"
            );
            return Some(Check::failed(name, subject, Problem::new(what, label)));
        }
        let what = format!("namespace {namespace} does not enforce the level {wanted}");
        Some(Check::warning(name, subject, Problem::new(what, label)))
    };
    namespaces.iter().filter_map(check).collect()
}

fn wanted_level(namespace: &str) -> &'static str {
    match namespace {
        SYSTEM | DEVICES => "restricted",
        _ => "privileged",
    }
}

/// The check of the namespaces' existence and their phases. The phase is `None` if a namespace does not exist.
pub fn judge_namespaces(namespaces: &[(&'static str, Fact<Option<String>>)]) -> Check {
    let name = Name::Namespaces;
    let subject = listed(namespaces.iter().map(|(namespace, _)| namespace));
    let unread = namespaces.iter().find_map(|(_, phase)| phase.as_ref().err());
    if let Some(unread @ Unread::Failed(_)) = unread {
        return Check::unread(name, subject, unread);
    }
    let is_missing = |(namespace, phase): &(&'static str, Fact<Option<String>>)| {
        matches!(phase, Ok(None)).then_some(*namespace)
    };
    let missing: Vec<&str> = namespaces.iter().filter_map(is_missing).collect();
    if !missing.is_empty() {
        let problem = if missing.len() == namespaces.len() {
            Problem::new("ENO is not installed here", "run eno check --pre, then eno install")
        } else {
            Problem::new(format!("missing: {}", listed(missing)), "run eno install")
        };
        return Check::failed(name, subject, problem);
    }
    let ending: Vec<&str> = namespaces
        .iter()
        .filter(|(_, phase)| matches!(phase, Ok(Some(phase)) if phase == "Terminating"))
        .map(|(namespace, _)| *namespace)
        .collect();
    if !ending.is_empty() {
        let what = format!("being deleted: {}", listed(&ending));
        let remedy = "wait until it is gone, then run eno install; kubectl get namespace NAME -o yaml shows what is left";
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    unread.map_or_else(|| Check::ok(name, &subject), |unread| Check::unread(name, &subject, unread))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::NAMESPACES;
    use super::super::tests::{assert_outcome, object};
    use super::*;

    #[allow(clippy::unnecessary_wraps, reason = "checks take facts")]
    fn nad(version: &str, established: &str) -> Fact<Option<CustomResourceDefinition>> {
        Ok(Some(object(json!({
            "metadata": {"name": NAD},
            "spec": {
                "group": "k8s.cni.cncf.io", "scope": "Namespaced",
                "names": {"kind": "NetworkAttachmentDefinition", "plural": "network-attachment-definitions"},
                "versions": [{"name": version, "served": true, "storage": true}],
            },
            "status": {"conditions": [{"type": "Established", "status": established}]},
        }))))
    }

    #[test]
    fn definition_of_nads_must_be_established_in_its_version() {
        for (definition, expected) in [
            (nad("v1", "True"), "ok"),
            (nad("v1", "False"), "failed: not established"),
            (nad("v2", "True"), "failed: version v1"),
            (Ok(None), "failed: does not exist"),
            (Err(Unread::Forbidden("get crds".into())), "skipped: get crds"),
        ] {
            assert_outcome(&judge_nad(&definition), expected);
        }
    }

    #[test]
    fn missing_or_unready_multus_is_a_warning() {
        let set = |ready| MultusDaemonSet { name: "kube-system/kube-multus-ds".into(), desired: 2, ready };
        for (found, expected) in [
            (vec![set(2)], "ok"),
            (vec![set(1)], "warning: kube-system/kube-multus-ds"),
            (vec![], "warning: no DaemonSet of Multus"),
        ] {
            assert_outcome(&judge_multus(&Ok(found)), expected);
        }
    }

    fn class(name: &str, default: bool) -> StorageClass {
        object(json!({
            "metadata": {"name": name, "annotations": {(IS_DEFAULT): default.to_string()}}, "provisioner": "p",
        }))
    }

    #[test]
    fn storage_class_must_exist() {
        for (classes, wanted, expected) in [
            (vec![class("fast", true), class("slow", false)], None, "ok"),
            (vec![class("fast", false)], None, "failed: no default StorageClass|fast"),
            (vec![], None, "failed: none"),
            (vec![class("a", true), class("b", true)], None, "warning: a, b"),
            (vec![class("fast", false)], Some("fast"), "ok"),
            (vec![class("fast", true)], Some("slow"), "failed: no StorageClass slow"),
        ] {
            assert_outcome(&judge_storage(&Ok(classes), wanted), expected);
        }
    }

    fn node(name: &str, architecture: &str, runtime: &str) -> NodeFact {
        let (architecture, runtime) = (architecture.to_owned(), runtime.to_owned());
        let system = "linux".to_owned();
        let name = name.into();
        NodeFact {
            name,
            system,
            architecture,
            runtime,
            is_ready: true,
            is_schedulable: true,
            networks: Vec::new(),
        }
    }

    #[test]
    fn nodes_need_a_supported_architecture_and_runtime() {
        let good = || node("a", "amd64", "containerd://2.1");
        for (nodes, expected) in [
            (vec![good(), node("b", "arm64", "containerd://1.7")], "ok"),
            (
                vec![good(), NodeFact { system: "windows".into(), ..node("w", "amd64", "containerd://2") }],
                "ok",
            ),
            (vec![good(), node("b", "riscv64", "containerd://2")], "warning: b (riscv64)"),
            (vec![good(), node("b", "amd64", "docker://20")], "warning: b (docker://20)"),
            (vec![good(), node("b", "amd64", "cri-o://1.33")], "warning: b; the agent looks"),
            (vec![node("b", "amd64", "")], "failed: b (its kubelet"),
            (vec![NodeFact { is_ready: false, ..good() }], "failed: no Linux node is ready"),
            (vec![NodeFact { is_schedulable: false, ..good() }], "failed: no Linux node is ready"),
            (vec![], "failed: no Linux node"),
        ] {
            assert_outcome(&judge_nodes(&Ok(nodes)), expected);
        }
    }

    #[test]
    fn node_facts_come_from_labels_and_status() {
        let found = NodeFact::new(&object(json!({
            "metadata": {"name": "a", "labels": {"kubernetes.io/os": "linux"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {
                    "architecture": "amd64", "containerRuntimeVersion": "containerd://2", "operatingSystem": "linux",
                    "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                    "osImage": "", "systemUUID": "",
                },
            },
        })));
        assert_eq!(found, NodeFact { is_schedulable: false, ..node("a", "amd64", "containerd://2") });
    }

    #[test]
    fn levels_of_pod_security_are_those_of_the_manifests() {
        let level = |namespace, level: Option<&str>| {
            let labels = level.map(|level| (ENFORCE.to_owned(), level.to_owned())).into_iter().collect();
            let checks = judge_pod_security(&[(namespace, Ok(Some(labels)))]);
            checks.into_iter().next().expect("a check")
        };
        for (namespace, label, expected) in [
            (SYSTEM, Some("restricted"), "ok"),
            (NODE, Some("privileged"), "ok"),
            (NODE, Some("baseline"), "failed: eno-node|host's network"),
            (NODE, None, "failed: eno-node"),
            (SYSTEM, Some("privileged"), "warning: eno-system does not enforce the level restricted"),
            (DEVICES, None, "warning: eno-devices"),
        ] {
            assert_outcome(&level(namespace, label), expected);
        }
        assert!(judge_pod_security(&[(NODE, Ok(None))]).is_empty());
    }

    #[test]
    fn namespaces_must_exist_and_stay() {
        let active = || Ok(Some("Active".to_owned()));
        for (last, expected) in [
            (active(), "ok"),
            (Ok(None), "failed: missing: eno-node"),
            (Ok(Some("Terminating".to_owned())), "failed: being deleted: eno-node"),
            (Err(Unread::Forbidden("get namespaces".into())), "skipped: get namespaces"),
            (Err(Unread::Failed("no answer".into())), "failed: no answer"),
        ] {
            let namespaces = [(SYSTEM, active()), (DEVICES, active()), (NODE, last)];
            assert_outcome(&judge_namespaces(&namespaces), expected);
        }
        let none = NAMESPACES.map(|name| (name, Ok(None)));
        assert_outcome(&judge_namespaces(&none), "failed: ENO is not installed here");
    }
}
