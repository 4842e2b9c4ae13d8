//! Creates, changes and deletes the custom resources.

use anyhow::Context as _;
use eno_nbi_crds::{Callbacks, ConnectionPoint, InterfaceType, L2Service, L2ServiceAttachment, NodePool};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::model::{Action, Attachment, Point, Service, World, service_name};
use crate::networks;
use eno::apply::{ApplyError, apply, apply_all, dynamic};

const MANAGER: &str = "eno-soak";
/// The external PhysicalNetwork.
const GATEWAY: &str = "dc-gw";
/// Maximum concurrent deletions at the end.
const CONCURRENCY: usize = 16;

pub(super) fn point_name(point: usize) -> String {
    format!("soak-p{point}")
}

pub(super) fn bridge_name(bridge: usize) -> String {
    format!("br-soak{bridge}")
}

pub(super) fn node_name(node: usize) -> String {
    format!("node{}", node + 1)
}

fn label(point: usize) -> String {
    format!("soak-pool-{point}")
}

/// Access to the custom resources.
#[derive(Clone)]
pub(super) struct Objects {
    client: Client,
    namespaces: usize,
    callback_url: String,
}

impl Objects {
    pub(super) fn new(client: Client, namespaces: usize, callback_url: String) -> Self {
        Self { client, namespaces, callback_url }
    }

    pub(super) fn namespace(&self, attachment: usize) -> String {
        format!("soak-{}", attachment % self.namespaces)
    }

    /// The name of an attachment as `namespace/name`.
    pub(super) fn attachment_name(&self, attachment: usize) -> String {
        format!("{}/a{attachment}", self.namespace(attachment))
    }

    /// Creates namespaces, pools with their nodes, and ConnectionPoints, which exist from the beginning.
    pub(super) async fn prepare(&self, world: &World) -> anyhow::Result<()> {
        let namespaces = (0..self.namespaces).map(|namespace| Namespace {
            metadata: ObjectMeta { name: Some(self.namespace(namespace)), ..ObjectMeta::default() },
            ..Namespace::default()
        });
        let mut objects = namespaces.map(|object| dynamic(&object)).collect::<Result<Vec<_>, _>>()?;
        for (number, point) in world.points.iter().enumerate() {
            for node in &point.members {
                self.member(number, *node, true).await?;
            }
            objects.push(dynamic(&networks::pool(&point_name(number), (&label(number), "yes"), None))?);
            objects.push(dynamic(&connection_point(number, point))?);
        }
        apply_all(&self.client, MANAGER, &objects).await?;
        Ok(())
    }

    /// Performs an action.
    pub(super) async fn perform(&self, action: &Action, world: &World) -> anyhow::Result<()> {
        match action {
            Action::CreateService(name, wanted) | Action::ChangeService(name, wanted) => {
                self.apply(&dynamic(&self.service(*name, wanted))?).await?;
            }
            Action::CreateAttachment(name, wanted) | Action::ChangeAttachment(name, wanted) => {
                self.apply(&dynamic(&self.attachment(*name, wanted))?).await?;
            }
            Action::DeleteService(name) => self.delete_service(*name).await?,
            Action::DeleteAttachment(name) => self.delete_attachment(*name).await?,
            Action::Member { point, node, joins } => self.member(*point, *node, *joins).await?,
            Action::Bridge(number, _) => {
                let point = world.points.get(*number).context("no such ConnectionPoint")?;
                self.apply(&dynamic(&connection_point(*number, point))?).await?;
            }
        }
        Ok(())
    }

    /// Requests the deletion of everything, in no order.
    pub(super) async fn delete_all(&self, world: &World) -> anyhow::Result<()> {
        let services = world.services.iter().filter(|(_, object)| !object.deleting).map(|(name, _)| *name);
        let attachments =
            world.attachments.iter().filter(|(_, object)| !object.deleting).map(|(name, _)| *name);
        let services = stream::iter(services)
            .map(Ok)
            .try_for_each_concurrent(CONCURRENCY, |name| async move { self.delete_service(name).await });
        let attachments = stream::iter(attachments)
            .map(Ok)
            .try_for_each_concurrent(CONCURRENCY, |name| async move { self.delete_attachment(name).await });
        let points = async {
            for point in 0..world.points.len() {
                let name = point_name(point);
                self.delete(Api::<ConnectionPoint>::all(self.client.clone()), &name).await?;
                self.delete(Api::<NodePool>::all(self.client.clone()), &name).await?;
            }
            Ok(())
        };
        tokio::try_join!(services, attachments, points)?;
        Ok(())
    }

    async fn apply(&self, object: &DynamicObject) -> Result<(), ApplyError> {
        apply(&self.client, MANAGER, object).await.map(drop)
    }

    async fn delete_service(&self, name: usize) -> anyhow::Result<()> {
        self.delete(Api::<L2Service>::all(self.client.clone()), &service_name(name)).await
    }

    async fn delete_attachment(&self, name: usize) -> anyhow::Result<()> {
        let api = Api::<L2ServiceAttachment>::namespaced(self.client.clone(), &self.namespace(name));
        self.delete(api, &format!("a{name}")).await
    }

    async fn delete<K>(&self, api: Api<K>, name: &str) -> anyhow::Result<()>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let deleted = api.delete(name, &DeleteParams::background()).await;
        deleted.with_context(|| format!("deleting {} {name}", K::kind(&())))?;
        Ok(())
    }

    async fn member(&self, point: usize, node: usize, joins: bool) -> anyhow::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let labels = json!({ label(point): joins.then_some("yes") });
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let name = node_name(node);
        let patched = api.patch_metadata(&name, &PatchParams::default(), &patch).await;
        patched.with_context(|| format!("labelling node {name}"))?;
        Ok(())
    }

    fn callbacks(&self) -> Callbacks {
        Callbacks { url: Some(self.callback_url.clone()), ..Callbacks::default() }
    }

    fn service(&self, name: usize, wanted: &Service) -> L2Service {
        let networks = if wanted.out { vec![GATEWAY.to_owned()] } else { Vec::new() };
        networks::service(&service_name(name), wanted.vid, networks, self.callbacks())
    }

    fn attachment(&self, name: usize, wanted: &Attachment) -> L2ServiceAttachment {
        let services = wanted.services.iter().map(|service| service_name(*service)).collect();
        let (own_name, point) = (format!("a{name}"), point_name(wanted.point));
        let mut attachment =
            networks::attachment(&own_name, services, &point, wanted.vlans, self.callbacks());
        if wanted.dpdk {
            attachment.spec.pod_interface_type = InterfaceType::Dpdk;
        }
        attachment.metadata.namespace = Some(self.namespace(name));
        attachment
    }
}

fn connection_point(number: usize, point: &Point) -> ConnectionPoint {
    networks::connection_point(&point_name(number), &bridge_name(point.bridge))
}
