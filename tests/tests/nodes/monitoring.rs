//! The alerts and the dashboard on a real Prometheus that scrapes the operator.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use eno_nbi_crds::L2ServiceAttachment;
use eno_tests::{Receiver, System, poll, service, with_exclusive_nodes};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::nodes::hot_plug::{attachment, network};

/// The name of the namespace and of the network, and its VLAN.
const NAME: &str = "monitored";
const VID: u16 = 161;

/// What a sandbox without faults has nothing for: NATS has no TLS there, and every object is ready.
const ABSENT: [&str; 8] = [
    "eno_engine_malformed_total",
    "eno_engine_watch_errors_total",
    // Of kinds that the API server does not know.
    "eno_engine_kind_absent",
    // Without a BGPSessionGroup.
    "eno_engine_bgp_sessions",
    "eno_engine_bgp_sessions_established",
    "eno_engine_phase_oldest_timestamp_seconds",
    "eno_certificate_expiration_timestamp_seconds",
    "eno_engine_nats_connected == 0",
];

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring")
}

/// The rules without the PrometheusRule around them.
fn rules() -> String {
    let text = std::fs::read_to_string(monitoring().join("rules.yaml")).expect("the rules");
    let rule: Value = serde_saphyr::from_str(&text).expect("YAML");
    rule["spec"].to_string()
}

/// The queries of the dashboard.
fn queries() -> Vec<String> {
    fn collect(panels: &Value, queries: &mut Vec<String>) {
        for panel in panels.as_array().into_iter().flatten() {
            let targets = panel["targets"].as_array().into_iter().flatten();
            queries.extend(targets.filter_map(|target| target["expr"].as_str()).map(str::to_owned));
            collect(&panel["panels"], queries);
        }
    }
    let text = std::fs::read_to_string(monitoring().join("dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut queries = Vec::new();
    collect(&dashboard["panels"], &mut queries);
    queries
}

/// The names of the metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let name = regex::Regex::new(r"\beno_[a-z_]+").expect("valid");
    name.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

#[test]
fn dashboard_shows_documented_metrics_each_in_a_panel_of_its_own() {
    let text = std::fs::read_to_string(monitoring().join("dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have one id");
    // Each place of the grid belongs to one panel.
    let mut places = BTreeSet::new();
    for panel in panels {
        let side = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        for (x, y) in (0..side("w")).flat_map(|x| (0..side("h")).map(move |y| (x, y))) {
            let place = (side("x") + x, side("y") + y);
            assert!(place.0 < 24 && places.insert(place), "{} covers another panel", panel["title"]);
        }
    }
    let shown = metrics(&queries().concat());
    let book =
        std::fs::read_to_string(monitoring().join("../../docs/src/reference/metrics.md")).expect("a page");
    for metric in &shown {
        let name = metric.trim_end_matches("_bucket");
        assert!(book.contains(&format!("`{name}`")), "{metric} has no line");
    }
    for metric in ["eno_engine_packets_lost", "eno_agent_probes_total"] {
        assert!(shown.contains(metric), "{metric} is not shown");
    }
}

#[test]
fn alerts_pass_their_tests() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("rules.yaml"), rules()).expect("written");
    let tests = directory.path().join("rules.test.yaml");
    std::fs::copy(monitoring().join("rules.test.yaml"), &tests).expect("copied");
    let output = std::process::Command::new("promtool").args(["test", "rules"]).arg(&tests).output();
    let output = output.expect("promtool, which make deps installs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{errors}", String::from_utf8_lossy(&output.stdout));
    // Each alert is tested, and has a section of the book.
    let rules: Value = serde_json::from_str(&rules()).expect("JSON");
    let tests = std::fs::read_to_string(tests).expect("the tests");
    let book = std::fs::read_to_string(monitoring().join("../../docs/src/how-to/alerts.md")).expect("a page");
    for rule in rules["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|group| group["rules"].as_array())
        .flatten()
    {
        let name = rule["alert"].as_str().expect("a name");
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} has no test");
        assert!(book.contains(&format!("### {name}\n")), "{name} has no section");
        let link = format!("docs/src/how-to/alerts.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], link, "{name}");
    }
}

/// A Prometheus server that scrapes the operator.
struct Prometheus {
    url: String,
    http: reqwest::Client,
    _process: Child,
    _directory: TempDir,
}

impl Prometheus {
    fn start(system: &System) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let mut jobs = String::new();
        for process in system.sandbox.info().processes {
            let Some(url) = &process.metrics else { continue };
            let target = url.trim_start_matches("http://").trim_end_matches("/metrics");
            let job = format!("eno-{}", process.name);
            writeln!(jobs, "- {{job_name: {job}, static_configs: [{{targets: ['{target}']}}]}}")
                .expect("a text");
        }
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yaml]\nscrape_configs:\n{jobs}"
        );
        let file = directory.path().join("prometheus.yaml");
        std::fs::write(&file, configuration).expect("written");
        std::fs::write(directory.path().join("rules.yaml"), rules()).expect("written");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("Prometheus, which make deps installs");
        let url = format!("http://{address}/api/v1");
        Self { url, http: reqwest::Client::new(), _process: process, _directory: directory }
    }

    /// The data of an answer; `None`: it does not answer.
    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let url = reqwest::Url::parse_with_params(&format!("{}/{path}", self.url), query).expect("a URL");
        let answer: Value = self.http.get(url).send().await.ok()?.json().await.ok()?;
        assert_ne!(answer["errorType"], "bad_data", "{query:?}: {answer}");
        (answer["status"] == "success").then(|| answer["data"].clone())
    }

    /// The results of a query.
    async fn query(&self, query: &str) -> Vec<Value> {
        let data = self.get("query", &[("query", query)]).await;
        data.and_then(|data| data["result"].as_array().cloned()).unwrap_or_default()
    }

    /// Waits until a query has a result.
    async fn until_result(&self, query: &str) {
        let found = poll(async || (!self.query(query).await.is_empty()).then_some(())).await;
        assert!(found.is_some(), "no result of {query}");
    }
}

#[test]
#[ignore = "needs root: real nodes"]
fn prometheus_answers_the_dashboard_and_sees_alerts() {
    with_exclusive_nodes(async |system| {
        let receiver = Receiver::start().await;
        let id = format!("SegmentationID: {VID},");
        let network = network(NAME, VID).replace(&id, &format!("{id} CallbackURL: '{}',", receiver.url()));
        system.apply(&network).await;
        let oam = attachment(NAME, "oam");
        system.apply_until_ready::<L2ServiceAttachment>(&oam, &format!("{NAME}/oam")).await;
        receiver.until(&[format!("L2Service {NAME}")], "ready").await;
        let prometheus = Prometheus::start(system);
        prometheus.until_result("eno_engine_leading == 1").await;
        let queries = queries();
        assert!(queries.len() > 20, "{queries:?}");
        for query in &queries {
            let query = query.replace("$__rate_interval", "1m");
            prometheus.until_result(&query).await;
            // Without the value for a series that is absent.
            let found =
                query.split(" or on () vector(").next().and_then(|rest| rest.split(" or vector(").next());
            let found = found.unwrap_or_default();
            if !ABSENT.iter().any(|absent| found.contains(absent)) {
                prometheus.until_result(found).await;
            }
        }
        // All metrics of the alerts exist.
        for metric in metrics(&rules()) {
            if !ABSENT.contains(&metric.as_str()) {
                prometheus.until_result(&metric).await;
            }
        }
        // Alerts see what happens. Their time is too long for a test, so they are pending.
        system.fault("spine1", json!({"kind": "unreachable"})).await;
        let lost = service("monitored-lost", VID + 1, "PhysicalNW: [nowhere]");
        system.apply(&lost).await;
        let pending = "ALERTS{alertname=\"ENODeviceUnreachable\",device=\"spine1\",alertstate=\"pending\"}";
        prometheus.until_result(pending).await;
        let oldest = "eno_engine_phase_oldest_timestamp_seconds{kind=\"L2Service\",phase=\"error\"}";
        prometheus.until_result(&format!("time() - {oldest} < 600")).await;
        let rules = prometheus.get("rules", &[]).await.expect("rules");
        let groups = rules["groups"].as_array().expect("groups").iter();
        let failed: Vec<_> = groups
            .flat_map(|group| group["rules"].as_array().into_iter().flatten())
            .filter(|rule| rule["health"] != "ok")
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
        system.clear_faults("spine1").await;
        prometheus.until_result("eno_engine_device_up{device=\"spine1\"} == 1").await;
        for objects in [&lost, &oam, &network] {
            system.delete(objects).await;
        }
        system.until_without([VID]).await;
    });
}
