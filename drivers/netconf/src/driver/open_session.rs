//! Opens sessions with devices.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eno_device_secrets::Login;
use eno_sbi::Reconciled;
use eno_schemas::{DeviceInfo, FabricDesired, Failure, Text};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use super::{NAME, Switches};
use crate::dialect::{Dialect, Dialects, choose};
use crate::hello::{Hello, Profile};
use crate::notification;
use crate::operation::Operation;
use crate::plan::{Baseline, concerns_bgp, concerns_routing, interfaces};
use crate::session::{Notified, Session as _};
use crate::ssh::{ConnectError, Limits, SshSession};

/// An open session and its parameters.
pub(super) struct OpenSession {
    /// The session.
    pub(super) session: SshSession,
    /// The device of the command that opened it.
    endpoint: eno_schemas::Device,
    /// The dialect of the device.
    pub(super) dialect: &'static dyn Dialect,
    /// How transactions run on the device.
    pub(super) profile: Profile,
    /// No transaction has run in it, so a commit of an earlier session may be pending.
    pub(super) fresh: bool,
    /// The VLANs and ports at the last verification, if the device notifies this session of foreign changes.
    baseline: Option<Baseline>,
    /// Whether a foreign change was notified; absent: the device sends no notifications.
    change_seen: Option<Arc<AtomicBool>>,
    /// The interfaces of which it may send notifications: a subscription can't be extended.
    watched: BTreeSet<String>,
    /// Its subscription selects what it notifies of, and VRFs are not among it.
    without_vrfs: bool,
    /// The same of BGP.
    without_bgp: bool,
    _watch: AbortOnDropHandle<()>,
}

impl OpenSession {
    /// The session is open, has the parameters of this command, and notifies of the VRFs that the command is about.
    pub(super) fn fits(&self, desired: &FabricDesired) -> bool {
        let endpoint = &desired.device;
        if self.without_vrfs && concerns_routing(desired) || self.without_bgp && concerns_bgp(desired) {
            return false;
        }
        let same = (
            &self.endpoint.address,
            &self.endpoint.dialect,
            &self.endpoint.credential,
            &self.endpoint.host_key,
        ) == (&endpoint.address, &endpoint.dialect, &endpoint.credential, &endpoint.host_key);
        same && !*self.session.closed().borrow()
    }

    /// Takes the baseline, unless a foreign change was notified since.
    pub(super) fn take_baseline(&mut self) -> Option<Baseline> {
        let changed =
            self.change_seen.as_ref().is_some_and(|change_seen| change_seen.swap(false, Ordering::Relaxed));
        self.baseline.take().filter(|_| !changed)
    }

    /// Keeps the baseline as far as the device notifies of its changes.
    pub(super) fn keep_baseline(&mut self, baseline: Option<Baseline>) {
        self.baseline = baseline.filter(|_| self.change_seen.is_some());
        if let Some(baseline) = &mut self.baseline {
            baseline.retain_interfaces(|name| self.watched.contains(name));
        }
    }

    /// Closes the session with `<close-session>`. An unresponsive device loses the connection anyway.
    pub(super) async fn close(self) {
        let closing = self.session.call("<close-session/>".into());
        let _ = tokio::time::timeout(Duration::from_secs(1), closing).await;
    }
}

impl Switches {
    /// The device information for reports.
    pub(super) fn info(&self, open_session: &OpenSession, device: &eno_schemas::Device) -> DeviceInfo {
        let interval = self.audit_interval(device).as_secs();
        DeviceInfo {
            audit_interval: Some(u32::try_from(interval).unwrap_or(u32::MAX)),
            change_notifications: Some(open_session.change_seen.is_some()),
            ..info(
                open_session.session.hello(),
                Some(open_session.dialect),
                Some(&open_session.profile),
                open_session.session.fingerprint(),
            )
        }
    }

    /// Opens a session with these timeouts. `lost`: the last attempt got no answer.
    pub(super) async fn connect(
        &self,
        target: &str,
        desired: &FabricDesired,
        lost: bool,
        limits: Limits,
    ) -> Result<OpenSession, Box<Reconciled>> {
        let permits = if lost { &self.connecting_to_lost } else { &self.connecting };
        // The semaphores are never closed.
        let _permit = permits.acquire().await;
        let (target, endpoint) = (target.to_owned(), &desired.device);
        let own_session = Arc::new(OnceLock::new());
        let change_seen = Arc::new(AtomicBool::new(false));
        let notified: Notified = {
            let (changes, target, own_session, change_seen) =
                (self.changes.clone(), target.clone(), Arc::clone(&own_session), Arc::clone(&change_seen));
            Box::new(move |message| {
                if notification::is_foreign_change(message, own_session.get().copied().flatten()) {
                    change_seen.store(true, Ordering::Relaxed);
                    changes.notify(&target);
                }
            })
        };
        let login = Login::new(NAME, &target, endpoint);
        let opened = SshSession::connect(login, &self.options.credentials, limits, notified);
        let session = opened.await.map_err(|error| Box::new(connect_failure(&error)))?;
        let hello = session.hello();
        let _ = own_session.set(hello.session_id());
        info!(target, session = ?hello.session_id(), "connected");
        let unsupported = |reason: String, dialect: Option<&dyn Dialect>| {
            let info = info(hello, dialect, None, session.fingerprint());
            Box::new(Reconciled { device: Some(info), ..Reconciled::failed(Failure::permanent(reason)) })
        };
        let requested = endpoint.dialect.as_deref();
        let mut known = hello.clone();
        if choose(self.options.dialects, requested, hello).is_none_or(|dialect| dialect.score(hello) == 0)
            && let Some(filter) = hello.library_filter()
        {
            match session.call(Operation::Get { filter }.xml()).await {
                Ok(library) => drop(known.add_library_modules(&library)),
                Err(error) => debug!(target, %error, "no YANG library"),
            }
        }
        let Some(dialect) = choose(self.options.dialects, requested, &known) else {
            return Err(unsupported(no_dialect(self.options.dialects, requested, &known), None));
        };
        let Some(profile) = dialect.profile(hello) else {
            let reason = "the device offers neither a candidate configuration nor a writable running one";
            return Err(unsupported(reason.into(), Some(dialect)));
        };
        let interfaces = interfaces(desired);
        let mut of_interest = dialect.filter(&interfaces);
        let mut without_vrfs = dialect.routing().is_some();
        if let Some(routing) = dialect.routing().filter(|_| concerns_routing(desired)) {
            of_interest += &routing.filter_routing(desired);
            without_vrfs = false;
        }
        let mut without_bgp = dialect.bgp().is_some();
        if let Some(bgp) = dialect.bgp().filter(|_| concerns_bgp(desired)) {
            of_interest += &bgp.filter_bgp();
            without_bgp = false;
        }
        let mut subscribed = false;
        for subscribe in notification::subscriptions(hello, &of_interest) {
            let selects = subscribe.contains(&of_interest);
            // Without a subscription, audits find foreign changes.
            match session.call(subscribe.into()).await {
                Ok(_) => {
                    subscribed = true;
                    without_vrfs &= selects;
                    without_bgp &= selects;
                    break;
                }
                Err(error) => debug!(target, %error, "no notifications"),
            }
        }
        let watch = tokio::spawn({
            let (mut closed, changes) = (session.closed(), self.changes.clone());
            let reconnects = Arc::clone(&self.reconnects);
            async move {
                // An error means that the driver dropped the session.
                if closed.wait_for(|closed| *closed).await.is_ok() {
                    let wait = reconnects.delay_after_loss();
                    info!(target, ?wait, "the session ended");
                    tokio::time::sleep(wait).await;
                    changes.notify(&target);
                }
            }
        });
        Ok(OpenSession {
            endpoint: endpoint.clone(),
            dialect,
            profile,
            fresh: true,
            baseline: None,
            without_vrfs: subscribed && without_vrfs,
            without_bgp: subscribed && without_bgp,
            change_seen: subscribed.then_some(change_seen),
            watched: interfaces.into_iter().map(str::to_owned).collect(),
            _watch: AbortOnDropHandle::new(watch),
            session,
        })
    }
}

fn info(
    hello: &Hello,
    dialect: Option<&dyn Dialect>,
    profile: Option<&Profile>,
    fingerprint: &str,
) -> DeviceInfo {
    DeviceInfo {
        dialect: dialect.map(|dialect| dialect.name().into()),
        capabilities: hello.short_names().into_iter().map(Text::from).collect(),
        host_key_fingerprint: Some(fingerprint.into()),
        model: dialect
            .map_or_else(|| hello.vendor().map(Text::from), |dialect| dialect.model(hello).map(Text::from)),
        rollback: profile.map(Profile::rollback),
        ..DeviceInfo::default()
    }
}

fn connect_failure(error: &ConnectError) -> Reconciled {
    let shown = match error {
        ConnectError::HostKeyUnknown { fingerprint, .. } => Some(fingerprint),
        ConnectError::HostKeyWrong { shown, .. } => Some(shown),
        _ => None,
    };
    let device =
        shown.map(|shown| DeviceInfo { host_key_fingerprint: Some(shown.into()), ..DeviceInfo::default() });
    let failure = Failure {
        reason: error.to_string().into(),
        retryable: error.retryable(),
        unreachable: error.unreachable(),
    };
    Reconciled { device, ..Reconciled::failed(failure) }
}

fn no_dialect(dialects: Dialects, requested: Option<&str>, hello: &Hello) -> String {
    let known = dialects.iter().map(|dialect| dialect.name()).collect::<Vec<_>>().join(", ");
    if let Some(requested) = requested {
        return format!("Dialect {requested:?} of the FabricDevice is not known; there are: {known}");
    }
    let modules: Vec<&str> = hello.modules().collect();
    let some = modules.iter().take(8).copied().collect::<Vec<_>>().join(", ");
    let more = match modules.len().checked_sub(8) {
        Some(more) if more > 0 => format!(" and {more} more"),
        _ => String::new(),
    };
    let announced = if modules.is_empty() { "no YANG module".to_owned() } else { format!("{some}{more}") };
    format!(
        "no dialect fits the device, which announces {announced}; there are: {known}. If one fits all the same, \
         name it in Dialect of the FabricDevice"
    )
}
