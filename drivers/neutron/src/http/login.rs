//! Logs in to Keystone.

use std::time::{Duration, Instant};

use eno_device_secrets::{Hidden, Permit};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use reqwest::Url;

use super::exchange::{Exchange, JSON};
use crate::error::ApiError;
use crate::keystone::{Credentials, Token};
use crate::text::shown;

/// A token is renewed this long before its end.
const RENEW_BEFORE: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub struct HeldToken {
    pub value: Hidden,
    pub renew_at: Instant,
}

impl HeldToken {
    /// The token as a header that is never logged.
    pub fn header(&self) -> HeaderValue {
        let header = HeaderValue::from_str(self.value.expose());
        let mut header = header.unwrap_or_else(|_| HeaderValue::from_static(""));
        header.set_sensitive(true);
        header
    }
}

/// Keystone's URL with `/v3`.
pub fn keystone_url(address: &str) -> Result<Url, ApiError> {
    let bad = |reason: String| ApiError::Address { address: address.to_owned(), reason };
    let address = address.trim_end_matches('/');
    let address = if address.ends_with("/v3") { address.to_owned() } else { format!("{address}/v3") };
    let url = Url::parse(&address).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(bad("it must start with https:// or http://".to_owned()));
    }
    Ok(url)
}

/// Logs in where the permit says.
pub async fn login(
    exchange: &Exchange,
    permit: &Permit,
    credentials: &Credentials,
) -> Result<(HeldToken, Token), ApiError> {
    let operation = "log in";
    let keystone = keystone_url(permit.login().address())?;
    let server = keystone.origin().ascii_serialization();
    let url = format!("{keystone}/auth/tokens");
    let url =
        Url::parse(&url).map_err(|error| ApiError::Address { address: url, reason: error.to_string() })?;
    let mut request = Request::new(credentials.login().expose().to_owned().into());
    *request.method_mut() = Method::POST;
    request.headers_mut().insert(CONTENT_TYPE, JSON);
    let mut answer = exchange.send(operation, request, &url).await?;
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
