//! Posts one callback.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eno_core::Key;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Certificate, Client, Identity, NoProxy, Proxy, StatusCode, Url, redirect};

use super::CallbackArgs;
use super::address::{Forbidden, Policy};
use super::message::{Endpoint, Message};
use super::secrets::Secrets;
use crate::api;

const TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
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
        /// Error text.
        error: String,
    },
    /// The attempt failed; a retry may help.
    Failed {
        /// Error text.
        error: String,
        /// Minimum delay that the endpoint asked for.
        after: Option<Duration>,
    },
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
        source: reqwest::Error,
    },
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
            http: http(args, &policy)?,
            policy,
            secrets: Secrets::new(kube.clone()),
            kube,
            namespace: namespace.to_owned(),
            endpoint_test: args.callback_endpoint_test,
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
        if let Err(forbidden) = self.policy.url(&url) {
            return rejected(&forbidden);
        }
        if self.endpoint_test && message.counter == 1 && !message.test {
            match self.test_endpoint(&url).await {
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
                Err(error) => return PostOutcome::Failed { error, after: None },
            }
        }
        let request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, media_type)
            .header(ID, &message.id)
            .header(TIMESTAMP, timestamp)
            .header(TRANSITION, message.counter)
            .headers(headers);
        let request = if message.test { request.header(TEST, "true") } else { request };
        match request.body(body).send().await {
            Ok(response) => outcome(response.status(), response.headers(), Timestamp::now()),
            Err(error) => failed(error),
        }
    }

    /// Tests an endpoint by GET as in ETSI GS NFV-SOL 013 (5.9): the only valid response is 204.
    pub async fn test_endpoint(&self, url: &Url) -> PostOutcome {
        if let Err(forbidden) = self.policy.url(url) {
            return rejected(&forbidden);
        }
        match self.http.get(url.clone()).send().await {
            Ok(response) if response.status() == StatusCode::NO_CONTENT => PostOutcome::Accepted,
            Ok(response) => {
                let error = format!("the endpoint test was answered {}, not 204", response.status());
                PostOutcome::Failed { error, after: None }
            }
            Err(error) => failed(error),
        }
    }
}

fn http(args: &CallbackArgs, policy: &Arc<Policy>) -> Result<Client, PosterError> {
    let failed = |what| move |source| PosterError::Client { what, source };
    let read = |file: &PathBuf| {
        std::fs::read(file).map_err(|source| PosterError::File { file: file.clone(), source })
    };
    let mut builder = Client::builder()
        .redirect(redirect::Policy::none())
        .timeout(TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("eno/", env!("CARGO_PKG_VERSION")))
        // Proxies of the environment are added below, where their host names are recorded.
        .no_proxy();
    let mut proxies = Vec::new();
    for (text, make) in proxy_urls(args.callback_proxy.as_deref(), |name| std::env::var(name).ok()) {
        let proxy = make(&text).map_err(failed("the proxy for callbacks"))?;
        builder = builder.proxy(proxy.no_proxy(NoProxy::from_env()));
        proxies.extend(Url::parse(&text).ok().and_then(|url| url.host_str().map(str::to_lowercase)));
    }
    if let Some(file) = &args.callback_ca {
        let authorities = Certificate::from_pem_bundle(&read(file)?).map_err(failed("--callback-ca"))?;
        builder = builder.tls_certs_merge(authorities);
    }
    if let Some(file) = &args.callback_client_certificate {
        let identity = Identity::from_pem(&read(file)?).map_err(failed("--callback-client-certificate"))?;
        builder = builder.identity(identity);
    }
    let resolver = CheckedResolver { policy: policy.clone(), proxies: proxies.into() };
    builder.dns_resolver(Arc::new(resolver)).build().map_err(failed("the HTTP client for callbacks"))
}

type MakeProxy = fn(&str) -> reqwest::Result<Proxy>;

/// The proxy URLs, each with its constructor for the URL schemes.
fn proxy_urls(flag: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Vec<(String, MakeProxy)> {
    if let Some(url) = flag {
        return vec![(url.to_owned(), |url| Proxy::all(url))];
    }
    let either = |upper: &str| {
        let found = variable(upper).or_else(|| variable(&upper.to_lowercase()));
        found.filter(|url| !url.is_empty())
    };
    let mut found: Vec<(String, MakeProxy)> = Vec::new();
    found.extend(either("HTTPS_PROXY").map(|url| (url, (|url| Proxy::https(url)) as MakeProxy)));
    found.extend(either("HTTP_PROXY").map(|url| (url, (|url| Proxy::http(url)) as MakeProxy)));
    found
}

/// Resolves a host name once, checks its addresses and returns them for the connection.
struct CheckedResolver {
    policy: Arc<Policy>,
    /// Host names of proxies: the administrator chose them, and they resolve other names themselves.
    proxies: Arc<[String]>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let is_allowed = self.policy.host_is_allowed(&name) || self.proxies.contains(&name.to_lowercase());
        let policy = self.policy.clone();
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
            if !is_allowed {
                // A refused address among others may be placed there by an attacker.
                addresses.iter().try_for_each(|address| policy.address(address.ip()))?;
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn rejected(forbidden: &Forbidden) -> PostOutcome {
    PostOutcome::Rejected { what: "forbidden", error: forbidden.to_string() }
}

fn failed(error: reqwest::Error) -> PostOutcome {
    // The URL may contain a secret in its path or query.
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(forbidden) = cause.downcast_ref::<Forbidden>() {
            return rejected(forbidden);
        }
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    PostOutcome::Failed { error: text, after: None }
}

fn outcome(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> PostOutcome {
    if status.is_success() {
        return PostOutcome::Accepted;
    }
    let error = format!("answered {status}");
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

    #[test]
    fn proxy_flag_overrides_environment() {
        let environment = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://upper:1".to_owned()),
            "http_proxy" => Some("http://lower:2".to_owned()),
            _ => None,
        };
        let urls =
            |flag| -> Vec<String> { proxy_urls(flag, environment).into_iter().map(|(url, _)| url).collect() };
        assert_eq!(urls(Some("http://flag:3")), ["http://flag:3"]);
        assert_eq!(urls(None), ["http://upper:1", "http://lower:2"]);
    }
}
