//! Preview requests.

use super::*;

/// Sends a preview request on the subject of a target, as any client with that permission can.
async fn request_preview(client: &async_nats::Client, target: &str, command: &Command) -> Option<Preview> {
    let payload = encode(command).expect("a command").into();
    let request = Subject::preview(DRIVER, target);
    let of = (DRIVER, &*command.target);
    let answer = nats::ask(client, &request, of, payload, Duration::from_secs(2)).await.ok()?;
    Some(decode(&answer).expect("a preview"))
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_previews_commanded_targets_only() {
    let Setup { server, engine, host, .. } = setup().await;
    engine.apply(&command("a", 1, 1)).await;
    engine.apply(&command("b", 1, 1)).await;

    let client = server.connect("anyone").await.client;
    let requested = |target: &str, address: &str| {
        let mut command = command(target, 0, 7);
        let Desired::Fabric(desired) = &mut command.desired else { panic!("{command:?}") };
        desired.device.address = address.into();
        command.generation.hash = command.desired.hash();
        command
    };
    // Which device it is, the driver judges.
    for address in ["127.0.0.1:830", "192.0.2.66:830"] {
        let preview = request_preview(&client, "a", &requested("a", address)).await.expect("an answer");
        assert_eq!((preview.edits, preview.failure), (vec![address.to_owned()], None));
    }
    let mut other_kind = command("a", 0, 7);
    other_kind.desired = Desired::Nad(NadDesired {
        namespace: "n".into(),
        name: "a".into(),
        owner: NadOwner { uid: "u".into() },
        attachment: None,
    });
    other_kind.generation.hash = other_kind.desired.hash();
    let preview = request_preview(&client, "a", &other_kind).await.expect("an answer");
    assert!(preview.failure.is_some_and(|failure| failure.reason.contains("can't tell")));

    // A request on one target's subject can't preview another target, and a target without a command is not
    // previewed.
    assert_eq!(request_preview(&client, "b", &requested("a", "127.0.0.1:830")).await, None);
    assert_eq!(request_preview(&client, "c", &requested("c", "127.0.0.1:830")).await, None);

    let same = requested("a", "127.0.0.1:830");
    // An answer goes nowhere but below the subjects of the target's answers.
    let elsewhere =
        ["eno.v1.command.stub.a", "_INBOX.x", "eno.v1.answer.stub.b.1", "eno.v1.answer.other.a.1"];
    let mut answers = Vec::new();
    for subject in elsewhere {
        answers.push(client.subscribe(subject).await.unwrap());
        let payload = encode(&same).unwrap().into();
        client.publish_with_reply(Subject::preview(DRIVER, "a").to_string(), subject, payload).await.unwrap();
    }
    assert!(request_preview(&client, "a", &same).await.is_some());
    for answers in &mut answers {
        assert!(futures::FutureExt::now_or_never(futures::StreamExt::next(answers)).is_none());
    }
    host.end().await;
}
