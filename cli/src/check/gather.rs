//! Reads the facts from the API server, all at once and within one time limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use eno_engine::forecast::{ClusterState, ReadError};
use futures::future::join_all;
use http::Request;
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::client::Body;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use super::callbacks;
use super::certificates::{self, CertificateSecret, SecretData};
use super::clocks::ServerTime;
use super::cluster::{self, MultusDaemonSet, NodeFact};
use super::earlier::{Part, PartState};
use super::gather_workloads::images;
use super::kubernetes::NeededApi;
use super::leader::{self, LeaderLease};
use super::policies::{self, Policies};
use super::{Check, Fact, NAMESPACES, Name, Problem, SYSTEM, Unread};
use crate::install::cluster::{is_missing, missing_permissions};
use crate::install::requirements::Permission;

/// The ConfigMap of eno-system with the environment of the engine and the drivers.
const ENVIRONMENT: &str = "eno";
/// The namespace in which kubelets renew their Leases.
const NODE_LEASES: &str = "kube-node-lease";
/// For how long a Lease that looks stale is watched. An engine renews it every 2 s.
const LEASE_WATCH: Duration = Duration::from_secs(5);
/// Interval of reading such a Lease.
const LEASE_POLL: Duration = Duration::from_millis(500);

/// Reads facts until a deadline.
pub(crate) struct Gather {
    pub(super) client: Client,
    limit: Duration,
    deadline: Instant,
}

impl Gather {
    /// `limit`: the time for all facts together.
    pub(crate) fn new(client: Client, limit: Duration) -> Self {
        Self { client, limit, deadline: Instant::now() + limit }
    }

    /// Waits for a fact until the deadline.
    pub(super) async fn within<T>(&self, what: &str, fact: impl Future<Output = Fact<T>>) -> Fact<T> {
        let late = |_| Err(Unread::Failed(format!("{what}: no answer within {:?}", self.limit)));
        timeout_at(self.deadline, fact).await.unwrap_or_else(late)
    }

    pub(super) async fn read<T>(&self, what: &str, answer: impl Future<Output = kube::Result<T>>) -> Fact<T> {
        self.within(what, async { answer.await.map_err(|error| unread(what, error)) }).await
    }

    pub(super) async fn list<K>(&self, what: &str, api: Api<K>, params: ListParams) -> Fact<Vec<K>>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let listed = self.read(&format!("listing {what}"), api.list(&params)).await;
        listed.map(|list| list.items)
    }

    pub(super) async fn get<K>(&self, kind: &str, api: Api<K>, name: &str) -> Fact<Option<K>>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.read(&format!("getting {kind} {name}"), api.get_opt(name)).await
    }

    fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    pub(super) fn inside<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The check that the API server, which has this URL, answers, and its version.
    pub(crate) async fn version(&self, server: &str) -> (Check, Fact<String>) {
        let version = self.read("asking for the version", self.client.apiserver_version()).await;
        let version = version.map(|info| info.git_version);
        let check = match &version {
            Ok(_) => Check::ok(Name::ApiServer, server),
            Err(Unread::Forbidden(message) | Unread::Failed(message)) => {
                let remedy = "check --kubeconfig and --context, and the way to the API server";
                Check::failed(Name::ApiServer, server, Problem::new(message, remedy))
            }
        };
        (check, version)
    }

    pub(super) async fn server_time(&self) -> Fact<ServerTime> {
        let what = "asking for the time";
        let request = Request::get("/version").body(Body::empty());
        let request = request.map_err(|error| Unread::Failed(format!("{what}: {error}")))?;
        let before = Timestamp::now();
        let answer = self.read(what, self.client.send(request)).await?;
        let after = Timestamp::now();
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let server = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        match server {
            Some(server) => Ok(ServerTime { before, server: server.timestamp(), after }),
            None => Err(Unread::Failed("the API server's answer has no valid header Date".to_owned())),
        }
    }

    /// What the server does not serve of the APIs that ENO needs.
    pub(super) async fn missing_apis(&self, needed: &BTreeSet<NeededApi>) -> Fact<Vec<NeededApi>> {
        let versions: BTreeSet<&str> = needed.iter().map(|api| api.group_version.as_str()).collect();
        let served = versions.into_iter().map(async |group_version| {
            let what = format!("asking for the resources of {group_version}");
            let listed = self.within(&what, async {
                let answer = if group_version.contains('/') {
                    self.client.list_api_group_resources(group_version).await
                } else {
                    self.client.list_core_api_resources(group_version).await
                };
                match answer {
                    Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(BTreeSet::new()),
                    Err(error) => Err(unread(&what, error)),
                }
            });
            let resources: BTreeSet<String> = listed.await?;
            Ok(needed
                .iter()
                .filter(|api| api.group_version == group_version && !resources.contains(&api.resource))
                .cloned()
                .collect())
        });
        let missing: Vec<Vec<NeededApi>> = join_all(served).await.into_iter().collect::<Fact<_>>()?;
        Ok(missing.concat())
    }

    pub(super) async fn missing_permissions(&self, objects: &[DynamicObject]) -> Fact<Vec<Permission>> {
        self.within("asking for your permissions", async {
            let missing = missing_permissions(&self.client, objects).await;
            missing.map_err(|error| Unread::Failed(error.to_string()))
        })
        .await
    }

    pub(super) async fn nad(&self) -> Fact<Option<CustomResourceDefinition>> {
        self.get("CustomResourceDefinition", self.all(), cluster::NAD).await
    }

    pub(super) async fn multus(&self) -> Fact<Vec<MultusDaemonSet>> {
        let sets: Vec<DaemonSet> = self.list("DaemonSets", self.all(), ListParams::default()).await?;
        let is_multus = |set: &&DaemonSet| {
            let images = set.spec.iter().flat_map(|spec| images(&spec.template));
            set.name_any().contains("multus") || images.into_iter().any(|image| image.contains("multus"))
        };
        let fact = |set: &DaemonSet| MultusDaemonSet {
            name: format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any()),
            desired: set.status.as_ref().map_or(0, |status| status.desired_number_scheduled),
            ready: set.status.as_ref().map_or(0, |status| status.number_ready),
        };
        Ok(sets.iter().filter(is_multus).map(fact).collect())
    }

    pub(super) async fn storage_classes(&self) -> Fact<Vec<StorageClass>> {
        self.list("StorageClasses", self.all(), ListParams::default()).await
    }

    pub(super) async fn nodes(&self) -> Fact<Vec<NodeFact>> {
        let nodes: Vec<Node> = self.list("nodes", self.all(), ListParams::default()).await?;
        Ok(nodes.iter().map(NodeFact::new).collect())
    }

    /// The check that no callback reaches the cluster's own networks. `denied`: the networks that are refused.
    pub(crate) async fn callback_networks(&self, denied: &[IpNet]) -> Check {
        let (nodes, services) = tokio::join!(self.nodes(), self.service_networks());
        callbacks::judge(&nodes, &services, &Ok(denied.to_vec()))
    }

    /// The networks of Services.
    pub(super) async fn service_networks(&self) -> Fact<Vec<IpNet>> {
        let api: Api<ServiceCIDR> = self.all();
        let listed = self.read("listing ServiceCIDRs", async {
            match api.list(&ListParams::default()).await {
                // Kubernetes serves it since 1.33.
                Err(error) if is_missing(&error) => Ok(Vec::new()),
                listed => listed.map(|list| list.items),
            }
        });
        Ok(callbacks::service_networks(&listed.await?))
    }

    /// The networks that the engine refuses as those of callbacks.
    pub(super) async fn denied_networks(&self) -> Fact<Vec<IpNet>> {
        let found: Option<ConfigMap> = self.get("ConfigMap", self.inside(SYSTEM), ENVIRONMENT).await?;
        let data = found.and_then(|map| map.data).unwrap_or_default();
        Ok(callbacks::denied_networks(data.get("ENO_CALLBACK_DENY").map(String::as_str)))
    }

    /// The Leases of the nodes, and when they were read by this machine's clock.
    pub(super) async fn node_leases(&self) -> Fact<NodeLeases> {
        let what = format!("Leases in {NODE_LEASES}");
        let leases: Vec<Lease> = self.list(&what, self.inside(NODE_LEASES), ListParams::default()).await?;
        let renewed = |lease: &Lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0);
        Ok((Timestamp::now(), leases.iter().map(|lease| (lease.name_any(), renewed(lease))).collect()))
    }

    pub(super) async fn namespaces(&self) -> Vec<(&'static str, Fact<Option<Namespace>>)> {
        let found = NAMESPACES.map(async |name| (name, self.get("Namespace", self.all(), name).await));
        join_all(found).await
    }

    pub(super) async fn policies(&self) -> Fact<Policies> {
        let params = ListParams::default;
        let (policies, bindings) = tokio::join!(
            self.list("ValidatingAdmissionPolicies", self.all::<ValidatingAdmissionPolicy>(), params()),
            self.list(
                "ValidatingAdmissionPolicyBindings",
                self.all::<ValidatingAdmissionPolicyBinding>(),
                params()
            ),
        );
        Ok(Policies { policies: policies?, bindings: bindings?, ..Policies::default() })
    }

    pub(super) async fn policies_and_webhooks(&self) -> Fact<Policies> {
        let params = ListParams::default;
        let (policies, validating, mutating) = tokio::join!(
            self.policies(),
            self.list("webhooks", self.all::<ValidatingWebhookConfiguration>(), params()),
            self.list("webhooks", self.all::<MutatingWebhookConfiguration>(), params()),
        );
        Ok(Policies { validating: validating?, mutating: mutating?, ..policies? })
    }

    pub(super) async fn definitions(&self) -> Fact<Vec<CustomResourceDefinition>> {
        let expected = eno_nbi_crds::crds();
        let found = expected.iter().map(async |definition| {
            self.get("CustomResourceDefinition", self.all(), &definition.name_any()).await
        });
        let found: Vec<Option<CustomResourceDefinition>> =
            join_all(found).await.into_iter().collect::<Fact<_>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn part<K>(&self, kind: &str, api: Api<K>, name: &str) -> Fact<Part>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let what = format!("getting {kind} {name}");
        let found = self.read(&what, api.get_metadata_opt(name)).await?;
        let state = match found {
            None => PartState::Absent,
            Some(found) if found.metadata.deletion_timestamp.is_some() => PartState::Ending,
            Some(_) => PartState::Present,
        };
        Ok(Part { name: format!("{kind} {name}"), state })
    }

    pub(super) async fn earlier(&self) -> Fact<Vec<Part>> {
        let namespaces =
            NAMESPACES.map(async |name| self.part::<Namespace>("Namespace", self.all(), name).await);
        let expected = eno_nbi_crds::crds();
        let definitions = expected.iter().map(async |definition| {
            let (kind, name) = ("CustomResourceDefinition", definition.name_any());
            self.part::<CustomResourceDefinition>(kind, self.all(), &name).await
        });
        let policies = policies::OWN.map(async |name| {
            let kind = "ValidatingAdmissionPolicy";
            self.part::<ValidatingAdmissionPolicy>(kind, self.all(), name).await
        });
        let workloads = eno_parts::workloads().map(async |workload| {
            let kind = workload.kind.as_str();
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind));
            let api = Api::namespaced_with(self.client.clone(), workload.namespace, &resource);
            self.part::<DynamicObject>(kind, api, workload.name).await
        });
        let (namespaces, definitions, policies, workloads) = tokio::join!(
            join_all(namespaces),
            join_all(definitions),
            join_all(policies),
            join_all(workloads)
        );
        namespaces.into_iter().chain(definitions).chain(policies).chain(workloads).collect()
    }

    pub(super) async fn leader(&self, ahead: SignedDuration) -> Fact<Option<(LeaderLease, Option<String>)>> {
        let leases: Api<Lease> = self.inside(SYSTEM);
        let what = format!("getting Lease {SYSTEM}/{}", leader::LEASE);
        let read = async || self.read(&what, leases.get_opt(leader::LEASE)).await;
        let Some(first) = read().await? else { return Ok(None) };
        let now = || Timestamp::now() + ahead;
        let mut lease = of_lease(&first, now());
        let cluster = first.annotations().get(eno_engine::lease::CLUSTER).cloned();
        let until = (Instant::now() + LEASE_WATCH).min(self.deadline);
        while lease.holder.is_some()
            && !lease.renewed_meanwhile
            && !lease.is_fresh()
            && Instant::now() + LEASE_POLL < until
        {
            sleep(LEASE_POLL).await;
            let Some(next) = read().await? else { break };
            if next.resource_version() != first.resource_version() {
                lease = LeaderLease { renewed_meanwhile: true, ..of_lease(&next, now()) };
            }
        }
        Ok(Some((lease, cluster)))
    }

    pub(super) async fn certificates(&self) -> Vec<(CertificateSecret, SecretData)> {
        let found = certificates::SECRETS.map(async |secret| {
            let data = self.get("Secret", self.inside::<Secret>(secret.namespace), secret.name).await;
            // Private keys are dropped at once.
            let public = |secret_data: Secret| {
                let data = secret_data.data.unwrap_or_default();
                data.into_iter().filter(|(key, _)| secret.keys.contains(&key.as_str())).collect()
            };
            (secret, data.map(|found| found.map(public)))
        });
        join_all(found).await
    }

    pub(super) async fn world(&self) -> Fact<ClusterState> {
        let what = "listing the objects of ENO";
        self.within(what, async {
            let read = Box::pin(ClusterState::read(&self.client, self.client.default_namespace())).await;
            read.map_err(|error| match error {
                ReadError::Nothing(_) => Unread::Forbidden(error.to_string()),
                ReadError::Listing { .. } => Unread::Failed(error.to_string()),
            })
        })
        .await
    }
}

/// Why an answer of the API server is no fact.
fn unread(what: &str, error: kube::Error) -> Unread {
    match error {
        kube::Error::Api(status) if status.code == 403 => Unread::Forbidden(status.message.clone()),
        kube::Error::Api(status) => Unread::Failed(format!("{what}: {}", status.message)),
        // The errors in between repeat it.
        error => Unread::Failed(format!("{what}: {}", anyhow::Error::from(error).root_cause())),
    }
}

/// When Leases were read, and the last renewal of each node's.
pub(super) type NodeLeases = (Timestamp, BTreeMap<String, Option<Timestamp>>);

fn of_lease(lease: &Lease, at: Timestamp) -> LeaderLease {
    let spec = lease.spec.clone().unwrap_or_default();
    LeaderLease {
        holder: spec.holder_identity,
        renewed: spec.renew_time.map(|time| time.0),
        duration: SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()),
        at,
        renewed_meanwhile: false,
    }
}

/// By how much the API server's clock is ahead of this machine's.
pub(super) fn ahead(time: &Fact<ServerTime>) -> SignedDuration {
    time.as_ref().map_or(SignedDuration::ZERO, ServerTime::ahead)
}
