//! Sessions with a scripted peer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eno_driver_netconf::session::{CallError, Session as _, SessionError, StreamSession};
use eno_driver_netconf::text::Text;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

const HELLO: &str = "<hello xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><capabilities>\
    <capability>urn:ietf:params:netconf:base:1.0</capability></capabilities><session-id>7</session-id></hello>";
const END: &str = "]]>]]>";
const NOTIFICATION: &str = "<notification xmlns=\"urn:ietf:params:xml:ns:netconf:notification:1.0\">\
    <eventTime>2020-01-01T00:00:00Z</eventTime></notification>";

fn reply(id: u64, content: &str) -> String {
    format!(
        "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\" message-id=\"{id}\">{content}</rpc-reply>"
    )
}

struct Peer {
    stream: DuplexStream,
    session: StreamSession,
    notified: Arc<Mutex<Vec<String>>>,
}

async fn peer(limit: Duration) -> Peer {
    let (ours, mut stream) = tokio::io::duplex(1 << 16);
    let notified = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&notified);
    let open = StreamSession::open(
        ours,
        limit,
        limit,
        Box::new(move |message: &Text| received.lock().unwrap().push(message.to_string())),
    );
    stream.write_all(format!("{HELLO}{END}").as_bytes()).await.expect("it listens");
    let session = open.await.expect("a session");
    let mut peer = Peer { stream, session, notified };
    peer.request().await;
    peer
}

impl Peer {
    async fn send(&mut self, text: &str) {
        self.stream.write_all(format!("{text}{END}").as_bytes()).await.expect("it listens");
    }

    /// Returns the next message.
    async fn request(&mut self) -> String {
        let mut message = Vec::new();
        while !message.ends_with(END.as_bytes()) {
            message.push(self.stream.read_u8().await.expect("a message"));
        }
        String::from_utf8(message).expect("text")
    }
}

#[tokio::test]
async fn notifications_interleave_and_replies_match_by_id() {
    let mut peer = peer(Duration::from_secs(10)).await;
    let (first, second) = (peer.session.call("<a/>".into()), peer.session.call("<b/>".into()));
    assert!(peer.request().await.contains("<a/>"));
    assert!(peer.request().await.contains("<b/>"));
    peer.send(NOTIFICATION).await;
    peer.send(&reply(2, "<ok/>")).await;
    peer.send(NOTIFICATION).await;
    peer.send(&reply(1, "<data>one</data>")).await;
    assert!(first.await.expect("a reply").contains("one"));
    assert!(second.await.expect("a reply").contains("<ok/>"));
    assert_eq!(peer.notified.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn all_errors_of_a_reply_are_returned() {
    let mut peer = peer(Duration::from_secs(10)).await;
    let call = peer.session.call("<edit-config/>".into());
    peer.request().await;
    let error = |tag: &str, message: &str| {
        format!(
            "<rpc-error><error-type>application</error-type><error-tag>{tag}</error-tag>\
             <error-severity>error</error-severity><error-message>{message}</error-message></rpc-error>"
        )
    };
    peer.send(&reply(1, &(error("invalid-value", "VLAN 5") + &error("data-missing", "VLAN 6")))).await;
    match call.await {
        Err(CallError::Refused { operation, errors }) => {
            assert_eq!(operation, "<edit-config>");
            assert_eq!(errors.to_string(), "invalid-value: VLAN 5; data-missing: VLAN 6");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn slow_reply_is_awaited_and_silence_times_out() {
    let mut peer = peer(Duration::from_millis(300)).await;
    let call = peer.session.call("<slow/>".into());
    peer.request().await;
    for byte in format!("{}{END}", reply(1, "<ok/>")).bytes() {
        peer.stream.write_u8(byte).await.expect("it listens");
        tokio::task::yield_now().await;
    }
    assert!(call.await.is_ok());
    // A half-open peer accepts requests and never answers.
    let silent = peer.session.call("<silent/>".into()).await;
    let expected = SessionError::TimedOut { operation: "<silent>".into(), limit: Duration::from_millis(300) };
    assert_eq!(silent, Err(CallError::Session(expected)));
    // A late reply is ignored.
    peer.request().await;
    let next = peer.session.call("<next/>".into());
    peer.request().await;
    peer.send(&reply(2, "<ok/>")).await;
    peer.send(&reply(3, "<data>mine</data>")).await;
    assert!(next.await.expect("a reply").contains("mine"));
}

#[tokio::test]
async fn lost_reply_is_detected_early() {
    let mut peer = peer(Duration::from_secs(10)).await;
    // No other request is pending: the session sends a probe, and then the same read again.
    let read =
        tokio::spawn(peer.session.call("<get-config><source><candidate/></source></get-config>".into()));
    assert!(peer.request().await.contains("candidate"));
    assert!(peer.request().await.contains("message-id=\"2\""));
    peer.send(&reply(2, "<data/>")).await;
    assert!(peer.request().await.contains("candidate"));
    peer.send(&reply(3, "<data>late</data>")).await;
    assert!(read.await.expect("it runs").expect("a reply").contains("late"));

    // A request that changes something is not repeated.
    let (commit, read) = (peer.session.call("<commit/>".into()), peer.session.call("<get/>".into()));
    for _ in 0..2 {
        peer.request().await;
    }
    peer.send(&reply(5, "<data/>")).await;
    let lost = SessionError::Lost { operation: "<commit>".into() };
    assert_eq!(commit.await, Err(CallError::Session(lost)));
    assert!(read.await.is_ok());
}

#[tokio::test]
async fn pending_requests_fail_when_session_ends() {
    let peer = peer(Duration::from_mins(1)).await;
    let waiting = peer.session.call("<a/>".into());
    drop(peer.session);
    let waiting = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("it ends at once");
    assert!(matches!(waiting, Err(CallError::Session(SessionError::Ended(_)))));
}

#[tokio::test]
async fn session_end_is_detected_without_a_request() {
    let peer = peer(Duration::from_secs(10)).await;
    let (waiting, ended) = (peer.session.call("<a/>".into()), peer.session.ended());
    drop(peer.stream);
    ended.await;
    assert!(matches!(waiting.await, Err(CallError::Session(SessionError::Ended(_)))));
    assert!(matches!(
        peer.session.call("<b/>".into()).await,
        Err(CallError::Session(SessionError::Ended(_)))
    ));
}

#[tokio::test]
async fn malformed_input_ends_the_session() {
    for garbage in ["no xml", "<hello/>", "<rpc-reply xmlns='other'/>", "\u{1}"] {
        let mut peer = peer(Duration::from_secs(10)).await;
        let call = peer.session.call("<a/>".into());
        peer.request().await;
        peer.send(garbage).await;
        assert!(matches!(call.await, Err(CallError::Session(SessionError::Protocol(_)))), "{garbage}");
    }
}

/// The error of a session whose peer sends this, then nothing or the end.
async fn failed_hello(sent: &[u8], ends: bool) -> SessionError {
    let (ours, mut stream) = tokio::io::duplex(1 << 16);
    stream.write_all(sent).await.expect("it listens");
    let stream = (!ends).then_some(stream);
    let wait = Duration::from_millis(300);
    let opened = StreamSession::open(ours, wait, Duration::from_mins(1), Box::new(|_: &Text| ())).await;
    drop(stream);
    opened.err().expect("no session")
}

#[tokio::test]
async fn error_of_a_missing_hello_shows_what_came_instead() {
    let said = "Too many sessions of <eno> & others\r\n";
    let limit = "<rpc-error><error-tag>resource-denied</error-tag><error-message>8 sessions are open</error-message>\
                 </rpc-error>";
    for (sent, ends, expected, is_end) in [
        (String::new(), true, "closed", true),
        (said.to_owned(), true, "Too many sessions of <eno> & others", true),
        (said.to_owned(), false, "Too many sessions of <eno> & others", true),
        (format!("{limit}{END}"), true, "resource-denied: 8 sessions are open", true),
        (reply(1, limit) + END, false, "resource-denied: 8 sessions are open", true),
        (format!("{said}{END}"), false, "Too many sessions of <eno> & others", false),
        (format!("<hello>\u{1b}[0m{}{END}", "x ".repeat(10_000)), false, "<hello>\u{fffd}[0mx x", false),
    ] {
        let error = failed_hello(sent.as_bytes(), ends).await;
        let shown = error.to_string();
        assert!(shown.contains(expected) && shown.len() < 600, "{sent:.80}: {shown}");
        assert_eq!(matches!(error, SessionError::Ended(_)), is_end, "{shown}");
    }
    let silent = failed_hello(b"", false).await;
    assert!(matches!(silent, SessionError::TimedOut { .. }), "{silent}");
}

#[tokio::test]
async fn session_opens_after_a_banner_and_reads_replies_without_namespace() {
    let (ours, mut stream) = tokio::io::duplex(1 << 16);
    let open =
        StreamSession::open(ours, Duration::from_secs(10), Duration::from_secs(10), Box::new(|_: &Text| ()));
    let hello = format!("R&D <lab>\r\n{}{END}", HELLO.replace("base:1.0<", "base:1.1<"));
    stream.write_all(hello.as_bytes()).await.expect("it listens");
    let session = open.await.expect("a session");
    let call = session.call("<get/>".into());
    let content = b"<rpc-reply message-id='1'><data>Z\xfcrich</data></rpc-reply>";
    for (head, tail) in [("\n#", "\n##\n\n"), ("\n#", "\n##\n")] {
        stream.write_all(format!("{head}{}\n", content.len()).as_bytes()).await.expect("it listens");
        stream.write_all(content).await.expect("it listens");
        stream.write_all(tail.as_bytes()).await.expect("it listens");
    }
    assert!(call.await.expect("a reply").contains("Z\u{fffd}rich"));
    let next = session.call("<get/>".into());
    stream.write_all(b"\n#38\n<rpc-reply message-id='2'></rpc-reply>\n##\n").await.expect("it listens");
    next.await.expect("a reply");
}
