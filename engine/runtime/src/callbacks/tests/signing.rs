//! Signatures, verified by an independent library.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use axum::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const REQUIREMENT: &str = "standardwebhooks==1.1.0";

/// Reads lines of JSON with headers, body and secret; prints for each whether it verifies.
const VERIFY: &str = r#"
import json, sys
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
for line in sys.stdin:
    case = json.loads(line)
    try:
        Webhook(case["secret"]).verify(case["body"], case["headers"])
        print("good")
    except WebhookVerificationError as error:
        print("bad", error)
"#;

/// The interpreter of a virtual environment with the library, created once beside the test programs.
fn python() -> PathBuf {
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let program = std::env::current_exe().unwrap();
    let cache_dir = program.parent().unwrap().parent().unwrap().to_owned();
    let venv = cache_dir.join("venv-standardwebhooks");
    let lock = File::create(cache_dir.join("venv-standardwebhooks.lock")).unwrap();
    lock.lock().unwrap();
    let (python, stamp) = (venv.join("bin/python"), venv.join("installed-requirements.txt"));
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == REQUIREMENT) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT];
    run(Command::new(&python).args(pip));
    std::fs::write(&stamp, REQUIREMENT).unwrap();
    python
}

/// The library's result for each case.
fn verify_all(cases: &[Value]) -> Vec<String> {
    let mut child = Command::new(python())
        .args(["-c", VERIFY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for case in cases {
        std::io::Write::write_all(&mut stdin, format!("{case}\n").as_bytes()).unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn secret(fill: u8) -> String {
    format!("whsec_{}", STANDARD.encode([fill; 32]))
}

/// Converts values to the `data` of a Secret.
fn data(values: &[String]) -> Value {
    let encoded =
        values.iter().enumerate().map(|(n, value)| (format!("key{n}"), STANDARD.encode(value).into()));
    Value::Object(encoded.collect())
}

fn case(got: &Received, secret: &str) -> Value {
    let header = |name: &str| got.headers[name].to_str().unwrap();
    json!({
        "secret": secret,
        "body": std::str::from_utf8(&got.body).unwrap(),
        "headers": {
            "webhook-id": header("webhook-id"),
            "webhook-timestamp": header("webhook-timestamp"),
            "webhook-signature": header("webhook-signature"),
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_library_verifies_signatures() {
    let (_receiver, address, mut gets, mut bench) = start().await;
    let (old, new) = (secret(1), secret(2));
    let set_keys = |values: &[String]| {
        let mut state = bench.cluster.0.lock().unwrap();
        state.secrets.insert("eno-system/eno-callback".into(), data(values));
    };
    // During a key rotation, both keys sign.
    set_keys(&[old.clone(), new.clone()]);
    let url = |name: &str| format!("http://{address}/{name}");
    let spec = |name: &str, format: &str| json!({ "CallbackURL": url(name), "CallbackSecret": { "Name": "eno-callback" }, "CallbackFormat": format });
    bench.transition_of("plain", 1, &spec("plain", "Object")).await;
    let delivery = bench.start_delivery();
    let mut got = vec![take(&mut gets).await];
    bench.transition_of("event", 1, &spec("event", "CloudEvents")).await;
    bench.transition("unsigned", 1, None).await;
    for _ in 0..2 {
        got.push(take(&mut gets).await);
    }
    got.sort_by_key(|got| got.path.clone());
    let [event, plain, unsigned] = &got[..] else { panic!("{got:?}") };
    assert!(unsigned.headers.get("webhook-signature").is_none());
    assert_eq!(plain.headers["content-type"], "application/json");
    assert_eq!(event.headers["content-type"], HeaderValue::from_static("application/cloudevents+json"));
    assert_eq!(serde_json::from_slice::<Value>(&event.body).unwrap()["data"]["kind"], "L2Service");
    let mut changed = case(plain, &old);
    changed["body"] = (changed["body"].as_str().unwrap().to_owned() + " ").into();
    let mut other_id = case(plain, &old);
    other_id["headers"]["webhook-id"] = "plain-2".into();
    let cases = [
        case(plain, &old),
        case(plain, &new),
        case(event, &old),
        case(event, &new),
        case(plain, &secret(3)),
        changed,
        other_id,
    ];
    let results = tokio::task::spawn_blocking(move || verify_all(&cases)).await.unwrap();
    let good: Vec<bool> = results.iter().map(|result| result == "good").collect();
    assert_eq!(good, [true, true, true, true, false, false, false], "{results:?}");
    // The second callback used the cached keys.
    assert_eq!(bench.cluster.0.lock().unwrap().reads, 1);
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_waits_while_secret_is_missing_or_invalid() {
    let (_receiver, address, mut gets, mut bench) = start().await;
    let spec = json!({ "CallbackURL": format!("http://{address}/a"), "CallbackSecret": { "Name": "mine" } });
    bench.cluster.put("a", &spec);
    bench.transition_of("a", 1, &spec).await;
    let delivery = bench.start_delivery();
    let condition = bench.cluster.wait_for_condition("a", "False", "Retrying").await;
    assert!(
        condition["message"].as_str().unwrap().contains("Secret eno-system/mine: it does not exist"),
        "{condition}"
    );
    let canary = "hunter2-canary".to_owned();
    bench
        .cluster
        .0
        .lock()
        .unwrap()
        .secrets
        .insert("eno-system/mine".into(), data(std::slice::from_ref(&canary)));
    let no_key = async {
        loop {
            let condition = bench.cluster.wait_for_condition("a", "False", "Retrying").await.to_string();
            assert!(!condition.contains("hunter2"), "{condition}");
            if condition.contains("its value \\\"key0\\\" is no key") {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, no_key).await.expect("it says that the Secret holds no key");
    assert!(gets.try_recv().is_err());
    let good = secret(5);
    bench
        .cluster
        .0
        .lock()
        .unwrap()
        .secrets
        .insert("eno-system/mine".into(), data(std::slice::from_ref(&good)));
    let got = take(&mut gets).await;
    assert!(got.headers["webhook-signature"].to_str().unwrap().starts_with("v1,"));
    delivery.stop().await;
    // No stream contains either of the secrets.
    for name in [subject::TRANSITIONS, subject::HISTORY, subject::DEAD_LETTERS, "KV_ENO_CALLBACKS"] {
        let stream = bench.connection.jetstream.get_stream(name).await.unwrap();
        let last = stream.cached_info().state.last_sequence;
        for sequence in 1..=last {
            let Ok(message) = stream.get_raw_message(sequence).await else { continue };
            let text = String::from_utf8_lossy(&message.payload);
            assert!(
                !text.contains(&canary) && !text.contains(good.trim_start_matches("whsec_")),
                "{name}: {text}"
            );
        }
    }
}
