//! The whole operator on one machine: a real control plane, a simulated fabric, the engine and its drivers. As root, it
//! can also have nodes that run pods and are cabled to the fabric. On request, Keystone and Neutron run too, with the
//! trunks of VMs.
//!
//! Everything is a child process, with the environment, identity and permissions that `deploy/` gives it in a cluster.
//! [`Sandbox::start`] returns once every simulated switch is ready. A dropped sandbox kills its children. The same
//! directory restores the same cluster, with its data and switches.

mod admission;
mod agent_pods;
mod agent_tokens;
mod children;
mod error;
mod exec;
mod fabric;
mod in_cluster;
mod nodes;
mod openstack;
mod options;
mod process_control;
mod restarts;
mod simulator;
mod state;
mod wait;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use eno_control_plane::node::Machine;
use eno_control_plane::{ControlPlane, ControlPlaneOptions, Exited, NatsUser, Nodes, pick_port};
use eno_parts::Part;
use eno_simulator::SwitchInfo;
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use tokio_util::task::AbortOnDropHandle;

use crate::manifests;
use children::Child;
use eno::apply::{self, ApplyError, apply_all};
use nodes::NodeProcess;
use openstack::Hypervisor;
use restarts::Restarts;
use wait::Deadline;

pub use error::SandboxError;
pub use exec::ExecOutput;
pub use fabric::POOL;
pub use nodes::{NodeInfo, TEST_IMAGE};
pub use openstack::{Cloud, Vm};
pub use options::{AgentMode, InCluster, OperatorImages, ProcessOverrides, SandboxOptions, topology};
pub use process_control::StoppedPart;
pub use state::{OpenStackInfo, ProcessInfo, SandboxInfo};

/// The field manager of the sandbox's own objects.
pub const MANAGER: &str = "eno-sandbox";

/// The Lease of the engines' leader election.
const LEASE: &str = "eno-engine";

/// A running sandbox.
pub struct Sandbox {
    /// The control plane, NATS and the nodes.
    control_plane: ControlPlane,
    /// A client with all permissions.
    client: Client,
    /// A client of probes, metrics and the switches' control API.
    http: reqwest::Client,
    /// The simulated switches.
    switches: Vec<SwitchInfo>,
    /// Keystone and Neutron, if they run.
    cloud: Option<Box<Cloud>>,
    /// The bridge between the VMs that run pods.
    hypervisor: Option<Arc<Hypervisor>>,
    /// The task in which the bridge follows Neutron.
    following: Option<AbortOnDropHandle<()>>,
    /// The options of the start.
    options: SandboxOptions,
    /// The operator's processes.
    children: Mutex<Vec<Child>>,
    /// The task that binds the admission policy.
    admission: tokio::sync::Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Sandbox {
    /// Starts everything and waits until every switch is ready; without an engine, until everything is applied.
    pub async fn start(mut options: SandboxOptions) -> Result<Self, SandboxError> {
        openstack::adapt(&mut options)?;
        let started = Instant::now();
        let report = Arc::clone(&options.report);
        let step = |what: &str| report(&format!("{what} ({:.1} s)", started.elapsed().as_secs_f64()));

        let mut control_plane = ControlPlaneOptions {
            audit: options.audit,
            ..ControlPlaneOptions::new(&options.dir, options.parts.clone())
        };
        if let Some(nodes) = nodes::options(&options).await? {
            control_plane = control_plane.with_nodes(nodes);
        }
        let since = unix_time();
        // Boxed to keep the callers' futures small.
        let control_plane = Box::pin(ControlPlane::start(control_plane)).await?;
        let client = control_plane.client().await?;
        step(&format!("control plane at {}", control_plane.server()));

        let sandbox = Self {
            http: reqwest::Client::new(),
            switches: Vec::new(),
            cloud: None,
            hypervisor: None,
            following: None,
            children: Mutex::default(),
            admission: tokio::sync::Mutex::default(),
            control_plane,
            client,
            options,
        };
        // The sandbox outlives the select, so that its children's logs can be shown.
        let deadline = Deadline::after(sandbox.options.ready_timeout);
        let supervisor = sandbox.control_plane.supervisor();
        let result = tokio::select! {
            result = Box::pin(sandbox.bring_up(deadline, since, &step)) => result,
            exited = supervisor.exited() => Err(SandboxError::Ended(exited)),
        };
        match result {
            Ok((switches, cloud, hypervisor)) => {
                let follow = |hypervisor: &Arc<Hypervisor>| {
                    let report = Arc::clone(&sandbox.options.report);
                    AbortOnDropHandle::new(tokio::spawn(Arc::clone(hypervisor).follow(report)))
                };
                let following = hypervisor.as_ref().map(follow);
                let sandbox = Self { switches, cloud, hypervisor, following, ..sandbox };
                state::write(&sandbox.info(), sandbox.dir())?;
                Ok(sandbox)
            }
            Err(error) => {
                sandbox.stop().await;
                Err(error)
            }
        }
    }

    /// Waits until the admission policy sets finalizers, some seconds after readiness.
    pub async fn admission_bound(&self) {
        if let Some(task) = self.admission.lock().await.take() {
            // A failed task has reported its error.
            let _ = task.await;
        }
    }

    /// Starts the fabric, the cluster's objects and the operator, in parallel where possible.
    async fn bring_up(
        &self,
        deadline: Deadline,
        since: i64,
        step: &impl Fn(&str),
    ) -> Result<(Vec<SwitchInfo>, Option<Box<Cloud>>, Option<Arc<Hypervisor>>), SandboxError> {
        let fabric = async {
            let switches = simulator::start(self, deadline).await?;
            step(&format!("{} simulated switches", switches.len()));
            Ok(switches)
        };
        let cluster = async {
            if self.options.in_cluster.is_some() {
                apply_all(&self.client, MANAGER, &manifests::nad_crd()?).await?;
                tokio::try_join!(self.apply_nodes(), in_cluster::prepare(self))?;
                step("name service and volumes applied");
                return Ok(());
            }
            self.prepare_cluster(deadline).await?;
            step("manifests of the operator applied");
            self.start_operator().await
        };
        let cloud = async {
            if !self.options.openstack {
                return Ok(None);
            }
            let cloud = Box::new(Cloud::start(&self.options).await?);
            step(&format!("OpenStack at {}", cloud.server().auth_url()));
            Ok(Some(cloud))
        };
        let nodes = self.await_nodes(deadline, since, step);
        let (switches, (), (), cloud) = tokio::try_join!(fabric, cluster, nodes, Box::pin(cloud))?;
        let mut deadline = deadline;
        let mut hypervisor = None;
        if let Some(cloud) = &cloud {
            // The first start of OpenStack downloads it.
            deadline = Deadline::after(self.options.ready_timeout);
            if let Some(nodes) = self.control_plane.nodes() {
                hypervisor = Some(Box::pin(Hypervisor::start(nodes, cloud)).await?);
                step("NICs of VMs connected");
            }
        }
        if self.options.in_cluster.is_some() {
            if !self.options.engine {
                return Ok((switches, cloud, hypervisor));
            }
            Box::pin(in_cluster::install_operator(self)).await?;
        }
        let (devices, ()) = tokio::try_join!(
            self.apply_fabric(&switches, cloud.as_deref()),
            self.wait_until_healthy(deadline)
        )?;
        if self.options.has_agents() {
            nodes::start_operator(self, since, deadline).await?;
        }
        step("FabricDevices applied, the operator is up");
        if self.options.engine {
            // A new engine has read nothing yet, and the statuses may be from an earlier run.
            if let Ok(engine) = self.child(eno_parts::ENGINE.name) {
                let url = format!("{}/metrics", engine.url());
                wait::http(&self.http, "an engine in step with the cluster", &url, deadline, is_synced)
                    .await?;
            }
            wait::devices_ready(&self.client, &devices, deadline).await?;
            step("FabricDevices ready");
        }
        if self.options.nodes > 0 {
            simulator::data_plane_ready(self, &switches, deadline).await?;
            step("the fabric forwards");
        }
        Ok((switches, cloud, hypervisor))
    }

    /// Applies the fabric of a sandbox that began without an operator, after another one was installed, and waits until
    /// it forwards.
    pub async fn connect_fabric(&self) -> Result<(), SandboxError> {
        let deadline = Deadline::after(self.options.ready_timeout);
        let devices = self.apply_fabric(&self.switches, self.cloud.as_deref()).await?;
        wait::devices_ready(&self.client, &devices, deadline).await?;
        simulator::data_plane_ready(self, &self.switches, deadline).await
    }

    async fn await_nodes(
        &self,
        deadline: Deadline,
        since: i64,
        step: &impl Fn(&str),
    ) -> Result<(), SandboxError> {
        let nodes = self.nodes();
        if nodes.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = nodes.into_iter().map(|node| node.name).collect();
        wait::nodes_ready(&self.client, &names, since, deadline).await?;
        step(&format!("{} nodes ready", names.len()));
        Ok(())
    }

    /// Applies what `kubectl apply -k deploy/` and its companions apply, without the Deployments.
    async fn prepare_cluster(&self, deadline: Deadline) -> Result<(), SandboxError> {
        let crds = manifests::crds()?;
        let definitions = async {
            apply_all(&self.client, MANAGER, &crds).await?;
            let what = "established CustomResourceDefinitions";
            deadline.wait(what, wait::crds_established(&self.client, &crds)).await
        };
        let rbac_and_policies = async {
            apply_all(&self.client, MANAGER, &manifests::namespace()?).await?;
            apply_all(&self.client, MANAGER, &manifests::roles()?).await?;
            apply_all(&self.client, MANAGER, &manifests::policies()?).await?;
            Ok(())
        };
        let unbound = admission::unbind(&self.client);
        tokio::try_join!(definitions, rbac_and_policies, self.apply_nodes(), self.release_lease(), unbound)?;
        let task = tokio::spawn(admission::bind_in_background(
            self.client.clone(),
            Arc::clone(&self.options.report),
        ));
        *self.admission.lock().await = Some(AbortOnDropHandle::new(task));
        Ok(())
    }

    /// Releases the Lease, which a killed engine of an earlier run would hold until it expires. No engine runs yet.
    async fn release_lease(&self) -> Result<(), SandboxError> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), manifests::NAMESPACE);
        let nobody = serde_json::json!({"spec": {"holderIdentity": null, "leaseDurationSeconds": 1}});
        match leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(nobody)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => {
                result.map(drop).map_err(SandboxError::kubernetes(format!("freeing the Lease {LEASE}")))
            }
        }
    }

    async fn apply_nodes(&self) -> Result<(), SandboxError> {
        let real = self.nodes();
        let machines = self.options.topology.nodes.iter().map(|machine| machine.name.as_str());
        let nodes = match real.len() {
            0 => {
                let vms = openstack::nodes_without_machine(&self.options);
                [fabric::nodes(machines), fabric::vms(vms.iter().copied())].concat()
            }
            _ => fabric::nodes(real.iter().map(|node| node.name.as_str())),
        };
        let objects = nodes.iter().map(apply::dynamic).collect::<Result<Vec<_>, _>>()?;
        apply_all(&self.client, MANAGER, &objects).await?;
        let api: Api<Node> = Api::all(self.client.clone());
        if !real.is_empty() {
            // Nodes of an earlier run with other nodes.
            let existing = api.list_metadata(&ListParams::default()).await;
            let existing = existing.map_err(SandboxError::kubernetes("listing nodes"))?;
            for name in existing.iter().map(ResourceExt::name_any) {
                if !real.iter().any(|node| node.name == name) {
                    let deleted = api.delete(&name, &DeleteParams::default()).await;
                    deleted.map_err(SandboxError::kubernetes(format!("deleting node {name}")))?;
                }
            }
            return Ok(());
        }
        try_join_all(nodes.iter().map(|node| async {
            let name = node.name_any();
            let params = PatchParams::apply(MANAGER).force();
            api.patch_status(&name, &params, &Patch::Apply(fabric::ready_node(&name)))
                .await
                .map_err(SandboxError::kubernetes(format!("setting the status of node {name}")))
        }))
        .await?;
        Ok(())
    }

    /// Applies the fabric's objects, and returns the stored FabricDevices.
    async fn apply_fabric(
        &self,
        switches: &[SwitchInfo],
        cloud: Option<&Cloud>,
    ) -> Result<Vec<DynamicObject>, SandboxError> {
        let secrets = switches.iter().map(|switch| apply::dynamic(&fabric::secret(switch)));
        let secrets = secrets.collect::<Result<Vec<_>, ApplyError>>()?;
        let topology = &self.options.topology;
        let networks =
            fabric::networks(topology).iter().map(apply::dynamic).collect::<Result<Vec<_>, _>>()?;
        let of_cloud = cloud.map(Cloud::objects).transpose()?.unwrap_or_default();
        apply_all(&self.client, MANAGER, &[secrets, networks, of_cloud].concat()).await?;
        let devices = switches.iter().map(|switch| fabric::device(topology, switch));
        let devices = devices.chain(cloud.map(Cloud::device)).map(|device| apply::dynamic(&device));
        let devices = devices.collect::<Result<Vec<_>, ApplyError>>()?;
        Ok(apply_all(&self.client, MANAGER, &devices).await?)
    }

    async fn start_operator(&self) -> Result<(), SandboxError> {
        for part in self.options.processes() {
            self.add(part, part.name).await?;
        }
        Ok(())
    }

    async fn wait_until_healthy(&self, deadline: Deadline) -> Result<(), SandboxError> {
        let children = self.children().clone();
        try_join_all(children.iter().map(|child| self.wait_ready(child, deadline))).await?;
        Ok(())
    }

    async fn wait_ready(&self, child: &Child, deadline: Deadline) -> Result<(), SandboxError> {
        let what = format!("the readiness of {}", child.name);
        wait::http(&self.http, &what, &format!("{}/readyz", child.url()), deadline, |_| true).await
    }

    /// Starts another process of a part, such as a standby engine, without waiting for its readiness.
    pub async fn add(&self, part: &'static Part, name: &str) -> Result<(), SandboxError> {
        self.add_with(part, name, ProcessOverrides::default()).await
    }

    /// Like [`Self::add`], with other endpoints than the default ones.
    pub async fn add_with(
        &self,
        part: &'static Part,
        name: &str,
        overrides: ProcessOverrides,
    ) -> Result<(), SandboxError> {
        let kubeconfig = match overrides.kubeconfig {
            Some(kubeconfig) => kubeconfig,
            None => self.control_plane.kubeconfig_for(&part.account.user(), None)?,
        };
        let port = pick_port().map_err(SandboxError::Port)?;
        let child = Child {
            part,
            name: name.to_owned(),
            listen: format!("127.0.0.1:{port}"),
            kubeconfig,
            nats_url: overrides.nats_url,
            cluster_id: (!overrides.no_cluster_id).then(|| self.options.cluster_id.clone()),
            arguments: [self.options.arguments(part), overrides.arguments].concat(),
        };
        self.spawn(&child).await?;
        self.children().push(child);
        Ok(())
    }

    /// Restarts a stopped process with the same arguments, and waits until it is ready.
    pub async fn start_child(&self, name: &str) -> Result<(), SandboxError> {
        if name == simulator::NAME {
            return simulator::spawn(self).await;
        }
        let deadline = Deadline::after(self.options.ready_timeout);
        if let Some((machine, what)) = nodes::find(self, name) {
            return nodes::start(self, machine, what, deadline).await;
        }
        let child = self.child(name)?;
        self.spawn(&child).await?;
        self.wait_ready(&child, deadline).await
    }

    /// Stops a process with SIGTERM, like a cluster.
    pub async fn stop_child(&self, name: &str) -> Result<(), SandboxError> {
        Ok(self.control_plane.supervisor().stop_child(name).await?)
    }

    /// Kills a process with SIGKILL, like a crash.
    pub async fn kill_child(&self, name: &str) -> Result<(), SandboxError> {
        Ok(self.control_plane.supervisor().kill_child(name).await?)
    }

    /// Restarts processes that exit, and reports each exit. Returns when a restart fails.
    pub async fn supervise(&self) -> Exited {
        let supervisor = self.control_plane.supervisor();
        let mut restarts = Restarts::default();
        loop {
            let exited = tokio::select! {
                exited = self.exited() => {
                    let ended = format!("{exited}\nrestarting {}", exited.name);
                    let delay = restarts.add(exited, tokio::time::Instant::now());
                    (self.options.report)(&format!("{ended} in {:.1} s", delay.as_secs_f64()));
                    continue;
                }
                exited = restarts.next() => exited,
            };
            let name = exited.name.clone();
            if let Some(cloud) = &self.cloud
                && let Some(restarted) = cloud.respawn(&exited).await
            {
                if let Err(error) = restarted {
                    return Exited { name, status: error.to_string(), log_tail: exited.log_tail };
                }
                continue;
            }
            let machine = |name: &str| self.control_plane.nodes().and_then(|nodes| nodes.machine(name));
            let restarted = match nodes::find(self, &name) {
                // The process is restarted with its machine.
                Some((on, _)) if machine(on).is_some_and(|machine| !machine.is_up()) => Ok(()),
                _ if supervisor.pid(&name).is_some() => Ok(()),
                Some((on, what @ NodeProcess::Service(_))) => {
                    let deadline = Deadline::after(self.options.ready_timeout);
                    nodes::start(self, on, what, deadline).await
                }
                None if machine(&name).is_some() => self.restart_machine(&name).await,
                None if name == simulator::NAME => simulator::spawn(self).await,
                // The process may exit again, so nothing waits for its readiness.
                _ => supervisor.respawn(&name).await.map_err(SandboxError::from),
            };
            if let Err(error) = restarted {
                return Exited { name, status: error.to_string(), log_tail: exited.log_tail };
            }
        }
    }

    /// Waits for the next process that exits unexpectedly.
    async fn exited(&self) -> Exited {
        let of_cloud = async {
            match &self.cloud {
                Some(cloud) => cloud.server().exited().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            exited = self.control_plane.supervisor().exited() => exited,
            exited = of_cloud => exited,
        }
    }

    /// Recreates an ended machine with its processes, and cables it to the fabric.
    async fn restart_machine(&self, name: &str) -> Result<(), SandboxError> {
        self.control_plane.restart_machine(name).await?;
        if let Some(hypervisor) = &self.hypervisor {
            hypervisor.connect(Some(name)).await?;
        }
        if self.options.has_agent_processes() && self.node(name).is_some() {
            let deadline = Deadline::after(self.options.ready_timeout);
            for what in NodeProcess::OPERATOR {
                nodes::start(self, name, what, deadline).await?;
            }
        }
        // The simulator gets its cables as arguments. An error means that it has ended already.
        let _ = self.stop_child(simulator::NAME).await;
        simulator::spawn(self).await?;
        state::write(&self.info(), self.dir())
    }

    /// Stops everything in order, and keeps the directory.
    pub async fn stop(mut self) {
        drop(self.following.take());
        let mut children: Vec<_> = self.children().iter().rev().map(|child| child.name.clone()).collect();
        children.extend(self.control_plane.nodes().into_iter().flat_map(nodes::operator_children));
        // The processes don't need each other to stop. An error means that a process has ended already.
        futures::future::join_all(children.iter().map(|name| self.stop_child(name))).await;
        let _ = self.stop_child(simulator::NAME).await;
        if let Some(cloud) = self.cloud {
            cloud.stop().await;
        }
        self.control_plane.stop().await;
    }

    async fn spawn(&self, child: &Child) -> Result<(), SandboxError> {
        let command = child.command(&self.options, self.control_plane.nats());
        Ok(self.control_plane.supervisor().spawn(&child.name, command).await?)
    }

    fn children(&self) -> MutexGuard<'_, Vec<Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn child(&self, name: &str) -> Result<Child, SandboxError> {
        let found = self.children().iter().find(|child| child.name == name).cloned();
        found.ok_or_else(|| SandboxError::NoSuchChild(name.to_owned()))
    }
}

/// Seconds since 1970, the resolution of Kubernetes' timestamps.
fn unix_time() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Whether the engine leads and has seen all objects, according to its metrics.
fn is_synced(metrics: &str) -> bool {
    metrics
        .lines()
        .filter_map(|line| line.strip_prefix("eno_engine_synced_timestamp_seconds "))
        .any(|value| value.trim() != "0")
}

/// Access to a running sandbox for tests and tools.
impl Sandbox {
    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.control_plane.dir()
    }

    /// A client with all permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client of a user, and optionally its group.
    pub async fn client_for(&self, user: &str, group: Option<&str>) -> Result<Client, SandboxError> {
        Ok(self.control_plane.client_for(user, group).await?)
    }

    /// The control plane, for everything not offered here.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The simulated switches.
    pub fn switches(&self) -> &[SwitchInfo] {
        &self.switches
    }

    /// The control URL and login of a simulated switch.
    pub fn switch(&self, name: &str) -> Option<&SwitchInfo> {
        self.switches.iter().find(|switch| switch.name == name)
    }

    /// The base URL of a process's `/metrics`, `/healthz` and `/readyz`.
    pub fn url(&self, child: &str) -> Option<String> {
        let nodes = self.control_plane.nodes();
        let agent = || {
            let (machine, what) = nodes::find(self, child)?;
            (what == NodeProcess::Agent).then(|| nodes?.get(machine).map(nodes::agent_url)).flatten()
        };
        self.children().iter().find(|known| known.name == child).map(Child::url).or_else(agent)
    }

    /// The nodes that run pods.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.control_plane.nodes().into_iter().flat_map(Nodes::all).map(NodeInfo::from).collect()
    }

    /// A node that runs pods.
    pub fn node(&self, name: &str) -> Option<NodeInfo> {
        self.control_plane.nodes()?.get(name).map(NodeInfo::from)
    }

    /// The machine of a node, or of the gateway of a PhysicalNetwork, to run programs on it.
    pub fn machine(&self, name: &str) -> Option<&Machine> {
        self.control_plane.nodes()?.machine(name)
    }

    /// The process id of a running child; on a node, that of the program itself.
    pub fn pid(&self, child: &str) -> Option<u32> {
        let pid = self.control_plane.supervisor().pid(child)?;
        if nodes::find(self, child).is_some() { Machine::program_of(pid) } else { Some(pid) }
    }

    /// Keystone and Neutron, if they run.
    pub fn cloud(&self) -> Option<&Cloud> {
        self.cloud.as_deref()
    }

    /// The values of an operator in pods, as a file for `eno install --values`. With an earlier version, they upgrade it.
    pub fn values(&self) -> String {
        in_cluster::values(self).to_string()
    }

    /// The content of `DIR/sandbox.json`.
    pub fn info(&self) -> SandboxInfo {
        let own = self.children().iter().map(|child| child.name.clone()).collect::<Vec<_>>().into_iter();
        let agents = self.nodes().into_iter().map(|node| NodeProcess::Agent.child(&node.name));
        let agents = agents.filter(|_| self.options.has_agent_processes());
        let processes = own.chain(agents).map(|name| self.process(&name, self.url(&name))).collect();
        SandboxInfo {
            dir: self.dir().to_owned(),
            kubeconfig: self.control_plane.kubeconfig().to_owned(),
            server: self.control_plane.server().to_owned(),
            nats_url: self.control_plane.nats().url.clone(),
            nats_credentials: self.control_plane.nats().seed_of(NatsUser::Inspect),
            contexts: self.options.in_cluster.as_ref().map(|_| self.dir().join(in_cluster::CONTEXTS)),
            fabric: self.dir().join(simulator::FABRIC),
            openstack: self.cloud.as_deref().map(|cloud| OpenStackInfo {
                auth_url: cloud.server().auth_url().to_owned(),
                openrc: cloud.openrc().to_owned(),
            }),
            cluster_id: self.options.cluster_id.clone(),
            processes,
            nodes: self.nodes(),
        }
    }

    fn process(&self, name: &str, url: Option<String>) -> ProcessInfo {
        ProcessInfo {
            name: name.to_owned(),
            pid: self.pid(name),
            metrics: url.map(|url| format!("{url}/metrics")),
            log: self.control_plane.supervisor().log(name),
        }
    }
}
