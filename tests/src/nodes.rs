//! Sandboxes with real nodes: a kubelet, containerd, Open vSwitch and an agent each, wired to the simulated switches.

use std::collections::BTreeMap;

use eno_lab::sandbox::{ExecOutput, SandboxOptions, topology};
use eno_nbi_crds::{PodInterface, PodNetwork, PodNetworkStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::{System, poll};

impl System {
    /// Pods of a namespace.
    pub fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.sandbox.client(), namespace)
    }

    /// Waits until this many pods of a label run, and returns them by name.
    pub async fn running(&self, namespace: &str, labels: &str, count: usize) -> BTreeMap<String, Pod> {
        let config = watcher::Config::default().labels(labels);
        let what = format!("{count} running pods of {labels}");
        let found = self.until(self.pods(namespace), config, &what, |all| {
            all.values().filter(|pod| is_running(pod)).count() == count
        });
        found.await.into_values().filter(is_running).map(|pod| (pod.name_any(), pod)).collect()
    }

    /// Runs a command in a pod; returns its output if it succeeds.
    pub async fn exec(&self, namespace: &str, pod: &str, command: &[&str]) -> Option<String> {
        let output = self.sandbox.exec(namespace, pod, command).await;
        output.ok().filter(ExecOutput::success).map(|output| output.stdout)
    }

    /// Runs a command in a pod repeatedly until `good` accepts its output.
    pub async fn until_inside(
        &self,
        namespace: &str,
        pod: &str,
        command: &[&str],
        mut good: impl FnMut(Option<&str>) -> bool,
    ) -> String {
        let mut last = None;
        let seen = poll(async || {
            last = self.exec(namespace, pod, command).await;
            good(last.as_deref()).then_some(())
        })
        .await;
        let last = last.unwrap_or_default();
        assert!(seen.is_some(), "{command:?} in {namespace}/{pod}: not as expected, but:\n{last}");
        last
    }

    /// Waits until a pod reaches an address, or until it does not.
    pub async fn pings(&self, namespace: &str, pod: &str, address: &str, reached: bool) {
        let command = ["ping", "-c", "1", "-W", "1", address];
        self.until_inside(namespace, pod, &command, |output| output.is_some() == reached).await;
    }

    /// Runs a program on a node repeatedly until `good` accepts its output.
    pub async fn until_on_node(&self, node: &str, command: &[&str], mut good: impl FnMut(&str) -> bool) {
        let mut last = String::new();
        let seen = poll(async || {
            last = self.on_node(node, command).await;
            good(&last).then_some(())
        })
        .await;
        assert!(seen.is_some(), "{command:?} on {node}: not as expected, but:\n{last}");
    }

    /// The processes of a program on a node: process ids on the node, and `/proc/PID/status`.
    pub fn processes(&self, node: &str, program: &str) -> Vec<(String, String)> {
        let node = self.sandbox.machine(node).expect("a node of the sandbox");
        let entries = std::fs::read_dir(node.inside("/proc")).expect("/proc of the node");
        let folders = entries.flatten().map(|entry| entry.path());
        // A process may end meanwhile.
        let of_program = folders
            .filter(|folder| std::fs::read_link(folder.join("exe")).is_ok_and(|exe| exe.ends_with(program)));
        of_program
            .filter_map(|folder| {
                let status = std::fs::read_to_string(folder.join("status")).ok()?;
                Some((folder.file_name()?.to_str()?.to_owned(), status))
            })
            .collect()
    }

    /// Waits until exactly one process on a node runs this program; a kubelet's restart takes a moment.
    pub async fn process(&self, node: &str, program: &str) -> (String, String) {
        let found = poll(async || {
            let [process] = <[_; 1]>::try_from(self.processes(node, program)).ok()?;
            Some(process)
        });
        found.await.unwrap_or_else(|| panic!("{program} on {node}: {:?}", self.processes(node, program)))
    }

    /// Sets or removes a label of a pod.
    pub async fn label(&self, namespace: &str, pod: &str, key: &str, value: Option<&str>) {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { key: value } } }));
        let patched = self.pods(namespace).patch(pod, &PatchParams::default(), &patch).await;
        patched.unwrap_or_else(|error| panic!("labelling {namespace}/{pod}: {error}"));
    }

    /// Waits until `good` accepts the interfaces of a pod's PodNetwork.
    pub async fn pod_network(
        &self,
        namespace: &str,
        pod: &str,
        good: impl Fn(&[PodInterface]) -> bool,
    ) -> Vec<PodInterface> {
        let resource = ApiResource::erase::<PodNetwork>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.sandbox.client(), namespace, &resource);
        let config = watcher::Config::default().fields(&format!("metadata.name={pod}"));
        let read = |object: &DynamicObject| {
            let status = object.data.get("status").cloned().unwrap_or_default();
            serde_json::from_value::<PodNetworkStatus>(status)
                .map(|status| status.interfaces)
                .unwrap_or_default()
        };
        let what = format!("PodNetwork {namespace}/{pod}");
        let found =
            self.until(api, config, &what, |all| all.values().any(|object| good(&read(object)))).await;
        found.values().next().map(read).unwrap_or_default()
    }

    /// The interfaces of a pod with their `ip addr` text, by name; busybox's `ip` has no JSON output.
    pub async fn interfaces(&self, namespace: &str, pod: &str) -> BTreeMap<String, String> {
        let text = self.exec(namespace, pod, &["ip", "addr"]).await.unwrap_or_default();
        let mut interfaces = BTreeMap::new();
        let mut name = String::new();
        for line in text.lines() {
            if !line.starts_with(' ') {
                let full = line.split(": ").nth(1).unwrap_or_default();
                full.split('@').next().unwrap_or_default().clone_into(&mut name);
            }
            let text: &mut String = interfaces.entry(name.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
        interfaces
    }

    /// Runs a program in the namespaces of a node and returns its output.
    pub async fn on_node(&self, node: &str, command: &[&str]) -> String {
        let node = self.sandbox.node(node).expect("a node of the sandbox");
        let pid = node.pid.to_string();
        let output = tokio::process::Command::new("nsenter")
            .args(["-t", &pid, "-m", "-p", "-n", "--"])
            .args(command)
            .output()
            .await
            .expect("nsenter");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The node of a pod, and the name of the pod's network namespace there.
    pub async fn network_namespace(&self, pod: &Pod) -> (String, String) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).expect("a node");
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).expect("an address");
        for line in self.on_node(&node, &["ip", "netns"]).await.lines() {
            let name = line.split(' ').next().unwrap_or_default();
            if self.on_node(&node, &["ip", "-n", name, "-br", "addr"]).await.contains(&format!(" {ip}/")) {
                return (node, name.to_owned());
            }
        }
        panic!("no network namespace with {ip} on {node}");
    }

    /// Runs a command line on a machine of the sandbox, which may be the gateway of a PhysicalNetwork.
    pub async fn on_machine(&self, machine: &str, line: &str) {
        let mut words = line.split_whitespace();
        let program = words.next().expect("a program");
        let machine = self.sandbox.machine(machine).expect("a machine of the sandbox");
        let mut command = tokio::process::Command::from(machine.command(program));
        let output = command.args(words).output().await.expect("a program on the machine");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Two nodes, one on each of two leaves.
pub fn two_nodes(options: &mut SandboxOptions) {
    nodes(options, 2);
}

/// This number of nodes, spread over two leaves.
pub fn nodes(options: &mut SandboxOptions, count: usize) {
    options.topology = topology(count);
    options.nodes = count;
}

fn is_running(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod
            .status
            .as_ref()
            .is_some_and(|status| status.container_statuses.iter().flatten().any(|container| container.ready))
}

/// A Deployment of the sandbox's test image whose pods are on different nodes, with these labels.
pub fn deployment(namespace: &str, name: &str, replicas: u32, labels: &Value) -> String {
    let mut deployment = daemon_set_object(namespace, name, labels);
    deployment["kind"] = json!("Deployment");
    deployment["spec"]["replicas"] = json!(replicas);
    deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": name } },
    }]);
    deployment.to_string()
}

/// A DaemonSet of the sandbox's test image, whose pods have these labels.
pub fn daemon_set(namespace: &str, name: &str, labels: &Value) -> String {
    daemon_set_object(namespace, name, labels).to_string()
}

fn daemon_set_object(namespace: &str, name: &str, labels: &Value) -> Value {
    let mut all = json!({ "app": name });
    if let (Some(all), Some(labels)) = (all.as_object_mut(), labels.as_object()) {
        all.extend(labels.clone());
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": all },
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "cnf",
                        "image": eno_lab::sandbox::TEST_IMAGE,
                        "command": ["sleep", "1000000"],
                        // The Pod Security Standard `restricted`.
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "runAsNonRoot": true,
                            "runAsUser": 65532,
                            "capabilities": { "drop": ["ALL"] },
                            "seccompProfile": { "type": "RuntimeDefault" },
                        },
                    }],
                },
            },
        },
    })
}
