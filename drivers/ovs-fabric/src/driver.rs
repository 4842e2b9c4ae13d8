//! The driver: one session per device, kept open between commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Desired, DeviceInfo, FabricDesired, Failure, Outcome, PayloadKind, Rollback};
use futures::channel::mpsc;
use futures::{Stream, StreamExt};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use crate::address::Address;
use crate::credentials::{CredentialError, Credentials};
use crate::device::{Device, Done, Ended, Limits};

/// How the driver works.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the certificates for TLS are.
    pub credentials: Credentials,
    /// How long things may take.
    pub limits: Limits,
}

/// Configures ports of Open vSwitch bridges.
pub struct OvsFabricDriver {
    options: Options,
    targets: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Target>>>>,
    changed: mpsc::UnboundedSender<String>,
    /// Given out once.
    changes: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

/// What is remembered of a device. All of it may be forgotten.
#[derive(Default)]
struct Target {
    session: Option<Session>,
    /// The [content] of the desired state that was there in full when it was last read.
    verified: Option<String>,
}

/// A device, and what it was opened with.
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

    async fn fabric(&self, work: &Work, desired: &FabricDesired) -> Reconciled {
        let name = &work.command.target;
        let target = self.target(name);
        let mut target = target.lock().await;
        let address = match desired.device.address.parse::<Address>() {
            Ok(address) => address,
            Err(error) => {
                target.session = None;
                return failed(Failure { reason: error.to_string(), retryable: false, unreachable: false });
            }
        };
        let is_tls = matches!(address, Address::Tls(_));
        let kept = target.session.take().filter(|session| session.fits(&desired.device));
        let session = match kept {
            Some(session) => session,
            None => match self.open(name, address, &desired.device).await {
                Ok(session) => session,
                Err(error) => {
                    return failed(Failure {
                        reason: error.to_string(),
                        retryable: true,
                        unreachable: false,
                    });
                }
            },
        };
        let content = content(desired);
        let was_verified = target.verified.as_ref() == Some(&content);
        let session = target.session.insert(session);
        let ended = session.device.reconcile(desired, was_verified, || work.is_current()).await;
        let info = session.device.info();
        let reconciled = match ended {
            Ok(Ended::Done(done)) => {
                if done.rejected.is_empty() && !done.drift_stays {
                    target.verified = Some(content);
                }
                applied(*done)
            }
            Ok(Ended::Superseded) => superseded(),
            Err(error) => {
                debug!(target = name, %error, "not done");
                if is_tls && error.unreachable() {
                    // The next one reads the certificates anew.
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
                    // Nobody listens once the driver stops.
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
    /// It was opened as this command says.
    fn fits(&self, device: &eno_schemas::Device) -> bool {
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
            Desired::Fabric(desired) => self.fabric(&work, desired).await,
            other => Reconciled::failed(Failure {
                reason: format!("the ovs-fabric driver configures switches, not {:?} targets", other.kind()),
                retryable: false,
                unreachable: false,
            }),
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

/// The hash of a desired state, whichever uid the cluster has and however often the device is to be read: another one is
/// no drift.
fn content(desired: &FabricDesired) -> String {
    let device = eno_schemas::Device { audit_interval: None, ..desired.device.clone() };
    Desired::Fabric(FabricDesired { cluster_uid: None, device, ..desired.clone() }).hash()
}

fn applied(done: Done) -> Reconciled {
    Reconciled {
        rejected: done.rejected,
        notes: done.notes,
        change: done.change,
        ..Reconciled::applied(done.applied)
    }
}

/// A failure of a device of which nothing is known but what holds for all.
fn failed(failure: Failure) -> Reconciled {
    let device = DeviceInfo { rollback: Some(Rollback::None), ..DeviceInfo::default() };
    Reconciled { device: Some(device), ..Reconciled::failed(failure) }
}

/// A newer command came, or the process is to stop, before anything was changed.
fn superseded() -> Reconciled {
    Reconciled {
        outcome: Outcome::Progress {
            message: "given up before the change, for a newer command or a stop".into(),
        },
        applied: None,
        rejected: Vec::new(),
        notes: Vec::new(),
        device: None,
        change: None,
    }
}
