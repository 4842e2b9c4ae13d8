//! A cloud that answers far more than was asked for, beside one that does not.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use eno_conformance::{Engine, NatsServer, ShippedMemory};
use eno_schemas::{Desired, Device, FabricDesired, Outcome, Report};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cloud::fixture::{Cloud, PHYSICAL, Role};
use crate::logins::token;

/// A text that is made while it is sent.
#[derive(Clone, Copy)]
struct Repeated {
    before: &'static str,
    part: &'static str,
    times: usize,
    after: &'static str,
}

impl Repeated {
    fn body(self) -> Body {
        const AT_ONCE: usize = 10_000;
        let Self { before, part, times, after } = self;
        let chunk = Bytes::from(part.repeat(AT_ONCE));
        let middle = std::iter::repeat_n(chunk, times / AT_ONCE);
        let all = std::iter::once(before.into()).chain(middle).chain([after.into()]);
        Body::from_stream(futures::stream::iter(all.map(Ok::<Bytes, std::convert::Infallible>)))
    }
}

#[derive(Clone, Copy)]
enum Answer {
    /// The same for each request to Neutron.
    Neutron(Repeated),
    /// The same for each login.
    Keystone(Repeated),
    /// Pages without end.
    Pages,
}

/// Keystone and Neutron at one address.
struct Hostile {
    url: String,
    answer: Mutex<Answer>,
}

impl Hostile {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Self { url, answer: Mutex::new(Answer::Pages) });
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        shared
    }

    fn address(&self) -> String {
        format!("{}/v3", self.url)
    }
}

async fn answer(State(shared): State<Arc<Hostile>>, request: Request) -> Response<Body> {
    let answer = *shared.answer.lock().unwrap();
    let path = request.uri().path().to_owned();
    if !path.ends_with("/auth/tokens") {
        let collection = path.rsplit('/').next().unwrap();
        return Response::new(match answer {
            Answer::Neutron(text) => text.body(),
            Answer::Keystone(_) => Body::from("{}"),
            Answer::Pages => {
                let id: u64 = request.uri().query().map_or(0, |query| {
                    query.rsplit('=').next().unwrap_or_default().parse().unwrap_or_default()
                });
                let item = |at: u64| json!({ "id": format!("{}", id * 1000 + at), "name": "x".repeat(200) });
                let items: Vec<_> = (0..1000).map(item).collect();
                let next = format!("{}/v2.0/{collection}?marker={}", shared.url, id + 1);
                let links = json!([{ "rel": "next", "href": next }]);
                Body::from(json!({ collection: items, format!("{collection}_links"): links }).to_string())
            }
        });
    }
    let response = Response::builder().status(StatusCode::CREATED).header("x-subject-token", "t0ken");
    let body = match answer {
        Answer::Keystone(text) => text.body(),
        Answer::Neutron(_) | Answer::Pages => Body::from(token(&shared.url).to_string()),
    };
    response.body(body).unwrap()
}

const ANSWERS: [Answer; 6] = {
    const fn list(part: &'static str, times: usize) -> Answer {
        Answer::Neutron(Repeated { before: r#"{"networks":[0"#, part, times, after: "]}" })
    }
    [
        // 60 MiB.
        list(",0", 30 << 20),
        list(",0", 7 << 20),
        list(",{}", 4 << 20),
        list(r#","0123456789""#, 1 << 20),
        Answer::Pages,
        Answer::Keystone(Repeated { before: "[0", part: ",0", times: 7 << 20, after: "]" }),
    ]
};

/// Which of the limits an answer exceeds first depends on how many requests are answered at once.
const REASONS: [&str; 2] = [
    "sends too much: an answer has more than 16 MiB",
    "sends too much: it answers more than this driver keeps of one device, 64 MiB",
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: cgroups"]
async fn cloud_that_answers_too_much_does_not_affect_others() {
    let (cloud, hostile) = (Cloud::new(Role::Admin).await, Hostile::start().await);
    cloud.add_secret("hostile", &hostile.address());
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let program = env!("CARGO_BIN_EXE_eno-driver-neutron");
    let mut driver = ShippedMemory::driver("neutron", program, &server, Some(cloud.secrets()));
    let healthy = |items: &[usize]| cloud.desired(&[("t1", items), (PHYSICAL, items)]);
    let command = |target: &str, sequence: u64, desired: FabricDesired| {
        eno_schemas::Command::new("neutron", target, (1, sequence), Desired::Fabric(desired))
    };

    for (sequence, answer) in (1..).zip(ANSWERS) {
        *hostile.answer.lock().unwrap() = answer;
        let desired = healthy(&[0]);
        let device =
            Device { address: hostile.address(), credential: Some("hostile".into()), ..desired.device };
        engine.command(&command("hostile", sequence, FabricDesired { device, ..desired })).await;
        let items: Vec<usize> = (0..usize::try_from(sequence).unwrap()).collect();
        engine.apply(&command("vim1", sequence, healthy(&items))).await;
        let is_reason = |report: &Report| match &report.outcome {
            Outcome::Failed(failure) => {
                report.generation.sequence == sequence
                    && REASONS.iter().any(|reason| failure.reason.contains(reason))
                    && failure.retryable
                    && !failure.unreachable
            }
            _ => false,
        };
        engine.report("neutron", "hostile", is_reason).await;
        driver.assert_alive();
        driver.print_peak("as it should");
    }
    let networks = cloud.list("networks").await;
    let ours = networks.iter().filter(|network| network["name"].as_str().unwrap().starts_with("eno-"));
    assert_eq!(ours.count(), ANSWERS.len());
    driver.assert_given_back();
}
