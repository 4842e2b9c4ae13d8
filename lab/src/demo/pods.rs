//! Pods on real nodes: labels add networks to running pods, which then reach each other, the gateway and a host behind
//! a VRF, and remove them again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::objects::{Follower, State, is_of_api_group};
use super::{Demo, LIMIT, MANAGER, screen};
use crate::manifests;
use crate::sandbox::ExecOutput;
use eno::apply::{api_of, apply_all};

/// Namespace and label selector of the example's pods.
const NAMESPACE: &str = "shop";
const SELECTOR: &str = "app=backend";
/// The labels that request the networks, and the names of their interfaces.
const LABELS: [(&str, &str); 2] =
    [("attach.eno.k8s.io/backend", INTERFACE), ("attach.eno.k8s.io/outside", "net2")];
/// The interface by which the pods reach each other.
const INTERFACE: &str = "net1";
/// The address of the gateway behind the fabric.
const GATEWAY_ADDRESS: &str = "10.30.0.1";
/// The host that the simulator puts behind each VRF.
const OUTSIDE: &str = "198.51.100.1";

const POLL: Duration = Duration::from_millis(100);

impl Demo<'_> {
    /// Whether the sandbox has nodes for this.
    pub fn has_nodes(&self) -> bool {
        !self.sandbox.nodes().is_empty()
    }

    /// Runs the example's pods, adds and removes the network, and shows a ping each time.
    pub async fn pods(&self) -> anyhow::Result<()> {
        let objects = [manifests::demo_pods()?, manifests::demo_gateway()?].concat();
        let (network, pods): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_of_api_group);

        self.screen.title(
            "Running examples/pods and examples/gateway: a Deployment, with a pod on each of the nodes",
        );
        for object in &pods {
            apply_all(&self.client, MANAGER, std::slice::from_ref(object)).await?;
        }
        let names = self.running_pods().await?;
        let [first, second] = names.as_slice() else { bail!("there are {} pods, not 2", names.len()) };
        self.screen.title("Before: the pods have no way to the gateway, and none to the outside");
        self.unreachable(first, GATEWAY_ADDRESS).await?;
        self.unreachable(second, OUTSIDE).await?;

        self.screen.title("Applying the networks; the running pods ask for them by labels");
        self.label(&names, true).await?;
        let started = Instant::now();
        let mut follower = Follower::new(&self.client, &network)?;
        let applying = async {
            for object in &network {
                apply_all(&self.client, MANAGER, std::slice::from_ref(object)).await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        let ready = |states: &BTreeMap<String, State>| states.values().all(|state| state.phase() == "ready");
        let (applied, followed) = tokio::join!(applying, self.follow(&mut follower, started, "ready", ready));
        applied?;
        followed?;
        let other = self.address(second).await?;
        self.screen.title(
            "With them: from pod to pod through both leaves, to the gateway, and to a host behind the VRF",
        );
        self.reachable(first, &other).await?;
        self.reachable(second, GATEWAY_ADDRESS).await?;
        self.reachable(first, OUTSIDE).await?;

        self.screen.title("Taking the networks away; the pods run on");
        self.label(&names, false).await?;
        let started = Instant::now();
        let mut follower = Follower::new(&self.client, &network)?;
        follower.sync().await?;
        let gone = |states: &BTreeMap<String, State>| states.values().all(|state| *state == State::Gone);
        let deleting = try_join_all(network.iter().map(|object| self.delete_object(object)));
        let (deleted, followed) = tokio::join!(deleting, self.follow(&mut follower, started, "gone", gone));
        deleted?;
        followed?;
        self.screen.title("After: as before");
        self.unreachable(first, &other).await?;
        self.unreachable(second, GATEWAY_ADDRESS).await?;
        self.unreachable(first, OUTSIDE).await?;
        let still = self.running_pods().await?;
        ensure!(still == names, "the pods are not those that there were: {still:?}, not {names:?}");
        for object in pods.iter().rev() {
            self.delete_object(object).await?;
        }
        Ok(())
    }

    /// Waits until both pods of the example run, and returns their names.
    async fn running_pods(&self) -> anyhow::Result<Vec<String>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let waiting = async {
            loop {
                let pods = api.list(&ListParams::default().labels(SELECTOR)).await?.items;
                let ready = |pod: &&Pod| {
                    let statuses =
                        pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
                    statuses.into_iter().any(|container| container.ready)
                };
                let mut names: Vec<_> = pods.iter().filter(ready).map(ResourceExt::name_any).collect();
                if names.len() == 2 && pods.len() == 2 {
                    names.sort();
                    return Ok::<_, kube::Error>((names, pods));
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let waited = tokio::time::timeout(LIMIT, waiting).await;
        let (names, pods) = waited.context("the pods do not run")?.context("listing pods")?;
        for pod in pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            screen::line(&format!("pod {} runs on {node}", pod.name_any()));
        }
        Ok(names)
    }

    /// Sets or removes the labels of running pods.
    async fn label(&self, pods: &[String], attached: bool) -> anyhow::Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let labels: BTreeMap<_, _> =
            LABELS.iter().map(|(label, interface)| (label, attached.then_some(interface))).collect();
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let params = PatchParams::default();
        try_join_all(pods.iter().map(|pod| api.patch(pod, &params, &patch)))
            .await
            .context("labelling the pods")?;
        Ok(())
    }

    /// The address of a pod on the network, without prefix length.
    async fn address(&self, pod: &str) -> anyhow::Result<String> {
        let shown = self.in_pod(pod, &["ip", "-4", "-o", "addr", "show", INTERFACE]).await?;
        let mut words = shown.stdout.split_whitespace().skip_while(|word| *word != "inet");
        let address = words.nth(1).and_then(|word| word.split('/').next());
        address.map(str::to_owned).with_context(|| format!("pod {pod} has no address on {INTERFACE}"))
    }

    async fn in_pod(&self, pod: &str, command: &[&str]) -> anyhow::Result<ExecOutput> {
        Ok(self.sandbox.exec(NAMESPACE, pod, command).await?)
    }

    async fn ping(&self, pod: &str, address: &str) -> anyhow::Result<ExecOutput> {
        self.in_pod(pod, &["ping", "-c", "1", "-W", "1", address]).await
    }

    /// Pings until an answer comes: switches learn new addresses a moment later.
    async fn reachable(&self, pod: &str, address: &str) -> anyhow::Result<()> {
        let pinging = async {
            loop {
                let output = self.ping(pod, address).await?;
                if output.success() {
                    return Ok::<_, anyhow::Error>(output);
                }
            }
        };
        let output = tokio::time::timeout(LIMIT, pinging).await;
        let output = output.with_context(|| format!("pod {pod} does not reach {address}"))??;
        let answer = output.stdout.lines().find(|line| line.contains("bytes from")).unwrap_or_default();
        screen::line(&format!("pod {pod}: ping {address}: {answer}"));
        Ok(())
    }

    async fn unreachable(&self, pod: &str, address: &str) -> anyhow::Result<()> {
        let output = self.ping(pod, address).await?;
        ensure!(!output.success(), "pod {pod} reaches {address}, which it should not");
        let mut output_lines = output.stdout.lines().chain(output.stderr.lines());
        let why = output_lines.rfind(|line| line.contains("loss") || line.starts_with("ping:"));
        screen::line(&format!("pod {pod}: ping {address}: {}", why.unwrap_or("no answer")));
        Ok(())
    }

    async fn delete_object(&self, object: &DynamicObject) -> anyhow::Result<()> {
        let name = object.name_any();
        match api_of(&self.client, object)?.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map(drop).with_context(|| format!("deleting {name}")),
        }
    }
}
