//! `eno sysdump`: the answers from its file are those of the cluster, and no secret is in it.

use std::io::Read as _;
use std::path::Path;
use std::process::Output;

use eno_nbi_crds::L2ServiceAttachment;
use eno_tests::{System, access, service, with_exclusive_sandbox};
use flate2::read::MultiGzDecoder;
use regex::Regex;
use serde_json::{Value, json};

use crate::e2e::create_namespace_and_point;

/// The files of a dump, each with its content.
fn files(dump: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(MultiGzDecoder::new(std::fs::File::open(dump).expect("a dump")));
    let read = |mut entry: tar::Entry<'_, MultiGzDecoder<std::fs::File>>| {
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("UTF-8");
        (entry.path().expect("a path").display().to_string(), text)
    };
    archive.entries().expect("entries").map(|entry| read(entry.expect("an entry"))).collect()
}

/// The output without the ages, which are relative to another time.
fn without_ages(output: &Output) -> (Option<i32>, String) {
    let ages = Regex::new(r"\b\d+[smhd]\b *").expect("an expression");
    let text = String::from_utf8_lossy(&output.stdout);
    (output.status.code(), ages.replace_all(&text, "AGE ").into_owned())
}

async fn dump(system: &System, arguments: &[&str], file: &Path) -> Output {
    let file = file.to_str().expect("UTF-8");
    system.eno(&[&["sysdump", "-o", file], arguments].concat(), "").await
}

#[test]
fn answers_from_a_dump_are_those_of_the_cluster() {
    with_exclusive_sandbox(async |system| {
        create_namespace_and_point(system, "dump", &["node1", "node2"]).await;
        // Nobody answers there, so its object's history goes on, and is not compared.
        let url = "CallbackURL: 'https://nfvo.invalid/CanaryInThePath?token=CanaryInTheQuery'";
        let network =
            [service("dump-a", 251, ""), access("dump", "a", "dump-a"), service("dump-b", 252, url)].concat();
        system.apply_until_ready::<L2ServiceAttachment>(&network, "dump/a").await;
        let annotations =
            json!({ "kubectl.kubernetes.io/last-applied-configuration": "CanaryInAnAnnotation" });
        system.patch("L2Service", "dump-a", json!({ "metadata": { "annotations": annotations } })).await;
        let wrong = service("dump-c", 254, "Subnets: [nosuch]");
        system.apply(&wrong).await;
        system.becomes::<eno_nbi_crds::L2Service>("dump-c", eno_nbi_crds::Phase::Error).await;

        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("dump.tar.gz");
        let made = dump(system, &[], &file).await;
        assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
        let from = file.to_str().expect("UTF-8");

        let change = [service("dump-a", 253, ""), service("dump-d", 251, "")].concat();
        let questions: &[(&[&str], &str)] = &[
            (&["status"], ""),
            (&["status", "-n", "dump"], ""),
            (&["status", "l2sa/a", "-n", "dump"], ""),
            (&["status", "l2s/dump-a"], ""),
            (&["status", "fd/leaf1"], ""),
            (&["status", "l2s/nobody"], ""),
            (&["trace", "l2sa/a", "-n", "dump"], ""),
            (&["trace", "l2s/dump-a"], ""),
            (&["trace", "fd/leaf1"], ""),
            (&["blame", "leaf1", "Ethernet1"], ""),
            (&["blame", "leaf1", "nothing"], ""),
            (&["addresses"], ""),
            (&["addresses", "10.0.0.1"], ""),
            (&["plan", "-f", "-"], &network),
            (&["plan", "-f", "-"], &change),
            (&["plan", "--delete", "-f", "-"], &network),
        ];
        for (question, input) in questions {
            for format in ["table", "wide", "json", "yaml"] {
                if question[0] == "plan" && format == "wide" {
                    continue;
                }
                let question = [question, &["-o", format][..]].concat();
                let live = system.eno(&question, input).await;
                let offline = system.eno(&[&question[..], &["--from", from]].concat(), input).await;
                let errors = String::from_utf8_lossy(&offline.stderr);
                assert!(errors.contains("eno: as of "), "{question:?}: {errors}");
                if question[0] == "plan" && format == "json" {
                    assert_eq!(without_previews(&live), without_previews(&offline), "{question:?}: {errors}");
                } else if question[0] != "plan" || format == "table" {
                    assert_eq!(without_ages(&live), without_ages(&offline), "{question:?}: {errors}");
                }
            }
        }

        let files = files(&file);
        for path in ["cluster/l2services.jsonl", "nats/ENO_TRANSITIONS.jsonl", "devices/netconf.leaf1.jsonl"]
        {
            let content = files.iter().find(|(name, _)| name == path).map(|(_, content)| content);
            assert!(content.is_some_and(|content| !content.is_empty()), "{path}");
        }
        let state = &files.iter().find(|(name, _)| name == "nats/ENO_COMMANDS.state.jsonl").expect("it").1;
        assert!(state.contains("consumer_count"), "{state}");
        for (name, content) in &files {
            for canary in ["CanaryInThePath", "CanaryInTheQuery", "CanaryInAnAnnotation", "managedFields"] {
                assert!(!content.contains(canary), "{canary} is in {name}");
            }
        }
        let text: String = files.into_iter().map(|(_, content)| content).collect();
        assert!(text.contains("https://nfvo.invalid/REDACTED"));

        system.delete_with_vlans(&[network.as_str(), &wrong].concat(), [251, 252]).await;
        // The dump still has what is gone.
        let status = system.eno_json(&["status", "l2sa/a", "-n", "dump", "--from", from], "", 0).await;
        assert_eq!(status["phase"], "ready");
    });
}

/// The exit code and the JSON output, without what only drivers know.
fn without_previews(output: &Output) -> (Option<i32>, Value) {
    let mut plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    plan.as_object_mut().expect("an object").remove("previews");
    (output.status.code(), plan)
}

#[test]
fn dump_without_nats_or_without_the_api_server_has_the_rest() {
    with_exclusive_sandbox(async |system| {
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("kubeconfig");
        let info = system.sandbox.info();
        let text = std::fs::read_to_string(&info.kubeconfig).expect("a kubeconfig");
        let server = Regex::new(r"https://127\.0\.0\.1:\d+").expect("an expression");
        std::fs::write(&config, server.replace_all(&text, "https://127.0.0.1:1").as_ref()).expect("a file");
        let config = config.to_str().expect("UTF-8");
        let no_nats: &[&str] = &["--nats-url", "nats://127.0.0.1:1"];
        let no_api: &[&str] = &["--kubeconfig", config];

        let file = dir.path().join("no-nats.tar.gz");
        let made = dump(system, no_nats, &file).await;
        let errors = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success() && errors.contains("not read: NATS: "), "{errors}");
        let from = file.to_str().expect("UTF-8");
        let status = system.eno_json(&["status", "fd/leaf1", "--from", from], "", 0).await;
        assert_eq!(status["phase"], "ready");
        let trace = system.eno(&["trace", "fd/leaf1", "--from", from], "").await;
        let errors = String::from_utf8_lossy(&trace.stderr);
        assert!(trace.status.code() == Some(1) && errors.contains("has no messages of NATS"), "{errors}");

        let file = dir.path().join("no-api.tar.gz");
        let made = dump(system, no_api, &file).await;
        let errors = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success() && errors.contains("not read: the API server: "), "{errors}");
        let from = file.to_str().expect("UTF-8");
        let trace = system.eno_json(&["trace", "fd/leaf1", "--from", from], "", 0).await;
        assert!(trace["entries"].as_array().is_some_and(|entries| !entries.is_empty()), "{trace:#}");
        let status = system.eno(&["status", "--from", from], "").await;
        let errors = String::from_utf8_lossy(&status.stderr);
        assert!(
            status.status.code() == Some(1) && errors.contains("has no objects of the cluster"),
            "{errors}"
        );

        let file = dir.path().join("nothing.tar.gz");
        let made = dump(system, &[no_nats, no_api].concat(), &file).await;
        let errors = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.code() == Some(1) && errors.contains("nothing could be read"), "{errors}");
        assert!(!file.exists());
    });
}
