//! Dumps that are read back, files that are no dumps, and clusters that answer only in part.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use eno_engine::forecast::{Key, Kind};
use eno_engine::trace::{self, ObjectRef};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::archive::Entry;
use super::messages::MessageLine;
use super::{Collector, Dump, DumpError, Limits, Made, collect_cluster};

const LIMITS: Limits = Limits { timeout: Duration::from_secs(20), since: None, log_lines: 100 };

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2Service",
        "metadata": { "name": name, "uid": "u", "managedFields": [{ "manager": "kubectl" }] },
        "spec": { "SegmentationID": 7, "CallbackURL": "https://host/token" }, "status": { "phase": "ready" },
    })
}

/// A service that loses packets, with the answer to a request for new probes.
fn lossy_service() -> Value {
    let mut service = service("lossy");
    service["spec"] = json!({ "SegmentationID": 7 });
    service["metadata"]["annotations"] =
        json!({ "eno.k8s.io/verify": r#"{"nonce": "eno-00c0ffee00c0ffee"}"# });
    let at = "2026-01-01T00:00:00Z";
    service["status"] = json!({
        "phase": "ready",
        "conditions": [
            { "type": "Verified", "status": "False", "reason": "Lost", "lastTransitionTime": at,
              "message": "leaf2 Ethernet48 to dc-gw: all 6 probes through it fail, all others pass" },
            { "type": "Miswired", "status": "True", "reason": "OtherPort", "lastTransitionTime": at,
              "message": "node1 eth1 is in Ethernet2, and Ports says Ethernet1" },
        ],
        "verification": { "nonce": "eno-00c0ffee00c0ffee", "complete": true, "leftOut": 2, "results": [
            { "from": "node1", "to": "node2", "vlan": 7, "outcome": "lost" },
            { "from": "node2", "to": "10.0.0.1", "vlan": 7, "outcome": "answered", "macs": ["02:00:00:00:00:01"] },
            { "from": "node3", "vlan": 7, "other": 8, "outcome": "unasked", "reason": "busy" },
        ] },
    });
    service
}

fn transition(counter: u64) -> Value {
    json!({
        "id": format!("u-{counter}"), "uid": "u", "counter": counter, "kind": "L2Service", "name": "a", "phase": "ready",
        "at": "2026-01-01T00:00:00Z", "object": service("a"),
    })
}

/// A dump of one L2Service and two of its transitions.
fn dump(dir: &TempDir) -> PathBuf {
    let collector = Collector::new(LIMITS).expect("a temporary file");
    let mut services = Entry::new("cluster/l2services.jsonl");
    services.object(&service("a"));
    services.object(&lossy_service());
    collector.add("l2services", services);
    let mut transitions = Entry::new("nats/ENO_TRANSITIONS.jsonl");
    for counter in [1, 2] {
        transitions.record(&MessageLine {
            subject: "eno.v1.transition.L2Service._.a".into(),
            sequence: counter,
            time: "2026-01-01T00:00:00Z".into(),
            payload: RawValue::from_string(transition(counter).to_string()).expect("JSON"),
        });
    }
    collector.add("transitions", transitions);
    // Text that does not compress, so that the file is longer than what is read at once.
    let mut log = Entry::new("logs/eno-system/p/c.log");
    let mut state = 1u64;
    for _ in 0..2_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        log.line(&format!("{state:x}"));
    }
    collector.add("a log", log);
    collector.not_read("nodes", "you may not list them");
    let file = dir.path().join("dump.tar.gz");
    let made = collector.finish(Some("ns".into()), &file).expect("a dump");
    assert_eq!((made.files.len(), made.not_read.len()), (3, 1));
    file
}

#[tokio::test]
async fn dump_is_read_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let dump = Dump::open(&dump(&dir)).expect("a dump");
    assert_eq!(dump.namespace(), "ns");
    let cluster = dump.cluster_state().expect("a cluster");
    let key = Key::cluster(Kind::L2Service, &"a".into());
    let object = cluster.object(&key).expect("the service");
    assert_eq!(object.data["spec"]["CallbackURL"], "https://host/REDACTED");
    assert!(object.metadata.managed_fields.is_none());
    // What probes found is as it was.
    let lossy = cluster.object(&Key::cluster(Kind::L2Service, &"lossy".into())).expect("the service");
    assert_eq!(lossy.data["status"], lossy_service()["status"]);
    let shown = crate::inspect::status::conditions(lossy);
    assert!(shown[0].message.contains("leaf2 Ethernet48") && shown[1].kind == "Miswired", "{shown:?}");
    let messages = dump.messages().expect("messages");
    let of = |name| ObjectRef { kind: "L2Service", namespace: None, name };
    let counters: Vec<u64> = trace::transitions(&messages, of("a"))
        .await
        .expect("transitions")
        .iter()
        .map(|transition| transition.counter)
        .collect();
    assert_eq!(counters, [1, 2]);
    assert!(trace::transitions(&messages, of("b")).await.expect("none").is_empty());
    let error = trace::deliveries(&messages, of("a")).await.expect_err("not in the dump").to_string();
    assert!(error.contains("ENO_HISTORY"), "{error}");
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_a_dump() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let mode = std::fs::metadata(dump(&dir)).expect("the dump").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn dump_overwrites_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("network.yaml");
    std::fs::write(&file, "mine").expect("a file");
    let collector = Collector::new(LIMITS).expect("a temporary file");
    collector.add("empty", Entry::new("cluster/routes.jsonl"));
    assert!(collector.finish(None, &file).is_err());
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "mine");
}

#[test]
fn long_names_and_equal_names_get_files_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let collector = Collector::new(LIMITS).expect("a temporary file");
    let pod = "p".repeat(253);
    for _ in 0..3 {
        collector.add("a log", Entry::new(&format!("logs/eno-system/{pod}/eno.log")));
    }
    let file = dir.path().join("dump.tar.gz");
    let made = collector.finish(None, &file).expect("a dump");
    assert_eq!((made.files.len(), made.not_read), (3, Vec::new()));
    Dump::open(&file).expect("a dump");
}

/// An entry of an archive, with the size that its header names.
struct RawEntry<'a> {
    path: &'a str,
    kind: tar::EntryType,
    size: u64,
    content: &'a [u8],
}

impl<'a> RawEntry<'a> {
    fn file(path: &'a str, content: &'a [u8]) -> Self {
        Self { path, kind: tar::EntryType::Regular, size: content.len() as u64, content }
    }
}

/// Any archive. Paths are not checked.
fn archive(entries: &[RawEntry<'_>]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
        header.set_entry_type(entry.kind);
        header.set_size(entry.size);
        header.set_mode(0o600);
        header.set_cksum();
        encoder.write_all(header.as_bytes()).expect("memory");
        encoder.write_all(entry.content).expect("memory");
        let padding = (512 - entry.content.len() % 512) % 512;
        encoder.write_all(&vec![0; padding]).expect("memory");
    }
    encoder.write_all(&[0; 1024]).expect("memory");
    encoder.finish().expect("memory")
}

/// An index with these files and sizes.
fn index(format: u32, files: &[(&str, u64)]) -> Vec<u8> {
    let files: Vec<Value> =
        files.iter().map(|(path, bytes)| json!({ "path": path, "bytes": bytes, "lines": 1 })).collect();
    let index = json!({ "format": format, "eno": "9.9.9", "madeAt": "2026-01-01T00:00:00Z", "files": files,
        "leftOut": [], "notRead": [] });
    index.to_string().into_bytes()
}

#[test]
fn files_that_are_no_dumps_are_refused() {
    let valid = index(1, &[("a", 1)]);
    let file = |content| [RawEntry::file("index.json", &valid), content];
    let newer = index(2, &[]);
    let escaped = String::from_utf8(newer.clone()).expect("text").replace("9.9.9", "\\u001b[2J").into_bytes();
    let outside = index(1, &[("../a", 1)]);
    let control = index(1, &[("a\u{1b}[2J", 1)]);
    let absolute = index(1, &[("/etc/passwd", 1)]);
    let twice = index(1, &[("a", 1), ("a", 1)]);
    let huge = index(1, &[("a", 1 << 40)]);
    let zeros = vec![0; 64 << 20];
    let bomb = [archive(&file(RawEntry::file("a", b"x"))), archive(&[RawEntry::file("b", &zeros)])].concat();
    let link = RawEntry { kind: tar::EntryType::Symlink, ..RawEntry::file("a", b"") };
    let long_name = RawEntry { kind: tar::EntryType::GNULongName, ..RawEntry::file("a", &zeros) };
    let endless = RawEntry { size: 1 << 40, ..RawEntry::file("index.json", b"{}") };
    let only = |index: &[u8]| archive(&[RawEntry::file("index.json", index)]);
    let compressed = |content: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).expect("memory");
        encoder.finish().expect("memory")
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "ends too early"),
        ("text", b"apiVersion: v1".to_vec(), "no gzip file"),
        ("compressed text", compressed(b"apiVersion: v1"), "no tar archive"),
        ("compressed page", compressed(&[b'a'; 4_096]), "no tar archive"),
        ("compressed zeros", compressed(&[0; 4_096]), "it is empty"),
        ("no index", archive(&[RawEntry::file("a", b"x")]), "does not begin with index.json"),
        ("index of other text", only(b"{}"), "index.json is not valid"),
        (
            "index that is no file",
            archive(&[RawEntry { kind: tar::EntryType::Directory, ..RawEntry::file("index.json", b"") }]),
            "does not begin",
        ),
        ("endless index", archive(&[endless]), "the largest has"),
        ("newer", only(&newer), "with eno 9.9.9"),
        ("version for a terminal", only(&escaped), "names no version of eno"),
        ("path for a terminal", only(&control), "a path outside of it, \"a\\u{1b}[2J\""),
        ("outside", only(&outside), "a path outside"),
        ("absolute", only(&absolute), "a path outside"),
        ("twice in the index", only(&twice), "names a twice"),
        ("too large", only(&huge), "too large"),
        ("without a file", only(&valid), "ends too early"),
        (
            "unknown file",
            archive(&file(RawEntry::file("../../b", b"x"))),
            "does not name its entry \"../../b\"",
        ),
        ("link", archive(&file(link)), "no regular file"),
        ("long name", archive(&file(long_name)), "no regular file"),
        ("other size", archive(&file(RawEntry::file("a", b"xyz"))), "not the one in its index"),
        ("bomb behind the end", bomb, "larger than its index says"),
    ];
    let dir = tempfile::tempdir().expect("a directory");
    for (name, content, expected) in cases {
        let path = dir.path().join("file");
        std::fs::write(&path, content).expect("a file");
        let error = Dump::open(&path).expect_err(name).to_string();
        assert!(error.contains(expected) && error.contains("file"), "{name}: {error}");
    }
    assert!(Dump::open(dir.path()).is_err(), "a directory");
    let missing = Dump::open(Path::new("/nonexistent")).expect_err("no file").to_string();
    assert!(missing.starts_with("name a file that eno sysdump wrote"), "{missing}");
}

#[test]
fn texts_of_an_index_have_no_control_characters() {
    let text = String::from_utf8(index(1, &[])).expect("text");
    let not_read = r#""notRead":[{"what":"NATS \u001b[2J","reason":"a\u0007\u009bb"}]"#;
    let text = text.replace(r#""notRead":[]"#, not_read);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    std::fs::write(&path, archive(&[RawEntry::file("index.json", text.as_bytes())])).expect("a file");
    let dump = Dump::open(&path).expect("an index");
    let reason = dump.reason_of(|what| what.contains("NATS"));
    assert!(reason.contains("NATS") && !reason.contains(char::is_control), "{reason:?}");
}

#[test]
fn index_lists_what_was_taken_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = std::fs::File::open(dump(&dir)).expect("the dump");
    let mut archive = tar::Archive::new(flate2::read::MultiGzDecoder::new(file));
    let index = archive.entries().expect("entries").next().expect("an entry").expect("the index");
    let index: Value = serde_json::from_reader(index).expect("JSON");
    let redacted = json!([
        { "path": "cluster/l2services.jsonl", "place": "spec.CallbackURL", "why": "url-path", "count": 1 },
    ]);
    assert_eq!(index["redacted"], redacted);
}

/// Some megabytes of a dump can't take gigabytes of memory.
#[test]
fn dump_with_too_many_values_is_refused() {
    let line = [b"[".as_slice(), &b"[],".repeat(1_000_000), b"[]]\n"].concat();
    let lines = line.repeat(12);
    let content = archive(&[
        RawEntry::file("index.json", &index(1, &[("a", lines.len() as u64)])),
        RawEntry::file("a", &lines),
    ]);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    std::fs::write(&path, content).expect("a file");
    let dump = Dump::open(&path).expect("an index");
    let mut read = 0;
    let error = dump.each(|path| path == "a", |_, _: Value| read += 1).expect_err("too many").to_string();
    assert!(error.contains("more than 20000000 values") && read < 12, "{read}: {error}");
    let long = [b"\"".as_slice(), &b"x".repeat(5 << 20), b"\"\n"].concat();
    let content = archive(&[
        RawEntry::file("index.json", &index(1, &[("a", long.len() as u64)])),
        RawEntry::file("a", &long),
    ]);
    std::fs::write(&path, content).expect("a file");
    let dump = Dump::open(&path).expect("an index");
    let error = dump.each(|path| path == "a", |_, _: Value| ()).expect_err("too long").to_string();
    assert!(error.contains("longer than 4194304 bytes"), "{error}");
}

#[test]
fn truncated_and_damaged_dumps_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dump(&dir);
    let whole = std::fs::read(&file).expect("the dump");
    assert!(whole.len() > 10_000, "{}", whole.len());
    let other = dir.path().join("other");
    for length in (0..whole.len()).step_by(97).chain([whole.len() - 1]) {
        std::fs::write(&other, &whole[..length]).expect("a file");
        let error = Dump::open(&other).expect_err("a part of it");
        assert!(
            matches!(error, DumpError::Truncated { .. } | DumpError::NotADump { .. }),
            "{length}: {error}"
        );
    }
    for position in (20..whole.len()).step_by(997) {
        let mut damaged = whole.clone();
        damaged[position] ^= 0x10;
        std::fs::write(&other, &damaged).expect("a file");
        assert!(Dump::open(&other).is_err(), "byte {position}");
    }
}

/// An API server that answers by a function of the path; `None`: it never answers.
fn api_server(answer: impl Fn(&str) -> Option<(u16, Value)> + Clone + Send + Sync + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(request.uri().path());
        async move {
            let (code, body) = match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            };
            let status = StatusCode::from_u16(code).expect("a code");
            let response = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            Ok::<_, std::convert::Infallible>(response.expect("a response"))
        }
    });
    Client::new(service, "ns")
}

fn refusal(code: u16) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "r", "code": code }),
    )
}

fn list(kind: &str, items: &Value) -> (u16, Value) {
    (200, json!({ "kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {}, "items": items }))
}

fn healthy(path: &str) -> (u16, Value) {
    let name = path.rsplit('/').next().unwrap_or_default();
    match name {
        "version" => (
            200,
            json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "" }),
        ),
        "l2services" => list("L2Service", &json!([service("a")])),
        "secrets" => list(
            "Secret",
            &json!([{ "metadata": { "name": "eno-nats", "annotations": { "a": "hidden-value" } },
            "type": "Opaque", "data": { "engine.seed": "aGlkZGVuLXZhbHVl" } }]),
        ),
        "configmaps" if path.contains("eno-system") => list(
            "ConfigMap",
            &json!([{ "metadata": { "name": "eno" },
            "data": { "nats.conf": "password: hidden-value" }, "binaryData": { "b": "aGlkZGVuLXZhbHVl" } }]),
        ),
        "pods" if path.contains("eno-system") => list(
            "Pod",
            &json!([{ "metadata": { "name": "engine-1", "namespace": "eno-system" },
            "spec": { "containers": [{ "name": "eno", "env": [{ "name": "X", "value": "hidden-value" }],
                "ports": [{ "name": "http", "containerPort": 8080 }] }] },
            "status": { "containerStatuses": [{ "name": "eno", "restartCount": 1, "state": { "running": {} } }] } }]),
        ),
        "log" => (200, json!("password nats://u:hidden-value@host")),
        "metrics" => (200, json!("eno_up 1")),
        "namespaces" => (
            200,
            json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [] }),
        ),
        _ => list("Object", &json!([])),
    }
}

async fn made(dir: &TempDir, client: &Client, limits: Limits) -> (PathBuf, Made) {
    let collector = Collector::new(limits).expect("a temporary file");
    collect_cluster(&collector, client, "ns").await;
    let file = dir.path().join("dump.tar.gz");
    let made = collector.finish(Some("ns".into()), &file).expect("a dump");
    (file, made)
}

/// All files of a dump as one text.
fn unpacked(file: &Path) -> String {
    let mut text = String::new();
    let decoder = flate2::read::MultiGzDecoder::new(std::fs::File::open(file).expect("the dump"));
    std::io::Read::read_to_string(&mut { decoder }, &mut text).expect("UTF-8");
    text
}

#[tokio::test]
async fn dump_of_a_healthy_cluster_has_no_secret() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, made) = made(&dir, &api_server(|path| Some(healthy(path))), LIMITS).await;
    assert_eq!(made.not_read, []);
    let paths: Vec<&str> = made.files.iter().map(|file| file.path.as_str()).collect();
    for path in [
        "cluster/l2services.jsonl",
        "kubernetes/eno-system/secret-names.jsonl",
        "logs/eno-system/engine-1/eno.log",
        "logs/eno-system/engine-1/eno.previous.log",
        "metrics/eno-system/engine-1.txt",
    ] {
        assert!(paths.contains(&path), "{path} is not in {paths:?}");
    }
    let text = unpacked(&file);
    assert!(text.contains("engine.seed") && text.contains("eno_up 1"), "{text}");
    for secret in ["hidden-value", "aGlkZGVuLXZhbHVl", "host/token"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn parts_that_are_refused_or_fail_are_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let client = api_server(|path| {
        Some(match path.rsplit('/').next().unwrap_or_default() {
            "nodes" | "secrets" | "events" => refusal(403),
            "subnets" => refusal(500),
            "podconfigs" => refusal(404),
            _ => healthy(path),
        })
    });
    let (file, made) = made(&dir, &client, LIMITS).await;
    let not_read: Vec<&str> = made.not_read.iter().map(|one| one.what.as_str()).collect();
    for what in ["nodes", "subnets", "podconfigs", "events", "names of Secrets of namespace eno-system"] {
        assert!(not_read.contains(&what), "{what} is not in {not_read:?}");
    }
    let cluster = Dump::open(&file).expect("a dump").cluster_state().expect("a cluster");
    assert!(cluster.object(&Key::cluster(Kind::L2Service, &"a".into())).is_some());
    assert!(cluster.may_miss(&Key::cluster(Kind::Subnet, &"s".into())));
    let left_out: Vec<String> = cluster.left_out().iter().map(ToString::to_string).collect();
    assert_eq!(left_out, ["podconfigs", "subnets", "nodes"]);
}

#[tokio::test]
async fn hanging_server_uses_no_more_than_the_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let client = api_server(|path| (!path.ends_with("/fabricdevices")).then(|| healthy(path)));
    let limits = Limits { timeout: Duration::from_secs(1), ..LIMITS };
    let (file, made) = made(&dir, &client, limits).await;
    let reason = made.not_read.iter().find(|one| one.what == "fabricdevices").map(|one| one.reason.as_str());
    assert_eq!(reason, Some("the time of 1 s was over"));
    let cluster = Dump::open(&file).expect("a dump").cluster_state().expect("a cluster");
    assert!(cluster.may_miss(&Key::cluster(Kind::FabricDevice, &"leaf1".into())));
}

#[tokio::test]
async fn nothing_is_written_when_nothing_was_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, made) = made(&dir, &api_server(|_| Some(refusal(500))), LIMITS).await;
    assert_eq!((made.size, file.exists()), (None, false));
    assert_eq!(made.not_read.len(), 1, "the first failure is reported alone: {:?}", made.not_read);
}
