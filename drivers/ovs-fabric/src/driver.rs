//! The driver: one session per device, kept open between commands.

use eno_fabric_driver::desired::Content;
use eno_fabric_driver::{Changes, FabricDevices, FabricDriver, Verified};
use eno_sbi::{Reconciled, Work};
use eno_schemas::{DeviceInfo, FabricDesired, Failure, Rollback};
use futures::StreamExt;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use crate::address::Address;
use crate::credentials::{CredentialError, Credentials};
use crate::device::{Device, Limits};

/// Configuration of the driver.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The certificates for TLS.
    pub credentials: Credentials,
    /// Time limits.
    pub limits: Limits,
}

/// The driver of the ports of Open vSwitch bridges.
pub type OvsFabricDriver = FabricDriver<OpenVSwitches>;

/// Each reachable Open vSwitch.
pub struct OpenVSwitches {
    options: Options,
    changes: Changes,
}

/// State of a device. It may be dropped at any time.
#[derive(Default)]
pub struct Target {
    session: Option<Session>,
    verified: Verified,
}

/// A connected device with its connection parameters.
struct Session {
    address: String,
    credential: Option<String>,
    device: Device,
    _watch: AbortOnDropHandle<()>,
}

impl FabricDevices for OpenVSwitches {
    const NAME: &'static str = "ovs-fabric";
    const CONFIGURES: &'static str = "switches";
    type Options = Options;
    type State = Target;

    fn new(options: Options, changes: Changes) -> Self {
        Self { options, changes }
    }

    fn capabilities(&self) -> Vec<String> {
        ["unix", "tcp", "ssl"].map(|scheme| format!("address:{scheme}")).to_vec()
    }

    async fn reconcile(&self, target: &mut Target, work: &Work, desired: &FabricDesired) -> Reconciled {
        let name = &work.command.target;
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
        // The uid tells clusters apart, and is no configuration.
        let content = Content::of(FabricDesired { cluster_uid: None, ..desired.clone() });
        let convergence = target.verified.start(desired, &content);
        let session = target.session.insert(session);
        let ended = session.device.reconcile(desired, convergence, || work.is_current()).await;
        let info = session.device.info();
        let reconciled = match ended {
            Ok(Some(converged)) => {
                target.verified.end(content, &converged);
                converged.reconciled
            }
            Ok(None) => Reconciled::progress("given up before the change, for a newer command or a stop"),
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
}

impl OpenVSwitches {
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
            let (mut device_changes, changes) = (Box::pin(open.changed()), self.changes.clone());
            let target = target.to_owned();
            async move {
                while device_changes.next().await.is_some() {
                    changes.notify(&target);
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

/// A failure with the device data that hold for every Open vSwitch.
fn failed(failure: Failure) -> Reconciled {
    let device = DeviceInfo { rollback: Some(Rollback::None), ..DeviceInfo::default() };
    Reconciled { device: Some(device), ..Reconciled::failed(failure) }
}
