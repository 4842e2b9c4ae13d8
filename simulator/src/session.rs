//! A NETCONF session over a byte stream.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::netconf::error::{RpcError, Tag};
use crate::netconf::framing::{Decoder, Framing, FramingError, encode};
use crate::netconf::hello::{self, HelloError};
use crate::netconf::rpc;
use crate::netconf::xml::{self, Document, NETCONF, push_attribute};
use crate::switch::{OpenedSession, Reply, RpcOutcome, Switch};

/// Maximum length of a message that a switch accepts, in bytes.
const MAX_MESSAGE_BYTES: usize = 128 << 20;

/// A session ended abnormally.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The peer sent invalid framing.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// The peer's `<hello>` is invalid.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The switch has the maximum number of sessions.
    #[error("the switch has as many sessions as it can have")]
    TooMany,
    /// A base:1.0 peer sent invalid XML. Only base:1.1 has an error reply for it (RFC 6241 appendix A).
    #[error(transparent)]
    Malformed(#[from] xml::XmlError),
}

/// The client of a session.
#[derive(Debug)]
pub struct Peer {
    /// Its user name.
    pub username: String,
    /// Its IP address.
    pub address: String,
    /// Cancelled by the switch to close the connection.
    pub connection: CancellationToken,
}

/// Serves a session until it ends. Then its locks are released and its unconfirmed commit is rolled back.
pub async fn serve<S>(switch: Arc<Switch>, mut stream: S, peer: Peer) -> Result<(), SessionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(opened) = switch.open_session(&peer.username, &peer.address, peer.connection.clone()) else {
        return Err(SessionError::TooMany);
    };
    // Close the session even if this future is dropped.
    let close = Arc::new(CloseOnDrop { switch, session: opened.session });
    let end = opened.end.clone();
    tokio::select! {
        () = end.cancelled() => {
            if !peer.connection.is_cancelled() {
                stream.shutdown().await?;
            }
            Ok(())
        }
        result = run_session(&close, &mut stream, opened) => {
            if !peer.connection.is_cancelled() {
                stream.shutdown().await?;
            }
            result
        }
    }
}

struct CloseOnDrop {
    switch: Arc<Switch>,
    session: u32,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.switch.close_session(self.session);
    }
}

async fn run_session<S>(
    close: &Arc<CloseOnDrop>,
    stream: &mut S,
    mut opened: OpenedSession,
) -> Result<(), SessionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let switch = &close.switch;
    let announced_capabilities = switch.announced_capabilities();
    let capabilities = hello::capabilities(&announced_capabilities, switch.dialect);
    let greeting = hello::write(&capabilities, opened.session);
    stream.write_all(&encode(Framing::EndOfMessage, &greeting)).await?;
    stream.flush().await?;
    let mut decoder = Decoder::new(MAX_MESSAGE_BYTES);
    let mut negotiated_framing = None;
    let mut buffer = vec![0; 64 << 10];
    loop {
        while let Some(message) = decoder.next_message()? {
            let Some(framing) = negotiated_framing else {
                let framing = hello::read(&message, &announced_capabilities)?;
                decoder.set_framing(framing);
                negotiated_framing = Some(framing);
                continue;
            };
            let response = handle_message(close, framing, &message).await?;
            if response.hangs {
                // Send nothing more until the connection ends.
                return std::future::pending().await;
            }
            if switch.sends_notifications_first() {
                while let Ok(message) = opened.outgoing.try_recv() {
                    stream.write_all(&encode(framing, &message)).await?;
                }
            }
            if let Some(reply) = response.reply {
                stream.write_all(&encode(framing, &reply)).await?;
                stream.flush().await?;
            }
            if response.ends_session {
                return Ok(());
            }
        }
        tokio::select! {
            read = stream.read(&mut buffer) => match read? {
                0 => return Ok(()),
                n => decoder.push(&buffer[..n]),
            },
            Some(message) = opened.outgoing.recv() => {
                if let Some(framing) = negotiated_framing {
                    stream.write_all(&encode(framing, &message)).await?;
                    stream.flush().await?;
                }
            }
        }
    }
}

struct Response {
    reply: Option<String>,
    ends_session: bool,
    hangs: bool,
}

async fn handle_message(
    close: &Arc<CloseOnDrop>,
    framing: Framing,
    message: &[u8],
) -> Result<Response, SessionError> {
    let switch = &close.switch;
    let document = match xml::parse(message) {
        Ok(document) => document,
        // malformed-message is new in base:1.1 and must not be sent to a base:1.0 peer.
        Err(error) if framing == Framing::EndOfMessage => return Err(error.into()),
        Err(error) => {
            let error = RpcError::rpc(Tag::MalformedMessage, error.to_string());
            return Ok(Response {
                reply: Some(write_reply(switch, "", &Reply::Errors(vec![error]))),
                ends_session: false,
                hangs: false,
            });
        }
    };
    let name = document.root.children.first().map_or("", |operation| &operation.name);
    let delay = switch.take_delay(name);
    switch.look_at_data_plane(name).await;
    // Parsing succeeded, so the text is UTF-8.
    let text = std::str::from_utf8(message).unwrap_or_default();
    let (document, outcome) = if delay.is_zero() {
        let outcome = handle_rpc(switch, close.session, &document, text);
        (document, outcome)
    } else {
        let (close, text) = (Arc::clone(close), text.to_owned());
        // The task keeps the session open until the operation has taken effect.
        let working = tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let outcome = handle_rpc(&close.switch, close.session, &document, &text);
            (document, outcome)
        });
        match working.await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    };
    let reply = outcome.reply.map(|reply| write_reply(switch, &document.root_attributes, &reply));
    Ok(Response { reply, ends_session: outcome.ends_session, hangs: outcome.hangs })
}

fn handle_rpc(switch: &Switch, session: u32, document: &Document, text: &str) -> RpcOutcome {
    let refuse = |errors| RpcOutcome::reply(Reply::Errors(errors));
    let root = &document.root;
    if !root.is(NETCONF, "rpc") {
        return refuse(vec![
            RpcError::rpc(Tag::UnknownElement, format!("{} is not <rpc>", root.name))
                .info("bad-element", &*root.name),
        ]);
    }
    if root.attribute("", "message-id").is_none() {
        return refuse(vec![
            RpcError::rpc(Tag::MissingAttribute, "an <rpc> needs a message-id")
                .info("bad-attribute", "message-id")
                .info("bad-element", "rpc"),
        ]);
    }
    let [operation] = root.children.as_slice() else {
        return refuse(vec![RpcError::rpc(Tag::MissingElement, "an <rpc> holds exactly one operation")]);
    };
    switch.count_rpc(&operation.name);
    match rpc::parse(operation, switch.context()) {
        Ok(rpc) => switch.execute(session, rpc, text),
        Err(errors) => refuse(errors),
    }
}

/// Formats the `<rpc-reply>` with the attributes of the request (RFC 6241 section 4.2).
fn write_reply(switch: &Switch, attributes: &str, reply: &Reply) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<rpc-reply");
    push_attribute(&mut out, "xmlns", NETCONF);
    out.push_str(attributes);
    out.push('>');
    match reply {
        Reply::Ok => out.push_str("<ok/>"),
        Reply::Data(xml) => {
            out.push_str("<data>");
            out.push_str(xml);
            out.push_str("</data>");
        }
        Reply::Content(xml) => out.push_str(xml),
        Reply::Errors(errors) => {
            let odd = switch.odd_errors();
            if odd.nested {
                out.push_str("<commit-results><routing-engine><name>fpc0</name>");
            }
            for error in errors {
                error.write(switch.dialect.error_path_style, odd.untagged, &mut out);
            }
            if odd.nested {
                out.push_str(if odd.unclosed { "" } else { "</routing-engine>" });
                out.push_str("</commit-results>");
            }
        }
    }
    out.push_str("</rpc-reply>");
    out
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::io::DuplexStream;
    use tokio::sync::watch;

    use super::*;
    use crate::dialect::OPENCONFIG;
    use crate::switch::Setup;
    use crate::topology::SwitchSpec;

    const BASE_1_0: &str = "urn:ietf:params:netconf:base:1.0";
    const BASE_1_1: &str = "urn:ietf:params:netconf:base:1.1";

    fn switch(ports: usize) -> Arc<Switch> {
        let spec = SwitchSpec::new("s", (1..=ports).map(|n| format!("Ethernet{n}")).collect());
        switch_of(&spec, &OPENCONFIG)
    }

    fn switch_of(spec: &SwitchSpec, dialect: &'static crate::dialect::Dialect) -> Arc<Switch> {
        Switch::new(Setup {
            spec,
            dialect,
            directory: None,
            fabric_version: watch::Sender::new(1),
            shutdown: CancellationToken::new(),
        })
        .expect("a factory configuration")
    }

    struct Client {
        stream: DuplexStream,
        decoder: Decoder,
        framing: Framing,
    }

    impl Client {
        async fn connect(switch: &Arc<Switch>, base: &str) -> Self {
            let (stream, far) = tokio::io::duplex(1 << 20);
            let connection = CancellationToken::new();
            let peer = Peer { username: "u".to_owned(), address: "::1".to_owned(), connection };
            tokio::spawn(serve(Arc::clone(switch), far, peer));
            let mut client =
                Self { stream, decoder: Decoder::new(MAX_MESSAGE_BYTES), framing: Framing::EndOfMessage };
            client.receive().await.expect("a hello");
            let hello = format!(
                "<hello xmlns=\"{NETCONF}\"><capabilities><capability>{base}</capability></capabilities></hello>"
            );
            client.send(&hello).await;
            if base == BASE_1_1 {
                client.framing = Framing::Chunked;
                client.decoder.set_framing(Framing::Chunked);
            }
            client
        }

        async fn send(&mut self, message: &str) {
            self.stream.write_all(&encode(self.framing, message)).await.expect("the switch listens");
        }

        /// Returns the next message, or `None` when the switch has closed the stream.
        async fn receive(&mut self) -> Option<String> {
            let mut buffer = vec![0; 1 << 16];
            loop {
                if let Some(message) = self.decoder.next_message().expect("well framed") {
                    return Some(String::from_utf8(message).expect("UTF-8"));
                }
                match self.stream.read(&mut buffer).await.expect("readable") {
                    0 => return None,
                    n => self.decoder.push(&buffer[..n]),
                }
            }
        }

        async fn rpc(&mut self, operation: &str) -> String {
            self.send(&format!("<rpc xmlns=\"{NETCONF}\" message-id=\"1\">{operation}</rpc>")).await;
            self.receive().await.expect("a reply")
        }
    }

    /// Each dialect shows what it has learnt, where its configuration has the VLAN.
    #[tokio::test]
    async fn learnt_addresses_are_shown() {
        let fdb = "<get><filter type='subtree'><network-instances xmlns='http://openconfig.net/yang/network-instance'>\
                   <network-instance><fdb/></network-instance></network-instances></filter></get>";
        let bridge_table = "<get><filter type='subtree'>\
                            <network-instance xmlns='urn:nokia.com:srlinux:net-inst:network-instance'><bridge-table/>\
                            </network-instance></filter></get>";
        let operation = "<get-ethernet-switching-table-information/>";
        for (dialect, request, port) in [
            ("openconfig", fdb, "<interface>lag9</interface>"),
            ("srlinux", bridge_table, "<destination>lag9.100</destination>"),
            ("junos", operation, "<l2ng-l2-mac-logical-interface>lag9.0</l2ng-l2-mac-logical-interface>"),
        ] {
            let dialect = crate::dialect::Dialect::named(dialect).expect("a dialect");
            let ports: Vec<String> = (1..=2).map(dialect.port_name).collect();
            let lag = match dialect.name {
                "openconfig" => "Port-Channel1",
                "junos" => "ae0",
                _ => "lag1",
            };
            let mut spec = SwitchSpec::new("s", ports.clone());
            spec.lags = [(lag.to_owned(), vec![ports[1].clone()])].into();
            let switch = switch_of(&spec, dialect);
            for port in [&*ports[0], lag] {
                let edit = crate::dialect::HandEdit {
                    port: Some(port.to_owned()),
                    mode: Some(crate::dialect::PortMode::Trunk),
                    vlans: [100].into_iter().collect(),
                    define_vlans: [(100, "v100".to_owned())].into(),
                    ..Default::default()
                };
                switch.change_by_hand(&edit).expect("the port exists");
            }
            for (mac, port) in [("02:5e:00:00:00:01", &ports[0]), ("02:5e:00:00:00:02", &ports[1])] {
                let (mac, port) = (mac.to_owned(), port.clone());
                switch.inject(crate::faults::Fault::Learn { mac, vlan: 100, port, number: None });
            }
            let mut client = Client::connect(&switch, BASE_1_1).await;
            let reply = client.rpc(request).await;
            for (mac, at) in [("02:5e:00:00:00:01", &*ports[0]), ("02:5e:00:00:00:02", lag)] {
                let entry = reply.split(mac).last().unwrap_or_default();
                assert!(entry.contains(&port.replace("lag9", at)), "{mac} at {at}: {reply}");
            }
            switch.inject(crate::faults::Fault::Clear {});
            let reply = client.rpc(request).await;
            assert!(!reply.contains("02:5e:") && !reply.contains("rpc-error"), "{reply}");
            // Another dialect has no such operation.
            let refused = client.rpc(operation).await.contains("operation-not-supported");
            assert_eq!(refused, dialect.name != "junos", "{}", dialect.name);
        }
    }

    #[tokio::test]
    async fn malformed_message_gets_rpc_error_or_ends_session() {
        let switch = switch(1);
        let mut new = Client::connect(&switch, BASE_1_1).await;
        for bad in ["<rpc", "", "text", "<!DOCTYPE x><rpc/>", "<a/><b/>"] {
            if !bad.is_empty() {
                new.send(bad).await;
                let reply = new.receive().await.expect("a reply");
                assert!(reply.contains("<error-tag>malformed-message</error-tag>"), "{bad}: {reply}");
            }
        }
        new.send(&format!("<rpc xmlns=\"{NETCONF}\"><get/></rpc>")).await;
        let reply = new.receive().await.expect("a reply");
        assert!(reply.contains("<error-tag>missing-attribute</error-tag>"), "{reply}");
        assert!(reply.contains("<bad-attribute>message-id</bad-attribute>"), "{reply}");
        new.stream.write_all(b"no chunk at all").await.expect("the switch listens");
        assert_eq!(new.receive().await, None);

        let mut old = Client::connect(&switch, BASE_1_0).await;
        old.send("<rpc").await;
        assert_eq!(old.receive().await, None, "base:1.0 has no malformed-message");
        let mut wrong = Client::connect(&switch, "urn:nothing").await;
        assert_eq!(wrong.receive().await, None, "no common base");
    }

    #[tokio::test]
    async fn rpc_reply_repeats_attributes_of_rpc() {
        let mut client = Client::connect(&switch(1), BASE_1_1).await;
        client
            .send(&format!(
                "<n:rpc xmlns:n=\"{NETCONF}\" xmlns:x=\"urn:x\" x:user=\"&lt;me&gt;\" message-id=\"a&quot;b\">\
                 <n:close-session/></n:rpc>"
            ))
            .await;
        let reply =
            xml::parse(client.receive().await.expect("a reply").as_bytes()).expect("well-formed").root;
        assert!(reply.is(NETCONF, "rpc-reply"));
        assert_eq!(reply.attribute("", "message-id"), Some("a\"b"));
        assert_eq!(reply.attribute("urn:x", "user"), Some("<me>"));
        assert!(reply.child(NETCONF, "ok").is_some());
        assert_eq!(client.receive().await, None);
    }

    /// With 4,000 VLANs on 48 ports, an edit of 1,000 VLANs and a read of all take less than 100 ms.
    #[tokio::test]
    async fn switch_with_4000_vlans_commits_and_reads_within_100_ms() {
        let switch = switch(48);
        let mut client = Client::connect(&switch, BASE_1_1).await;
        let vlans = |range: std::ops::Range<u16>| {
            use std::fmt::Write as _;
            let mut entries = String::new();
            for id in range {
                let _ = write!(
                    entries,
                    "<vlan><vlan-id>{id}</vlan-id><config><vlan-id>{id}</vlan-id><name>v{id}</name></config></vlan>"
                );
            }
            format!(
                "<edit-config><target><candidate/></target><config><network-instances \
                 xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance><name>default</name>\
                 <vlans>{entries}</vlans></network-instance></network-instances></config></edit-config>"
            )
        };
        for id in 1..=48 {
            let edit = crate::dialect::HandEdit {
                port: Some(format!("Ethernet{id}")),
                mode: Some(crate::dialect::PortMode::Trunk),
                // Every other VLAN, so that no ranges form.
                vlans: (1..=4000).step_by(2).collect(),
                ..Default::default()
            };
            switch.change_by_hand(&edit).expect("the port exists");
        }
        let mut fastest = Duration::MAX;
        for start in [1, 1001, 2001, 3001] {
            let began = Instant::now();
            assert!(client.rpc(&vlans(start..start + 1000)).await.contains("<ok/>"));
            assert!(client.rpc("<commit/>").await.contains("<ok/>"));
            fastest = fastest.min(began.elapsed());
        }
        assert!(fastest < Duration::from_millis(100), "edit and commit of 1,000 VLANs took {fastest:?}");
        let mut fastest = Duration::MAX;
        for _ in 0..3 {
            let began = Instant::now();
            let reply = client.rpc("<get-config><source><running/></source></get-config>").await;
            fastest = fastest.min(began.elapsed());
            assert_eq!(reply.matches("<vlan>").count(), 4000);
        }
        assert!(fastest < Duration::from_millis(100), "reading everything took {fastest:?}");
    }
}
