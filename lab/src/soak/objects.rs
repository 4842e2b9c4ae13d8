//! Creates, changes and deletes the custom resources.

use std::collections::BTreeMap;

use anyhow::Context as _;
use eno_nbi_crds::{
    Callbacks, CniName, ConnectionPoint, ConnectionPointSpec, InterfaceType, L2Service, L2ServiceAttachment,
    L2ServiceAttachmentSpec, L2ServiceSpec, NodePool, NodePoolSpec, SupportedCni,
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::model::{Action, Attachment, Point, Service, World, service_name};
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
            objects.push(dynamic(&pool(number))?);
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
        let is_live = |deleting: bool| !deleting;
        let services =
            world.services.iter().filter(|(_, object)| is_live(object.deleting)).map(|(name, _)| *name);
        let attachments =
            world.attachments.iter().filter(|(_, object)| is_live(object.deleting)).map(|(name, _)| *name);
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

    fn service(&self, name: usize, wanted: &Service) -> L2Service {
        let spec = L2ServiceSpec {
            segmentation_id: wanted.vid,
            subnets: Vec::new(),
            physical_nw: if wanted.out { vec![GATEWAY.to_owned()] } else { Vec::new() },
            namespaces: None,
            callbacks: Callbacks { url: Some(self.callback_url.clone()), ..Callbacks::default() },
        };
        L2Service::new(&service_name(name), spec)
    }

    fn attachment(&self, name: usize, wanted: &Attachment) -> L2ServiceAttachment {
        let spec = L2ServiceAttachmentSpec {
            l2_services: wanted.services.iter().map(|service| service_name(*service)).collect(),
            connection_point: point_name(wanted.point),
            pod_interface_type: if wanted.dpdk { InterfaceType::Dpdk } else { InterfaceType::Kernel },
            vlan_type: wanted.vlans,
            implementation: None,
            mtu: None,
            usable_from: None,
            callbacks: Callbacks { url: Some(self.callback_url.clone()), ..Callbacks::default() },
        };
        let mut attachment = L2ServiceAttachment::new(&format!("a{name}"), spec);
        attachment.metadata.namespace = Some(self.namespace(name));
        attachment
    }
}

fn pool(point: usize) -> NodePool {
    let node_selector = LabelSelector {
        match_labels: Some(BTreeMap::from([(label(point), "yes".to_owned())])),
        match_expressions: None,
    };
    NodePool::new(&point_name(point), NodePoolSpec { node_selector, callbacks: Callbacks::default() })
}

fn connection_point(number: usize, point: &Point) -> ConnectionPoint {
    let cni = SupportedCni {
        name: CniName::Ovs,
        supported_interface_types: vec![InterfaceType::Kernel],
        opts: Some(json!({"BridgeName": bridge_name(point.bridge)}).to_string()),
    };
    let spec = ConnectionPointSpec {
        description: None,
        supported_cnis: vec![cni],
        node_pool: Some(point_name(number)),
        interfaces: vec!["eth1".to_owned()],
        trunk_namespaces: None,
        callbacks: Callbacks::default(),
    };
    ConnectionPoint::new(&point_name(number), spec)
}
