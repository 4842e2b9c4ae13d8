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
async fn preview_reads_only_the_commanded_device() {
    let Setup { server, engine, host, .. } = setup().await;
    let changed = |target: &str, change: &dyn Fn(&mut Device)| {
        let mut command = command(target, 0, 7);
        let Desired::Fabric(desired) = &mut command.desired else { panic!("{command:?}") };
        change(&mut desired.device);
        command.generation.hash = command.desired.hash();
        command
    };
    let mut last = changed("a", &|device| {
        device.credential = Some("a".into());
        device.host_key = Some("ssh-ed25519 AAAA".into());
    });
    last.generation.sequence = 1;
    engine.apply(&last).await;
    engine.apply(&command("b", 1, 1)).await;

    let client = server.connect("anyone").await.client;
    let of_a = |change: &dyn Fn(&mut Device)| {
        changed("a", &|device| {
            device.credential = Some("a".into());
            device.host_key = Some("ssh-ed25519 AAAA".into());
            change(device);
        })
    };
    // Other VLANs and another drift policy may be previewed.
    let same = of_a(&|device| device.drift = Drift::Report);
    let preview = request_preview(&client, "a", &same).await.expect("an answer");
    assert_eq!((preview.edits, preview.failure), (vec!["127.0.0.1:830".to_owned()], None));

    let elsewhere: [&dyn Fn(&mut Device); 5] = [
        &|device| device.address = "192.0.2.66:830".into(),
        &|device| device.credential = Some("b".into()),
        &|device| device.host_key = Some("ssh-ed25519 BBBB".into()),
        &|device| device.host_key = None,
        &|device| device.dialect = Some("openconfig".into()),
    ];
    for change in elsewhere {
        let requested = of_a(change);
        let preview = request_preview(&client, "a", &requested).await.expect("an answer");
        assert!(preview.edits.is_empty(), "{requested:?} was looked at");
        let failure = preview.failure.expect("a failure");
        assert!(failure.reason.contains("last command") && !failure.retryable, "{failure:?}");
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
    assert!(preview.failure.is_some_and(|failure| failure.reason.contains("another kind")));

    // A request on one target's subject can't preview another target, and a target without a command is not
    // previewed.
    assert_eq!(request_preview(&client, "b", &same).await, None);
    assert_eq!(request_preview(&client, "c", &changed("c", &|_| ())).await, None);

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
