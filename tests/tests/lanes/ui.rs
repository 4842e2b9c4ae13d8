//! `eno ui` in a browser, on real nodes: every page, faults, viewers with few rights, hostile texts, dumps, lost and slow
//! API servers, and a large fabric. Screenshots are in `target/tmp/ui-shots`, or in the folder `ENO_SHOTS`.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use eno_lab::sandbox::StoppedPart;
use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_simulator::{HandEdit, Topology};
use eno_tests::browser::{Console, ConsoleOptions, SlowProxy, run_scenario};
use eno_tests::{
    System, access, attachment, connection_point, deployment, object, poll_within, service,
    with_exclusive_nodes, with_exclusive_sandbox, with_new_sandbox, with_own_sandbox,
};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use crate::nodes::hot_plug;

/// A port that a spreadsheet would take for a formula.
const FORMULA: &str = "=1+1";

fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    since.as_millis().try_into().expect("a number")
}

async fn no_step(step: &str) -> Value {
    panic!("an unexpected step {step}")
}

async fn open(system: &System) -> Console {
    system.console(&ConsoleOptions::default()).await
}

/// The port list that a test adds to a FabricDevice of the sandbox.
fn ports(device: &str, ports: &str) -> String {
    object("FabricDevice", &format!("name: {device}"), &format!("Ports: [{ports}]"))
}

/// Two pods on two nodes with an attachment each, and a port with the name of a formula.
struct Workload {
    name: &'static str,
    objects: Vec<String>,
    pod: String,
    address: String,
}

impl Workload {
    async fn start(system: &System, name: &'static str, vid: u16) -> Self {
        let outside =
            object("PhysicalNetwork", &format!("name: {name}-outside"), "SegmentationIDs: ['1-4094']");
        system.apply(&outside).await;
        system.apply(&ports("leaf1", &format!("{{Name: '{FORMULA}', PhysicalNW: {name}-outside}}"))).await;
        let network = hot_plug::network(name, vid);
        system.apply_until_ready::<eno_nbi_crds::ConnectionPoint>(&network, name).await;
        let oam = hot_plug::attachment(name, "oam");
        system.apply_until_ready::<L2ServiceAttachment>(&oam, &format!("{name}/oam")).await;
        let cnf = deployment(name, "cnf", 2, &json!({ "attach.eno.k8s.io/oam": "net1" }));
        system.apply(&cnf).await;
        system.running(name, "app=cnf", 2).await;
        let leases = hot_plug::addresses(system, &format!("{name}/oam"), 2).await;
        let (pod, addresses) = leases.into_iter().next().expect("a pod");
        let address = addresses.into_iter().next().expect("an address");
        Self { name, objects: vec![cnf, oam, network, outside], pod, address }
    }

    fn attachment(&self) -> String {
        format!("L2ServiceAttachment/{}/oam", self.name)
    }

    async fn delete(self, system: &System) {
        let Self { name, objects, .. } = self;
        system.apply(&ports("leaf1", "")).await;
        system.delete(&objects[0]).await;
        system.running(name, "app=cnf", 0).await;
        for object in &objects[1..] {
            system.delete(object).await;
        }
    }
}

#[test]
#[ignore = "needs root: real nodes"]
fn pages_serve_all_people_and_work_by_mouse_and_keys() {
    with_exclusive_nodes(async |system| {
        let workload = Workload::start(system, "uipages", 140).await;
        let object = workload.attachment();
        let path = format!("/path/{object}");
        let query = object.replace('/', "%2F");
        let pages = json!({
            "overview": "/",
            "objects": "/objects",
            "objects-filtered": "/objects?kind=L2Service",
            "fabric": "/fabric",
            "fabric-table": "/fabric?view=table",
            "fabric-vlan": "/fabric?vlan=140",
            "fabric-device": "/fabric?device=leaf1",
            "fabric-link": "/fabric?link=leaf1:Ethernet1",
            "path": path.clone(),
            "path-service": "/path/L2Service/uipages",
            "path-device": "/path/FabricDevice/leaf1",
            "path-subnet": "/path/Subnet/uipages-v4",
            "path-hop": format!("{path}?hop=port:leaf1:Ethernet1"),
            "path-nad": format!("{path}?hop=nad:uipages/oam"),
            "timeline": "/timeline",
            "timeline-object": format!("/timeline?object={query}"),
            "timeline-device": "/timeline?device=leaf1",
            "timeline-namespace": "/timeline?namespace=uipages",
            "plan": "/plan",
            "addresses": format!("/addresses?address={}", workload.address),
            "nothing": "/no-such-page",
        });
        let console = open(system).await;
        run_scenario(&console, "pages", &json!({ "pages": pages }), no_step).await;
        console.stop().await;

        let console = open(system).await;
        run_scenario(&console, "keyboard", &json!({ "object": object }), no_step).await;
        console.stop().await;

        let manifests = [
            service("uiplanned", 149, ""),
            hot_plug::attachment("uipages", "planned")
                .replace("L2Services: [uipages]", "L2Services: [uiplanned]"),
        ]
        .concat();
        let input = json!({
            "object": object,
            "manifests": manifests,
            "planned": "uiplanned",
            "address": workload.address,
            "pod": workload.pod,
            "formulaCell": format!("'{FORMULA}"),
        });
        let console = open(system).await;
        run_scenario(&console, "tools", &input, async |_| {
            let services = system.all::<L2Service>();
            assert!(
                services.get_opt("uiplanned").await.expect("an answer").is_none(),
                "the plan was applied"
            );
            Value::Null
        })
        .await;
        console.stop().await;

        let without_nats = ConsoleOptions { without_nats: true, ..ConsoleOptions::default() };
        let console = system.console(&without_nats).await;
        run_scenario(&console, "without_nats", &json!({ "object": object }), no_step).await;
        console.stop().await;

        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("dump.tar.gz");
        let made = system.eno(&["sysdump", "-o", file.to_str().expect("UTF-8")], "").await;
        assert!(made.status.success(), "{made:?}");
        let from = ConsoleOptions { from: Some(file), ..ConsoleOptions::default() };
        let console = system.console(&from).await;
        run_scenario(&console, "dump", &json!({ "object": object }), no_step).await;
        console.stop().await;
        workload.delete(system).await;
    });
}

#[test]
#[ignore = "needs root: real nodes"]
fn fault_shows_on_the_path_at_once_and_goes() {
    with_exclusive_nodes(async |system| {
        let workload = Workload::start(system, "uifault", 141).await;
        let console = open(system).await;
        let figures =
            run_scenario(&console, "fault", &json!({ "object": workload.attachment() }), async |step| {
                let at = milliseconds();
                match step {
                    "inject" => system.fault("leaf1", json!({ "kind": "unreachable" })).await,
                    "clear" => system.clear_faults("leaf1").await,
                    other => panic!("an unexpected step {other}"),
                }
                json!({ "at": at })
            })
            .await;
        console.stop().await;
        let took = figures["fault-to-a-red-hop"];
        assert!(took < 5000.0, "{took} ms until the page shows the fault");
        workload.delete(system).await;
    });
}

/// The administrator's kubeconfig as a tenant of a namespace.
async fn tenant(system: &System, dir: &Path, namespace: &str) -> ConsoleOptions {
    let user = format!("{namespace}-tenant");
    let group = "rbac.authorization.k8s.io";
    system
        .apply(&format!(
            "{{apiVersion: {group}/v1, kind: RoleBinding, metadata: {{name: {user}, namespace: {namespace}}}, roleRef: \
             {{apiGroup: {group}, kind: ClusterRole, name: eno-attachment-admin}}, subjects: [{{kind: User, name: {user}, \
             apiGroup: {group}}}]}}"
        ))
        .await;
    let kubeconfig = system.kubeconfig_of(dir, &user, namespace);
    ConsoleOptions { kubeconfig: Some(kubeconfig), ..ConsoleOptions::default() }
}

#[test]
#[ignore = "needs root: real nodes"]
fn tenant_sees_the_own_path_and_nothing_of_others() {
    with_exclusive_nodes(async |system| {
        let own = Workload::start(system, "uitenant", 142).await;
        let foreign =
            [hot_plug::network("uiforeign", 143), hot_plug::attachment("uiforeign", "hidden")].concat();
        system.apply(&hot_plug::network("uiforeign", 143)).await;
        system.apply_until_ready::<L2ServiceAttachment>(&foreign, "uiforeign/hidden").await;
        let dir = tempfile::tempdir().expect("a directory");
        let options = tenant(system, dir.path(), "uitenant").await;
        let console = system.console(&options).await;
        let input = json!({
            "object": own.attachment(),
            "foreign": "L2ServiceAttachment/uiforeign/hidden",
            "hidden": ["uiforeign", "hidden"],
        });
        run_scenario(&console, "tenant", &input, no_step).await;
        console.stop().await;
        system.delete(&hot_plug::attachment("uiforeign", "hidden")).await;
        system.delete(&hot_plug::network("uiforeign", 143)).await;
        own.delete(system).await;
    });
}

#[test]
fn hostile_texts_are_shown_as_texts() {
    const SCRIPT: &str = "<img src=x onerror=\"pwned=1\"><script>pwned=2</script>";
    const TURNED: &str = "left\u{202e}thgir";
    const VLANS: [u16; 2] = [3740, 3741];
    with_exclusive_sandbox(async |system| {
        system.namespace("uihostile").await;
        // A name of 253 bytes, of labels with 63 bytes at most.
        let long = [vec!["l".repeat(63); 3].join("."), "m".repeat(61)].join(".");
        assert_eq!(long.len(), 253);
        let point = json!({
            "apiVersion": "eno.k8s.io/v1alpha1", "kind": "ConnectionPoint",
            "metadata": { "name": "uihostile", "annotations": { "note": format!("{SCRIPT}{TURNED}") } },
            "spec": {
                "Description": format!("{SCRIPT}{TURNED}"),
                "SupportedCnis": [{ "Name": "ovs", "SupportedInterfaceTypes": ["kernel"], "Opts": "{\"BridgeName\": \"br0\"}" }],
            },
        });
        system.apply(&point.to_string()).await;
        let outside = object("PhysicalNetwork", "name: uihostile", "SegmentationIDs: ['1-4094']");
        system.apply(&outside).await;
        // A port takes any printable text.
        let port = SCRIPT.replace('"', "\\\"");
        system.apply(&ports("island", &format!("{{Name: \"{port}\", PhysicalNW: uihostile}}"))).await;
        // The switch refuses a VLAN with a text of its own, which is in the status of the service.
        let message = format!("{SCRIPT}{TURNED}");
        system.fault("island", json!({ "kind": "reject-edit", "vlan": VLANS[0], "message": message })).await;
        let refused = service("uihostile-refused", VLANS[0], "PhysicalNW: [island-gw]");
        let named = object(
            "L2Service",
            &format!("name: {long}"),
            &format!("SegmentationID: {}, PhysicalNW: [island-gw]", VLANS[1]),
        );
        let network = [refused, named, access("uihostile", "a", &long)].concat();
        system.apply(&network).await;
        system.becomes::<L2Service>("uihostile-refused", (Phase::Error, &["onerror"])).await;
        system.becomes::<L2Service>(&long, Phase::Ready).await;
        let event = json!({
            "metadata": { "generateName": "uihostile-", "namespace": "uihostile" },
            "involvedObject": {
                "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2ServiceAttachment", "name": "a", "namespace": "uihostile",
            },
            "reason": "Hostile", "message": format!("event {SCRIPT}{TURNED}"), "type": "Warning",
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
        });
        let events: Api<k8s_openapi::api::core::v1::Event> =
            Api::namespaced(system.sandbox.client(), "uihostile");
        let event = serde_json::from_value(event).expect("an Event");
        events.create(&PostParams::default(), &event).await.expect("an Event");

        let console = open(system).await;
        let input = json!({
            "pages": [
                "/", "/objects", "/fabric", "/fabric?view=table", "/fabric?device=island", "/fabric?network=uihostile",
                "/addresses", "/timeline?namespace=uihostile", "/timeline?object=L2Service%2Fuihostile-refused",
                "/timeline?object=L2ServiceAttachment%2Fuihostile%2Fa", "/timeline?device=island",
            ],
            "objects": [
                "L2Service/uihostile-refused", format!("L2Service/{long}"), "L2ServiceAttachment/uihostile/a",
                "ConnectionPoint/uihostile", "PhysicalNetwork/uihostile", "FabricDevice/island",
            ],
            // What a switch says is cleaned.
            "texts": [SCRIPT, TURNED.replace('\u{202e}', "\u{fffd}"), long],
        });
        run_scenario(&console, "hostile", &input, no_step).await;
        console.stop().await;
        system.fault("island", json!({ "kind": "clear" })).await;
        system.delete_with_vlans(&network, VLANS).await;
        system.apply(&ports("island", "")).await;
        system.delete(&[outside, point.to_string()].join("\n---\n")).await;
    });
}

/// A network whose attachment is ready.
async fn network(system: &System, name: &str, vid: u16) -> String {
    system.create_connection_point(name).await;
    let service_name = format!("{name}-a");
    let network =
        [service(&service_name, vid, "PhysicalNW: [dc-gw]"), access(name, "a", &service_name)].concat();
    system.apply_until_ready::<L2ServiceAttachment>(&network, &format!("{name}/a")).await;
    network
}

#[test]
fn page_outlives_the_api_server_and_eno_ui() {
    with_new_sandbox(async |system| {
        network(system, "uilost", 3750).await;
        let mut console = Some(open(system).await);
        let mut stopped: Option<StoppedPart> = None;
        let url = console.as_ref().map(|console| console.url.clone()).unwrap_or_default();
        let input = json!({ "object": "L2ServiceAttachment/uilost/a", "changed": "uilost-new" });
        eno_tests::browser::run_scenario_at(&url, "lost", &input, async |step| {
            match step {
                "stop the API server" => {
                    stopped = Some(system.sandbox.kill_part("kube-apiserver").await.expect("a part to kill"));
                }
                "start the API server" => {
                    let part = stopped.take().expect("the part that was killed");
                    system.sandbox.start_part(part).await.expect("the same program again");
                }
                "change" => {
                    system.apply(&service("uilost-new", 3751, "PhysicalNW: [dc-gw]")).await;
                }
                "stop eno ui" => {
                    console.take().expect("a console").stop().await;
                }
                other => panic!("an unexpected step {other}"),
            }
            Value::Null
        })
        .await;
    });
}

#[test]
fn slow_api_server_delays_no_page() {
    with_exclusive_sandbox(async |system| {
        let network = network(system, "uislow", 3760).await;
        let proxy = SlowProxy::start(&system.sandbox.info().kubeconfig, Duration::from_millis(1500)).await;
        let options =
            ConsoleOptions { kubeconfig: Some(proxy.kubeconfig.clone()), ..ConsoleOptions::default() };
        let console = system.console(&options).await;
        let input = json!({
            "object": "L2ServiceAttachment/uislow/a",
            "manifests": service("uislow-b", 3761, "PhysicalNW: [dc-gw]"),
        });
        run_scenario(&console, "slow", &input, no_step).await;
        console.stop().await;
        system.delete_with_vlans(&network, [3760]).await;
    });
}

/// Services of the large fabric.
const SERVICES: u16 = 4000;
/// Limit of the time in which all services of the large fabric are ready.
const LARGE: Duration = Duration::from_mins(20);

#[test]
fn large_fabric_is_drawn_soon() {
    let large =
        |options: &mut eno_lab::sandbox::SandboxOptions| options.topology = Topology::leaf_spine(56, 8, 480);
    with_own_sandbox(large, async |system| {
        system.namespace("uilarge").await;
        let pool = object("NodePool", "name: uilarge", "NodeSelector: {}");
        let point = connection_point("uilarge", "br0", "NodePool: uilarge, Interfaces: [eth1]");
        system.apply(&[pool, point].concat()).await;
        let name = |n: u16| format!("uilarge-{n}");
        let services: Vec<String> = (0..SERVICES).map(|n| service(&name(n), n + 2, "")).collect();
        for part in services.chunks(500) {
            system.apply(&part.concat()).await;
        }
        let names: Vec<String> = (0..SERVICES).map(name).collect();
        system
            .apply(&attachment("uilarge", "all", "uilarge", &names.join(","), "VlanType: selectivetrunk"))
            .await;
        let began = Instant::now();
        let api = system.all::<L2ServiceAttachment>();
        let ready = poll_within(LARGE, async || {
            let all = api.list(&ListParams::default()).await.ok()?;
            let phase = |one: &L2ServiceAttachment| one.status.as_ref().and_then(|status| status.phase);
            (all.iter().map(phase).eq([Some(Phase::Ready)])).then_some(())
        });
        ready.await.expect("all services are on the switches");
        println!("large: all services are on the switches after {:?}", began.elapsed());
        let began = Instant::now();
        let console = open(system).await;
        println!("large: eno ui listens after {:?}", began.elapsed());
        let input = json!({ "updates": 8, "vlan": 100 });
        let figures = run_scenario(&console, "large", &input, async |step| {
            // An administrator takes a VLAN off a port, or brings it back.
            let n: u16 = step.trim_start_matches("change ").parse().expect("a number");
            let vlans = [4001 + n].into_iter().collect();
            let define = [(4001 + n, "customer".to_owned())].into();
            let edit = HandEdit {
                port: Some("Ethernet1".into()),
                vlans,
                define_vlans: define,
                ..HandEdit::default()
            };
            system.edit_manually(&format!("leaf{}", n + 1), &edit).await;
            Value::Null
        })
        .await;
        console.stop().await;
        assert!(figures["first-drawing-median"] < 5000.0, "{figures:?}");
        assert!(figures["update-median"] < 1000.0, "{figures:?}");
    });
}
