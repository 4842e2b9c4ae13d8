//! A JSON client of Keystone and Neutron.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Account, OpenStackError};

/// Timeout of a request. A request for hundreds of ports takes tens of seconds.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Header of the answer to a login that holds the token.
const SUBJECT_TOKEN: &str = "x-subject-token";
/// Header of the token in requests.
const AUTH_TOKEN: &str = "x-auth-token";

/// A client with the rights of an account. It logs in at its first request.
#[derive(Debug)]
pub struct OpenStackClient {
    http: reqwest::Client,
    keystone: String,
    neutron: String,
    account: Account,
    token: Mutex<Option<String>>,
}

impl OpenStackClient {
    /// Creates a client; the URLs are without path.
    pub(super) fn new(keystone: &str, neutron: &str, account: &Account) -> Result<Self, OpenStackError> {
        // Fails if a provider is installed, which then is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http =
            reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(|source| {
                OpenStackError::Request { request: "making a client".to_owned(), source }
            })?;
        Ok(Self {
            http,
            keystone: keystone.to_owned(),
            neutron: neutron.to_owned(),
            account: account.clone(),
            token: Mutex::default(),
        })
    }

    /// Reads an object or a list. The path begins with `/v3/` for Keystone, `/v2.0/` for Neutron.
    pub async fn get(&self, path: &str) -> Result<Value, OpenStackError> {
        self.request(Method::GET, path, None).await
    }

    /// Creates objects. The path is as in [`Self::get`].
    pub async fn post(&self, path: &str, body: Value) -> Result<Value, OpenStackError> {
        self.request(Method::POST, path, Some(body)).await
    }

    /// Changes an object. The path is as in [`Self::get`].
    pub async fn put(&self, path: &str, body: Value) -> Result<Value, OpenStackError> {
        self.request(Method::PUT, path, Some(body)).await
    }

    /// Deletes an object. The path is as in [`Self::get`].
    pub async fn delete(&self, path: &str) -> Result<(), OpenStackError> {
        self.request(Method::DELETE, path, None).await.map(drop)
    }

    /// Whether a GET without token succeeds.
    pub(super) async fn answers(&self, url: &str) -> bool {
        self.http.get(url).send().await.is_ok_and(|answer| answer.status().is_success())
    }

    /// Sends a request, with a new token if the last one is refused. Returns null for an answer without body.
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, OpenStackError> {
        let mut token = self.last_token();
        loop {
            let is_new = token.is_none();
            let used = match token.take() {
                Some(token) => token,
                None => self.log_in().await?,
            };
            match self.send(method.clone(), path, body.as_ref(), &used).await {
                Err(OpenStackError::Refused { status: StatusCode::UNAUTHORIZED, .. }) if !is_new => {}
                answer => return answer,
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        token: &str,
    ) -> Result<Value, OpenStackError> {
        let server = if path.starts_with("/v3") { &self.keystone } else { &self.neutron };
        let url = format!("{server}{path}");
        let request = format!("{method} {url}");
        let mut sending = self.http.request(method, &url).header(AUTH_TOKEN, token);
        if let Some(body) = body {
            sending = sending.json(body);
        }
        Ok(answer(request, sending).await?.0)
    }

    /// Gets and keeps a new token of the account's project.
    async fn log_in(&self) -> Result<String, OpenStackError> {
        let Account { user, password, project, user_domain, project_domain, .. } = &self.account;
        let url = format!("{}/v3/auth/tokens", self.keystone);
        let body = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": {
                "name": user, "password": password, "domain": { "name": user_domain },
            } } },
            "scope": { "project": { "name": project, "domain": { "name": project_domain } } },
        } });
        let request = format!("POST {url}");
        let (_, headers) = answer(request.clone(), self.http.post(&url).json(&body)).await?;
        let token = headers.get(SUBJECT_TOKEN).and_then(|token| token.to_str().ok());
        let token = token.ok_or(OpenStackError::Unexpected { request, missing: SUBJECT_TOKEN })?.to_owned();
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(token)
    }

    fn last_token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sends a request and returns the body and headers of a successful answer.
async fn answer(
    request: String,
    sending: reqwest::RequestBuilder,
) -> Result<(Value, http::HeaderMap), OpenStackError> {
    let failed = |source| OpenStackError::Request { request: request.clone(), source };
    let answer = sending.send().await.map_err(failed)?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = answer.text().await.map_err(failed)?;
    if !status.is_success() {
        return Err(OpenStackError::Refused { request, status, body: text });
    }
    // Answers to deletions have no body.
    let body = serde_json::from_str(&text).unwrap_or_default();
    Ok((body, headers))
}
