//! The driver: one login per device, kept between commands.

use std::sync::Arc;
use std::time::Duration;

use eno_device_secrets::{Login, Permit, SecretSource};
use eno_fabric_driver::desired::Content;
use eno_fabric_driver::{Changes, FabricDevices, FabricDriver, Targets, Verified, audit_interval};
use eno_sbi::{AuditSchedule, Reconciled, Work};
use eno_schemas::{Command, FabricDesired, Failure, Preview};
use futures::{Stream, stream};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};

use crate::error::ApiError;
use crate::http::{Api, Limits};
use crate::keystone::{Credentials, KEYS};
use crate::mark::Mark;
use crate::read;
use crate::reconcile::{Reconcile, device_info, preview, reconcile};
use crate::view::View;

/// The name of the driver.
const NAME: &str = "neutron";
/// Time limit of one look at the trunks of a cloud.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Configuration of the driver.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where credentials are read.
    pub secrets: SecretSource,
    /// Time limits.
    pub limits: Limits,
    /// The mean interval between reads without a command; it varies by a quarter. `AuditInterval` of a FabricDevice
    /// takes precedence.
    pub audit_interval: Duration,
    /// The mean interval between looks whether the trunks are still there; it varies by a quarter.
    pub look_interval: Duration,
}

/// The driver of trunk ports in OpenStack.
pub type NeutronDriver = FabricDriver<Projects>;

/// Each project.
pub struct Projects {
    options: Options,
    changes: Changes,
    looks: Arc<AuditSchedule>,
}

/// State of a device. It may be dropped at any time.
#[derive(Default)]
pub struct Target {
    session: Option<Api>,
    verified: Verified,
    /// What is there after the last reconcile.
    last: Option<LastRead>,
}

struct LastRead {
    /// That of the desired state of the last reconcile.
    content: Content,
    mark: Mark,
    view: View,
    /// When all of it was last read.
    at: Instant,
}

impl FabricDevices for Projects {
    const NAME: &'static str = NAME;
    const CONFIGURES: &'static str = "projects of OpenStack";
    type Options = Options;
    type State = Target;

    fn new(options: Options, changes: Changes) -> Self {
        Self { options, changes, looks: Arc::default() }
    }

    async fn reconcile(&self, target: &mut Target, work: &Work, desired: &FabricDesired) -> Reconciled {
        let name = &work.command.target;
        let interval = audit_interval(&desired.device, self.options.audit_interval);
        let info = device_info(desired, interval);
        let with_info = |reconciled| Reconciled { device: Some(info.clone()), ..reconciled };
        let mark = match Mark::new(desired, name) {
            Ok(mark) => mark,
            Err(error) => return with_info(Reconciled::failed(Failure::permanent(error.to_string()))),
        };
        let session = match work.await_connection(self.session(name, target, desired)).await {
            Ok(session) => session,
            Err(error) => return with_info(Reconciled::failed(error.failure())),
        };
        let content = Content::of(desired.clone());
        let convergence = target.verified.start(desired, &content);
        let last = target
            .last
            .take()
            .filter(|last| last.content != content && last.mark == mark && last.at.elapsed() < interval);
        let last = last.and_then(|last| Some((last.at, last.view.with_trunks_of(desired)?)));
        let (read_at, known) = last.unzip();
        let before = session.requests();
        let ended = reconcile(&session, desired, &mark, known, convergence, work).await;
        debug!(target = name, requests = session.requests() - before, "reconciled");
        with_info(match ended {
            Ok(Some(Reconcile { converged, view, all_read, is_denied })) => {
                let at = read_at.filter(|_| !all_read).unwrap_or_else(Instant::now);
                if all_read {
                    self.changes.record_read(name, interval);
                    self.looks.record_read(name, self.options.look_interval);
                }
                target.verified.end(content.clone(), &converged);
                // A role that was granted after a refusal counts from the next login.
                target.session = Some(session).filter(|_| !is_denied);
                target.last = Some(LastRead { content, mark, view, at });
                converged.reconciled
            }
            Ok(None) => {
                target.session = Some(session);
                Reconciled::progress("given up for a newer command or a stop")
            }
            // The next login reads the credential again.
            Err(error) => Reconciled::failed(error.failure()),
        })
    }

    async fn preview(
        &self,
        target: &Mutex<Target>,
        command: &Arc<Command>,
        desired: &FabricDesired,
    ) -> Option<Preview> {
        let mut target = target.lock().await;
        let previewed = self.preview_project(&command.target, &mut target, desired).await;
        Some(previewed.unwrap_or_else(|failure| Preview { failure: Some(failure), ..Preview::default() }))
    }

    fn found_changed(&self, targets: Arc<Targets<Target>>) -> impl Stream<Item = String> + Send + 'static {
        stream::unfold((Arc::clone(&self.looks), targets), async |(looks, targets)| {
            loop {
                let name = looks.next().await;
                // One cloud that hangs does not hold up the others; the next look asks again.
                let look = tokio::time::timeout(LOOK_TIMEOUT, misses_a_trunk(&targets, &name));
                if look.await.unwrap_or(false) {
                    return Some((name, (looks, targets)));
                }
            }
        })
    }

    async fn forget(&self, target: &str, _: &Mutex<Target>) {
        self.looks.forget(target);
    }
}

impl Projects {
    /// The login for a device. The Secret is read each time, since a login lasts until it is changed.
    async fn session(
        &self,
        name: &str,
        target: &mut Target,
        desired: &FabricDesired,
    ) -> Result<Api, ApiError> {
        let Options { secrets, limits, .. } = &self.options;
        let login = Login::new(NAME, name, &desired.device);
        // A login with other values stays: who asks for a preview must not end it.
        if let Some(api) = target.session.take_if(|api| *api.permit().login() == login)
            && *api.credentials() == self.credentials(api.permit()).await?
        {
            return Ok(api);
        }
        let permit = secrets.permit(login).await?;
        let credentials = self.credentials(&permit).await?;
        target.last = None;
        info!(address = desired.device.address, "logging in");
        // Boxed, since each reconcile holds this future.
        Box::pin(Api::open(secrets.clone(), permit, credentials, *limits)).await
    }

    async fn credentials(&self, permit: &Permit) -> Result<Credentials, ApiError> {
        Ok(Credentials::of(&self.options.secrets.read(permit, &KEYS).await?)?)
    }

    async fn preview_project(
        &self,
        name: &str,
        target: &mut Target,
        desired: &FabricDesired,
    ) -> Result<Preview, Failure> {
        let mark = Mark::new(desired, name).map_err(|error| Failure::permanent(error.to_string()))?;
        let session = self.session(name, target, desired).await.map_err(|error| error.failure())?;
        let previewed = preview(&session, desired, &mark).await;
        target.session = Some(session);
        let info = device_info(desired, audit_interval(&desired.device, self.options.audit_interval));
        let failed = |error: ApiError| Preview { failure: Some(error.failure()), ..Preview::default() };
        Ok(Preview { device: Some(info), ..previewed.unwrap_or_else(failed) })
    }
}

/// True when Neutron does not have a trunk any more that was read. One that was made again under its name is another
/// one. A device that is being reconciled is read anyway, and an error is for the next audit to tell.
async fn misses_a_trunk(targets: &Targets<Target>, name: &str) -> bool {
    let Some(target) = targets.idle(name) else { return false };
    let (Some(session), Some(last)) = (&target.session, &target.last) else { return false };
    match read::has_trunks(session, &last.view).await {
        Ok(has_all) => !has_all,
        Err(error) => {
            debug!(target = name, %error, "could not look for the trunks");
            false
        }
    }
}
