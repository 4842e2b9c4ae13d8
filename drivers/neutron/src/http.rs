//! HTTP to Keystone and Neutron: the token, pages, and what answers mean.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eno_device_secrets::{Permit, SecretSource};
use eno_sbi::{Memory, Share, TooLarge, json_size};
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Certificate, Client, Method, StatusCode, Url, redirect};
use serde::Deserialize;
use serde_json::Value;
use tracing::debug;

use crate::error::{ApiError, Refusal};
use crate::keystone::{Credentials, Token};
use crate::request::HttpRequest;
use crate::text::shown;

/// Maximum bytes of an answer. A trunk with all VLANs has 0.5 MB.
const MAX_ANSWER: usize = 16 << 20;
/// Maximum bytes of all pages of a list.
const MAX_LIST: usize = 256 << 20;
/// What is kept of clouds, and what their answers take while they are read. The container's limit is more than twice
/// that of all clouds together.
static MEMORY: Memory = Memory::new(64 << 20, 160 << 20);
/// A token is renewed this long before its end.
const RENEW_BEFORE: Duration = Duration::from_mins(1);
/// Maximum pages of a list.
const MAX_PAGES: usize = 10_000;
/// Temporary refusals that are waited out.
const MAX_WAITS: u32 = 4;
/// The first wait; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Maximum wait that a server can ask for. After a longer one, the host tries again.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Time limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// To connect.
    pub connect: Duration,
    /// For the answer to a request.
    pub request: Duration,
}

/// Waits after temporary refusals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits(u32);

impl Waits {
    /// Waits as long as the server asks for; returns the error after several waits, or when it is no temporary refusal.
    pub async fn wait_after(&mut self, error: ApiError) -> Result<(), ApiError> {
        let ApiError::Refused { refusal, .. } = &error else { return Err(error) };
        let wait = refusal.retry_after.unwrap_or(FIRST_WAIT * 2u32.pow(self.0));
        if !refusal.is_temporary() || self.0 >= MAX_WAITS || wait > MAX_WAIT {
            return Err(error);
        }
        self.0 += 1;
        debug!(%error, ?wait, "waiting");
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// Where Neutron is, and a token for it.
#[derive(Debug)]
pub struct Api {
    client: Client,
    /// Confirms each login.
    secrets: SecretSource,
    permit: Permit,
    credentials: Credentials,
    /// Neutron's URL with `/v2.0/`.
    neutron: Url,
    /// The id of the project.
    project: String,
    token: tokio::sync::Mutex<HeldToken>,
    requests: AtomicU64,
    /// The memory of its answers, and of what was read last.
    memory: Arc<Mutex<Share>>,
}

/// Memory that an answer takes until it was read.
#[derive(Debug)]
struct Held {
    share: Arc<Mutex<Share>>,
    bytes: usize,
}

impl Held {
    fn add(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner).add(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.share.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.bytes);
    }
}

/// The answer to a change.
#[derive(Debug)]
pub struct Answered {
    content: Value,
    /// The bytes of its body.
    length: usize,
    #[expect(dead_code, reason = "dropping it gives the memory back")]
    held: Option<Held>,
}

impl Answered {
    /// The content, which no longer counts.
    pub fn into_content(self) -> Value {
        self.content
    }
}

#[derive(Clone, Debug)]
struct HeldToken {
    value: eno_device_secrets::Hidden,
    renew_at: Instant,
}

impl Api {
    /// Logs in where the permit says.
    pub async fn open(
        secrets: SecretSource,
        permit: Permit,
        credentials: Credentials,
        limits: Limits,
    ) -> Result<Self, ApiError> {
        let client = client(&credentials, limits)?;
        let memory = Arc::new(Mutex::new(MEMORY.share()));
        let (held, token) = login(&client, &permit, &credentials, &memory).await?;
        let neutron = token.neutron(&credentials, &keystone_url(permit.login().address())?)?;
        debug!(keystone = permit.login().address(), neutron = %neutron, "logged in");
        Ok(Self {
            client,
            secrets,
            permit,
            credentials,
            neutron,
            project: token.project.map(|project| project.id).unwrap_or_default(),
            token: tokio::sync::Mutex::new(held),
            requests: AtomicU64::new(1),
            memory,
        })
    }

    /// What permitted the login.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// What it logged in with.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The id of the credential's project.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts what is read from now on apart from what was read before, which is returned.
    pub fn count_anew(&self) -> Share {
        std::mem::replace(&mut self.memory(), MEMORY.share())
    }

    /// Counts as before [`Self::count_anew`].
    pub fn count_as_before(&self, before: Share) {
        *self.memory() = before;
    }

    fn memory(&self) -> MutexGuard<'_, Share> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All items of a list, from all of its pages. `query`: pairs of names and values.
    pub async fn list<T: for<'a> Deserialize<'a>>(
        &self,
        collection: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, ApiError> {
        let operation = format!("read {collection}");
        let mut url = self.url(collection)?;
        url.query_pairs_mut().extend_pairs(query).append_pair("limit", page_size(query));
        let mut items = Vec::new();
        let mut bytes = 0;
        let mut waits = Waits::default();
        for _ in 0..MAX_PAGES {
            let mut answer = loop {
                match self.send(&operation, Method::GET, url.clone(), None, None).await {
                    Ok(answer) => break answer,
                    Err(ApiError::Refused { refusal, .. })
                        if refusal.status == StatusCode::NOT_FOUND && collection == "trunks" =>
                    {
                        return Err(ApiError::NoTrunks { server: self.server() });
                    }
                    Err(error) => waits.wait_after(error).await?,
                }
            };
            bytes += answer.length;
            if bytes > MAX_LIST {
                return Err(self.too_large(&operation, too_long("a list", MAX_LIST)));
            }
            let page = answer.content.get_mut(collection).map(Value::take).unwrap_or_default();
            let number = page.as_array().map_or(0, Vec::len);
            let kept = number * 2 * size_of::<T>() + answer.length;
            self.memory().add(kept).map_err(|error| self.too_large(&operation, error.to_string()))?;
            let page: Vec<T> = serde_json::from_value(page).map_err(|error| {
                self.not_the_api(&operation, StatusCode::OK, format!("an unexpected list: {error}"))
            })?;
            if page.is_empty() {
                return Ok(items);
            }
            items.extend(page);
            let links = answer.content.get(format!("{collection}_links")).and_then(Value::as_array);
            let next = links.into_iter().flatten().find(|link| link["rel"] == "next");
            // The server may name itself as it is seen behind a proxy: only the query is taken.
            let Some(next) = next.and_then(|link| link["href"].as_str()) else { return Ok(items) };
            let next = url.join(next).ok().filter(|next| next.query().is_some());
            let unreadable = || self.not_the_api(&operation, StatusCode::OK, "a link to no page".to_owned());
            let next = next.ok_or_else(unreadable)?;
            url.set_query(next.query());
        }
        let endless = format!("more than {MAX_PAGES} pages");
        Err(self.not_the_api(&operation, StatusCode::OK, endless))
    }

    /// Makes a change, and returns the answer.
    pub async fn change(&self, operation: &str, request: &HttpRequest) -> Result<Answered, ApiError> {
        let url = self.url(&request.path)?;
        self.send(operation, request.method.clone(), url, request.if_match.as_deref(), request.body.as_ref())
            .await
    }

    fn url(&self, path: &str) -> Result<Url, ApiError> {
        self.neutron
            .join(path)
            .map_err(|error| ApiError::Address { address: path.to_owned(), reason: error.to_string() })
    }

    async fn send(
        &self,
        operation: &str,
        method: Method,
        url: Url,
        if_match: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answered, ApiError> {
        let mut renewed = false;
        loop {
            let token = self.token().await?;
            let mut request =
                self.client.request(method.clone(), url.clone()).header("X-Auth-Token", token_header(&token));
            if let Some(if_match) = if_match {
                request = request.header("If-Match", if_match);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            self.requests.fetch_add(1, Ordering::Relaxed);
            let answer =
                read(request, operation, &self.server(), &self.credentials.name, &self.memory).await?;
            // The token was revoked, or ended early. The request had no effect.
            if answer.status == StatusCode::UNAUTHORIZED && !renewed {
                renewed = true;
                self.renew(&token).await?;
                continue;
            }
            return self.understand(operation, answer);
        }
    }

    fn understand(&self, operation: &str, mut answer: Answer) -> Result<Answered, ApiError> {
        if answer.status == StatusCode::NO_CONTENT {
            return Ok(Answered { content: Value::Null, length: 0, held: None });
        }
        let parsed = answer.parse().map_err(|error| self.too_large(operation, error.to_string()))?;
        if answer.status.is_success() {
            let content =
                parsed.ok_or_else(|| self.not_the_api(operation, answer.status, answer.content()))?;
            return Ok(Answered { content, length: answer.body.len(), held: Some(answer.held) });
        }
        let neutron_error = parsed.as_ref().and_then(|parsed| parsed.get("NeutronError"));
        let retry_after = answer.retry_after;
        let refusal = match (neutron_error, parsed.as_ref().and_then(|parsed| parsed.get("error"))) {
            (Some(Value::String(message)), _) => Refusal {
                status: answer.status,
                kind: "NeutronError".to_owned(),
                message: shown(message),
                retry_after,
            },
            (Some(error), _) => Refusal {
                status: answer.status,
                kind: error["type"].as_str().unwrap_or("NeutronError").to_owned(),
                message: shown(error["message"].as_str().unwrap_or_default()),
                retry_after,
            },
            (None, Some(error)) => Refusal {
                status: answer.status,
                kind: error["title"].as_str().unwrap_or("error").to_owned(),
                message: shown(error["message"].as_str().unwrap_or_default()),
                retry_after,
            },
            // A load balancer in front of Neutron.
            (None, None)
                if answer.status.is_server_error()
                    || answer.status == StatusCode::TOO_MANY_REQUESTS
                    || retry_after.is_some() =>
            {
                let message = format!("{} answered with {}", self.server(), answer.content());
                Refusal {
                    status: answer.status,
                    kind: "no answer of Neutron".to_owned(),
                    message,
                    retry_after,
                }
            }
            (None, None) => return Err(self.not_the_api(operation, answer.status, answer.content())),
        };
        Err(ApiError::Refused { operation: operation.to_owned(), refusal })
    }

    fn too_large(&self, operation: &str, reason: String) -> ApiError {
        ApiError::TooLarge { operation: operation.to_owned(), server: self.server(), reason }
    }

    fn not_the_api(&self, operation: &str, status: StatusCode, content: String) -> ApiError {
        ApiError::NotTheApi { operation: operation.to_owned(), server: self.server(), status, content }
    }

    /// Neutron, for messages.
    fn server(&self) -> String {
        self.neutron.origin().ascii_serialization()
    }

    async fn token(&self) -> Result<HeldToken, ApiError> {
        let held = self.token.lock().await.clone();
        if Instant::now() < held.renew_at {
            return Ok(held);
        }
        self.renew(&held).await
    }

    /// Gets another token than `old`, once for all requests that need one.
    async fn renew(&self, old: &HeldToken) -> Result<HeldToken, ApiError> {
        let mut held = self.token.lock().await;
        if held.value == old.value {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let permit = self.secrets.renew(&self.permit).await?;
            *held = login(&self.client, &permit, &self.credentials, &self.memory).await?.0;
        }
        Ok(held.clone())
    }
}

/// Keystone's URL with `/v3`.
fn keystone_url(address: &str) -> Result<Url, ApiError> {
    let bad = |reason: String| ApiError::Address { address: address.to_owned(), reason };
    let address = address.trim_end_matches('/');
    let address = if address.ends_with("/v3") { address.to_owned() } else { format!("{address}/v3") };
    let url = Url::parse(&address).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(bad("it must start with https:// or http://".to_owned()));
    }
    Ok(url)
}

fn client(credentials: &Credentials, limits: Limits) -> Result<Client, ApiError> {
    // Another part of the process may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bad = |error: reqwest::Error| ApiError::Authorities {
        name: credentials.name.clone(),
        reason: causes(&error),
    };
    let mut builder = Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(limits.connect)
        .timeout(limits.request)
        .user_agent(concat!("eno/", env!("CARGO_PKG_VERSION")));
    if let Some(authorities) = &credentials.authorities {
        let found = Certificate::from_pem_bundle(authorities.expose().as_bytes()).map_err(bad)?;
        if found.is_empty() {
            return Err(ApiError::Authorities {
                name: credentials.name.clone(),
                reason: "it has no certificate".to_owned(),
            });
        }
        builder = builder.tls_certs_merge(found);
    }
    builder.build().map_err(bad)
}

async fn login(
    client: &Client,
    permit: &Permit,
    credentials: &Credentials,
    memory: &Arc<Mutex<Share>>,
) -> Result<(HeldToken, Token), ApiError> {
    let operation = "log in";
    let keystone = keystone_url(permit.login().address())?;
    let server = keystone.origin().ascii_serialization();
    let request = client
        .post(format!("{keystone}/auth/tokens"))
        .header(CONTENT_TYPE, "application/json")
        .body(credentials.login().expose().to_owned());
    let mut answer = read(request, operation, &server, &credentials.name, memory).await?;
    let body = answer.parse().map_err(|error| ApiError::TooLarge {
        operation: operation.to_owned(),
        server: server.clone(),
        reason: error.to_string(),
    })?;
    let not_the_api = || ApiError::NotTheApi {
        operation: operation.to_owned(),
        server: server.clone(),
        status: answer.status,
        content: answer.content(),
    };
    if let Some(message) = body.as_ref().and_then(|body| body["error"]["message"].as_str()) {
        if answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS {
            return Err(ApiError::Unreachable {
                operation: operation.to_owned(),
                server,
                reason: format!("it answered {}: {}", answer.status, shown(message)),
            });
        }
        let remedy = match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND => {
                "Check user, password, project and domains, or make a new application credential: it may be wrong, \
                 expired or deleted"
            }
            _ => "Check the Secret against the cloud's own clouds.yaml",
        };
        return Err(ApiError::Login {
            server,
            secret: credentials.name.clone(),
            message: shown(message),
            remedy,
        });
    }
    if answer.status.is_server_error() {
        let reason = format!("it answered {} with {}", answer.status, answer.content());
        return Err(ApiError::Unreachable { operation: operation.to_owned(), server, reason });
    }
    let value = answer.token.clone().ok_or_else(not_the_api)?;
    let token = body.and_then(|mut body| serde_json::from_value::<Token>(body["token"].take()).ok());
    let token = token.ok_or_else(not_the_api)?;
    // By the clock of Keystone, which may differ from ours.
    let lifetime = token.lifetime().ok_or_else(not_the_api)?;
    let renew_at = Instant::now() + lifetime.saturating_sub(RENEW_BEFORE).max(RENEW_BEFORE);
    Ok((HeldToken { value: value.into(), renew_at }, token))
}

/// The token as a header that is never logged.
fn token_header(token: &HeldToken) -> HeaderValue {
    let header = HeaderValue::from_str(token.value.expose());
    let mut header = header.unwrap_or_else(|_| HeaderValue::from_static(""));
    header.set_sensitive(true);
    header
}

/// An answer of any server.
struct Answer {
    status: StatusCode,
    content_type: String,
    retry_after: Option<Duration>,
    token: Option<String>,
    body: Vec<u8>,
    held: Held,
}

impl Answer {
    /// The content; `None`: it is no JSON.
    fn parse(&mut self) -> Result<Option<Value>, TooLarge> {
        self.held.add(json_size(&self.body))?;
        Ok(serde_json::from_slice(&self.body).ok())
    }

    /// What it is, for messages.
    fn content(&self) -> String {
        if self.body.is_empty() { "an empty answer".to_owned() } else { self.content_type.clone() }
    }
}

async fn read(
    request: reqwest::RequestBuilder,
    operation: &str,
    server: &str,
    secret: &str,
    memory: &Arc<Mutex<Share>>,
) -> Result<Answer, ApiError> {
    let failed = |error: reqwest::Error| match refused_certificate(&error) {
        Some(reason) => {
            ApiError::Certificate { server: server.to_owned(), reason, secret: secret.to_owned() }
        }
        None => ApiError::Unreachable {
            operation: operation.to_owned(),
            server: server.to_owned(),
            reason: causes(&error.without_url()),
        },
    };
    let mut response = request.send().await.map_err(failed)?;
    let header =
        |name: &str| -> Option<String> { Some(response.headers().get(name)?.to_str().ok()?.to_owned()) };
    let mut answer = Answer {
        status: response.status(),
        content_type: shown(&header("content-type").unwrap_or_else(|| "an untyped answer".to_owned())),
        retry_after: header("retry-after").and_then(|text| eno_sbi::retry_after(&text, Timestamp::now())),
        token: header("x-subject-token"),
        body: Vec::new(),
        held: Held { share: Arc::clone(memory), bytes: 0 },
    };
    let too_large = |reason: String| ApiError::TooLarge {
        operation: operation.to_owned(),
        server: server.to_owned(),
        reason,
    };
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if answer.body.len() + chunk.len() > MAX_ANSWER {
            return Err(too_large(too_long("an answer", MAX_ANSWER)));
        }
        // The buffer grows by doubling.
        answer.held.add(2 * chunk.len()).map_err(|error| too_large(error.to_string()))?;
        answer.body.extend_from_slice(&chunk);
    }
    Ok(answer)
}

/// The reason against a text of more bytes than `limit`.
fn too_long(what: &str, limit: usize) -> String {
    format!("{what} has more than {} MiB", limit >> 20)
}

/// Items per page of a list. Each item is some hundred bytes, but a trunk with all VLANs is 0.5 MB, and 5 MB when it is
/// parsed.
fn page_size(query: &[(&str, &str)]) -> &'static str {
    if query.contains(&("fields", "sub_ports")) { "8" } else { "1000" }
}

/// Why TLS refused the server's certificate.
fn refused_certificate(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(rustls::Error::InvalidCertificate(reason)) = error.downcast_ref() {
        return Some(reason.to_string());
    }
    // `source` of an IO error is that of the error in it.
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let in_io = inner.and_then(|inner| refused_certificate(inner));
    in_io.or_else(|| refused_certificate(error.source()?))
}

/// An error with its causes.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keystone_urls_end_in_v3() {
        for (address, url) in [
            ("https://k:5000", "https://k:5000/v3"),
            ("https://k:5000/v3/", "https://k:5000/v3"),
            ("http://[2001:db8::1]/identity", "http://[2001:db8::1]/identity/v3"),
        ] {
            assert_eq!(keystone_url(address).unwrap().as_str(), url);
        }
        for address in ["keystone:5000", "ftp://k", "keystone"] {
            let error = keystone_url(address).unwrap_err();
            assert!(error.to_string().contains("is not the URL of Keystone"), "{error}");
            assert!(!error.failure().retryable);
        }
    }
}
