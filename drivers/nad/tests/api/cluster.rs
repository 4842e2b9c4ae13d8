//! A control plane with the manifests of `deploy/`, and helpers for its objects and the driver.

use std::pin::Pin;
use std::sync::Arc;

use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions};
use eno_driver_nad::NadDriver;
use eno_sbi::{Driver, LatestCommand, Reconciled, Work};
use eno_schemas::{
    Applied, Cni, Command, Desired, Failure, Generation, NadDesired, NadOwner, NadVlans, Outcome,
    VlanAttachment, VlanId,
};
use futures::{Stream, StreamExt};
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::common::{self, DRIVER, TIMEOUT};

pub struct Cluster {
    control_plane: ControlPlane,
    pub admin: Client,
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// Installs everything but the NetworkAttachmentDefinition CRD, without the `disabled` controllers.
    pub async fn start(disabled: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let parts = Parts::from_env().expect("the parts of a control plane");
        let mut options = ControlPlaneOptions::new(dir.path(), parts);
        options.disabled_controllers.extend(disabled.iter().copied().map(String::from));
        let control_plane = ControlPlane::start(options).await.expect("a control plane");
        let admin = control_plane.client().await.expect("the admin's client");
        common::install_basics(&admin).await;
        Self { control_plane, admin, _dir: dir }
    }

    pub async fn stop(self) {
        self.control_plane.stop().await;
    }

    /// Applies a file of `deploy/`.
    pub async fn install(&self, file: &str) {
        common::install(&self.admin, file).await;
    }

    /// A driver with only its own role, and its stream of changed targets.
    pub async fn driver(&self) -> (NadDriver, Changes) {
        let client = self.control_plane.client_for(DRIVER, None).await.expect("the driver's client");
        let driver = NadDriver::new(client);
        let changes = Changes(Box::pin(driver.changed()));
        (driver, changes)
    }

    /// A client without permissions.
    pub async fn nobody(&self) -> Client {
        self.control_plane.client_for("nobody", None).await.expect("a client")
    }

    pub async fn namespace(&self, name: &str) {
        common::namespace(&self.admin, name).await;
    }

    /// The NADs of a namespace, with the admin's permissions.
    pub fn nads(&self, namespace: &str) -> Api<DynamicObject> {
        common::nads(&self.admin, namespace)
    }

    /// Creates a NAD without the driver.
    pub async fn nad_by_hand(
        &self,
        namespace: &str,
        name: &str,
        metadata: &Value,
        spec: &Value,
    ) -> DynamicObject {
        let object = common::foreign_nad(name, metadata, spec);
        self.nads(namespace).create(&common::by_hand(), &object).await.expect("creating a NAD")
    }

    /// Edits a NAD without the driver.
    pub async fn edit(&self, namespace: &str, name: &str, patch: Value) -> DynamicObject {
        let parameters = PatchParams { field_manager: Some("by-hand".into()), ..PatchParams::default() };
        self.nads(namespace).patch(name, &parameters, &Patch::Merge(patch)).await.expect("patching a NAD")
    }

    pub async fn get(&self, namespace: &str, name: &str) -> Option<DynamicObject> {
        self.nads(namespace).get_opt(name).await.expect("getting a NAD")
    }
}

/// The driver's stream of targets that changed.
pub struct Changes(Pin<Box<dyn Stream<Item = String> + Send>>);

impl Changes {
    /// Waits without limit for a changed target.
    pub async fn any(&mut self) -> String {
        self.0.next().await.expect("the stream of changes goes on")
    }

    /// The next changed target.
    pub async fn next(&mut self) -> String {
        tokio::time::timeout(TIMEOUT, self.any()).await.expect("a change is notified")
    }

    /// Waits until `target` is reported as changed.
    pub async fn of(&mut self, target: &str) {
        let notified = async { while self.any().await != target {} };
        tokio::time::timeout(TIMEOUT, notified)
            .await
            .unwrap_or_else(|_| panic!("no change of {target} was notified"));
    }
}

/// An access attachment on an OVS bridge.
pub fn ovs(vid: u16) -> VlanAttachment {
    VlanAttachment {
        cni: Cni::Ovs { bridge: "br-data".into(), socket_file: None, pool: None },
        vlans: NadVlans::Access(VlanId::new(vid).expect("a VLAN ID")),
        mtu: None,
        subnets: Vec::new(),
        pool: None,
    }
}

/// A macvlan attachment, which needs no device plugin resource.
pub fn macvlan() -> VlanAttachment {
    VlanAttachment { cni: Cni::Macvlan { master: "eth1".into() }, vlans: NadVlans::Trunk, ..ovs(1) }
}

pub fn command(namespace: &str, name: &str, uid: &str, attachment: Option<VlanAttachment>) -> Command {
    let desired = Desired::Nad(NadDesired {
        namespace: namespace.into(),
        name: name.into(),
        owner: NadOwner { uid: uid.into() },
        attachment,
    });
    Command::new("nad", format!("{namespace}/{name}"), (1, 1), desired)
}

pub async fn reconcile(driver: &NadDriver, command: &Command) -> Reconciled {
    driver.reconcile(Work::alone(command.clone())).await
}

/// `newest` is the latest generation that the host knows.
pub async fn reconcile_with_newest(driver: &NadDriver, command: &Command, newest: Generation) -> Reconciled {
    let newest = Command { generation: newest, ..command.clone() };
    let (_newest, newest) = watch::channel(LatestCommand::Command(Arc::new(newest)));
    let (progress, _progress) = mpsc::channel(1);
    driver.reconcile(Work::new(Arc::new(command.clone()), newest, progress)).await
}

/// The failure of a failed reconcile.
#[track_caller]
pub fn failure(reconciled: Reconciled) -> Failure {
    match reconciled.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("not a failure: {other:?}"),
    }
}

/// Asserts that the reconcile applied everything.
#[track_caller]
pub fn done(reconciled: &Reconciled, present: bool) {
    assert_eq!(*reconciled, Reconciled::applied(Applied::Nad { present }));
}

/// The reason of a rejection.
#[track_caller]
pub fn refused(reconciled: &Reconciled, present: bool) -> String {
    assert_eq!(reconciled.outcome, Outcome::Applied);
    assert_eq!(reconciled.applied, Some(Applied::Nad { present }));
    let [rejection] = reconciled.rejected.as_slice() else { panic!("{:?}", reconciled.rejected) };
    assert!(!rejection.retryable);
    rejection.reason.to_string()
}
