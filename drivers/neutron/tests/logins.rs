//! Where passwords and tokens go. The servers record what they are sent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use eno_conformance::fabrics::write_secret;
use eno_device_secrets::SecretSource;
use eno_driver_neutron::driver::{NeutronDriver, Options};
use eno_driver_neutron::http::Limits;
use eno_sbi::{Driver, Work};
use eno_schemas::{Command, Desired, Device, FabricDesired, Failure, Outcome};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::world::{self, TARGET};

/// Is told the path of each request to Neutron, and answers it.
type Neutron = Box<dyn FnMut(&str) -> StatusCode + Send>;

/// A server that is Keystone and Neutron.
struct Recorder {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// The URL of Neutron in the catalogue.
    neutron: Mutex<String>,
    answer: Mutex<Neutron>,
    seen: Mutex<Vec<String>>,
}

impl Recorder {
    /// Starts it at a loopback address, with itself in the catalogue.
    async fn start(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            neutron: Mutex::new(url.clone()),
            answer: Mutex::new(Box::new(|_| StatusCode::OK)),
            seen: Mutex::default(),
        });
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, shared }
    }

    fn keystone(&self) -> String {
        format!("{}/v3", self.url)
    }

    fn set_answer(&self, answer: impl FnMut(&str) -> StatusCode + Send + 'static) {
        *self.shared.answer.lock().unwrap() = Box::new(answer);
    }

    /// Method and path of the requests since the last call.
    fn take_seen(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    shared.seen.lock().unwrap().push(format!("{} {path}", request.method()));
    if !path.ends_with("/auth/tokens") {
        let status = (shared.answer.lock().unwrap())(&path);
        return (status, axum::Json(json!({}))).into_response();
    }
    let token = token(&shared.neutron.lock().unwrap());
    let headers = HeaderMap::from_iter([("x-subject-token".parse().unwrap(), "t0ken".parse().unwrap())]);
    (StatusCode::CREATED, headers, axum::Json(token)).into_response()
}

/// Keystone's answer to a login, with the URL of Neutron.
pub fn token(neutron: &str) -> serde_json::Value {
    let endpoint = json!({ "interface": "public", "url": neutron });
    json!({ "token": {
        "issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T01:00:00Z",
        "project": { "id": "p", "name": "p" },
        "catalog": [{ "type": "network", "endpoints": [endpoint] }],
    } })
}

/// Two credentials, `vim` and `other`, for these Keystones.
pub fn secrets(keystone: &str, others: &str) -> TempDir {
    let dir = TempDir::with_prefix("eno-neutron-").unwrap();
    for (name, keystone) in [("vim", keystone), ("other", others)] {
        let id = ("application_credential_id", "i");
        let secret = ("application_credential_secret", "s3cret");
        write_secret(dir.path(), name, [id, secret, ("devices", keystone)]);
    }
    dir
}

pub fn driver(secrets: &TempDir) -> NeutronDriver {
    NeutronDriver::new(Options {
        secrets: SecretSource::Directory(secrets.path().to_owned()),
        limits: Limits { connect: Duration::from_secs(5), request: Duration::from_secs(10) },
        look_interval: Duration::from_mins(10),
        audit_interval: Duration::from_mins(10),
    })
}

fn command(address: &str, credential: &str) -> Command {
    let desired = world::tenant(&[("t1", "10")]);
    let device = Device { address: address.into(), credential: Some(credential.into()), ..desired.device };
    Command::new("neutron", TARGET, (1, 1), Desired::Fabric(FabricDesired { device, ..desired }))
}

/// The failure of a command.
pub async fn failure(driver: &NeutronDriver, address: &str, credential: &str) -> Failure {
    match driver.reconcile(Work::alone(command(address, credential))).await.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn forged_command_or_preview_sends_no_password() {
    let (own, other) = (Recorder::start("127.0.0.1").await, Recorder::start("127.0.0.1").await);
    let secrets = secrets(&own.keystone(), "https://keystone.example.com/v3");
    let driver = driver(&secrets);
    for (address, credential) in [
        (other.keystone(), "vim"),
        (other.url.clone(), "vim"),
        (format!("{}/", own.keystone()), "vim"),
        (own.keystone().replace("127.0.0.1", "localhost"), "vim"),
        (own.keystone(), "other"),
        (own.keystone(), "none"),
    ] {
        let failed = failure(&driver, &address, credential).await;
        assert!(failed.reason.starts_with("no login: ") && failed.retryable, "{failed:?} {address}");
        let preview = driver.preview(Arc::new(command(&address, credential))).await.expect("a preview");
        assert!(preview.failure.is_some_and(|failure| failure.reason.starts_with("no login: ")));
    }
    assert_eq!((own.take_seen(), other.take_seen()), (Vec::new(), Vec::new()));
    // The recorder would have seen it.
    driver.preview(Arc::new(command(&own.keystone(), "vim"))).await.expect("a preview");
    assert_eq!(own.take_seen()[0], "POST /v3/auth/tokens");
}

#[tokio::test]
async fn catalogue_sends_no_token_to_another_host() {
    let (own, other) = (Recorder::start("127.0.0.1").await, Recorder::start("127.0.0.2").await);
    *own.shared.neutron.lock().unwrap() = other.url.clone();
    let secrets = secrets(&own.keystone(), "");
    let driver = driver(&secrets);
    let failed = failure(&driver, &own.keystone(), "vim").await;
    assert!(failed.reason.contains(&other.url) && failed.retryable, "{failed:?}");
    assert!(failed.reason.contains("network_endpoint_override of the Secret vim"), "{failed:?}");
    assert_eq!(own.take_seen(), ["POST /v3/auth/tokens"]);
    assert_eq!(other.take_seen(), Vec::<String>::new());
    // The Secret names the host, as the message says.
    write_secret(secrets.path(), "vim", [("network_endpoint_override", format!("{}/v2.0", other.url))]);
    driver.preview(Arc::new(command(&own.keystone(), "vim"))).await.expect("a preview");
    assert!(other.take_seen()[0].starts_with("GET /v2.0/"));
}

#[tokio::test]
async fn login_for_a_new_token_is_confirmed_again() {
    let own = Recorder::start("127.0.0.1").await;
    let secrets = secrets(&own.keystone(), "");
    let driver = driver(&secrets);
    // The token is refused, and meanwhile the credential is for another cloud.
    let dir = secrets.path().to_owned();
    own.set_answer(move |_| {
        write_secret(&dir, "vim", [("devices", "https://keystone.example.com/v3")]);
        StatusCode::UNAUTHORIZED
    });
    let failed = failure(&driver, &own.keystone(), "vim").await;
    assert!(failed.reason.starts_with("no login: "), "{failed:?}");
    let logins = own.take_seen().iter().filter(|seen| seen.ends_with("/auth/tokens")).count();
    assert_eq!(logins, 1);
}
