//! Whether this process may write: a leader that was stopped for a while and goes on does not know yet that another
//! one leads.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::Request;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::Service;

/// Until when the lead is held for sure, by this process's own clock. All that the leader writes waits for that: what a
/// renewal of the Lease makes sure of goes on, and what is left when the lead is lost is dropped.
///
/// What was on its way already is beyond it: the expected last sequence refuses that on NATS, and what gets through is
/// put right by who leads then (`Gate::overwritten`, `Change::Found`).
#[derive(Clone, Debug)]
pub struct Tenure(watch::Sender<Option<Instant>>);

impl Tenure {
    /// The lead is not held.
    pub fn none() -> Self {
        Self(watch::Sender::new(None))
    }

    /// The lead is held for sure until this time.
    pub fn extend(&self, until: Instant) {
        self.0.send_replace(Some(until));
    }

    /// The lead is not held any more.
    pub fn end(&self) {
        self.0.send_replace(None);
    }

    /// Waits until the lead is held for sure; for ever when it is lost.
    pub async fn held(&self) {
        let mut until = self.0.subscribe();
        loop {
            if until.borrow_and_update().is_some_and(|until| Instant::now() < until) {
                return;
            }
            // The sender is this.
            if until.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Sends requests that change something only while the lead is held for sure.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    tenure: Tenure,
}

impl<S> Fenced<S> {
    /// In front of a service.
    pub fn new(inner: S, tenure: Tenure) -> Self {
        Self { inner, tenure }
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
        // It is sent when the future is first polled.
        let answer = self.inner.call(request);
        let tenure = self.tenure.clone();
        Box::pin(async move {
            if changes {
                tenure.held().await;
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
    async fn what_changes_something_waits_for_the_lead_and_what_reads_does_not() {
        let tenure = Tenure::none();
        let server =
            service_fn(|request: Request<()>| async move { Ok::<_, Infallible>(request.method().clone()) });
        let fenced = Fenced::new(server, tenure.clone());
        let ask = |method: Method| {
            let request = Request::builder().method(method).body(()).unwrap();
            fenced.clone().oneshot(request)
        };
        assert_eq!(ask(Method::GET).now_or_never(), Some(Ok(Method::GET)));
        let mut patch = Box::pin(ask(Method::PATCH));
        assert_eq!((&mut patch).now_or_never(), None);
        tenure.extend(Instant::now());
        assert_eq!((&mut patch).now_or_never(), None, "it ended already");
        tenure.extend(Instant::now() + Duration::from_mins(1));
        assert_eq!((&mut patch).now_or_never(), Some(Ok(Method::PATCH)));
        tenure.end();
        assert_eq!(ask(Method::DELETE).now_or_never(), None);
    }
}
