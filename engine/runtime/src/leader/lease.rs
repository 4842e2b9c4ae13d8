//! Leader election by a Lease. Its annotations hold the term, which each acquisition raises, and the identifier of the
//! cluster on devices. No message on NATS raises a term.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::leader::lease_guard::LeaseGuard;

/// Annotation with the term of the last acquisition.
pub const TERM: &str = "eno.k8s.io/term";

/// Annotation with the identifier of the cluster on devices.
pub const CLUSTER: &str = "eno.k8s.io/cluster-id";

/// Timing of the leader election. `give_up` is shorter than `duration`, so that a holder stops before another begins.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time that the Lease is valid after a renewal.
    pub duration: Duration,
    /// Interval of renewals.
    pub renew: Duration,
    /// Time without a successful renewal after which the holder gives up.
    pub give_up: Duration,
    /// Interval at which candidates read the Lease.
    pub poll: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            renew: Duration::from_secs(2),
            give_up: Duration::from_secs(7),
            poll: Duration::from_millis(500),
        }
    }
}

/// A candidate for leadership.
#[derive(Clone)]
pub struct Candidate {
    leases: Api<Lease>,
    name: Arc<str>,
    identity: Arc<str>,
    times: Times,
    lease_guard: LeaseGuard,
}

/// Leadership, while it is held.
#[derive(Debug)]
pub struct Leadership {
    /// The term.
    pub term: u64,
    /// The identifier of the cluster that the Lease holds.
    pub cluster: Option<String>,
    /// Cancelled when leadership is lost.
    pub lost: CancellationToken,
    cluster_sender: watch::Sender<Option<String>>,
    renewal: JoinHandle<Lease>,
}

impl Leadership {
    /// Writes the identifier of the cluster into the Lease by an immediate renewal.
    pub fn store_cluster_id(&self, cluster: &str) {
        if self.cluster.as_deref() != Some(cluster) {
            self.cluster_sender.send_replace(Some(cluster.to_owned()));
        }
    }
}

/// Resource version of the Lease and since when it is unchanged, by the clock of this process. Clocks of others are
/// not trusted.
struct ObservedLease {
    version: Option<String>,
    since: Instant,
}

impl Candidate {
    /// `identity` is unique among processes and becomes the holder of the Lease.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, times: Times) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.into(),
            identity: identity.into(),
            times,
            lease_guard: LeaseGuard::not_held(),
        }
    }

    /// Until when this process is sure to hold the Lease.
    pub fn lease_guard(&self) -> LeaseGuard {
        self.lease_guard.clone()
    }

    /// Waits until this process leads. `None`: `stop` came first.
    pub async fn lead(&self, stop: &CancellationToken) -> Option<Leadership> {
        let mut observed = ObservedLease { version: None, since: Instant::now() };
        let mut announced = None;
        loop {
            let started = Instant::now();
            let attempt = tokio::select! {
                attempt = self.attempt(&mut observed, &mut announced) => attempt,
                () = stop.cancelled() => return None,
            };
            match attempt {
                Ok(Some(lease)) => return Some(self.start_renewal(lease, started)),
                Ok(None) => {}
                Err(error) => warn!(%error, lease = &*self.name, "the Lease could not be looked at"),
            }
            tokio::select! {
                () = sleep(self.times.poll) => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    async fn attempt(
        &self,
        observed: &mut ObservedLease,
        announced: &mut Option<String>,
    ) -> kube::Result<Option<Lease>> {
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            let mut lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.to_string()), ..ObjectMeta::default() },
                spec: None,
            };
            self.claim(&mut lease);
            return none_on_conflict(self.leases.create(&PostParams::default(), &lease).await);
        };
        if observed.version != lease.metadata.resource_version {
            *observed =
                ObservedLease { version: lease.metadata.resource_version.clone(), since: Instant::now() };
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = duration.map_or(self.times.duration, Duration::from_secs);
        if !holder.is_empty() && observed.since.elapsed() < duration {
            if announced.as_deref() != Some(&holder) {
                info!(leader = holder, "standing by");
                *announced = Some(holder);
            }
            return Ok(None);
        }
        self.claim(&mut lease);
        none_on_conflict(self.leases.replace(&self.name, &PostParams::default(), &lease).await)
    }

    /// Writes this process and the next term into a Lease. The resource version makes the update a compare-and-swap.
    fn claim(&self, lease: &mut Lease) {
        let annotations = lease.metadata.annotations.get_or_insert_default();
        let term = annotations.get(TERM).and_then(|term| term.parse::<u64>().ok()).unwrap_or_default();
        let now = Timestamp::now();
        annotations.insert(TERM.into(), next_term(term, now).to_string());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        let now = MicroTime(now);
        spec.holder_identity = Some(self.identity.to_string());
        spec.lease_duration_seconds = i32::try_from(self.times.duration.as_secs().max(1)).ok();
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default() + 1);
        spec.acquire_time = Some(now.clone());
        spec.renew_time = Some(now);
    }

    /// `started`: the time before the Lease was read or written.
    fn start_renewal(&self, lease: Lease, started: Instant) -> Leadership {
        let annotation = |name| lease.metadata.annotations.as_ref().and_then(|all| all.get(name).cloned());
        let term = annotation(TERM).and_then(|term| term.parse().ok());
        let cluster = annotation(CLUSTER);
        let (cluster_sender, cluster_updates) = watch::channel(None);
        let lost = CancellationToken::new();
        self.lease_guard.extend(started + self.times.give_up);
        let renewal = tokio::spawn(self.clone().renew(lease, started, lost.clone(), cluster_updates));
        Leadership { term: term.unwrap_or_default(), cluster, lost, cluster_sender, renewal }
    }

    /// Renews the Lease until `lost`, and cancels `lost` when renewal fails for too long.
    async fn renew(
        self,
        mut lease: Lease,
        mut renewed: Instant,
        lost: CancellationToken,
        mut cluster_updates: watch::Receiver<Option<String>>,
    ) -> Lease {
        loop {
            tokio::select! {
                () = sleep(self.times.renew) => {}
                Ok(()) = cluster_updates.changed() => {}
                () = lost.cancelled() => return lease,
            }
            while !lost.is_cancelled() {
                if let Some(spec) = &mut lease.spec {
                    spec.renew_time = Some(MicroTime(Timestamp::now()));
                }
                if let Some(cluster) = &*cluster_updates.borrow_and_update() {
                    lease
                        .metadata
                        .annotations
                        .get_or_insert_default()
                        .insert(CLUSTER.into(), cluster.clone());
                }
                let started = Instant::now();
                let left = self.times.give_up.saturating_sub(renewed.elapsed());
                match timeout(left, self.leases.replace(&self.name, &PostParams::default(), &lease)).await {
                    Ok(Ok(now)) => {
                        lease = now;
                        renewed = started;
                        self.lease_guard.extend(renewed + self.times.give_up);
                        break;
                    }
                    Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                        match self.own_lease().await {
                            Ok(Some(now)) => lease = now,
                            Ok(None) => {
                                warn!("the lead was taken by another process");
                                lost.cancel();
                            }
                            Err(error) => warn!(%error, "the Lease can't be looked at, trying again"),
                        }
                    }
                    Ok(Err(error)) => warn!(%error, "the Lease was not renewed, trying again"),
                    Err(_) => {}
                }
                if renewed.elapsed() >= self.times.give_up {
                    warn!("the Lease could not be renewed in time: giving up the lead");
                    lost.cancel();
                }
                tokio::select! {
                    () = sleep(self.times.renew / 5) => {}
                    () = lost.cancelled() => {}
                }
            }
        }
    }

    /// Reads the Lease if this process still holds it. A renewal without an answer may have succeeded and changed the
    /// version.
    async fn own_lease(&self) -> kube::Result<Option<Lease>> {
        let lease = self.leases.get_opt(&self.name).await?;
        let is_own = |lease: &Lease| {
            lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(&*self.identity)
        };
        Ok(lease.filter(is_own))
    }

    /// Releases the Lease, so that another process need not wait until it expires. All writers have stopped before.
    pub async fn release(&self, leadership: Leadership) {
        let is_held = !leadership.lost.is_cancelled();
        leadership.lost.cancel();
        self.lease_guard.revoke();
        let Ok(mut lease) = leadership.renewal.await else { return };
        if !is_held {
            return;
        }
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        match timeout(self.times.renew, self.leases.replace(&self.name, &PostParams::default(), &lease)).await
        {
            Ok(Ok(_)) => info!(term = leadership.term, "gave back the lead"),
            Ok(Err(error)) => warn!(%error, "the Lease was not released; it runs out by itself"),
            Err(_) => warn!("the Lease was not released in time; it runs out by itself"),
        }
    }
}

/// The term after `term`. It is no less than the Unix time in seconds. So it exceeds all earlier ones also when the Lease
/// is made anew or restored from a backup, unless more than one leader a second followed before.
fn next_term(term: u64, now: Timestamp) -> u64 {
    term.saturating_add(1).max(u64::try_from(now.as_second()).unwrap_or_default())
}

/// A conflict means that another process was faster.
fn none_on_conflict(result: kube::Result<Lease>) -> kube::Result<Option<Lease>> {
    match result {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_grow_also_without_the_former_lease() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(next_term(0, now), 1_800_000_000);
        assert_eq!(next_term(3, now), 1_800_000_000);
        assert_eq!(next_term(1_800_000_000, now), 1_800_000_001);
        assert_eq!(next_term(u64::MAX, now), u64::MAX);
    }
}
