//! One request and its answer.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use eno_http_client::{BoxError, Client, Settings, certificates};
use eno_sbi::{Share, TooLarge, json_size};
use http::header::HeaderValue;
use http::{Request, StatusCode};
use hyper_util::client::proxy::matcher::Matcher;
use jiff::Timestamp;
use reqwest::Url;
use serde_json::Value;
use tokio::time::timeout;

use super::Limits;
use crate::error::ApiError;
use crate::keystone::Credentials;
use crate::text::shown;

/// The type of all bodies.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Maximum bytes of an answer. A trunk with all VLANs has 0.5 MB.
const MAX_ANSWER: usize = 16 << 20;

/// Sends requests, and counts the memory of their answers.
#[derive(Debug)]
pub struct Exchange {
    client: Client,
    /// Time limit of a request and its answer.
    limit: Duration,
    /// The Secret with the certificate authorities.
    secret: String,
    /// The memory of the answers, and of what was read last.
    memory: Arc<Mutex<Share>>,
}

/// Memory that an answer takes until it was read.
#[derive(Debug)]
pub struct Held {
    share: Arc<Mutex<Share>>,
    bytes: usize,
}

impl Held {
    fn add(&mut self, bytes: usize) -> Result<(), TooLarge> {
        lock(&self.share).add(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.share).give_back(self.bytes);
    }
}

fn lock(share: &Mutex<Share>) -> MutexGuard<'_, Share> {
    share.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange {
    /// Trusts the certificate authorities of the credential too.
    pub fn new(credentials: &Credentials, limits: Limits, memory: Share) -> Result<Self, ApiError> {
        let bad = |error: BoxError| ApiError::Authorities {
            name: credentials.name.clone(),
            reason: causes(&*error),
        };
        let authorities = match &credentials.authorities {
            Some(text) => certificates(text.expose().as_bytes()).map_err(bad)?,
            None => Vec::new(),
        };
        let tls = eno_http_client::tls(authorities).map_err(|error| bad(error.into()))?.with_no_client_auth();
        let client = Client::new(Settings {
            tls,
            http2: false,
            proxies: Matcher::from_env(),
            check: Arc::new(|_, _| Ok(())),
            connect_timeout: limits.connect,
        });
        Ok(Self {
            client,
            limit: limits.request,
            secret: credentials.name.clone(),
            memory: Arc::new(Mutex::new(memory)),
        })
    }

    /// The memory that is counted.
    pub fn memory(&self) -> MutexGuard<'_, Share> {
        lock(&self.memory)
    }

    /// Sends a request to `url`, and reads the whole answer.
    pub async fn send(
        &self,
        operation: &str,
        request: Request<Bytes>,
        url: &Url,
    ) -> Result<Answer, ApiError> {
        let server = url.origin().ascii_serialization();
        let late = |_| ApiError::Unreachable {
            operation: operation.to_owned(),
            server: server.clone(),
            reason: format!("no whole answer came within {} s", self.limit.as_secs()),
        };
        timeout(self.limit, self.read(operation, request, url, &server)).await.map_err(late)?
    }

    async fn read(
        &self,
        operation: &str,
        request: Request<Bytes>,
        url: &Url,
        server: &str,
    ) -> Result<Answer, ApiError> {
        let failed = |error: BoxError| match refused_certificate(&*error) {
            Some(reason) => {
                ApiError::Certificate { server: server.to_owned(), reason, secret: self.secret.clone() }
            }
            None => ApiError::Unreachable {
                operation: operation.to_owned(),
                server: server.to_owned(),
                reason: causes(&*error),
            },
        };
        let mut response = self.client.send(request, url).await.map_err(failed)?;
        let header =
            |name: &str| -> Option<String> { Some(response.headers.get(name)?.to_str().ok()?.to_owned()) };
        let mut answer = Answer {
            status: response.status,
            content_type: shown(&header("content-type").unwrap_or_else(|| "an untyped answer".to_owned())),
            retry_after: header("retry-after").and_then(|text| eno_sbi::retry_after(&text, Timestamp::now())),
            token: header("x-subject-token"),
            body: Vec::new(),
            held: Held { share: Arc::clone(&self.memory), bytes: 0 },
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
}

/// An answer of any server.
pub struct Answer {
    pub status: StatusCode,
    pub content_type: String,
    pub retry_after: Option<Duration>,
    pub token: Option<String>,
    pub body: Vec<u8>,
    pub held: Held,
}

impl Answer {
    /// The content; `None`: it is no JSON.
    pub fn parse(&mut self) -> Result<Option<Value>, TooLarge> {
        self.held.add(json_size(&self.body))?;
        Ok(serde_json::from_slice(&self.body).ok())
    }

    /// What it is, for messages.
    pub fn content(&self) -> String {
        if self.body.is_empty() { "an empty answer".to_owned() } else { self.content_type.clone() }
    }
}

/// The reason against a text of more bytes than `limit`.
pub fn too_long(what: &str, limit: usize) -> String {
    format!("{what} has more than {} MiB", limit >> 20)
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
