//! Logins with a real API server: which FabricDevices confirm one, with the roles of `deploy/rbac` only.

use std::path::Path;
use std::time::Duration;

use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions};
use eno_device_secrets::{FOR_DEVICES, Login, Permit, PermitError, SecretSource};
use eno_schemas::Device;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::TypeMeta;
use kube::discovery::oneshot::pinned_kind;
use kube::{Client, Config};
use serde_json::{Value, json};

const FILES: [&str; 3] = ["namespace.yaml", "rbac/drivers.yaml", "crds/eno.k8s.io_fabricdevices.yaml"];
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const KEYSTONE: &str = "https://keystone.example.com:5000/v3";

struct Cluster {
    control_plane: ControlPlane,
    admin: Client,
    _dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let parts = Parts::from_env().expect("the parts of a control plane");
        let control_plane = ControlPlane::start(ControlPlaneOptions::new(dir.path(), parts)).await;
        let control_plane = control_plane.expect("a control plane");
        let admin = control_plane.client().await.expect("the admin's client");
        let new = Self { control_plane, admin, _dir: dir };
        for file in FILES {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
            let text = std::fs::read_to_string(&path).expect(file);
            for document in text.split("\n---\n") {
                new.apply(serde_saphyr::from_str(document).expect(file)).await;
            }
        }
        new
    }

    /// Applies an object as soon as its kind is served.
    async fn apply(&self, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let types: &TypeMeta = object.types.as_ref().expect("kind and apiVersion");
        let gvk = types.try_into().expect("group, version and kind");
        let name = object.metadata.name.clone().expect("a name");
        let applied = async {
            loop {
                let Ok((resource, _)) = pinned_kind(&self.admin, &gvk).await else { continue };
                let api: Api<DynamicObject> = match &object.metadata.namespace {
                    Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
                    None => Api::all_with(self.admin.clone(), &resource),
                };
                match api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await {
                    Ok(_) => break,
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), applied).await.expect("it is applied in time");
    }

    async fn device(&self, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "eno.k8s.io/v1alpha1", "kind": "FabricDevice",
            "metadata": { "name": name, "finalizers": ["test/keep"] }, "spec": spec,
        });
        self.apply(object).await;
    }

    async fn devices(&self) -> Api<DynamicObject> {
        let gvk = kube::core::GroupVersionKind::gvk("eno.k8s.io", "v1alpha1", "FabricDevice");
        let (resource, _) = pinned_kind(&self.admin, &gvk).await.expect("the kind");
        Api::all_with(self.admin.clone(), &resource)
    }

    /// Where a driver gets its Secrets, with the rights of its service account.
    async fn source(&self, account: &str) -> SecretSource {
        let user = format!("system:serviceaccount:eno-system:{account}");
        let kubeconfig = self.control_plane.kubeconfig_for(&user, None).expect("a kubeconfig");
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("a configuration");
        "eno-devices".clone_into(&mut config.default_namespace);
        SecretSource::Namespace(Client::try_from(config).expect("a client"))
    }
}

fn leaf1() -> Value {
    json!({
        "Driver": "netconf", "Address": "192.0.2.1", "HostKey": format!("{KEY} leaf1"),
        "Credentials": { "SecretName": "leaf1" },
    })
}

fn netconf(target: &str, change: impl FnOnce(&mut Device)) -> Login {
    let mut device = Device {
        credential: Some("leaf1".into()),
        host_key: Some(format!("{KEY} leaf1")),
        ..Device::new("192.0.2.1:830")
    };
    change(&mut device);
    Login::new("netconf", target, &device).default_port(830)
}

fn neutron(address: &str) -> Login {
    let device = Device { credential: Some("vim".into()), ..Device::new(address) };
    Login::new("neutron", "vim", &device)
}

#[track_caller]
fn refusal(permitted: Result<Permit, PermitError>) -> String {
    permitted.expect_err("a refusal").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_login_of_the_fabric_device_is_permitted() {
    let cluster = Cluster::start().await;
    cluster.device("leaf1", leaf1()).await;
    let vim = json!({
        "Driver": "neutron", "Address": KEYSTONE, "Credentials": { "SecretName": "vim" },
        "Neutron": { "NetworkType": "Tenant" },
    });
    cluster.device("vim", vim).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "leaf1", "namespace": "eno-devices" },
        "stringData": { "password": "s3cret" },
    });
    cluster.apply(secret).await;
    let source = cluster.source("eno-driver-netconf").await;

    let permit = source.permit(netconf("leaf1", |_| ())).await.expect("a permit");
    let read = source.read(&permit, &["password"]).await.expect("the Secret");
    assert_eq!(read.line("password").expect("a password").expose(), "s3cret");
    let of_neutron = cluster.source("eno-driver-neutron").await;
    let of_vim = of_neutron.permit(neutron(KEYSTONE)).await.expect("a permit");

    // A Secret that its owner wants on a device, and no other one.
    let named = |name: &str, devices: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "namespace": "eno-devices", "annotations": { FOR_DEVICES: devices } },
            "stringData": { "password": "bgp-s3cret" },
        })
    };
    cluster.apply(named("blue", "leaf0, leaf1")).await;
    cluster.apply(named("red", "leaf10")).await;
    let read = source.read_for_device(&permit, "blue", &["password"]).await.expect("the Secret");
    assert_eq!(read.line("password").expect("a password").expose(), "bgp-s3cret");
    for name in ["red", "leaf1"] {
        let refused =
            source.read_for_device(&permit, name, &["password"]).await.expect_err("it is not for leaf1");
        assert!(refused.to_string().contains(FOR_DEVICES), "{refused}");
    }

    // What a forged command may say.
    let forged: [(&str, Login); 7] = [
        ("Address of", netconf("leaf1", |device| device.address = "198.51.100.66:830".into())),
        ("HostKey of", netconf("leaf1", |device| device.host_key = Some("ssh-ed25519 AAAA".into()))),
        ("Credentials.SecretName of", netconf("leaf1", |device| device.credential = Some("leaf2".into()))),
        ("Driver of", netconf("vim", |_| ())),
        ("no FabricDevice \"leaf2\"", netconf("leaf2", |_| ())),
        ("no FabricDevice \"leaf1?a\"", netconf("leaf1?a", |_| ())),
        ("no FabricDevice \"x/../leaf1\"", netconf("x/../leaf1", |_| ())),
    ];
    for (named, login) in forged {
        let refusal = refusal(source.permit(login).await);
        assert!(refusal.contains(named), "{refusal}");
    }
    let elsewhere = refusal(of_neutron.permit(neutron("https://198.51.100.66:5000/v3")).await);
    assert!(elsewhere.contains("Address of FabricDevice vim"), "{elsewhere}");

    // What was permitted is not permitted again once the FabricDevice says otherwise.
    let mut moved = leaf1();
    moved["Address"] = "192.0.2.2:2222".into();
    cluster.device("leaf1", moved).await;
    assert!(refusal(source.renew(&permit).await).contains("Address of"));
    let moved = netconf("leaf1", |device| device.address = "192.0.2.2:2222".into());
    let permit = source.permit(moved).await.expect("a permit");

    // A FabricDevice that is being deleted is emptied, which takes a login.
    let devices = cluster.devices().await;
    devices.delete("leaf1", &DeleteParams::default()).await.expect("it is deleted");
    source.renew(&permit).await.expect("a permit");
    let none = json!({ "metadata": { "finalizers": null } });
    devices.patch("leaf1", &PatchParams::default(), &Patch::Merge(none)).await.expect("it is gone");
    assert!(matches!(source.renew(&permit).await, Err(PermitError::NoDevice(_))));

    let nobody = refusal(cluster.source("nobody").await.permit(neutron(KEYSTONE)).await);
    assert!(nobody.contains("forbidden") && nobody.contains("deploy/rbac"), "{nobody}");
    cluster.control_plane.stop().await;

    // Without the API server nothing is permitted that it did not permit before.
    let away = of_neutron.permit(neutron(KEYSTONE)).await.expect_err("no answer");
    assert!(away.is_unavailable(), "{away}");
    of_neutron.renew(&of_vim).await.expect("its earlier answer");
}
