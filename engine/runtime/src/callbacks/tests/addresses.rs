//! Refused addresses, certificates and proxies of callbacks.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use axum::http::Uri;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn refused_addresses_receive_nothing_and_condition_names_reason() {
    let (_receiver, address, mut gets, mut bench) = start().await;
    let port = address.port();
    let args =
        CallbackArgs { callback_allow: vec!["nfvo.example".parse().unwrap()], ..CallbackArgs::default() };
    let urls = [
        format!("http://127.0.0.1:{port}/a"),
        format!("http://[::ffff:127.0.0.1]:{port}/a"),
        format!("http://0x7f.1:{port}/a"),
        format!("http://0.0.0.0:{port}/a"),
        // By a name that resolves to a refused address.
        format!("http://localhost:{port}/a"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
    ];
    for (n, url) in urls.iter().enumerate() {
        let name = format!("o{n}");
        bench.cluster.put(&name, &json!({ "CallbackURL": url }));
        bench.transition(&name, 1, Some(url)).await;
    }
    let delivery = bench.start_delivery_with(&args);
    for n in 0..urls.len() {
        let condition = bench.cluster.wait_for_condition(&format!("o{n}"), "False", "GivenUp").await;
        let message = condition["message"].as_str().unwrap();
        assert!(
            message.contains("is refused, since it is") && message.contains("--callback-allow"),
            "{message}"
        );
    }
    let dead = dead_letters(&bench.connection).await.unwrap();
    assert!(dead.len() == urls.len() && dead.iter().all(|letter| letter.attempts == 1));
    assert!(gets.try_recv().is_err());
    delivery.stop().await;
}

/// An open port that speaks no HTTP.
async fn other_protocol() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"SSH-2.0-server\r\n").await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn condition_tells_no_open_port_from_a_closed_one() {
    let (receiver, address, _gets, mut bench) = start().await;
    let other = other_protocol().await;
    receiver.refuse("answers", u32::MAX, StatusCode::NOT_FOUND);
    let urls = [
        ("closed", "http://localhost:1/".to_owned()),
        ("other", format!("http://localhost:{}/", other.port())),
        ("no-tls", format!("https://localhost:{}/", other.port())),
        ("answers", format!("http://localhost:{}/answers", address.port())),
        ("unknown", "http://name.invalid/".to_owned()),
    ];
    for (name, url) in &urls {
        bench.cluster.put(name, &json!({ "CallbackURL": url }));
        bench.transition(name, 1, Some(url)).await;
    }
    // An exception for the address permits the connection, and does not name the host.
    let args = CallbackArgs {
        callback_allow: vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
        ..CallbackArgs::default()
    };
    let delivery = bench.start_delivery_with(&args);
    for (name, _) in &urls {
        let condition = bench.cluster.wait_for_condition(name, "False", "Retrying").await;
        assert_eq!(
            condition["message"],
            "callback 1 was not taken (admins see why: eno callbacks list); it is tried again",
            "{name}"
        );
    }
    let listed = undelivered(&bench.connection).await.unwrap();
    for (name, expected) in [
        ("closed", "Connection refused"),
        ("other", "invalid HTTP"),
        ("answers", "answered 404 Not Found"),
        ("unknown", "dns error"),
    ] {
        let found = listed.iter().find(|one| one.name == name).unwrap();
        assert!(found.error.contains(expected), "{name}: {}", found.error);
    }
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed() {
    let (receiver, address, mut gets, bench) = start().await;
    let context = bench.context(&local());
    for code in [301, 302, 303, 307, 308] {
        receiver.refuse("a", 1, StatusCode::from_u16(code).unwrap());
        let payload = encode(&transition("a", 1, &json!({ "CallbackURL": format!("http://{address}/a") })));
        let (ended, _, _) = try_once(&context, &"L2Service._.a".into(), 1, 0, false, &payload.unwrap()).await;
        assert!(matches!(ended, AttemptEnd::Retry { .. }), "{code}: {ended:?}");
    }
    assert!(gets.try_recv().is_err());
}

/// A certificate authority for the test.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_certificate_is_verified_and_client_certificate_sent() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = authority();
    let server_key = KeyPair::generate().unwrap();
    let server =
        CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&server_key, &authority).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(roots.into()).build().unwrap();
    let key = PrivatePkcs8KeyDer::from(server_key.serialize_der()).into();
    let config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![server.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(AtomicU32::new(0));
    let count = taken.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut buffer = vec![0; 16 * 1024];
            if stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
            }
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let client_key = KeyPair::generate().unwrap();
    let client =
        CertificateParams::new(vec!["eno".into()]).unwrap().signed_by(&client_key, &authority).unwrap();
    let ca = Some(write("ca.pem", authority.pem()));
    let identity = Some(write("client.pem", client.pem() + &client_key.serialize_pem()));

    let address = "127.0.0.1:1".parse().unwrap();
    let bench = Bench::new(address).await;
    let payload =
        encode(&transition("a", 1, &json!({ "CallbackURL": format!("https://localhost:{port}/") })));
    let payload = payload.unwrap();
    let args = local();
    for (callback_ca, callback_client_certificate, good) in
        [(None, identity.clone(), false), (ca.clone(), None, false), (ca, identity, true)]
    {
        let args = CallbackArgs { callback_ca, callback_client_certificate, ..args.clone() };
        let context = bench.context(&args);
        let (ended, _, _) = try_once(&context, &"L2Service._.a".into(), 1, 0, false, &payload).await;
        assert_eq!(ended == AttemptEnd::Done, good, "{args:?}: {ended:?}");
    }
    assert_eq!(taken.load(Ordering::Relaxed), 1);
    let missing = CallbackArgs { callback_ca: Some("/nowhere/ca.pem".into()), ..local() };
    let error = Poster::new(&missing, bench.cluster.client(), "eno-system").err().unwrap();
    assert!(error.to_string().starts_with("reading /nowhere/ca.pem: "), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_resolves_host_names() {
    let (uri_sender, mut uris) = mpsc::unbounded_channel();
    let router = Router::new().fallback(async move |uri: Uri| {
        let _ = uri_sender.send(uri.to_string());
        StatusCode::NO_CONTENT
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let bench = Bench::new(address).await;
    // The proxy needs no exception from the policy.
    let proxy = Some(format!("http://localhost:{}", address.port()).parse().unwrap());
    let context = bench.context(&CallbackArgs { callback_proxy: proxy, ..CallbackArgs::default() });
    let post = async |url: &str| {
        let payload = encode(&transition("a", 1, &json!({ "CallbackURL": url }))).unwrap();
        try_once(&context, &"L2Service._.a".into(), 1, 0, false, &payload).await.0
    };
    assert_eq!(post("http://nfvo.invalid/x").await, AttemptEnd::Done);
    assert_eq!(uris.recv().await.unwrap(), "http://nfvo.invalid/x");
    // An address needs no resolution.
    assert_eq!(post("http://127.0.0.1/x").await, AttemptEnd::Done);
    assert!(uris.try_recv().is_err());
    assert_eq!(dead_letters(&bench.connection).await.unwrap().len(), 1);
}

/// An endpoint that answers each request with informational responses (1xx) without end.
async fn flood(sent: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let block = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(1000);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (sent, block) = (sent.clone(), block.clone());
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                while stream.write_all(block.as_bytes()).await.is_ok() {
                    sent.fetch_add(block.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_informational_responses_end_the_post() {
    const ENDPOINTS: u64 = 20;
    /// What the kernel holds of a connection that nobody reads, and a little more.
    const EACH: u64 = 8 << 20;
    let bench = Bench::new("127.0.0.1:1".parse().unwrap()).await;
    let context = Arc::new(bench.context(&local()));
    let sent = Arc::new(AtomicU64::new(0));
    let mut posts = JoinSet::new();
    for endpoint in 0..ENDPOINTS {
        let (context, address) = (context.clone(), flood(sent.clone()).await);
        posts.spawn(async move {
            let name = format!("o{endpoint}");
            let spec = json!({ "CallbackURL": format!("http://{address}/") });
            let payload = encode(&transition(&name, 1, &spec)).unwrap();
            try_once(&context, &format!("L2Service._.{name}").into(), 1, 0, false, &payload).await.0
        });
    }
    for ended in posts.join_all().await {
        let AttemptEnd::Retry { error, .. } = ended else { panic!("{ended:?}") };
        assert!(error.contains("more than 262144 bytes came without an answer"), "{error}");
    }
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < ENDPOINTS * EACH, "{sent} bytes were sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_one_connection_may_exceed_the_limit_together() {
    const LIMIT: usize = 262_144;
    let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
    let answer = hints + "HTTP/1.1 204 No Content\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let most_on_one = Arc::new(AtomicUsize::new(0));
    let most = most_on_one.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (answer, most) = (answer.clone(), most.clone());
            tokio::spawn(async move {
                let (mut request, mut sent) = (Vec::new(), 0);
                while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
                    if is_whole(&request) {
                        request.clear();
                        stream.write_all(answer.as_bytes()).await.unwrap();
                        sent += answer.len();
                        most.fetch_max(sent, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let bench = Bench::new(address).await;
    let context = bench.context(&local());
    let mut posts = 0;
    // A post opens a further connection if the former one is not back yet: so the number of posts varies.
    while most_on_one.load(Ordering::Relaxed) <= LIMIT {
        posts += 1;
        assert!(posts < 1000, "the connections are not used again");
        let spec = json!({ "CallbackURL": format!("http://{address}/") });
        let payload = encode(&transition("a", posts, &spec)).unwrap();
        let ended = try_once(&context, &"L2Service._.a".into(), posts, 0, false, &payload).await.0;
        assert_eq!(ended, AttemptEnd::Done, "{posts}");
    }
}

/// Whether an HTTP/1.1 request has its whole body.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_some_and(|length| length.parse() == Ok(body.len()))
}
