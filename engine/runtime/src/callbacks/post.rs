//! Posts one callback.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use eno_core::Key;
use eno_http_client::{BoxError, Client};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use reqwest::Url;
use tokio::time::timeout;

use super::address::{Forbidden, Policy};
use super::message::{Endpoint, Message};
use super::secrets::Secrets;
use super::{CallbackArgs, notices};
use crate::api;

/// The time limit of a post, with the test of its endpoint.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum Retry-After of an endpoint: ten attempts have to fit into the retention time of the outbox.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(6);

/// Header names of Standard Webhooks.
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const TRANSITION: HeaderName = HeaderName::from_static("eno-transition");
const TEST: HeaderName = HeaderName::from_static("eno-test");

/// Outcome of a post.
#[derive(Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// The endpoint accepted it.
    Accepted,
    /// The object has no valid CallbackURL.
    NoEndpoint,
    /// Permanent failure: a retry can't help.
    Rejected {
        /// Label of the metrics.
        what: &'static str,
        /// What is wrong.
        error: Problem,
    },
    /// The attempt failed; a retry may help.
    Failed {
        /// What is wrong.
        error: Problem,
        /// Minimum delay that the endpoint asked for.
        after: Option<Duration>,
    },
}

/// Why a callback was not taken.
///
/// Whoever may write an object chooses where the engine connects to. If he read how that ended, he could search networks
/// that he can't reach himself for open ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// For admins.
    pub text: String,
    /// For the writers of the object; `None`: they read only that it was not taken.
    pub shown: Option<String>,
}

impl Problem {
    /// One that says nothing about what a connection met.
    fn shown(text: String) -> Self {
        Self { shown: Some(text.clone()), text }
    }

    /// One that only admins read.
    fn hidden(text: String) -> Self {
        Self { text, shown: None }
    }
}

/// The flags for callbacks are invalid. A retry can't help.
#[derive(Debug, thiserror::Error)]
pub enum PosterError {
    /// A file can't be read.
    #[error("reading {file}: {source}", file = file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The IO error.
        source: std::io::Error,
    },
    /// The HTTP client refuses a setting.
    #[error("{what}: {source}")]
    Client {
        /// The setting.
        what: &'static str,
        /// Error of the HTTP client.
        source: BoxError,
    },
    /// The URL of a proxy can't be used.
    #[error("the proxy for callbacks: {0}")]
    Proxy(String),
}

/// Posts callbacks.
pub struct Poster {
    /// HTTP client for callbacks.
    http: Client,
    /// Addresses that callbacks may go to.
    policy: Arc<Policy>,
    /// Signing keys.
    secrets: Secrets,
    /// Client of the API server.
    kube: kube::Client,
    /// Namespace of the Secrets for cluster-scoped objects.
    namespace: String,
    /// Test an endpoint before the first callback of an object.
    endpoint_test: bool,
    /// Milliseconds from the beginning of a failed post until the object's condition says it.
    pub notice_delay: i64,
}

impl Poster {
    /// `namespace`: the operator's namespace.
    pub fn new(args: &CallbackArgs, kube: kube::Client, namespace: &str) -> Result<Self, PosterError> {
        let mut deny = args.callback_deny.clone();
        // In a pod: the cluster IP of the API server.
        let server = std::env::var("KUBERNETES_SERVICE_HOST").ok().and_then(|host| host.parse().ok());
        deny.extend(server.map(|address: std::net::IpAddr| ipnet::IpNet::from(address)));
        let policy = Arc::new(Policy::new(args.callback_allow.clone(), deny, args.callback_https_only));
        Ok(Self {
            http: super::http::client(args, policy.clone())?,
            policy,
            secrets: Secrets::new(kube.clone()),
            kube,
            namespace: namespace.to_owned(),
            endpoint_test: args.callback_endpoint_test,
            notice_delay: notices::DELAY,
        })
    }

    /// Client of the API server.
    pub fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// The current version of an object; `None`: it is gone or can't be read.
    pub async fn object(&self, key: &Key) -> Option<DynamicObject> {
        let resource = api::resource(key.kind);
        let objects: Api<DynamicObject> = match key.namespace() {
            Some(namespace) => Api::namespaced_with(self.kube.clone(), namespace, &resource),
            None => Api::all_with(self.kube.clone(), &resource),
        };
        objects.get_opt(&key.name).await.ok().flatten()
    }

    /// Posts a message.
    pub async fn post(&self, message: &Message, endpoint: &Endpoint) -> PostOutcome {
        let Some(url) = endpoint.url.as_deref().and_then(|text| Url::parse(text).ok()) else {
            return PostOutcome::NoEndpoint;
        };
        self.within(&url, self.post_to(&url, message, endpoint)).await
    }

    /// Tests an endpoint by GET as in ETSI GS NFV-SOL 013 (5.9): the only valid response is 204.
    pub async fn test_endpoint(&self, url: &Url) -> PostOutcome {
        self.within(url, self.get(url)).await
    }

    /// Ends a post after a time. The writers of an object read how it ended if an admin named the endpoint.
    async fn within(&self, url: &Url, posting: impl Future<Output = PostOutcome>) -> PostOutcome {
        let late = || PostOutcome::Failed { error: Problem::hidden("no answer in time".into()), after: None };
        let mut outcome = timeout(TIMEOUT, posting).await.unwrap_or_else(|_| late());
        if let PostOutcome::Rejected { error, .. } | PostOutcome::Failed { error, .. } = &mut outcome
            && self.policy.names(url)
        {
            error.shown = Some(error.text.clone());
        }
        outcome
    }

    async fn post_to(&self, url: &Url, message: &Message, endpoint: &Endpoint) -> PostOutcome {
        if let Err(forbidden) = self.policy.url(url) {
            return rejected(&forbidden);
        }
        if self.endpoint_test && message.counter == 1 && !message.test {
            match self.get(url).await {
                PostOutcome::Accepted => {}
                other => return other,
            }
        }
        let (body, media_type) = message.body(endpoint.format.unwrap_or_default());
        let timestamp = Timestamp::now().as_second();
        let mut headers = HeaderMap::new();
        if let Some(secret) = &endpoint.secret {
            let namespace = message.namespace.as_deref().unwrap_or(&self.namespace);
            let keys = self.secrets.keys(namespace, &secret.name).await.map_err(|error| error.to_string());
            let signature = keys.and_then(|keys| {
                let signature = keys.sign(&message.id, timestamp, &body);
                HeaderValue::try_from(signature).map_err(|error| error.to_string())
            });
            match signature {
                Ok(signature) => drop(headers.insert(SIGNATURE, signature)),
                // A callback with a CallbackSecret is never sent unsigned.
                Err(error) => return PostOutcome::Failed { error: Problem::shown(error), after: None },
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(TIMESTAMP, timestamp.into());
        headers.insert(TRANSITION, message.counter.into());
        match HeaderValue::try_from(&message.id) {
            Ok(id) => drop(headers.insert(ID, id)),
            Err(error) => {
                return PostOutcome::Failed { error: Problem::shown(error.to_string()), after: None };
            }
        }
        if message.test {
            headers.insert(TEST, HeaderValue::from_static("true"));
        }
        match self.send(Method::POST, url, headers, body).await {
            Ok((status, headers)) => outcome(status, &headers, Timestamp::now()),
            Err(error) => failed(&*error),
        }
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap), BoxError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        let answer = self.http.send(request, url).await?;
        Ok((answer.status, answer.headers))
    }

    async fn get(&self, url: &Url) -> PostOutcome {
        if let Err(forbidden) = self.policy.url(url) {
            return rejected(&forbidden);
        }
        match self.send(Method::GET, url, HeaderMap::new(), Bytes::new()).await {
            Ok((StatusCode::NO_CONTENT, _)) => PostOutcome::Accepted,
            Ok((status, _)) => {
                let error = format!("the endpoint test was answered {status}, not 204");
                PostOutcome::Failed { error: Problem::hidden(error), after: None }
            }
            Err(error) => failed(&*error),
        }
    }
}

fn rejected(forbidden: &Forbidden) -> PostOutcome {
    PostOutcome::Rejected { what: "forbidden", error: Problem::shown(forbidden.to_string()) }
}

fn failed(error: &(dyn Error + 'static)) -> PostOutcome {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(forbidden) = cause.downcast_ref::<Forbidden>() {
            // What a name resolves to is for admins.
            let error = Problem { text: forbidden.to_string(), shown: Some(forbidden.without_address()) };
            return PostOutcome::Rejected { what: "forbidden", error };
        }
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    PostOutcome::Failed { error: Problem::hidden(text), after: None }
}

fn outcome(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> PostOutcome {
    if status.is_success() {
        return PostOutcome::Accepted;
    }
    let error = Problem::hidden(format!("answered {status}"));
    if status == StatusCode::GONE {
        return PostOutcome::Rejected { what: "refused", error };
    }
    let after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| eno_sbi::retry_after(text, now))
        .map(|after| after.min(MAX_RETRY_AFTER));
    PostOutcome::Failed { error, after }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_status_maps_to_outcome() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let mut headers = HeaderMap::new();
        let plain =
            |code: u16, headers: &HeaderMap| outcome(StatusCode::from_u16(code).unwrap(), headers, now);
        assert_eq!(plain(200, &headers), PostOutcome::Accepted);
        assert_eq!(plain(204, &headers), PostOutcome::Accepted);
        for code in [301, 302, 307, 400, 404, 500] {
            assert!(matches!(plain(code, &headers), PostOutcome::Failed { after: None, .. }), "{code}");
        }
        assert!(matches!(plain(410, &headers), PostOutcome::Rejected { what: "refused", .. }));
        for (value, seconds) in [
            ("120", Some(120)),
            ("Fri, 02 Jan 2026 03:05:05 GMT", Some(60)),
            ("Fri, 02 Jan 2026 03:03:05 GMT", Some(0)),
            ("999999", Some(6 * 3600)),
            ("soon", None),
        ] {
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            let PostOutcome::Failed { after, .. } = plain(503, &headers) else { panic!() };
            assert_eq!(after, seconds.map(Duration::from_secs), "{value}");
        }
    }
}
