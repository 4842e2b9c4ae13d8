//! A driver of fabrics as the host sees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eno_sbi::{AuditSchedule, Driver, Identity, Reconciled, Work};
use eno_schemas::{Command, Desired, Device, FabricDesired, Failure, PayloadKind, Preview};
use futures::channel::mpsc;
use futures::{Stream, stream};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::report::answer_lookup;

/// What a driver of fabrics does on its devices.
pub trait FabricDevices: Sized + Send + Sync + 'static {
    /// The name of the driver.
    const NAME: &'static str;
    /// What it configures, for the message about another command.
    const CONFIGURES: &'static str;
    /// Its configuration.
    type Options;
    /// The state of one device. It may be dropped at any time.
    type State: Default + Send + 'static;

    /// The devices, none of which is connected. `changes` tells the host of targets to reconcile again.
    fn new(options: Self::Options, changes: Changes) -> Self;

    /// The capabilities of the driver.
    fn capabilities(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reconciles a device. Its state is locked.
    fn reconcile(
        &self,
        state: &mut Self::State,
        work: &Work,
        desired: &FabricDesired,
    ) -> impl Future<Output = Reconciled> + Send;

    /// What [`Self::reconcile`] would do; `None`: the driver has no previews. The state is not locked yet.
    fn preview(
        &self,
        state: &AsyncMutex<Self::State>,
        command: &Arc<Command>,
        desired: &FabricDesired,
    ) -> impl Future<Output = Option<Preview>> + Send {
        let _ = (state, command, desired);
        std::future::ready(None)
    }

    /// Targets that the driver finds changed by looks of its own.
    fn found_changed(
        &self,
        targets: Arc<Targets<Self::State>>,
    ) -> impl Stream<Item = String> + Send + 'static {
        drop(targets);
        stream::pending()
    }

    /// The device is gone for good.
    fn forget(&self, target: &str, state: &AsyncMutex<Self::State>) -> impl Future<Output = ()> + Send {
        let _ = (target, state);
        std::future::ready(())
    }
}

/// The states of devices by target. The lock of a state lets one command of a device run at a time.
#[derive(Debug, Default)]
pub struct Targets<T>(Mutex<HashMap<String, Arc<AsyncMutex<T>>>>);

impl<T: Default> Targets<T> {
    /// The state of a target, or a new one.
    fn get(&self, target: &str) -> Arc<AsyncMutex<T>> {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(targets.entry(target.to_owned()).or_default())
    }

    /// The state of a target that nobody uses now.
    pub fn idle(&self, target: &str) -> Option<OwnedMutexGuard<T>> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(target).cloned();
        state?.try_lock_owned().ok()
    }

    fn remove(&self, target: &str) -> Option<Arc<AsyncMutex<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(target)
    }
}

/// Tells the host which targets to reconcile again.
#[derive(Clone, Debug)]
pub struct Changes {
    sender: mpsc::UnboundedSender<String>,
    audits: Arc<AuditSchedule>,
}

impl Changes {
    /// A target seems to have been changed by another hand, or can be reached again.
    pub fn notify(&self, target: &str) {
        // The receiver is gone once the driver stops.
        let _ = self.sender.unbounded_send(target.to_owned());
    }

    /// A target was read. It is audited after about `interval`.
    pub fn record_read(&self, target: &str, interval: Duration) {
        self.audits.record_read(target, interval);
    }
}

/// A driver of fabrics.
pub struct FabricDriver<D: FabricDevices> {
    devices: D,
    targets: Arc<Targets<D::State>>,
    audits: Arc<AuditSchedule>,
    /// [`Driver::changed`] takes it once.
    changes: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

impl<D: FabricDevices> FabricDriver<D> {
    /// A driver without sessions.
    pub fn new(options: D::Options) -> Self {
        let (sender, changes) = mpsc::unbounded();
        let audits = Arc::<AuditSchedule>::default();
        let devices = D::new(options, Changes { sender, audits: Arc::clone(&audits) });
        Self { devices, targets: Arc::default(), audits, changes: Mutex::new(Some(changes)) }
    }
}

impl<D: FabricDevices> Driver for FabricDriver<D> {
    fn identity(&self) -> Identity {
        let capabilities = self.devices.capabilities();
        Identity { name: D::NAME.into(), kinds: vec![PayloadKind::Fabric], capabilities }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let Desired::Fabric(desired) = &work.command.desired else {
            let (name, configures, kind) = (D::NAME, D::CONFIGURES, work.command.desired.kind());
            let reason = format!("the {name} driver configures {configures}, not {kind:?} targets");
            return Reconciled::failed(Failure::permanent(reason));
        };
        let state = self.targets.get(&work.command.target);
        let mut state = state.lock().await;
        let mut reconciled = self.devices.reconcile(&mut state, &work, desired).await;
        answer_lookup(desired, &mut reconciled, || format!("the driver {} reads no MAC tables", D::NAME));
        reconciled
    }

    async fn preview(&self, command: Arc<Command>) -> Option<Preview> {
        let Desired::Fabric(desired) = &command.desired else { return None };
        let state = self.targets.get(&command.target);
        self.devices.preview(&state, &command, desired).await
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner).take();
        let changes = changes.unwrap_or_else(|| mpsc::unbounded().1);
        let audits =
            stream::unfold(Arc::clone(&self.audits), async |audits| Some((audits.next().await, audits)));
        let found = self.devices.found_changed(Arc::clone(&self.targets));
        stream::select(changes, stream::select(audits, found))
    }

    async fn forget(&self, target: &str) {
        let state = self.targets.remove(target);
        self.audits.forget(target);
        if let Some(state) = state {
            self.devices.forget(target, &state).await;
        }
    }
}

/// The time between reads of a device without a command or notification: that of its FabricDevice, or `otherwise`.
pub fn audit_interval(device: &Device, otherwise: Duration) -> Duration {
    device.audit_interval.map_or(otherwise, |seconds| Duration::from_secs(seconds.get().into()))
}
