//! One POST.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::{Client, StatusCode, redirect};
use serde::Deserialize;
use serde_json::value::RawValue;

const TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// No endpoint can ask for more patience than this.
const LONGEST: Duration = Duration::from_hours(1);

/// As Standard Webhooks names them.
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const TRANSITION: HeaderName = HeaderName::from_static("eno-transition");

/// What the other side said.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It took it.
    Taken,
    /// The transition names no place to be posted to.
    Nowhere,
    /// It wants no more of them.
    Refused(String),
    /// It did not take it this time.
    Failed {
        /// Why.
        error: String,
        /// It asks not to be tried before this has passed.
        after: Option<Duration>,
    },
}

/// Posts transitions.
#[derive(Clone, Debug)]
pub struct Poster(Client);

/// What of a transition is posted. The object goes as it is.
#[derive(Deserialize)]
struct Delivery<'a> {
    id: &'a str,
    counter: u64,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Object {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(rename = "CallbackURL")]
    callback_url: Option<String>,
}

impl Poster {
    /// With limits of time, and without following redirects.
    pub fn new() -> reqwest::Result<Self> {
        Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("eno/", env!("CARGO_PKG_VERSION")))
            .build()
            .map(Self)
    }

    /// Posts the object of a transition.
    pub async fn post(&self, transition: &[u8]) -> Answer {
        let Ok(delivery) = serde_json::from_slice::<Delivery<'_>>(transition) else { return Answer::Nowhere };
        let url = serde_json::from_str::<Object>(delivery.object.get())
            .ok()
            .and_then(|object| object.spec.callback_url);
        let Some(url) = url else { return Answer::Nowhere };
        let request = self
            .0
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ID, delivery.id)
            .header(TIMESTAMP, Timestamp::now().as_second())
            .header(TRANSITION, delivery.counter)
            .body(Bytes::copy_from_slice(delivery.object.get().as_bytes()));
        match request.send().await {
            Ok(response) => answer(response.status(), response.headers(), Timestamp::now()),
            Err(error) => {
                // The URL may hold a secret in its path or query.
                Answer::Failed { error: words(&error.without_url()), after: None }
            }
        }
    }
}

fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn answer(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Answer {
    if status.is_success() {
        return Answer::Taken;
    }
    let error = format!("answered {status}");
    if status == StatusCode::GONE {
        return Answer::Refused(error);
    }
    let after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| retry_after(text, now));
    Answer::Failed { error, after }
}

/// Seconds, or a date as in RFC 9110.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let after = if let Ok(seconds) = text.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Duration::try_from(at.duration_since(now)).unwrap_or_default()
    };
    Some(after.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let mut headers = HeaderMap::new();
        let plain =
            |code: u16, headers: &HeaderMap| answer(StatusCode::from_u16(code).unwrap(), headers, now);
        assert_eq!(plain(200, &headers), Answer::Taken);
        assert_eq!(plain(204, &headers), Answer::Taken);
        for code in [301, 400, 404, 500] {
            assert!(matches!(plain(code, &headers), Answer::Failed { after: None, .. }), "{code}");
        }
        assert!(matches!(plain(410, &headers), Answer::Refused(_)));
        for (value, seconds) in [
            ("120", Some(120)),
            ("Fri, 02 Jan 2026 03:05:05 GMT", Some(60)),
            ("999999", Some(3600)),
            ("soon", None),
        ] {
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            let Answer::Failed { after, .. } = plain(503, &headers) else { panic!() };
            assert_eq!(after, seconds.map(Duration::from_secs), "{value}");
        }
    }
}
