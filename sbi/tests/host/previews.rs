//! Preview requests.

use super::*;

/// Sends a preview request, as any client with that permission can.
async fn request_preview(client: &async_nats::Client, subject: String, command: &Command) -> Option<Preview> {
    let payload = encode(command).expect("a command").into();
    let answer = tokio::time::timeout(Duration::from_secs(2), client.request(subject, payload)).await;
    Some(decode(&answer.ok()?.expect("an answer").payload).expect("a preview"))
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_previews_commanded_targets_only() {
    let Setup { server, engine, host, .. } = setup().await;
    engine.apply(&command("a", 1, 1)).await;
    engine.apply(&command("b", 1, 1)).await;

    let client = server.connect("anyone").await.client;
    let at = |target: &str| Subject::preview(DRIVER, target).to_string();
    let requested = |target: &str, address: &str| {
        let mut command = command(target, 0, 7);
        let Desired::Fabric(desired) = &mut command.desired else { panic!("{command:?}") };
        desired.device.address = address.into();
        command.generation.hash = command.desired.hash();
        command
    };
    // Which device it is, the driver judges.
    for address in ["127.0.0.1:830", "192.0.2.66:830"] {
        let preview = request_preview(&client, at("a"), &requested("a", address)).await.expect("an answer");
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
    let preview = request_preview(&client, at("a"), &other_kind).await.expect("an answer");
    assert!(preview.failure.is_some_and(|failure| failure.reason.contains("can't tell")));

    // A request on one target's subject can't preview another target, and a target without a command is not
    // previewed.
    assert_eq!(request_preview(&client, at("b"), &requested("a", "127.0.0.1:830")).await, None);
    assert_eq!(request_preview(&client, at("c"), &requested("c", "127.0.0.1:830")).await, None);
    host.end().await;
}
