//! `eno ui` without a browser: who may ask, and what each answer has.

use std::collections::BTreeMap;

use eno_tests::browser::{Console, ConsoleOptions};
use eno_tests::{TIMEOUT, with_shared_sandbox};
use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Headers that each answer must have.
const HEADERS: [(&str, &str); 7] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("content-security-policy", ""),
];
/// What the policy must say. `default-src 'none'` denies all that it does not name.
const POLICY: [(&str, &str); 9] = [
    ("default-src", "'none'"),
    ("script-src", "'self'"),
    ("style-src", "'self'"),
    ("img-src", "'self' data:"),
    ("connect-src", "'self'"),
    ("base-uri", "'none'"),
    ("form-action", "'none'"),
    ("frame-ancestors", "'none'"),
    ("require-trusted-types-for", "'script'"),
];

/// A client that follows no redirect, so that tests see what the server sends.
pub(super) fn http() -> reqwest::Client {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    builder.no_proxy().timeout(TIMEOUT).build().expect("a client")
}

/// A browser's session: a client with the cookie.
pub(super) struct Session {
    client: reqwest::Client,
    host: String,
    cookie: String,
}

impl Session {
    /// Exchanges the token for the cookie.
    pub(super) async fn open(console: &Console) -> Self {
        let client = http();
        let answer = client.get(&console.url).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::SEE_OTHER, "the one-time URL");
        let cookie = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
        let (pair, _) = cookie.split_once(';').expect("attributes of the cookie");
        Self { client, host: console.host.clone(), cookie: pair.to_owned() }
    }

    /// A request as the pages make it. `target` begins with a slash.
    pub(super) fn request(&self, method: &Method, target: &str) -> RequestBuilder {
        let request = self.client.request(method.clone(), format!("http://{}{target}", self.host));
        let request = request.header("cookie", &self.cookie);
        // A browser names the origin of everything but plain reads.
        if *method == Method::GET {
            request
        } else {
            request.header("origin", format!("http://{}", self.host))
        }
    }

    /// The status and the body of an answer to a read.
    pub(super) async fn get(&self, target: &str) -> (StatusCode, String) {
        let answer = self.request(&Method::GET, target).send().await.expect("an answer");
        (answer.status(), answer.text().await.expect("a body"))
    }

    /// The status and the body of an answer to a plan.
    pub(super) async fn plan(&self, asked: &Value) -> (StatusCode, String) {
        let answer = self.request(&Method::POST, "/api/plan").json(asked).send().await.expect("an answer");
        (answer.status(), answer.text().await.expect("a body"))
    }
}

/// Panics unless an answer has the headers of all answers.
fn assert_protected(what: &str, headers: &HeaderMap) {
    for (name, expected) in HEADERS {
        let values: Vec<_> = headers.get_all(name).iter().collect();
        let [value] = values[..] else { panic!("{what}: {name}: {values:?}") };
        assert!(expected.is_empty() || value == expected, "{what}: {name}: {value:?}");
    }
    let policy = headers["content-security-policy"].to_str().expect("text");
    let found: BTreeMap<&str, &str> =
        policy.split(';').filter_map(|directive| directive.trim().split_once(' ')).collect();
    assert_eq!(found, BTreeMap::from(POLICY), "{what}");
    assert!(!headers.contains_key(HeaderName::from_static("access-control-allow-origin")), "{what}");
}

async fn checked(what: &str, request: RequestBuilder, status: u16) -> Response {
    let answer = request.send().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(answer.status().as_u16(), status, "{what}");
    assert_protected(what, answer.headers());
    answer
}

/// A request of these bytes, as a client that rewrites no path sends it. Returns the head and the body.
async fn raw(host: &str, target: &str, cookie: &str) -> (String, String) {
    let mut stream = TcpStream::connect(host).await.expect("a connection");
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut bytes = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("an end").expect("an answer");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

#[test]
fn console_answers_only_the_browser_with_its_cookie() {
    with_shared_sandbox(async |system| {
        let console = system.console(&ConsoleOptions::default()).await;
        let client = http();
        let url = |target: &str| format!("http://{}{target}", console.host);

        // Nothing without the cookie, not even the files.
        for target in
            ["/", "/fabric", "/console.js", "/api/session", "/api/events", "/api/nothing", "/?token="]
        {
            let answer = checked(target, client.get(url(target)), 401).await;
            let body = answer.text().await.expect("a body");
            assert!(body.contains("Open the URL that") && !body.contains("console.js"), "{target}: {body}");
        }
        checked("a plan", client.post(url("/api/plan")).header("origin", url("")).body("{}"), 401).await;
        let token = console.token().to_owned();
        let token = token.as_str();
        assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
        let wrong = format!("/?token={}", token.replace(|c: char| c.is_ascii_digit(), "f"));
        checked("a wrong token", client.get(url(&wrong)), 401).await;
        checked("a part of the token", client.get(url(&format!("/?token={}", &token[1..]))), 401).await;

        // Other hosts and origins are refused, with the right token too.
        for (name, value) in [
            ("host", "rebound.example.com"),
            ("host", "127.0.0.1"),
            ("host", "127.0.0.1:1"),
            ("origin", "http://evil.example.com"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:1"),
        ] {
            let refused = checked(value, client.get(&console.url).header(name, value), 403).await;
            assert!(!refused.headers().contains_key("set-cookie"), "{value}");
        }

        // The token works once.
        let answer = checked("the token", client.get(&console.url), 303).await;
        assert_eq!(answer.headers()["location"], "/", "the token is not in the address any more");
        let cookie = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
        let attributes: Vec<&str> = cookie.split("; ").skip(1).collect();
        assert_eq!(attributes, ["Path=/", "HttpOnly", "SameSite=Strict"]);
        let pair = cookie.split(';').next().expect("a pair");
        assert!(!pair.contains(token), "the cookie is another secret");
        checked("the token again", client.get(&console.url), 401).await;
        checked("the cookie", client.get(url("/api/session")).header("cookie", pair), 200).await;
        let other = pair.replace('=', "=0");
        checked("another cookie", client.get(url("/api/session")).header("cookie", other), 401).await;

        // The cookie alone is not enough for a page of another site.
        let plan = || client.post(url("/api/plan")).header("cookie", pair).json(&json!({"manifests": ""}));
        checked("no origin", plan(), 403).await;
        checked("another origin", plan().header("origin", "http://evil.example.com"), 403).await;
        checked("its own origin", plan().header("origin", url("")), 400).await;
        let rebound = client.get(url("/api/session")).header("cookie", pair).header("host", "a.example.com");
        checked("DNS rebinding", rebound, 403).await;
        let events = client.get(url("/api/events")).header("cookie", pair);
        checked("events of another origin", events.header("origin", "http://a.example.com"), 403).await;

        // With the cookie the URL opens the page again, and leads to no other host.
        let again = |target: &str| client.get(url(target)).header("cookie", pair);
        let answer = checked("again", again(&format!("//evil.example.com/a?token={token}")), 303).await;
        assert_eq!(answer.headers()["location"], "/evil.example.com/a");

        // It listens on one address of this machine only.
        let port = console.host.split(':').nth(1).expect("a port");
        assert!(TcpStream::connect(format!("127.0.0.2:{port}")).await.is_err(), "127.0.0.2 answers");
        assert!(TcpStream::connect(format!("[::1]:{port}")).await.is_err(), "::1 answers");

        let errors = console.stop().await;
        assert!(!errors.contains(token), "the token is in {errors}");
    });
}

#[test]
fn each_answer_of_the_console_is_protected_and_no_path_leaves_it() {
    with_shared_sandbox(async |system| {
        let console = system.console(&ConsoleOptions::default()).await;
        let session = Session::open(&console).await;
        let get = |target: &str| session.request(&Method::GET, target);
        for (target, status, kind) in [
            ("/", 200, "text/html; charset=utf-8"),
            ("/path/L2Service/a.b", 200, "text/html; charset=utf-8"),
            ("/no-such-page", 200, "text/html; charset=utf-8"),
            ("/console.js", 200, "text/javascript; charset=utf-8"),
            ("/console.css", 200, "text/css; charset=utf-8"),
            ("/console.js.map", 404, ""),
            ("/api/session", 200, "application/json"),
            ("/api/objects", 200, "application/json"),
            ("/api/overview", 200, "application/json"),
            ("/api/fabric", 200, "application/json"),
            ("/api/addresses", 200, "application/json"),
            ("/api/fabric/vlan?id=0", 400, "application/json"),
            ("/api/fabric/link?id=nothing", 404, "application/json"),
            ("/api/path?object=L2Service/nobody", 404, "application/json"),
            ("/api/path?object=Secret/a/b", 400, "application/json"),
            ("/api/path", 400, ""),
            ("/api/timeline", 400, "application/json"),
            ("/api/address?address=nobody", 400, "application/json"),
            ("/api/nothing", 404, ""),
            ("/api/events", 200, "text/event-stream"),
        ] {
            let answer = checked(target, get(target), status).await;
            let found = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok());
            assert!(kind.is_empty() || found == Some(kind), "{target}: {found:?}");
            if status >= 400 && kind == "application/json" {
                let body: Value = answer.json().await.expect("JSON");
                let is_text = |field: &str| body[field].as_str().is_some_and(|text| !text.is_empty());
                assert!(is_text("error") && is_text("fix"), "{target}: {body}");
            }
        }
        checked("HEAD", session.request(&Method::HEAD, "/"), 200).await;
        checked("a method", session.request(&Method::DELETE, "/api/objects"), 405).await;
        let plan = || session.request(&Method::POST, "/api/plan");
        checked("no JSON", plan().header("content-type", "application/json").body("{"), 400).await;
        checked("another type", plan().body("{}"), 415).await;
        let long = json!({ "manifests": "a".repeat(9 << 20) });
        checked("long manifests", plan().json(&long), 413).await;

        let secret = "root:x:0:0";
        assert!(std::fs::read_to_string("/etc/passwd").expect("a file").contains(secret));
        for target in [
            "/../../../../../../etc/passwd",
            "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
            "/..%2f..%2f..%2f..%2fetc%2fpasswd",
            "/path/../../../../../etc/passwd",
            "/path/%2e%2e/%2e%2e/etc/passwd",
            "/console.js/../../../../etc/passwd",
            "//etc/passwd",
            "/etc/passwd%00.html",
            "/..\\..\\etc\\passwd",
            "http://evil.example.com/etc/passwd",
        ] {
            let (head, body) = raw(&console.host, target, &session.cookie).await;
            let first = head.lines().next().unwrap_or_default();
            let is_page = first.contains(" 200 ") && body.contains("id=\"app\"");
            assert!(
                is_page || first.contains(" 404 ") || first.contains(" 403 ") || first.contains(" 400 "),
                "{target}: {first}"
            );
            assert!(!body.contains(secret), "{target}");
        }
        console.stop().await;
    });
}
