//! Guards writes by the Lease: a leader that was paused and resumes does not know yet that another process leads.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::Request;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::Service;

/// Until when this process is sure to hold the Lease, by its own clock. All writes of the leader wait for it: they
/// continue after a renewal and are dropped when the Lease is lost.
///
/// Writes already in flight are not covered. NATS refuses them by the expected last sequence, and the next leader
/// corrects what gets through (`eno_core::Schedule::command_replaced`, `Change::StatusObserved`).
#[derive(Clone, Debug)]
pub struct LeaseGuard(watch::Sender<Option<Instant>>);

impl LeaseGuard {
    /// Creates a guard that does not hold the Lease.
    pub fn not_held() -> Self {
        Self(watch::Sender::new(None))
    }

    /// The Lease is held until this time.
    pub fn extend(&self, until: Instant) {
        self.0.send_replace(Some(until));
    }

    /// The Lease is not held any more.
    pub fn revoke(&self) {
        self.0.send_replace(None);
    }

    /// Waits until the Lease is held; forever when it is lost.
    pub async fn wait_until_held(&self) {
        let mut until = self.0.subscribe();
        loop {
            if until.borrow_and_update().is_some_and(|until| Instant::now() < until) {
                return;
            }
            // This object is the sender, so it exists.
            if until.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Delays requests that change something until the Lease is held.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    lease_guard: LeaseGuard,
}

impl<S> Fenced<S> {
    /// Wraps a service.
    pub fn new(inner: S, lease_guard: LeaseGuard) -> Self {
        Self { inner, lease_guard }
    }
}

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let changes = !request.method().is_safe();
        // The request is sent when the future is first polled.
        let answer = self.inner.call(request);
        let lease_guard = self.lease_guard.clone();
        Box::pin(async move {
            if changes {
                lease_guard.wait_until_held().await;
            }
            answer.await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::http::Method;
    use futures::FutureExt as _;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn writes_wait_for_lease_and_reads_do_not() {
        let lease_guard = LeaseGuard::not_held();
        let server =
            service_fn(|request: Request<()>| async move { Ok::<_, Infallible>(request.method().clone()) });
        let fenced = Fenced::new(server, lease_guard.clone());
        let send = |method: Method| {
            let request = Request::builder().method(method).body(()).unwrap();
            fenced.clone().oneshot(request)
        };
        assert_eq!(send(Method::GET).now_or_never(), Some(Ok(Method::GET)));
        let mut patch = Box::pin(send(Method::PATCH));
        assert_eq!((&mut patch).now_or_never(), None);
        lease_guard.extend(Instant::now());
        assert_eq!((&mut patch).now_or_never(), None, "it ended already");
        lease_guard.extend(Instant::now() + Duration::from_mins(1));
        assert_eq!((&mut patch).now_or_never(), Some(Ok(Method::PATCH)));
        lease_guard.revoke();
        assert_eq!(send(Method::DELETE).now_or_never(), None);
    }
}
