//! The facts before an installation and of one, and all checks of them.

use std::collections::BTreeSet;

use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_parts::{Workload, WorkloadKind};
use futures::future::join_all;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use super::callbacks;
use super::certificates::{self, CertificateSecret, SecretData};
use super::clocks::{self, NodeLease, ServerTime};
use super::cluster::{self, MultusDaemonSet, NodeFact};
use super::devices::{self, Device};
use super::earlier::{self, Part};
use super::gather::{Gather, NodeLeases, ahead};
use super::gather_nats::{NatsFacts, nats};
use super::kubernetes::{self, NeededApi};
use super::leader::{self, LeaderLease};
use super::objects::{self, ObjectFact};
use super::policies::{self, Policies};
use super::workloads::{self, WorkloadFact};
use super::{Check, Fact, NODE, Name, SYSTEM, Unread, drivers, parts};
use crate::inspect::NatsClientArgs;
use crate::install::requirements::Permission;

/// The facts of the cluster itself, before and after an installation.
struct Cluster {
    version: Fact<String>,
    needed_apis: usize,
    missing_apis: Fact<Vec<NeededApi>>,
    time: Fact<ServerTime>,
    nad: Fact<Option<CustomResourceDefinition>>,
    multus: Fact<Vec<MultusDaemonSet>>,
    nodes: Fact<Vec<NodeFact>>,
    node_leases: Fact<NodeLeases>,
    service_networks: Fact<Vec<IpNet>>,
    denied_networks: Fact<Vec<IpNet>>,
    namespaces: Vec<(&'static str, Fact<Option<Namespace>>)>,
}

impl Cluster {
    /// `objects`: those of an installation.
    async fn gather(
        gather: &Gather,
        version: Fact<String>,
        time: Fact<ServerTime>,
        objects: &[DynamicObject],
    ) -> Self {
        let needed = kubernetes::needed_apis(objects);
        let (missing_apis, nad, multus, nodes, node_leases, service_networks, denied_networks, namespaces) = tokio::join!(
            gather.missing_apis(&needed),
            gather.nad(),
            gather.multus(),
            gather.nodes(),
            gather.node_leases(),
            gather.service_networks(),
            gather.denied_networks(),
            gather.namespaces(),
        );
        Self {
            version,
            needed_apis: needed.len(),
            missing_apis,
            time,
            nad,
            multus,
            nodes,
            node_leases,
            service_networks,
            denied_networks,
            namespaces,
        }
    }

    fn labels(&self) -> Vec<(&'static str, cluster::NamespaceLabels)> {
        let labels = |namespace: &Namespace| namespace.labels().clone();
        let of = |(name, found): &(&'static str, Fact<Option<Namespace>>)| {
            (*name, found.as_ref().map(|found| found.as_ref().map(labels)).map_err(Clone::clone))
        };
        self.namespaces.iter().map(of).collect()
    }

    fn node_clocks(&self) -> Check {
        let (nodes, (read, leases)) = match (&self.nodes, &self.node_leases) {
            (Ok(nodes), Ok(leases)) => (nodes, leases),
            (Err(unread), _) | (_, Err(unread)) => return Check::unread(Name::NodeClocks, "", unread),
        };
        let lease = |node: &NodeFact| NodeLease {
            node: node.name.clone(),
            is_ready: node.is_ready,
            renewed: leases.get(&node.name).copied().flatten(),
        };
        clocks::judge_nodes(&nodes.iter().map(lease).collect::<Vec<_>>(), *read + ahead(&self.time))
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = vec![
            kubernetes::judge_version(&self.version),
            kubernetes::judge_apis(self.needed_apis, &self.missing_apis),
            cluster::judge_nad(&self.nad),
            cluster::judge_multus(&self.multus),
            cluster::judge_nodes(&self.nodes),
            callbacks::judge(&self.nodes, &self.service_networks, &self.denied_networks),
            clocks::judge_server(&self.time),
            self.node_clocks(),
        ];
        checks.extend(cluster::judge_pod_security(&self.labels()));
        checks
    }
}

/// The facts before an installation.
pub(crate) struct Pre {
    cluster: Cluster,
    missing_permissions: Fact<Vec<Permission>>,
    storage: Fact<Vec<StorageClass>>,
    policies: Fact<Policies>,
    earlier: Fact<Vec<Part>>,
}

impl Pre {
    /// Reads them. `objects`: those of the installation.
    pub(crate) async fn gather(gather: &Gather, version: Fact<String>, objects: &[DynamicObject]) -> Self {
        let time = gather.server_time().await;
        let (cluster, missing_permissions, storage, policies, earlier) = tokio::join!(
            Box::pin(Cluster::gather(gather, version, time, objects)),
            gather.missing_permissions(objects),
            gather.storage_classes(),
            Box::pin(gather.policies_and_webhooks()),
            Box::pin(gather.earlier()),
        );
        Self { cluster, missing_permissions, storage, policies, earlier }
    }

    /// Judges them. `storage_class`: the class for NATS; `None`: the default one.
    pub(crate) fn checks(&self, storage_class: Option<&str>) -> Vec<Check> {
        let mut checks = self.cluster.checks();
        checks.extend([
            kubernetes::judge_permissions(&self.missing_permissions),
            cluster::judge_storage(&self.storage, storage_class),
            policies::judge_others(&self.policies, &self.namespaces()),
            earlier::judge(&self.earlier),
        ]);
        checks
    }

    /// The labels of the operator's namespaces: as they are, else as an installation makes them.
    fn namespaces(&self) -> policies::Namespaces {
        let labels = self.cluster.labels();
        let found = labels.into_iter().map(|(name, labels)| {
            let planned = || {
                let own = [("kubernetes.io/metadata.name", name), ("app.kubernetes.io/part-of", "eno")];
                own.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
            };
            (name, labels.ok().flatten().unwrap_or_else(planned))
        });
        // No pod runs in the namespace of the devices.
        found.filter(|(name, _)| [SYSTEM, NODE].contains(name)).collect()
    }
}

/// The facts of an installation.
pub(crate) struct Installed {
    /// When the reading began, by the API server's clock.
    at: Timestamp,
    cluster: Cluster,
    definitions: Fact<Vec<CustomResourceDefinition>>,
    policies: Fact<Policies>,
    workloads: Vec<(&'static Workload, Fact<Option<WorkloadFact>>)>,
    leader: Fact<Option<(LeaderLease, Option<String>)>>,
    certificates: Vec<(CertificateSecret, SecretData)>,
    world: Fact<ClusterState>,
    nats: NatsFacts,
}

impl Installed {
    /// Reads them. `objects`: those of the installation; `messages`: how NATS is reached.
    pub(crate) async fn gather(
        gather: &Gather,
        version: Fact<String>,
        objects: &[DynamicObject],
        messages: &NatsClientArgs,
    ) -> Self {
        let time = gather.server_time().await;
        let ahead = ahead(&time);
        let at = Timestamp::now() + ahead;
        let workloads = eno_parts::workloads()
            .map(async |workload| (workload, Box::pin(gather.workload(workload)).await));
        let (cluster, definitions, policies, workloads, leader, certificates, world, nats) = tokio::join!(
            Box::pin(Cluster::gather(gather, version, time, objects)),
            gather.definitions(),
            Box::pin(gather.policies()),
            join_all(workloads),
            gather.leader(ahead),
            gather.certificates(),
            gather.world(),
            Box::pin(nats(gather, messages)),
        );
        Self { at, cluster, definitions, policies, workloads, leader, certificates, world, nats }
    }

    /// Judges them.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let lease = self.leader.as_ref().map(|found| found.as_ref().map(|(lease, _)| lease.clone()));
        let lease = lease.map_err(Clone::clone);
        let cluster_id = self.leader.as_ref().ok().and_then(Option::as_ref).and_then(|(_, id)| id.as_deref());
        let phase = |(name, found): &(&'static str, Fact<Option<Namespace>>)| {
            let phase = |namespace: &Namespace| {
                namespace.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
            };
            (*name, found.as_ref().map(|found| found.as_ref().map(phase)).map_err(Clone::clone))
        };
        let phases: Vec<_> = self.cluster.namespaces.iter().map(phase).collect();
        let mut checks = self.cluster.checks();
        let namespaces = cluster::judge_namespaces(&phases);
        // Each further check would say the same.
        if phases.iter().all(|(_, phase)| matches!(phase, Ok(None))) {
            checks.push(namespaces);
            return checks;
        }
        checks.extend([
            namespaces,
            parts::judge_definitions(&eno_nbi_crds::crds(), &self.definitions),
            policies::judge_own(&self.policies),
            leader::judge(&lease),
        ]);
        let images = self.workloads.iter().map(|(workload, found)| {
            let images = found.as_ref().map(|found| found.as_ref().map(|fact| fact.images.clone()));
            (*workload, images.map_err(Clone::clone))
        });
        checks.push(parts::judge_images(&images.collect::<Vec<_>>()));
        checks.extend(self.workloads.iter().map(|(workload, fact)| workloads::judge(workload, fact)));
        checks.extend(certificates::judge(&self.certificates, self.at));
        let devices = self.devices();
        checks.extend(devices::judge(&devices, cluster_id));
        let objects = self.objects();
        let left_out: Vec<String> = self
            .world
            .iter()
            .flat_map(ClusterState::left_out)
            .map(ToString::to_string)
            .filter(|what| !["pods", "nodes", "namespaces"].contains(&what.as_str()))
            .collect();
        checks.push(objects::judge_errors(&objects, &left_out));
        checks.push(objects::judge_callbacks(self.nats.callbacks.as_ref(), &objects));
        let agents = self.workloads.iter().find(|(workload, _)| workload.kind == WorkloadKind::DaemonSet);
        let agents_of_pods = agents.map(|(_, fact)| workloads::nodes_of_ready_pods(fact));
        checks.extend(self.nats.checks(self.at, ahead(&self.cluster.time)));
        checks.extend(self.driver_checks(&devices, agents_of_pods));
        checks
    }

    fn driver_checks(
        &self,
        devices: &Fact<Vec<Device>>,
        agents_of_pods: Option<Fact<BTreeSet<String>>>,
    ) -> Vec<Check> {
        let drivers_of_devices = devices.as_ref().map_err(Clone::clone).map(|devices| {
            devices.iter().map(|device| (device.name.clone(), device.driver.clone())).collect()
        });
        if let Some(why) = self.nats.login.obstacle() {
            let skipped = [Name::Drivers, Name::DriverVersions].map(|name| Check::skipped(name, "", why));
            let agents = match agents_of_pods {
                Some(agents) => drivers::judge_agents(&agents, &self.cluster.nodes),
                None => Check::skipped(Name::Agents, "", why),
            };
            return skipped.into_iter().chain([agents]).collect();
        }
        let agents = self.nats.hellos.as_ref().map(|hellos| drivers::nodes_of_hellos(hellos));
        let mut checks = drivers::judge_drivers(&self.nats.hellos, &drivers_of_devices);
        checks.push(drivers::judge_versions(&self.nats.hellos, eno_program::VERSION));
        checks.push(drivers::judge_agents(&agents.map_err(Clone::clone), &self.cluster.nodes));
        checks
    }

    fn devices(&self) -> Fact<Vec<Device>> {
        let world = self.world.as_ref().map_err(Clone::clone)?;
        if let Some(what) = world.left_out().iter().find(|what| what.to_string() == "fabricdevices") {
            return Err(Unread::Forbidden(format!("you may not list {what}")));
        }
        let devices = world.keys().filter(|key| key.kind == Kind::FabricDevice);
        Ok(devices.filter_map(|key| world.object(key)).map(Device::new).collect())
    }

    fn objects(&self) -> Fact<Vec<ObjectFact>> {
        let world = self.world.as_ref().map_err(Clone::clone)?;
        let fact = |key: &Key| {
            let object = world.object(key)?;
            let phase = object.data.pointer("/status/phase").and_then(serde_json::Value::as_str);
            let delivered = devices::conditions(object).remove("CallbackDelivered");
            Some(ObjectFact {
                kind: key.kind.as_str().to_owned(),
                name: key.to_string(),
                phase: phase.unwrap_or_default().to_owned(),
                undelivered: delivered.filter(|one| one.status == "False").map(|one| one.message),
            })
        };
        Ok(world.keys().filter_map(fact).collect())
    }
}
