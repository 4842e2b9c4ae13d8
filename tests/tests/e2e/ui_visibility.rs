//! `eno ui` shows nobody more than kubectl would. A viewer with few rights and the credentials of NATS asks for
//! everything. No answer may have the name of an object that is in none of the objects that the viewer may list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use eno_nbi_crds::{ConnectionPoint, L2Service, L2ServiceAttachment, Phase, crds};
use eno_simulator::HandEdit;
use eno_tests::browser::{Console, ConsoleOptions};
use eno_tests::{
    System, access, attachment, connection_point, object, poll, service, subnet, with_exclusive_sandbox,
};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rand::RngExt as _;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::e2e::create_connection_point;
use crate::e2e::ui_requests::Session;

/// The viewers' own VLAN, two of another tenant, and one that an administrator has defined by hand.
const OWN: u16 = 3700;
const FOREIGN: u16 = 3710;
const REFUSED: u16 = 3711;
const BY_HAND: u16 = 3712;
/// A VLAN that a plan asks for.
const PLANNED: u16 = 3720;

/// The names in the test. Those of the other tenant are random, so that no other text has them.
struct Names {
    /// The namespace, the ConnectionPoint and the prefix of the viewers' own objects.
    own: String,
    /// The other tenant's names, by what they are of.
    foreign: BTreeMap<&'static str, String>,
}

impl Names {
    fn new() -> Self {
        let mut random = rand::rng();
        let mut name = |what: &'static str| (what, format!("{what}x{:08x}", random.random::<u32>()));
        Self { own: "uivis".into(), foreign: EVERYTHING_FOREIGN.split(' ').map(&mut name).collect() }
    }

    fn foreign(&self, what: &str) -> &str {
        &self.foreign[what]
    }
}

/// A user of the console, and what binds the user's rights.
struct Viewer {
    name: &'static str,
    /// Documents of bindings and roles, where `USER` and `NAMESPACE` stand for the names.
    rights: &'static str,
    /// Foreign names that the viewer must not see, separated by spaces. Else the test would prove nothing.
    never: &'static str,
    /// A switch may be shown as confirmed: whoever sees only a part of its VLANs is told no verdict on it. `None`: the
    /// viewer sees no switches.
    confirms_switches: Option<bool>,
}

const EVERYTHING_FOREIGN: &str = "ns attachment service rival refused marked subnet point pool network bridge \
                                  podconfig pod loose message vlan";

const VIEWERS: [Viewer; 5] = [
    Viewer {
        name: "tenant",
        rights: "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: USER, namespace: NAMESPACE}, \
            roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eno-attachment-admin}, \
            subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]}",
        never: EVERYTHING_FOREIGN,
        confirms_switches: None,
    },
    Viewer {
        name: "nfvo",
        rights: "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: USER}, \
            roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eno-nfvo}, \
            subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]}",
        never: "pool network bridge podconfig loose",
        confirms_switches: None,
    },
    Viewer {
        name: "viewer",
        rights: "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: USER}, \
            roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eno-viewer}, \
            subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]}",
        never: "loose",
        confirms_switches: Some(true),
    },
    // Sees the switches and own attachments only. Reports on switches are about all tenants.
    Viewer {
        name: "fabric",
        rights: "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: USER}, rules: [{\
            apiGroups: [eno.k8s.io], resources: [fabricdevices, physicalnetworks], verbs: [get, list, watch]}]}\n---\n\
            {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: USER}, \
            roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: USER}, \
            subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]}\n---\n\
            {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: USER, namespace: NAMESPACE}, \
            roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eno-attachment-admin}, \
            subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]}",
        never: "ns attachment service rival subnet point pool bridge podconfig pod loose",
        confirms_switches: Some(false),
    },
    // May list and not watch, so changes of rights and of objects come late.
    Viewer {
        name: "lister",
        rights: "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: USER, namespace: NAMESPACE}, \
            rules: [{apiGroups: [eno.k8s.io], resources: [l2serviceattachments], verbs: [get, list]}]}\n---\n\
            {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: USER, namespace: NAMESPACE}, \
            roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: USER}, \
            subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]}",
        never: EVERYTHING_FOREIGN,
        confirms_switches: None,
    },
];

impl Viewer {
    fn user(&self) -> String {
        format!("uivis-{}", self.name)
    }

    fn rights(&self, namespace: &str) -> String {
        format!("\n---\n{}\n", self.rights.replace("USER", &self.user()).replace("NAMESPACE", namespace))
    }
}

/// A console that a viewer has open since before the other tenant's objects, and all its events.
struct Open {
    console: Console,
    session: Session,
    events: watch::Receiver<String>,
    _reading: AbortOnDropHandle<()>,
}

async fn open(system: &System, kubeconfig: Option<PathBuf>, namespace: &str) -> Open {
    let namespace = Some(namespace.to_owned());
    let console =
        system.console(&ConsoleOptions { kubeconfig, namespace, ..ConsoleOptions::default() }).await;
    let session = Session::open(&console).await;
    let has_messages = poll(async || {
        let (_, body) = session.get("/api/session").await;
        let answer: Value = serde_json::from_str(&body).ok()?;
        (answer["hasMessages"] == true).then_some(())
    });
    has_messages.await.expect("the console reads NATS");
    let answer = session.request(&Method::GET, "/api/events").timeout(eno_tests::TIMEOUT * 5).send().await;
    let mut answer = answer.expect("an answer");
    let (sender, events) = watch::channel(String::new());
    let reading = tokio::spawn(async move {
        while let Ok(Some(bytes)) = answer.chunk().await {
            sender.send_modify(|text| text.push_str(&String::from_utf8_lossy(&bytes)));
        }
    });
    Open { console, session, events, _reading: AbortOnDropHandle::new(reading) }
}

/// An answer, and the texts of the request, which an answer may repeat.
struct Answered {
    request: String,
    status: StatusCode,
    body: String,
}

/// Asks the console for everything.
struct Crawl<'a> {
    session: &'a Session,
    answers: Vec<Answered>,
}

impl Crawl<'_> {
    async fn get(&mut self, path: &str, query: &[(&str, &str)]) -> Value {
        let mut url = reqwest::Url::parse("http://host").expect("a URL");
        url.set_path(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let target = url.as_str().trim_start_matches("http://host").to_owned();
        let (status, body) = self.session.get(&target).await;
        let answer = serde_json::from_str(&body).unwrap_or_default();
        let texts: Vec<&str> = query.iter().map(|(_, value)| *value).collect();
        self.answers.push(Answered { request: format!("{path} {}", texts.join(" ")), status, body });
        answer
    }

    async fn plan(&mut self, manifests: &str, delete: bool, namespace: &str) {
        let asked = json!({ "manifests": manifests, "delete": delete, "namespace": namespace });
        let (status, body) = self.session.plan(&asked).await;
        self.answers.push(Answered { request: format!("plan {namespace} {manifests}"), status, body });
    }

    async fn everything(&mut self, names: &Names) {
        for path in ["/api/session", "/api/overview", "/api/addresses", "/api/fabric/vlans"] {
            self.get(path, &[]).await;
        }
        let objects = self.get("/api/objects", &[]).await;
        let fabric = self.get("/api/fabric", &[]).await;
        let texts = |list: &Value, field: &str| -> BTreeSet<String> {
            let items = list.as_array().into_iter().flatten();
            items.filter_map(|item| item[field].as_str().map(str::to_owned)).collect()
        };
        let mut objects = texts(&objects["objects"], "object");
        let (own, foreign) = (&names.own, |what| names.foreign(what));
        objects.extend([
            format!("L2Service/{}", foreign("service")),
            format!("L2Service/{}", foreign("refused")),
            format!("L2ServiceAttachment/{}/{}", foreign("ns"), foreign("attachment")),
            format!("L2ServiceAttachment/{own}/{}", foreign("attachment")),
            format!("PodConfig/{}/{}", foreign("ns"), foreign("podconfig")),
            format!("Subnet/{}", foreign("subnet")),
            format!("ConnectionPoint/{}", foreign("point")),
            format!("L2ServiceAttachment/{own}/a"),
        ]);
        objects.extend(
            ["leaf1", "leaf2", "spine1", "spine2", "island"].map(|name| format!("FabricDevice/{name}")),
        );
        for object in &objects {
            let path = self.get("/api/path", &[("object", object)]).await;
            self.get("/api/timeline", &[("object", object)]).await;
            let mut hops = texts(&path["hops"], "id");
            // A hop of the own path, and one that only another path has.
            hops.extend(["switch:spine1".into(), "port:island:Ethernet48".into()]);
            for hop in hops {
                self.get("/api/hop", &[("object", object), ("id", &hop)]).await;
            }
        }
        let nad = format!("{}/{}", foreign("ns"), foreign("attachment"));
        for device in ["leaf1", "leaf2", "spine1", "spine2", "island", "node1", "node5", nad.as_str()] {
            self.get("/api/timeline", &[("device", device)]).await;
        }
        for namespace in [own, foreign("ns"), "default", "eno-system", "kube-system"] {
            self.get("/api/timeline", &[("namespace", namespace)]).await;
        }
        let mut links = texts(&fabric["links"], "id");
        links.extend(["leaf1:Ethernet1", "leaf1:Ethernet49", "island:Ethernet48"].map(str::to_owned));
        for link in &links {
            self.get("/api/fabric/link", &[("id", link)]).await;
        }
        for vlan in [1, OWN, FOREIGN, REFUSED, BY_HAND, PLANNED, 4094] {
            self.get("/api/fabric/vlan", &[("id", &vlan.to_string())]).await;
        }
        for address in ["10.37.0.10", "10.37.0.11", "10.99.0.1", "fd00::1"] {
            self.get("/api/address", &[("address", address)]).await;
        }
        self.plans(names).await;
    }

    async fn plans(&mut self, names: &Names) {
        let own = &names.own;
        let new = access(own, "b", &format!("{own}-a"));
        // The VLAN IDs of others, and the switch that refuses one.
        let conflicts: Vec<String> = [FOREIGN, REFUSED, BY_HAND, PLANNED]
            .map(|vid| service(&format!("{own}-plan{vid}"), vid, "PhysicalNW: [island-gw]"))
            .into();
        let with_services = [conflicts.concat(), access(own, "b", &format!("{own}-plan{FOREIGN}"))].concat();
        let overlapping = subnet(&format!("{own}-plan"), "10.37.0.0", "");
        let device = object("FabricDevice", "name: island", "Ports: [{Name: Ethernet48, PhysicalNW: dc-gw}]");
        for manifests in [&new, &conflicts.concat(), &with_services, &overlapping, &device] {
            for delete in [false, true] {
                self.plan(manifests, delete, own).await;
            }
        }
        // The same in the other tenant's namespace, which the request names.
        self.plan(&new.replace(&format!("namespace: {own}, "), ""), false, names.foreign("ns")).await;
    }
}

/// The answers that have one of these names, other than in a repetition of the request.
fn leaks(answers: &[Answered], forbidden: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut found = Vec::new();
    for Answered { request, status, body } in answers {
        for (what, name) in forbidden {
            if !request.contains(name) && body.contains(name) {
                found.push(format!(
                    "{what} {name} in the answer to {request} ({status}): {}",
                    around(body, name)
                ));
            }
        }
    }
    found
}

/// What is around a name in a text.
fn around(text: &str, name: &str) -> String {
    let at = text.find(name).unwrap_or_default();
    let from = text.char_indices().map(|(index, _)| index).take_while(|index| *index + 150 <= at).last();
    text[from.unwrap_or_default()..].chars().take(300 + name.len()).collect()
}

/// All that a user may list, as text: the operator's kinds and what the console asks for besides.
async fn listed(kubeconfig: &Path, namespaces: [&str; 2]) -> String {
    let config = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("a config");
    let client = Client::try_from(config).expect("a client");
    let mut resources: Vec<(String, String, bool)> = crds()
        .into_iter()
        .map(|crd| {
            let api = format!("/apis/{}/{}", crd.spec.group, crd.spec.versions[0].name);
            (api, crd.spec.names.plural, crd.spec.scope == "Namespaced")
        })
        .collect();
    for (api, plural, namespaced) in [
        ("/api/v1", "namespaces", false),
        ("/api/v1", "nodes", false),
        ("/api/v1", "pods", true),
        ("/api/v1", "events", true),
        ("/apis/k8s.cni.cncf.io/v1", "network-attachment-definitions", true),
    ] {
        resources.push((api.to_owned(), plural.to_owned(), namespaced));
    }
    let mut text = String::new();
    for (api, plural, namespaced) in resources {
        let in_namespaces = namespaces.into_iter().filter(|_| namespaced);
        let paths = in_namespaces.map(|namespace| format!("{api}/namespaces/{namespace}/{plural}"));
        for path in std::iter::once(format!("{api}/{plural}")).chain(paths) {
            let request = Request::get(&path).body(Vec::new()).expect("a request");
            match client.request_text(request).await {
                Ok(list) => text.push_str(&list),
                Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {}
                Err(error) => panic!("{path}: {error}"),
            }
        }
    }
    text
}

/// A pod that no kubelet runs. `attached`: it asks for this attachment, and has an address of it.
async fn create_pod(
    system: &System,
    namespace: &str,
    name: &str,
    labels: Value,
    network: &str,
    address: &str,
) {
    let status =
        json!([{ "name": network, "interface": "net1", "ips": [address], "mac": "02:00:00:00:00:01" }]);
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": { "k8s.v1.cni.cncf.io/network-status": status.to_string() },
        },
        "spec": { "nodeName": "node1", "containers": [{ "name": "c", "image": "nothing.invalid/c" }] },
    });
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let pods: Api<Pod> = Api::namespaced(system.sandbox.client(), namespace);
    pods.create(&PostParams::default(), &pod).await.expect("a pod");
}

/// The other tenant's manifests.
fn foreign_objects(names: &Names) -> String {
    let name = |what| names.foreign(what);
    let (ns, point, subnet_name) = (name("ns"), name("point"), name("subnet"));
    let labelled = "labels: {test: uivisforeign}";
    let l2 = |name: &str, vid: u16, more: &str| {
        object(
            "L2Service",
            &format!("name: {name}, {labelled}"),
            &format!("SegmentationID: {vid}, PhysicalNW: [island-gw], {more}"),
        )
    };
    [
        object(
            "NodePool",
            &format!("name: {}", name("pool")),
            &format!("NodeSelector: {{matchLabels: {{pool-{}: 'yes'}}}}", names.own),
        ),
        connection_point(point, "br-foreign", &format!("NodePool: {}, Interfaces: [eth1]", name("pool"))),
        object("PhysicalNetwork", &format!("name: {}", name("network")), "SegmentationIDs: ['1-4094']"),
        subnet(subnet_name, "10.37.0.0", "HotPlugPool: [{Start: 10.37.0.10, End: 10.37.0.19}]"),
        l2(name("service"), FOREIGN, &format!("Subnets: [{subnet_name}]")),
        attachment(ns, name("attachment"), point, name("service"), "VlanType: access"),
        // A switch refuses this one, in its own words, and that one, since an administrator has it.
        l2(name("refused"), REFUSED, ""),
        l2(name("marked"), BY_HAND, ""),
        object("Bridge", &format!("name: {}, namespace: {ns}", name("bridge")), "name: br-foreign0"),
        object(
            "PodConfig",
            &format!("name: {}, namespace: {ns}", name("podconfig")),
            "networkAttachments: [{name: pc0}]",
        ),
    ]
    .concat()
}

#[test]
fn no_answer_names_what_the_viewer_may_not_list() {
    with_exclusive_sandbox(async |system| {
        let names = Names::new();
        let name = |what| names.foreign(what);
        let (own, ns) = (names.own.as_str(), name("ns"));
        let dir = tempfile::tempdir().expect("a directory");

        // What the viewers may see of their own.
        for namespace in [own, ns] {
            system.namespace(namespace).await;
            let unchecked = json!({ "metadata": { "labels": { "eno.k8s.io/use-check": "off" } } });
            system.patch("Namespace", namespace, unchecked).await;
        }
        create_connection_point(system, own, &["node5"]).await;
        let network = service(&format!("{own}-a"), OWN, "PhysicalNW: [island-gw]");
        system.apply(&[network.clone(), access(own, "a", &format!("{own}-a"))].concat()).await;
        system.becomes::<L2ServiceAttachment>(&format!("{own}/a"), Phase::Ready).await;
        for viewer in &VIEWERS {
            system.apply(&viewer.rights(own)).await;
        }

        // Open consoles get each event of what follows.
        let mut open_before = Vec::new();
        for viewer in &VIEWERS {
            let config = system.kubeconfig_of(dir.path(), &viewer.user(), own);
            // The API server knows new rights a moment later.
            poll(async || (!listed(&config, [own, ns]).await.is_empty()).then_some(()))
                .await
                .expect("rights");
            open_before.push((viewer, config.clone(), open(system, Some(config), own).await));
        }
        let admin = open(system, None, own).await;

        // Another tenant comes, with troubles that name it.
        let message = format!("no resources for {}", name("message"));
        let refusal = json!({ "kind": "reject-edit", "vlan": REFUSED, "message": message });
        system.fault("island", refusal).await;
        let by_hand =
            HandEdit { define_vlans: [(BY_HAND, name("vlan").to_owned())].into(), ..HandEdit::default() };
        system.edit_manually("island", &by_hand).await;
        let foreign = foreign_objects(&names);
        system.apply(&foreign).await;
        let label = json!({ (format!("attach.eno.k8s.io/{}", name("attachment"))): "net1" });
        let attached = format!("{ns}/{}", name("attachment"));
        create_pod(system, ns, name("pod"), label, &attached, "10.37.0.10").await;
        create_pod(system, ns, name("loose"), json!({}), &attached, "10.37.0.11").await;
        system.becomes::<ConnectionPoint>(name("point"), Phase::Ready).await;
        system.becomes::<L2ServiceAttachment>(&attached, Phase::Ready).await;
        // The same VLAN ID: the engine's message names its holder.
        let rival = service(name("rival"), FOREIGN, "PhysicalNW: [island-gw]");
        system.apply(&rival).await;
        for (service, texts) in [
            (name("rival"), [name("service"), "SegmentationID"]),
            (name("refused"), [name("message"), "island"]),
            (name("marked"), [name("vlan"), "not ours"]),
        ] {
            system.becomes::<L2Service>(service, (Phase::Error, &texts)).await;
        }

        // The administrator sees all. So the crawl asks where the names are.
        let mut unseen = BTreeSet::new();
        let seen = poll(async || {
            let mut crawl = Crawl { session: &admin.session, answers: Vec::new() };
            crawl.everything(&names).await;
            let events = admin.events.borrow().clone();
            unseen = names.foreign.keys().copied().collect();
            unseen.retain(|what| {
                let of_name = BTreeMap::from([(*what, name(what))]);
                leaks(&crawl.answers, &of_name).is_empty() && !events.contains(name(what))
            });
            unseen.is_empty().then_some(())
        });
        let seen = seen.await;
        assert!(seen.is_some(), "the administrator does not see {unseen:?}");

        let mut failures = Vec::new();
        for (viewer, config, open_before) in open_before {
            let may_list = listed(&config, [own, ns]).await;
            let forbidden: BTreeMap<&str, &str> = names
                .foreign
                .iter()
                .map(|(what, name)| (*what, name.as_str()))
                .filter(|(_, name)| !may_list.contains(name))
                .collect();
            for what in viewer.never.split(' ') {
                assert!(forbidden.contains_key(what), "{} may list {what}", viewer.name);
            }
            // Once with the console that was open, and once with one that reads all at its start.
            let new = open(system, Some(config.clone()), own).await;
            for (when, console) in [("open since before", &open_before), ("new", &new)] {
                let mut crawl = Crawl { session: &console.session, answers: Vec::new() };
                crawl.everything(&names).await;
                let events = console.events.borrow().clone();
                assert!(events.contains("event: state"), "{}: {when}: {events}", viewer.name);
                crawl.answers.push(Answered {
                    request: "events".into(),
                    status: StatusCode::OK,
                    body: events,
                });
                let own_path = crawl.answers.iter().any(|one| {
                    one.request.ends_with(&format!("L2ServiceAttachment/{own}/a"))
                        && one.status == StatusCode::OK
                });
                assert!(own_path, "{} sees the own attachment", viewer.name);
                if let Some(confirms) = viewer.confirms_switches {
                    let fabric = crawl.answers.iter().find(|one| one.request.trim() == "/api/fabric");
                    let fabric: Value = serde_json::from_str(&fabric.expect("an answer").body).expect("JSON");
                    let devices = fabric["devices"].as_array().expect("devices");
                    assert!(!devices.is_empty(), "{}: {fabric:#}", viewer.name);
                    let is_confirmed = devices.iter().any(|device| device["state"] == "confirmed");
                    assert_eq!(is_confirmed, confirms, "{}: {fabric:#}", viewer.name);
                }
                let found = leaks(&crawl.answers, &forbidden);
                failures.extend(found.into_iter().map(|leak| format!("{} ({when}): {leak}", viewer.name)));
            }
            for console in [open_before.console, new.console] {
                console.stop().await;
            }
        }

        // Cleans up before it fails, since other tests use the sandbox.
        system.fault("island", json!({ "kind": "clear" })).await;
        let pods: Api<Pod> = Api::namespaced(system.sandbox.client(), ns);
        for pod in ["pod", "loose"] {
            pods.delete(name(pod), &DeleteParams::default().grace_period(0)).await.expect("it goes");
        }
        system.delete_with_vlans(&[foreign, rival].concat(), [FOREIGN, REFUSED]).await;
        let own_objects = [access(own, "a", &format!("{own}-a")), network].concat();
        system.delete_with_vlans(&own_objects, [OWN]).await;
        let undefine = HandEdit { remove_vlans: [BY_HAND].into_iter().collect(), ..HandEdit::default() };
        system.edit_manually("island", &undefine).await;
        for viewer in &VIEWERS {
            system.request_deletion(&viewer.rights(own)).await;
        }
        assert!(failures.is_empty(), "{} leaks:\n{}", failures.len(), failures.join("\n"));
    });
}
