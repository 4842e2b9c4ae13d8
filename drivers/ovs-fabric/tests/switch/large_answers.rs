//! A switch whose database sends far more than was asked for, beside one that does not.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use eno_conformance::{Engine, NatsServer, ShippedMemory};
use eno_schemas::{Desired, FabricDesired, Outcome, Report};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::switch::fixture::{Switch, Transport};

/// What a database answers to a request for a copy of its tables.
#[derive(Clone, Copy)]
struct Answer {
    before: &'static str,
    /// `NUMBER` in it stands for the number of the repetition.
    repeated: &'static str,
    times: u64,
    after: &'static str,
}

impl Answer {
    const fn new(before: &'static str, repeated: &'static str, times: u64, after: &'static str) -> Self {
        Self { before, repeated, times, after }
    }
}

/// In front of a real database. It answers what it likes to a request for a copy.
async fn hostile(database: PathBuf, answer: Arc<Mutex<Answer>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = UnixStream::connect(&database).await.unwrap();
            // The driver ends the connection while it is answered.
            tokio::spawn(serve(client, server, Arc::clone(&answer)));
        }
    });
    address
}

async fn serve(client: TcpStream, server: UnixStream, answer: Arc<Mutex<Answer>>) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut request = vec![0; 64 << 10];
    let mut reply = vec![0; 64 << 10];
    loop {
        tokio::select! {
            length = from_server.read(&mut reply) => match length? {
                0 => return Ok(()),
                length => to_client.write_all(&reply[..length]).await?,
            },
            length = from_client.read(&mut request) => {
                let length = length?;
                if length == 0 {
                    return Ok(());
                }
                let text = String::from_utf8_lossy(&request[..length]);
                let Some(at) = text.find("\"monitor_cond_since\"") else {
                    to_server.write_all(text.as_bytes()).await?;
                    continue;
                };
                let start = text[..at].rfind("{\"id\":").unwrap();
                let id: String = text[start + 6..].chars().take_while(char::is_ascii_digit).collect();
                let Answer { before, repeated, times, after } = *answer.lock().unwrap();
                let head = format!("{{\"error\":null,\"id\":{id},\"result\":{before}");
                to_client.write_all(head.as_bytes()).await?;
                let mut chunk = String::new();
                for number in 0..times {
                    chunk.push_str(&repeated.replace("NUMBER", &format!("{number:012}")));
                    if chunk.len() > 64 << 10 {
                        to_client.write_all(chunk.as_bytes()).await?;
                        chunk.clear();
                    }
                }
                to_client.write_all(format!("{chunk}{after}}}").as_bytes()).await?;
            }
        }
    }
}

const ANSWERS: [(Answer, &str); 3] = [
    (Answer::new("[\"", "0123456789", 4 << 20, "\"]"), "a message of more than 16777216 bytes"),
    (Answer::new("[0", ",0", 7 << 20, "]"), "more than 67108864 bytes once it is parsed"),
    // Each row gets the default values of its columns.
    (
        Answer::new(
            "[false,\"00000000-0000-0000-0000-000000000000\",{\"Port\":{\
             \"00000000-0000-0000-0001-000000000000\":{\"initial\":{}}",
            ",\"00000000-0000-0000-0000-NUMBER\":{\"initial\":{}}",
            35_000,
            "}}]",
        ),
        "the tables take more than 32 MiB",
    ),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: cgroups"]
async fn database_that_answers_too_much_does_not_affect_others() {
    let switch = Switch::reached_by(Transport::Unix);
    let answer = Arc::new(Mutex::new(ANSWERS[0].0));
    let address = hostile(switch.path("driver.sock"), Arc::clone(&answer)).await;
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let program = env!("CARGO_BIN_EXE_eno-driver-ovs-fabric");
    let mut driver = ShippedMemory::driver("ovs-fabric", program, &server, None);
    let command = |target: &str, sequence: u64, desired: FabricDesired| {
        eno_schemas::Command::new("ovs-fabric", target, (1, sequence), Desired::Fabric(desired))
    };
    for (sequence, (of, reason)) in (1..).zip(ANSWERS) {
        *answer.lock().unwrap() = of;
        let mut desired = switch.desired(&[("p2", "100")]);
        desired.device.address.clone_from(&address);
        engine.command(&command("hostile", sequence, desired)).await;
        let vlans = (200 + sequence).to_string();
        engine.apply(&command("ovs1", sequence, switch.desired(&[("p1", &vlans)]))).await;
        let is_reason = |report: &Report| match &report.outcome {
            Outcome::Failed(failure) => failure.reason.contains(reason) && !failure.unreachable,
            _ => false,
        };
        engine.report("ovs-fabric", "hostile", is_reason).await;
        driver.assert_alive();
        driver.print_peak(reason);
        engine.forget("ovs-fabric", "hostile").await;
    }
    assert_eq!(switch.trunks("p1"), [5, 203]);
    driver.assert_given_back();
}
