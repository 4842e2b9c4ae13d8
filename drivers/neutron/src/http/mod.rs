//! HTTP to Keystone and Neutron: pages, and what answers mean. `exchange` sends a request and reads its answer, `login`
//! gets tokens.

mod exchange;
mod login;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eno_device_secrets::{Permit, SecretSource};
use eno_sbi::{Memory, Share};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH};
use http::{Method, Request, StatusCode};
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use tracing::debug;

use self::exchange::{Answer, Exchange, Held, JSON, too_long};
use self::login::{HeldToken, keystone_url, login};
use crate::error::{ApiError, Refusal};
use crate::keystone::Credentials;
use crate::request::HttpRequest;
use crate::text::shown;

const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
/// Maximum bytes of all pages of a list.
const MAX_LIST: usize = 256 << 20;
/// What is kept of clouds, and what their answers take while they are read. The container's limit is more than twice
/// that of all clouds together.
static MEMORY: Memory = Memory::new(64 << 20, 160 << 20);
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
    exchange: Exchange,
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

impl Api {
    /// Logs in where the permit says.
    pub async fn open(
        secrets: SecretSource,
        permit: Permit,
        credentials: Credentials,
        limits: Limits,
    ) -> Result<Self, ApiError> {
        let exchange = Exchange::new(&credentials, limits, MEMORY.share())?;
        let (held, token) = login(&exchange, &permit, &credentials).await?;
        let neutron = token.neutron(&credentials, &keystone_url(permit.login().address())?)?;
        debug!(keystone = permit.login().address(), neutron = %neutron, "logged in");
        Ok(Self {
            exchange,
            secrets,
            permit,
            credentials,
            neutron,
            project: token.project.map(|project| project.id).unwrap_or_default(),
            token: tokio::sync::Mutex::new(held),
            requests: AtomicU64::new(1),
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
        std::mem::replace(&mut self.exchange.memory(), MEMORY.share())
    }

    /// Counts as before [`Self::count_anew`].
    pub fn count_as_before(&self, before: Share) {
        *self.exchange.memory() = before;
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
            self.exchange
                .memory()
                .add(kept)
                .map_err(|error| self.too_large(&operation, error.to_string()))?;
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
        let if_match = if_match.map(HeaderValue::try_from).transpose();
        let if_match = if_match.map_err(|error| {
            self.not_the_api(operation, StatusCode::OK, format!("a revision that is no header: {error}"))
        })?;
        let mut renewed = false;
        loop {
            let token = self.token().await?;
            let mut request = Request::new(body.map(Value::to_string).unwrap_or_default().into());
            *request.method_mut() = method.clone();
            request.headers_mut().insert(AUTH_TOKEN, token.header());
            if let Some(if_match) = &if_match {
                request.headers_mut().insert(IF_MATCH, if_match.clone());
            }
            if body.is_some() {
                request.headers_mut().insert(CONTENT_TYPE, JSON);
            }
            self.requests.fetch_add(1, Ordering::Relaxed);
            let answer = self.exchange.send(operation, request, &url).await?;
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
            *held = login(&self.exchange, &permit, &self.credentials).await?.0;
        }
        Ok(held.clone())
    }
}

/// Items per page of a list. Each item is some hundred bytes, but a trunk with all VLANs is 0.5 MB, and 5 MB when it is
/// parsed.
fn page_size(query: &[(&str, &str)]) -> &'static str {
    if query.contains(&("fields", "sub_ports")) { "8" } else { "1000" }
}
