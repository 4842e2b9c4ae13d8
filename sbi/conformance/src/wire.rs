//! A client of NATS that speaks the protocol in clear text.

use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use eno_control_plane::NatsUser;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::NatsServer;

const TIMEOUT: Duration = Duration::from_mins(1);

/// One connection.
pub struct Wire(BufReader<TcpStream>);

impl Wire {
    /// Logs in. The fields of CONNECT are made of the server's nonce. `Err`: what the server says.
    pub async fn log_in(server: &NatsServer, login: impl FnOnce(&str) -> Value) -> Result<Self, String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).await;
        let mut wire = Self(BufReader::new(stream.map_err(|error| error.to_string())?));
        let line = wire.line().await.ok_or("no greeting")?;
        let info: Value = serde_json::from_str(line.strip_prefix("INFO ").expect("INFO")).expect("JSON");
        let mut hello =
            json!({"verbose": false, "pedantic": false, "lang": "test", "version": "0", "headers": true});
        let login = login(info["nonce"].as_str().expect("a nonce"));
        hello.as_object_mut().expect("an object").extend(login.as_object().expect("an object").clone());
        wire.send(&format!("CONNECT {hello}\r\n")).await;
        let errors = wire.errors().await;
        if errors.is_empty() { Ok(wire) } else { Err(errors.join(", ")) }
    }

    /// Logs in as a user of a server with users.
    pub async fn of_user(server: &NatsServer, user: NatsUser) -> Self {
        let seed = std::fs::read_to_string(server.seed_of(user)).expect("its seed");
        let key = nkeys::KeyPair::from_seed(seed.trim()).expect("a seed");
        let sign = |nonce: &str| URL_SAFE_NO_PAD.encode(key.sign(nonce.as_bytes()).expect("a signature"));
        let login = |nonce: &str| json!({"nkey": key.public_key(), "sig": sign(nonce)});
        Self::log_in(server, login).await.unwrap_or_else(|error| panic!("{}: {error}", user.name()))
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

    /// The errors that the server sent about earlier requests. There is one if it has hung up.
    async fn errors(&mut self) -> Vec<String> {
        self.send("PING\r\n").await;
        let mut errors = Vec::new();
        loop {
            match self.line().await {
                Some(line) if line == "PONG" => return errors,
                Some(line) if line.starts_with("-ERR") => errors.push(line),
                Some(_) => {}
                None if errors.is_empty() => return vec!["the server has hung up".to_owned()],
                None => return errors,
            }
        }
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
