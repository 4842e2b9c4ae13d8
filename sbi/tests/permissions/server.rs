//! A nats-server with the shipped configuration, and a plain protocol client.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::{NatsUser, nats_keys, pick_port};
use eno_sbi::nats::{Connection, NatsArgs, connect};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_mins(1);

/// Killed when it is dropped.
pub struct Server {
    port: u16,
    data: TempDir,
    _child: Child,
}

impl Server {
    /// Starts a server and waits until it accepts the administrator.
    pub async fn start() -> Self {
        let program = Parts::from_env().expect("a cache").get(Part::NatsServer).await.expect("a nats-server");
        let data = TempDir::new().expect("a directory for its data");
        let port = pick_port().expect("a free port");
        let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/nats/nats.conf");
        let keys = nats_keys(data.path()).expect("keys");
        let child = Command::new(program)
            .arg("--config")
            .arg(configuration)
            .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--http_port", "-1"])
            .env("STORE_DIR", data.path().join("jetstream"))
            .env("POD_NAME", "eno-nats-0")
            .envs(keys.iter().map(|(user, key)| (user.variable(), key)))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(data.path().join("log")).expect("a log"))
            .kill_on_drop(true)
            .spawn()
            .expect("nats-server starts");
        let server = Self { port, data, _child: child };
        let up = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(TIMEOUT, up).await.is_err() {
            let log = std::fs::read_to_string(server.data.path().join("log"));
            panic!("nats-server does not listen: {}", log.unwrap_or_default());
        }
        server
    }

    /// Connects as a component of ENO does.
    pub async fn connect(&self, user: NatsUser, identity: &str) -> Connection {
        let args = NatsArgs {
            nats_url: format!("nats://127.0.0.1:{}", self.port),
            nats_credentials: Some(self.data.path().join(format!("{}.seed", user.name()))),
            nats_ca: None,
            nats_replicas: 1,
        };
        connect(&args, identity, &CancellationToken::new()).await.expect("a connection")
    }

    /// Opens a plain protocol session as a user.
    pub async fn open_session(&self, user: NatsUser) -> Wire {
        let seed = std::fs::read_to_string(self.data.path().join(format!("{}.seed", user.name())));
        let key = nkeys::KeyPair::from_seed(seed.expect("its seed").trim()).expect("a seed");
        let (mut wire, info) = self.handshake().await;
        let nonce = info["nonce"].as_str().expect("a nonce");
        let signature = URL_SAFE_NO_PAD.encode(key.sign(nonce.as_bytes()).expect("a signature"));
        wire.hello(&json!({"nkey": key.public_key(), "sig": signature})).await;
        assert!(wire.errors().await.is_empty(), "{user:?} is not let in");
        wire
    }

    /// The errors with which the server answers this CONNECT.
    pub async fn refusal(&self, hello: &Value) -> Vec<String> {
        let (mut wire, _) = self.handshake().await;
        wire.hello(hello).await;
        wire.errors().await
    }

    async fn handshake(&self) -> (Wire, Value) {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.expect("it listens");
        let mut wire = Wire(BufReader::new(stream));
        let line = wire.line().await.expect("a greeting");
        let info = serde_json::from_str(line.strip_prefix("INFO ").expect("INFO")).expect("JSON");
        (wire, info)
    }
}

/// One connection.
pub struct Wire(BufReader<TcpStream>);

impl Wire {
    async fn hello(&mut self, more: &Value) {
        let mut hello =
            json!({"verbose": false, "pedantic": false, "lang": "test", "version": "0", "headers": true});
        hello.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.send(&format!("CONNECT {hello}\r\n")).await;
    }

    async fn send(&mut self, text: &str) {
        // A server that refused may have closed the connection.
        let _ = self.0.get_mut().write_all(text.as_bytes()).await;
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(TIMEOUT, self.0.read_line(&mut line)).await.expect("an answer");
        matches!(read, Ok(length) if length > 0).then(|| line.trim_end().to_owned())
    }

    /// The errors that the server sent about earlier requests.
    async fn errors(&mut self) -> Vec<String> {
        self.send("PING\r\n").await;
        let mut errors = Vec::new();
        while let Some(line) = self.line().await.filter(|line| line != "PONG") {
            if line.starts_with("-ERR") {
                errors.push(line);
            }
        }
        errors
    }

    /// Subscribes for the rest of the session.
    pub async fn subscribe(&mut self, subject: &str) {
        self.send(&format!("SUB {subject} 9\r\n")).await;
    }

    /// Publishes, whether that is permitted or not: subject, reply subject, header and payload of each message. Returns the
    /// reply subjects of the messages that were delivered to this session.
    pub async fn publish_all(&mut self, messages: &[(&str, &str, Option<&str>, &str)]) -> Vec<String> {
        let mut replies = Vec::new();
        for some in messages.chunks(64) {
            let mut text = String::new();
            for (subject, reply, header, payload) in some {
                match header {
                    None => {
                        let head = format!("PUB {subject} {reply} {}", payload.len());
                        text.extend([&*head, "\r\n", payload, "\r\n"]);
                    }
                    Some(header) => {
                        let header = format!("NATS/1.0{header}\r\n\r\n");
                        let (head, all) = (header.len(), header.len() + payload.len());
                        let line = format!("HPUB {subject} {reply} {head} {all}\r\n");
                        text.extend([&*line, &*header, payload, "\r\n"]);
                    }
                }
            }
            self.send(&text).await;
            self.send("PING\r\n").await;
            while let Some(line) = self.line().await.filter(|line| line != "PONG") {
                let words: Vec<&str> = line.split(' ').collect();
                // MSG <subject> <id> <reply> <size>, and HMSG with another size.
                if let ["MSG", _, "9", reply, _] | ["HMSG", _, "9", reply, _, _] = words[..] {
                    replies.push(reply.to_owned());
                }
            }
        }
        replies
    }

    /// Whether an empty message may be published there.
    pub async fn may_publish(&mut self, subject: &str) -> bool {
        self.send(&format!("PUB {subject} 0\r\n\r\n")).await;
        self.allowed("Publish", subject).await
    }

    /// Whether it may be subscribed to.
    pub async fn may_subscribe(&mut self, subject: &str) -> bool {
        self.send(&format!("SUB {subject} 1\r\n")).await;
        let allowed = self.allowed("Subscription", subject).await;
        self.send("UNSUB 1\r\n").await;
        allowed
    }

    async fn allowed(&mut self, operation: &str, subject: &str) -> bool {
        let errors = self.errors().await;
        let violation = format!("-ERR 'Permissions Violation for {operation} to \"{subject}\"'");
        match &errors[..] {
            [] => true,
            [one] if *one == violation => false,
            other => panic!("{operation} {subject}: {other:?}"),
        }
    }
}
