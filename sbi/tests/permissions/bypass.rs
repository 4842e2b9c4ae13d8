//! Attempts to bypass subject permissions: requests whose body contradicts their subject, and replies sent by
//! the server itself.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::stream::Stream;
use eno_control_plane::NatsUser;
use eno_sbi::nats::{Connection, ensure_streams, is_stream_readout};
use eno_schemas::subject;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::permissions::server::Server;

const COMMAND: &str = "eno.v1.command.nad.x";

async fn with_streams(server: &Server) -> Connection {
    let engine = server.connect(NatsUser::Engine, "eno-engine").await;
    ensure_streams(&engine.jetstream, 1).await.expect("the engine may make the streams");
    ensure_streams(&engine.jetstream, 1).await.expect("and may read them");
    engine.jetstream.publish(COMMAND, "secret".into()).await.unwrap().await.expect("an acknowledgement");
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn consumer_delivers_only_its_permitted_subject() {
    let server = Server::start().await;
    let _engine = with_streams(&server).await;
    let netconf = server.connect(NatsUser::DriverNetconf, "eno-driver-netconf").await;
    let inbox = netconf.client.new_inbox();
    let mut delivered = netconf.client.subscribe(inbox.clone()).await.unwrap();
    let own = "eno.v1.command.netconf.*";
    let consumer = |stream: &str, more: Value| {
        let mut config = json!({
            "name": "c", "deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none",
            "replay_policy": "instant",
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"stream_name": stream, "config": config, "action": ""})
    };
    for body in [
        consumer("ENO_COMMANDS", json!({"filter_subject": COMMAND})),
        consumer("ENO_COMMANDS", json!({"filter_subjects": [COMMAND]})),
        consumer("ENO_COMMANDS", json!({"filter_subject": own, "filter_subjects": [COMMAND]})),
        consumer("ENO_COMMANDS", json!({"filter_subjects": [own, COMMAND]})),
        consumer("ENO_COMMANDS", json!({})),
        consumer("ENO_TRANSITIONS", json!({"filter_subject": own})),
    ] {
        let request = format!("$JS.API.CONSUMER.CREATE.ENO_COMMANDS.c.{own}");
        let answer = netconf.client.request(request, body.to_string().into()).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        assert!(answer.get("error").is_some(), "{body} was taken: {answer}");
    }
    // A correct request is accepted, and delivers nothing of other drivers.
    let body = consumer("ENO_COMMANDS", json!({"filter_subject": own, "idle_heartbeat": 100_000_000}));
    let request = format!("$JS.API.CONSUMER.CREATE.ENO_COMMANDS.c.{own}");
    let answer = netconf.client.request(request, body.to_string().into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert!(answer.get("error").is_none(), "{answer}");
    let first = tokio::time::timeout(Duration::from_secs(30), delivered.next()).await.unwrap().unwrap();
    assert!(first.status.is_some() && first.payload.is_empty(), "{first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_readouts_are_distinguished_from_engine_messages() {
    let server = Server::start().await;
    let engine = with_streams(&server).await;
    let netconf = server.connect(NatsUser::DriverNetconf, "eno-driver-netconf").await;
    // A driver stores a command for another driver in its own result subject, and has the server send it to
    // the command subject.
    let own = "eno.v1.result.netconf.x";
    netconf.jetstream.publish(own, "forged".into()).await.unwrap().await.expect("its own result");
    let read = format!("$JS.API.DIRECT.GET.ENO_RESULTS.{own}");
    let commands: Stream<()> = engine.jetstream.get_stream_no_info(subject::COMMANDS).await.unwrap();
    netconf.client.publish_with_reply(read, COMMAND, "".into()).await.unwrap();
    let last = async {
        loop {
            let last = commands.get_last_raw_message_by_subject(COMMAND).await.unwrap();
            if last.payload != "secret" {
                return last;
            }
        }
    };
    let last = tokio::time::timeout(Duration::from_secs(30), last).await.expect("the server's answer");
    assert_eq!(last.payload, "forged");
    assert!(is_stream_readout(Some(&last.headers)), "{:?}", last.headers);
    assert!(!is_stream_readout(Some(&HeaderMap::new())) && !is_stream_readout(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_can_reply_only_to_its_requester() {
    let server = Server::start().await;
    let netconf = server.connect(NatsUser::DriverNetconf, "eno-driver-netconf").await;
    let cli = server.connect(NatsUser::Inspect, "eno-cli").await;
    let mut requests = netconf.client.subscribe("eno.v1.preview.netconf.*").await.unwrap();
    netconf.client.flush().await.unwrap();
    let answering = async {
        let request = requests.next().await.unwrap();
        let reply = request.reply.expect("where to answer");
        netconf.client.publish(reply, "what it would do".into()).await.unwrap();
    };
    let requesting = async {
        loop {
            let answer = cli.client.request("eno.v1.preview.netconf.x", "".into()).await;
            match answer {
                Ok(answer) => return answer,
                // The subscription does not exist yet.
                Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let both = async { tokio::join!(answering, requesting) };
    let ((), answer) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("an answer");
    assert_eq!(answer.payload, "what it would do");
}
