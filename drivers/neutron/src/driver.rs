//! The driver: one login per device, kept between commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eno_device_secrets::{Login, Permit, SecretSource};
use eno_sbi::{AuditSchedule, Driver, Identity, Reconciled, Work};
use eno_schemas::{Command, Desired, FabricDesired, Failure, PayloadKind, Preview};
use futures::{Stream, stream};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::error::ApiError;
use crate::http::{Api, Limits};
use crate::keystone::{Credentials, KEYS};
use crate::mark::Mark;
use crate::read;
use crate::reconcile::{Known, ReconcileEnd, ReconcileResult, device_info, preview, reconcile};
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
pub struct NeutronDriver {
    options: Options,
    targets: Arc<Targets>,
    audits: Arc<AuditSchedule>,
    looks: Arc<AuditSchedule>,
}

/// By device.
type Targets = Mutex<HashMap<String, Arc<tokio::sync::Mutex<Target>>>>;

/// State of a device. It may be dropped at any time.
#[derive(Default)]
struct Target {
    session: Option<Api>,
    /// The [content_hash] of the desired state that the last reconcile fully verified.
    verified: Option<String>,
    /// What is there after the last reconcile.
    last: Option<LastRead>,
}

struct LastRead {
    /// The [content_hash] of the desired state of the last reconcile.
    content: String,
    mark: Mark,
    view: View,
    /// When all of it was last read.
    at: Instant,
}

impl NeutronDriver {
    /// A driver without logins.
    pub fn new(options: Options) -> Self {
        Self { options, targets: Arc::default(), audits: Arc::default(), looks: Arc::default() }
    }

    fn target(&self, name: &str) -> Arc<tokio::sync::Mutex<Target>> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(targets.entry(name.to_owned()).or_default())
    }

    fn audit_interval(&self, desired: &FabricDesired) -> Duration {
        let own = desired.device.audit_interval.map(|seconds| Duration::from_secs(seconds.get().into()));
        own.unwrap_or(self.options.audit_interval)
    }

    async fn reconcile_fabric(&self, work: &Work, desired: &FabricDesired) -> Reconciled {
        let name = &work.command.target;
        let target = self.target(name);
        let mut target = target.lock().await;
        let interval = self.audit_interval(desired);
        let info = device_info(desired, interval);
        let with_info = |reconciled| Reconciled { device: Some(info.clone()), ..reconciled };
        let mark = match Mark::new(desired, name) {
            Ok(mark) => mark,
            Err(error) => return with_info(Reconciled::failed(Failure::permanent(error.to_string()))),
        };
        let session = match work.await_connection(self.session(name, &mut target, desired)).await {
            Ok(session) => session,
            Err(error) => return with_info(Reconciled::failed(error.failure())),
        };
        let content = content_hash(desired);
        let was_verified = target.verified.as_ref() == Some(&content);
        if !was_verified {
            // This command may be applied in part.
            target.verified = None;
        }
        let last = target
            .last
            .take()
            .filter(|last| last.content != content && last.mark == mark && last.at.elapsed() < interval);
        let last = last.and_then(|last| Some((last.at, last.view.with_trunks_of(desired)?)));
        let (read_at, view) = last.unzip();
        let known = Known { view, was_verified };
        let before = session.requests();
        let ended = reconcile(&session, desired, &mark, known, work).await;
        debug!(target = name, requests = session.requests() - before, "reconciled");
        with_info(match ended {
            Ok(ReconcileEnd::Done(done)) => {
                let at = read_at.filter(|_| !done.all_read).unwrap_or_else(Instant::now);
                if done.all_read {
                    self.audits.record_read(name, interval);
                    self.looks.record_read(name, self.options.look_interval);
                }
                if done.rejected.is_empty() && !done.drift_stays {
                    target.verified = Some(content.clone());
                }
                // A role that was granted after a refusal counts from the next login.
                target.session = Some(session).filter(|_| !done.is_denied);
                let (view, reconciled) = applied(*done);
                target.last = Some(LastRead { content, mark, view, at });
                reconciled
            }
            Ok(ReconcileEnd::Superseded) => {
                target.session = Some(session);
                Reconciled::progress("given up for a newer command or a stop")
            }
            // The next login reads the credential again.
            Err(error) => Reconciled::failed(error.failure()),
        })
    }

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

    async fn preview_fabric(&self, name: &str, desired: &FabricDesired) -> Preview {
        let target = self.target(name);
        let mut target = target.lock().await;
        let failed = |failure| Preview { failure: Some(failure), ..Preview::default() };
        let mark = match Mark::new(desired, name) {
            Ok(mark) => mark,
            Err(error) => return failed(Failure::permanent(error.to_string())),
        };
        let session = match self.session(name, &mut target, desired).await {
            Ok(session) => session,
            Err(error) => return failed(error.failure()),
        };
        let previewed = preview(&session, desired, &mark).await;
        target.session = Some(session);
        let info = device_info(desired, self.audit_interval(desired));
        Preview { device: Some(info), ..previewed.unwrap_or_else(|error| failed(error.failure())) }
    }
}

impl Driver for NeutronDriver {
    fn identity(&self) -> Identity {
        Identity { name: NAME.into(), kinds: vec![PayloadKind::Fabric], capabilities: Vec::new() }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        match &work.command.desired {
            Desired::Fabric(desired) => self.reconcile_fabric(&work, desired).await,
            other => Reconciled::failed(Failure::permanent(format!(
                "the neutron driver configures projects of OpenStack, not {:?} targets",
                other.kind()
            ))),
        }
    }

    async fn preview(&self, command: Arc<Command>) -> Option<Preview> {
        match &command.desired {
            Desired::Fabric(desired) => Some(self.preview_fabric(&command.target, desired).await),
            Desired::Nad(_) | Desired::Node(_) => None,
        }
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let audits =
            stream::unfold(Arc::clone(&self.audits), async |audits| Some((audits.next().await, audits)));
        let looks = (Arc::clone(&self.looks), Arc::clone(&self.targets));
        let remade = stream::unfold(looks, async |(looks, targets)| {
            loop {
                let name = looks.next().await;
                // One cloud that hangs does not hold up the others; the next look asks again.
                let look = tokio::time::timeout(LOOK_TIMEOUT, misses_a_trunk(&targets, &name));
                if look.await.unwrap_or(false) {
                    return Some((name, (looks, targets)));
                }
            }
        });
        stream::select(audits, remade)
    }

    async fn forget(&self, target: &str) {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).remove(target);
        self.audits.forget(target);
        self.looks.forget(target);
    }
}

/// True when Neutron does not have a trunk any more that was read. One that was made again under its name is another
/// one. A device that is being reconciled is read anyway, and an error is for the next audit to tell.
async fn misses_a_trunk(targets: &Targets, name: &str) -> bool {
    let target = targets.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    let Some(target) = target else { return false };
    let Ok(target) = target.try_lock() else { return false };
    let (Some(session), Some(last)) = (&target.session, &target.last) else { return false };
    match read::has_trunks(session, &last.view).await {
        Ok(has_all) => !has_all,
        Err(error) => {
            debug!(target = name, %error, "could not look for the trunks");
            false
        }
    }
}

/// Hash of a desired state without the audit interval, whose change is no drift.
fn content_hash(desired: &FabricDesired) -> String {
    let device = eno_schemas::Device { audit_interval: None, ..desired.device.clone() };
    Desired::Fabric(FabricDesired { device, ..desired.clone() }).hash()
}

fn applied(done: ReconcileResult) -> (View, Reconciled) {
    let reconciled = Reconciled {
        rejected: done.rejected,
        notes: done.notes,
        change: done.change,
        ..Reconciled::applied(done.applied)
    };
    (done.view, reconciled)
}
