//! Each user-facing command under each ClusterRole of `deploy/rbac`: what it shows, reports as left out, and refuses.

use std::sync::LazyLock;

use eno_nbi_crds::{Definition, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{System, attachment, service, with_shared_sandbox};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::e2e::create_connection_point;

const NAMESPACE: &str = "roles";
const VID: u16 = 260;
/// The permissions of a role.
#[derive(Clone, Copy)]
struct Role {
    name: &'static str,
    /// True: bound in one namespace; false: bound in the cluster.
    namespaced: bool,
    /// The resources that it may list.
    reads: &'static [&'static str],
    /// The resources that it may apply.
    writes: &'static [&'static str],
}

const fn role(name: &'static str, reads: &'static [&'static str], writes: &'static [&'static str]) -> Role {
    Role { name, namespaced: false, reads, writes }
}

const fn namespaced(
    name: &'static str,
    reads: &'static [&'static str],
    writes: &'static [&'static str],
) -> Role {
    Role { name, namespaced: true, reads, writes }
}

/// The resources that the commands read: the kinds that people apply in the order of their names, in which commands
/// list them, and Kubernetes' own.
static ALL: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut all = applied(|_| true);
    all.extend(["namespaces", "nodes", "pods"]);
    all
});

/// The plurals of applied kinds, ascending.
fn applied(chosen: fn(&Definition) -> bool) -> Vec<&'static str> {
    let kinds = eno_nbi_crds::kinds().into_iter().filter(|kind| kind.is_applied && chosen(kind));
    let mut plurals: Vec<&'static str> = kinds.map(|kind| &*kind.crd.spec.names.plural.leak()).collect();
    plurals.sort_unstable();
    plurals
}

/// All ClusterRoles but those of drivers.
fn roles() -> impl Iterator<Item = Role> {
    let (kinds, all_but_pods) = (&ALL[..ALL.len() - 3], &ALL[..ALL.len() - 1]);
    let nfvo: &[&str] = applied(|kind| kind.is_of_nfvos).leak();
    let of_cluster = [
        role("eno-admin", all_but_pods, kinds),
        role("eno-viewer", all_but_pods, &[]),
        role("eno-nfvo", nfvo, nfvo),
        // It patches existing objects and creates none.
        role("eno-engine", &ALL, &[]),
    ];
    of_cluster.into_iter().chain(OF_NAMESPACES)
}

/// The ClusterRoles for namespaces.
const OF_NAMESPACES: [Role; 13] = [
    namespaced("eno-attachment-admin", &["l2serviceattachments"], &["l2serviceattachments"]),
    namespaced("eno-attachment-viewer", &["l2serviceattachments"], &[]),
    namespaced("eno-attachment-user", &[], &[]),
    namespaced("eno-podconfig-editor", &["podconfigs"], &["podconfigs"]),
    namespaced("eno-podconfig-viewer", &["podconfigs"], &[]),
    namespaced("eno-podconfig-user", &[], &[]),
    namespaced("eno-podnetworkconfig-editor", &["podnetworkconfigs"], &["podnetworkconfigs"]),
    namespaced("eno-podnetworkconfig-viewer", &["podnetworkconfigs"], &[]),
    namespaced("eno-podnetworkconfig-user", &[], &[]),
    namespaced("eno-bridge-editor", &["bridges"], &["bridges"]),
    namespaced("eno-bridge-viewer", &["bridges"], &[]),
    namespaced("eno-bridge-user", &[], &[]),
    namespaced("eno-podnetwork-viewer", &[], &[]),
];

impl Role {
    fn reads(self, what: &str) -> bool {
        self.reads.contains(&what)
    }

    /// The omissions as the commands report them.
    fn expected_omissions(self) -> Vec<String> {
        let omission = |what: &&str| match (self.reads(what), self.namespaced) {
            (true, true) => Some(format!("{what} outside namespace {NAMESPACE}")),
            (true, false) => None,
            (false, _) => Some((*what).to_owned()),
        };
        ALL.iter().filter_map(omission).collect()
    }

    fn user(self) -> String {
        format!("roles-{}", self.name)
    }

    async fn bind(self, client: &Client) {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": { "name": self.user() },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": self.name },
            "subjects": [{ "kind": "User", "name": self.user(), "apiGroup": group }],
        });
        if self.namespaced {
            let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), NAMESPACE);
            let binding = serde_json::from_value(binding).expect("a RoleBinding");
            bindings.create(&PostParams::default(), &binding).await.expect("a RoleBinding");
        } else {
            let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
            let binding = serde_json::from_value(binding).expect("a ClusterRoleBinding");
            bindings.create(&PostParams::default(), &binding).await.expect("a ClusterRoleBinding");
        }
    }
}

/// Runs commands as a user with one role.
struct CommandRunner<'a> {
    system: &'a System,
    role: Role,
    kubeconfig: String,
}

impl CommandRunner<'_> {
    async fn run(&self, arguments: &[&str], input: &str) -> (Option<i32>, Value, String) {
        let arguments = [arguments, &["--kubeconfig", &self.kubeconfig]].concat();
        let output = self.system.eno(&arguments, input).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), stderr)
    }

    /// Runs a command that must succeed and report its omissions on standard error and in its JSON.
    async fn works(&self, arguments: &[&str], input: &str) -> Value {
        let (code, output, stderr) = self.run(&[arguments, &["-o", "json"]].concat(), input).await;
        let name = self.role.name;
        assert_eq!(code, Some(0), "{name}: {arguments:?}: {stderr}{output:#}");
        let expected_omissions = self.role.expected_omissions();
        let found: Vec<&str> =
            output["leftOut"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert!(
            expected_omissions.iter().all(|what| found.contains(&what.as_str())),
            "{name}: {arguments:?}: {found:?}"
        );
        assert_eq!(
            stderr.contains("left out"),
            !expected_omissions.is_empty(),
            "{name}: {arguments:?}: {stderr}"
        );
        assert!(
            expected_omissions.is_empty() || stderr.contains(&expected_omissions.join(", ")),
            "{name}: {arguments:?}: {stderr}"
        );
        output
    }

    async fn refused(&self, arguments: &[&str], message_parts: &str) {
        let (code, _, stderr) = self.run(arguments, "").await;
        assert_eq!(code, Some(1), "{}: {arguments:?}: {stderr}", self.role.name);
        assert!(stderr.contains(message_parts), "{}: {arguments:?}: {stderr}", self.role.name);
    }

    async fn each_command(&self) {
        if self.role.reads.iter().all(|what| !ALL[..ALL.len() - 3].contains(what)) {
            for command in [&["status"][..], &["trace", "l2sa/a"], &["blame", "leaf1", "Ethernet1"]] {
                self.refused(command, "you may list none of the operator's kinds").await;
            }
            let (code, _, stderr) = self.run(&["plan", "-f", "-"], &service("roles-b", VID + 1, "")).await;
            assert!(code == Some(1) && stderr.contains("you may list none"), "{}: {stderr}", self.role.name);
            return self.refused(&["adopt", "leaf1", "3999"], "forbidden").await;
        }
        self.status().await;
        self.plan().await;
        let trace = self.works(&["trace", "l2sa/a"], "").await;
        assert!(trace["entries"].as_array().is_some_and(|entries| !entries.is_empty()), "{trace:#}");
        self.addresses().await;
        self.blame().await;
        self.adopt().await;
    }

    async fn status(&self) {
        let all = self.works(&["status"], "").await;
        let is_shown = |name: &str| {
            let rows = all["objects"].as_array().expect("a list");
            rows.iter().any(|row| row["object"] == name && row["phase"] == "ready")
        };
        assert_eq!(is_shown("L2Service/roles-a"), self.role.reads("l2services"), "{all:#}");
        assert_eq!(
            is_shown("L2ServiceAttachment/roles/a"),
            self.role.reads("l2serviceattachments"),
            "{all:#}"
        );
        if !self.role.reads("l2serviceattachments") {
            return self
                .refused(
                    &["status", "l2sa/a"],
                    "L2ServiceAttachment/roles/a may exist, and you may not read it",
                )
                .await;
        }
        // Without `-n` the command uses the kubeconfig's namespace.
        let one = self.works(&["status", "l2sa/a"], "").await;
        assert_eq!((&one["object"], &one["phase"]), (&json!("L2ServiceAttachment/roles/a"), &json!("ready")));
        let hops = one["switches"].as_array().into_iter().flatten();
        let leaf = hops.into_iter().any(|hop| hop["switch"] == "leaf1" && hop["state"] == "confirmed");
        assert_eq!(leaf, self.role.reads("fabricdevices"), "{one:#}");
    }

    async fn plan(&self) {
        let manifests = [
            service("roles-b", VID + 1, ""),
            attachment(NAMESPACE, "b", "roles", "roles-b", "VlanType: access")
                .replace("namespace: roles, ", ""),
        ]
        .concat();
        let plan = self.works(&["plan", "-f", "-"], &manifests).await;
        for (plural, object, kind) in [
            ("l2services", "L2Service/roles-b", "L2Service"),
            ("l2serviceattachments", "L2ServiceAttachment/roles/b", "L2ServiceAttachment"),
        ] {
            let strings = |field: &str| {
                let list = plan[field].as_array().into_iter().flatten().filter_map(Value::as_str);
                list.map(str::to_owned).collect::<Vec<_>>()
            };
            let (reads, writes) = (self.role.reads(plural), self.role.writes.contains(&plural));
            assert_eq!(strings("leftOut").contains(&object.to_owned()), !reads, "{object}: {plan:#}");
            let by_schema = strings("checkedBySchema").contains(&object.to_owned());
            assert_eq!(by_schema, reads && !writes, "{}: {object}: {plan:#}", self.role.name);
            let entry = plan["objects"].as_array().expect("a list").iter().find(|one| one["kind"] == kind);
            assert_eq!(entry.map(|one| &one["act"]), reads.then_some(&json!("create")), "{object}: {plan:#}");
            // An object that depends on unread objects has no predicted phase.
            let phase = entry.map(|one| one["after"]["phase"].as_str().unwrap_or("not known"));
            let known = if self.role.reads("nodes") { "ready" } else { "not known" };
            assert_eq!(phase, reads.then_some(known), "{}: {object}: {plan:#}", self.role.name);
        }
        if !self.role.reads("nodes") {
            for field in ["switches", "previews"] {
                assert!(plan[field].as_array().is_none_or(Vec::is_empty), "{}: {plan:#}", self.role.name);
            }
        }
        let gone = self.works(&["plan", "--delete", "-f", "-"], &service("roles-a", VID, "")).await;
        assert_eq!(gone["objects"][0]["act"].as_str(), self.role.reads("l2services").then_some("delete"));
        if self.role.reads("l2services") {
            let nonsense = service("roles-c", 5000, "");
            let (code, plan, _) = self.run(&["plan", "-f", "-", "-o", "json"], &nonsense).await;
            let reason = plan["refused"][0]["reason"].as_str().unwrap_or_default();
            assert!(code == Some(2) && reason.contains("SegmentationID"), "{}: {plan:#}", self.role.name);
        }
    }

    async fn addresses(&self) {
        let found = self.works(&["addresses"], "").await;
        let holders = &found["vlanHolders"][VID.to_string()];
        let expected = self.role.reads("l2services").then(|| json!(["L2Service/roles-a"]));
        assert_eq!(holders, &expected.unwrap_or(Value::Null), "{}: {found:#}", self.role.name);
    }

    async fn blame(&self) {
        let command = ["blame", "leaf1", "Ethernet1"];
        if !self.role.reads("fabricdevices") {
            return self.refused(&command, "FabricDevice/leaf1 may exist, and you may not read it").await;
        }
        let blame = self.works(&command, "").await;
        let line = blame["vlans"].as_array().expect("a list").iter().find(|line| line["vlan"] == VID);
        assert_eq!(line.expect("the VLAN")["wantedBy"], json!(["L2Service/roles-a"]), "{}", self.role.name);
        assert_eq!(blame["complete"], true, "what was not read, the engine's commands say: {blame:#}");
    }

    async fn adopt(&self) {
        // The command reads the device before it patches it.
        let may = self.role.writes.contains(&"fabricdevices") || self.role.name == "eno-engine";
        if !may {
            return self.refused(&["adopt", "leaf1", "3999"], "forbidden").await;
        }
        for arguments in [&["adopt", "leaf1", "3999"][..], &["adopt", "leaf1", "3999", "--undo"]] {
            let (code, _, stderr) = self.run(arguments, "").await;
            assert_eq!(code, Some(0), "{}: {stderr}", self.role.name);
        }
    }
}

#[test]
fn each_cluster_role_gets_what_it_may_read_from_each_command() {
    with_shared_sandbox(async |system| {
        let client = system.sandbox.client();
        let of_operator = ListParams::default().labels("app.kubernetes.io/part-of=eno");
        let deployed =
            Api::<ClusterRole>::all(client.clone()).list(&of_operator).await.expect("ClusterRoles");
        let mut deployed: Vec<String> = deployed.iter().map(ClusterRole::name_any).collect();
        let of_drivers =
            eno_parts::ALL.into_iter().filter(|part| part.driver.is_some() && part.rights.is_some());
        let of_drivers = of_drivers.map(|part| role(part.account.name, &[], &[]));
        let roles: Vec<Role> = roles().chain(of_drivers).collect();
        let mut listed: Vec<&str> = roles.iter().map(|role| role.name).collect();
        deployed.sort();
        listed.sort_unstable();
        assert_eq!(deployed, listed);

        system.namespace(NAMESPACE).await;
        create_connection_point(system, "roles", &["node1"]).await;
        let network =
            [service("roles-a", VID, ""), attachment(NAMESPACE, "a", "roles", "roles-a", "VlanType: access")]
                .concat();
        system.apply_until_ready::<L2Service>(&network, "roles-a").await;
        system.becomes::<L2ServiceAttachment>("roles/a", Phase::Ready).await;
        let dir = tempfile::tempdir().expect("a directory");
        for role in roles {
            role.bind(&client).await;
            let kubeconfig = system.kubeconfig_of(dir.path(), &role.user(), NAMESPACE).display().to_string();
            CommandRunner { system, role, kubeconfig }.each_command().await;
        }
        system.delete_with_vlans(&network, [VID]).await;
    });
}
