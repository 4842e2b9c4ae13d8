//! The driver: one session per device, kept open between commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Desired, DeviceInfo, FabricDesired, Failure, PayloadKind, Rollback};
use futures::channel::mpsc;
use futures::{Stream, StreamExt};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use crate::address::Address;
use crate::credentials::{CredentialError, Credentials};
use crate::device::{Device, Limits, ReconcileEnd, ReconcileResult};

/// Configuration of the driver.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The certificates for TLS.
    pub credentials: Credentials,
    /// Time limits.
    pub limits: Limits,
}

/// The driver of the ports of Open vSwitch bridges.
pub struct OvsFabricDriver {
    options: Options,
    targets: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Target>>>>,
    changed: mpsc::UnboundedSender<String>,
    /// Taken by the first call of `changed`.
    changes: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

/// State of a device. It may be dropped at any time.
#[derive(Default)]
struct Target {
    session: Option<Session>,
    /// The [content_hash] of the desired state that the last reconcile fully verified.
    verified: Option<String>,
}

/// A connected device with its connection parameters.
struct Session {
    address: String,
    credential: Option<String>,
    device: Device,
    _watch: AbortOnDropHandle<()>,
}

impl OvsFabricDriver {
    /// A driver without sessions.
    pub fn new(options: Options) -> Self {
        let (changed, changes) = mpsc::unbounded();
        Self { options, targets: Mutex::default(), changed, changes: Mutex::new(Some(changes)) }
    }

    fn target(&self, name: &str) -> Arc<tokio::sync::Mutex<Target>> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(targets.entry(name.to_owned()).or_default())
    }

    async fn reconcile_fabric(&self, work: &Work, desired: &FabricDesired) -> Reconciled {
        let name = &work.command.target;
        let target = self.target(name);
        let mut target = target.lock().await;
        let address = match desired.device.address.parse::<Address>() {
            Ok(address) => address,
            Err(error) => {
                target.session = None;
                return failed(Failure::permanent(error.to_string()));
            }
        };
        let is_tls = matches!(address, Address::Tls(_));
        let reusable = target.session.take().filter(|session| session.matches(&desired.device));
        let session = match reusable {
            Some(session) => session,
            None => match self.open(name, address, &desired.device).await {
                Ok(session) => session,
                Err(error) => return failed(Failure::retryable(error.to_string())),
            },
        };
        let content = content_hash(desired);
        let was_verified = target.verified.as_ref() == Some(&content);
        if !was_verified {
            // This command may be applied in part.
            target.verified = None;
        }
        let session = target.session.insert(session);
        let ended = session.device.reconcile(desired, was_verified, || work.is_current()).await;
        let info = session.device.info();
        let reconciled = match ended {
            Ok(ReconcileEnd::Done(done)) => {
                if done.rejected.is_empty() && !done.drift_stays {
                    target.verified = Some(content);
                }
                applied(*done)
            }
            Ok(ReconcileEnd::Superseded) => superseded(),
            Err(error) => {
                debug!(target = name, %error, "not done");
                if is_tls && error.unreachable() {
                    // The next session reads the certificates again.
                    target.session = None;
                }
                failed(error.failure())
            }
        };
        Reconciled { device: Some(info), ..reconciled }
    }

    async fn open(
        &self,
        target: &str,
        address: Address,
        device: &eno_schemas::Device,
    ) -> Result<Session, CredentialError> {
        info!(target, %address, "opening a session");
        let endpoint = self.options.credentials.endpoint(address, device.credential.as_deref()).await?;
        let open = Device::new(endpoint, self.options.limits);
        let watch = tokio::spawn({
            let (mut changes, changed) = (Box::pin(open.changed()), self.changed.clone());
            let target = target.to_owned();
            async move {
                while changes.next().await.is_some() {
                    // The receiver is gone once the driver stops.
                    let _ = changed.unbounded_send(target.clone());
                }
            }
        });
        Ok(Session {
            address: device.address.clone(),
            credential: device.credential.clone(),
            device: open,
            _watch: AbortOnDropHandle::new(watch),
        })
    }
}

impl Session {
    /// True when the session has the command's connection parameters.
    fn matches(&self, device: &eno_schemas::Device) -> bool {
        (&self.address, &self.credential) == (&device.address, &device.credential)
    }
}

impl Driver for OvsFabricDriver {
    fn identity(&self) -> Identity {
        Identity {
            name: "ovs-fabric".into(),
            kinds: vec![PayloadKind::Fabric],
            capabilities: ["unix", "tcp", "ssl"].map(|scheme| format!("address:{scheme}")).to_vec(),
        }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        match &work.command.desired {
            Desired::Fabric(desired) => self.reconcile_fabric(&work, desired).await,
            other => Reconciled::failed(Failure::permanent(format!(
                "the ovs-fabric driver configures switches, not {:?} targets",
                other.kind()
            ))),
        }
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner).take();
        changes.unwrap_or_else(|| mpsc::unbounded().1)
    }

    async fn forget(&self, target: &str) {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).remove(target);
    }
}

/// Hash of a desired state without the cluster's uid and the audit interval, whose changes are no drift.
fn content_hash(desired: &FabricDesired) -> String {
    let device = eno_schemas::Device { audit_interval: None, ..desired.device.clone() };
    Desired::Fabric(FabricDesired { cluster_uid: None, device, ..desired.clone() }).hash()
}

fn applied(done: ReconcileResult) -> Reconciled {
    Reconciled {
        rejected: done.rejected,
        notes: done.notes,
        change: done.change,
        ..Reconciled::applied(done.applied)
    }
}

/// A failure with the device data that hold for every Open vSwitch.
fn failed(failure: Failure) -> Reconciled {
    let device = DeviceInfo { rollback: Some(Rollback::None), ..DeviceInfo::default() };
    Reconciled { device: Some(device), ..Reconciled::failed(failure) }
}

/// The result of work that was superseded or stopped before any change.
fn superseded() -> Reconciled {
    Reconciled::progress("given up before the change, for a newer command or a stop")
}
