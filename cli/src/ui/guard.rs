//! Who may ask: one browser on this machine, which has shown the one-time token.
//!
//! Other users of the machine can reach the port, and pages of other sites can make the browser send requests to it. So
//! every request needs the cookie, the Host of this server and, where the browser names one, its Origin. DNS rebinding
//! fails by the Host, cross-site requests fail by the Origin and `SameSite=Strict` (RFC 6265bis, 5.6.7).

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

/// Bytes of a secret.
const SECRET_BYTES: usize = 32;

/// The policy of every answer: nothing but this server's own files, and no script or style in the text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

/// The page for a browser without the cookie. It has no part of this server but its text.
const REFUSED: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>eno ui</title>\
    <h1>This browser may not see the console</h1>\
    <p>Open the URL that <code>eno ui</code> printed. It works once. To get another one, end <code>eno ui</code> and run \
    it again.</p></html>";

/// A hash of a secret, so that the time of a comparison tells nothing of it.
type Hashed = [u8; SECRET_BYTES];

/// The secrets of one run.
pub(super) struct Guard {
    /// The address as browsers write it in Host, in all its forms.
    hosts: Vec<String>,
    /// The name of the cookie: browsers share cookies between the ports of a host.
    cookie_name: String,
    /// The token until it is used.
    token: Mutex<Option<Hashed>>,
    cookie: Hashed,
    /// The cookie as a header sets it.
    set_cookie: HeaderValue,
}

impl Guard {
    /// A guard of a server on `address`, and its one-time token.
    pub(super) fn new(address: SocketAddr) -> anyhow::Result<(Self, String)> {
        let (token, cookie) = (secret()?, secret()?);
        let port = address.port();
        let cookie_name = format!("eno-ui-{port}");
        let set_cookie = format!("{cookie_name}={cookie}; Path=/; HttpOnly; SameSite=Strict");
        let guard = Self {
            // `localhost` serves a forwarded port.
            hosts: vec![address.to_string(), format!("localhost:{port}")],
            cookie_name,
            token: Mutex::new(Some(hashed(&token))),
            cookie: hashed(&cookie),
            set_cookie: set_cookie.parse().context("writing a cookie")?,
        };
        Ok((guard, token))
    }

    /// Takes the token. It is accepted once.
    fn take(&self, token: &str) -> bool {
        let mut expected = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let is_right = *expected == Some(hashed(token));
        if is_right {
            *expected = None;
        }
        is_right
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == self.cookie_name && hashed(value) == self.cookie)
    }

    /// True when the request names this server, and comes from none of another site's pages.
    fn is_own(&self, method: &Method, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let is_host = |host: &str| self.hosts.iter().any(|own| own == host);
        let origin = match text(header::ORIGIN) {
            Some(origin) => origin.strip_prefix("http://").is_some_and(is_host),
            // A browser names the origin of everything but plain reads.
            None => *method == Method::GET || *method == Method::HEAD,
        };
        text(header::HOST).is_some_and(is_host) && origin
    }
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    Ok(bytes)
}

/// Random bits, of which nobody can guess a loopback address.
pub(super) fn random_bits() -> anyhow::Result<u32> {
    Ok(u32::from_be_bytes(random()?))
}

fn secret() -> anyhow::Result<String> {
    let bytes: [u8; SECRET_BYTES] = random()?;
    Ok(bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

fn hashed(secret: &str) -> Hashed {
    Sha256::digest(secret).into()
}

/// Lets own requests with the cookie pass, and exchanges the token for the cookie.
pub(super) async fn check(State(app): State<super::App>, request: Request, next: Next) -> Response {
    let guard = &app.guard;
    let mut response = if !guard.is_own(request.method(), request.headers()) {
        (StatusCode::FORBIDDEN, "This request is not of this server's own pages.").into_response()
    } else if let Some(token) = token_of(&request) {
        exchange(guard, &request, &token)
    } else if guard.has_cookie(request.headers()) {
        next.run(request).await
    } else {
        refused()
    };
    protect(response.headers_mut());
    response
}

fn token_of(request: &Request) -> Option<String> {
    let query = request.uri().query()?;
    query.split('&').find_map(|pair| pair.strip_prefix("token=")).map(str::to_owned)
}

/// Sets the cookie, and sends the browser to the same page without the token.
fn exchange(guard: &Guard, request: &Request, token: &str) -> Response {
    // The page itself may be opened again from the browser's history.
    if !guard.has_cookie(request.headers()) && !guard.take(token) {
        return refused();
    }
    // A path of two slashes would lead to another host.
    let path = format!("/{}", request.uri().path().trim_start_matches('/'));
    let Ok(location) = HeaderValue::from_str(&path) else { return refused() };
    let headers = [(header::SET_COOKIE, guard.set_cookie.clone()), (header::LOCATION, location)];
    (StatusCode::SEE_OTHER, headers).into_response()
}

fn refused() -> Response {
    (StatusCode::UNAUTHORIZED, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], REFUSED).into_response()
}

/// Sets the headers of every answer.
fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Answers are about a cluster, and not for a disk.
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in
        [("cross-origin-opener-policy", "same-origin"), ("cross-origin-resource-policy", "same-origin")]
    {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: header::HeaderName = name.parse().expect("a name");
            (name, HeaderValue::from_str(value).expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    fn guard() -> (Guard, String) {
        Guard::new("127.0.0.1:4000".parse().expect("an address")).expect("a guard")
    }

    #[test]
    fn token_works_once_and_only_as_it_is() {
        let (guard, token) = guard();
        assert!(!guard.take(""));
        assert!(!guard.take(&token[1..]));
        assert!(guard.take(&token));
        assert!(!guard.take(&token));
    }

    #[test]
    fn only_the_cookie_of_this_run_is_accepted() {
        let (guard, token) = guard();
        let cookie = guard.set_cookie.to_str().expect("text").split(';').next().expect("a pair").to_owned();
        assert!(guard.has_cookie(&headers(&[("cookie", &format!("a=b; {cookie}"))])));
        for other in ["", "eno-ui-4000=", &format!("eno-ui-4000={token}"), &cookie.replace("4000", "4001")] {
            assert!(!guard.has_cookie(&headers(&[("cookie", other)])), "{other}");
        }
    }

    #[test]
    fn requests_of_other_hosts_and_origins_are_refused() {
        let (guard, _) = guard();
        for (method, pairs, expected) in [
            (Method::GET, &[("host", "127.0.0.1:4000")][..], true),
            (Method::GET, &[("host", "localhost:4000"), ("origin", "http://localhost:4000")], true),
            (Method::POST, &[("host", "127.0.0.1:4000"), ("origin", "http://127.0.0.1:4000")], true),
            (Method::POST, &[("host", "127.0.0.1:4000")], false),
            (Method::GET, &[], false),
            (Method::GET, &[("host", "rebound.example.com:4000")], false),
            (Method::GET, &[("host", "127.0.0.1:4001")], false),
            (Method::POST, &[("host", "127.0.0.1:4000"), ("origin", "http://evil.example.com")], false),
            (Method::POST, &[("host", "127.0.0.1:4000"), ("origin", "null")], false),
            (Method::POST, &[("host", "127.0.0.1:4000"), ("origin", "https://127.0.0.1:4000")], false),
        ] {
            assert_eq!(guard.is_own(&method, &headers(pairs)), expected, "{method} {pairs:?}");
        }
    }
}
