//! One Keystone and Neutron for all tests of this process, with a project for each test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use eno_conformance::fabrics;
use eno_control_plane::openstack::{Account, OpenStack, OpenStackClient, OpenStackOptions, Release};
use eno_control_plane::parts::Parts;
use eno_device_secrets::SecretSource;
use eno_driver_neutron::driver::{NeutronDriver, Options};
use eno_driver_neutron::http::Limits;
use eno_sbi::Reconciled;
use eno_schemas::{Device, FabricDesired, FabricPort};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::cloud::proxy::{Proxy, REQUEST_LIMIT};
use crate::world;

pub use crate::world::{PHYSICAL, TARGET, vid};

/// Names another release of OpenStack for all tests of the process.
pub const RELEASE: &str = "ENO_OPENSTACK_RELEASE";

/// Two clouds, since Neutron serves one request at a time. Tests use them in turn.
static SERVERS: [LazyLock<Server>; 2] = [LazyLock::new(Server::start), LazyLock::new(Server::start)];

/// Keystone and Neutron, with the runtime of their connections, which lives as long as the process.
struct Server {
    runtime: Handle,
    openstack: OpenStack,
}

impl Server {
    /// Starts it, and waits for it.
    fn start() -> Self {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let dir = TempDir::with_prefix("eno-neutron-").unwrap().keep();
                remove_at_exit(&dir);
                let parts = Parts::from_env().expect("a cache for the parts");
                let release =
                    std::env::var(RELEASE).map_or_else(|_| Release::default(), |name| name.parse().unwrap());
                let options = OpenStackOptions { release, ..OpenStackOptions::new(dir, parts) };
                let openstack = OpenStack::start(options).await.expect("Keystone and Neutron");
                send.send(Self { runtime: Handle::current(), openstack }).unwrap();
                std::future::pending::<()>().await;
            });
        });
        receive.recv().unwrap()
    }
}

/// Removes a directory when this process ends: values in statics are not dropped.
fn remove_at_exit(dir: &Path) {
    let mut waiting = std::process::Command::new("sh");
    // Its input ends with this process. The servers may write until they end, too.
    waiting.args(["-c", "cat; until rm -rf \"$0\"; do :; done"]).arg(dir);
    let child = waiting.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::mem::forget(child);
}

/// Each test has VLAN IDs of its own.
static NEXT_VLAN: AtomicU16 = AtomicU16::new(100);
/// VLAN IDs per test.
const VLANS_PER_TEST: u16 = 16;

/// A project with two trunks, `t1` and `t2`.
pub struct Cloud {
    server: &'static Server,
    pub account: Account,
    pub proxy: Proxy,
    /// The first VLAN ID.
    pub first_vlan: u16,
    /// Of the project's user.
    pub client: OpenStackClient,
    secrets: TempDir,
}

/// The rights of the project's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May set provider attributes.
    Admin,
    /// May not.
    Member,
}

impl Cloud {
    /// A project of a user with this role.
    pub async fn new(role: Role) -> Self {
        let first_vlan = NEXT_VLAN.fetch_add(VLANS_PER_TEST, Ordering::SeqCst);
        let turn = usize::from(first_vlan / VLANS_PER_TEST) % SERVERS.len();
        // It may start here, which blocks.
        let server: &Server = tokio::task::spawn_blocking(move || &*SERVERS[turn]).await.unwrap();
        let account = on(server, move |openstack| async move {
            let account = openstack.create_project(&format!("p{first_vlan}")).await.unwrap();
            if role == Role::Admin {
                openstack.grant_role(&account, "admin").await.unwrap();
            }
            account
        })
        .await;
        let (keystone, neutron) = addresses(server);
        let proxy = Proxy::start(keystone, neutron).await;
        let new = Self {
            server,
            client: server.openstack.client_for(&account).unwrap(),
            account,
            proxy,
            first_vlan,
            secrets: TempDir::with_prefix("eno-neutron-").unwrap(),
        };
        new.write_secret(&new.login());
        let network = new.post("network", json!({ "name": "management" })).await;
        for name in ["t1", "t2"] {
            let port =
                new.post("port", json!({ "name": format!("{name}-nic"), "network_id": network })).await;
            new.post("trunk", json!({ "name": name, "port_id": port })).await;
        }
        new
    }

    /// A client of the administrator of the cloud.
    pub fn admin(&self) -> OpenStackClient {
        self.server.openstack.client_for(self.server.openstack.admin()).unwrap()
    }

    /// The id of the administrator's project.
    pub fn admin_project(&self) -> &str {
        &self.server.openstack.admin().project_id
    }

    /// The URLs of Keystone and Neutron, without path.
    pub fn addresses(&self) -> (&str, &str) {
        addresses(self.server)
    }

    /// Sets the quota of networks of the project.
    pub async fn set_networks(&self, count: i64) {
        let project = self.account.project_id.clone();
        on(self.server, move |openstack| async move {
            openstack.set_quota(&project, &[("network", count)]).await.unwrap();
        })
        .await;
    }

    /// The keys of a Secret with the user's password.
    pub fn login(&self) -> BTreeMap<&'static str, String> {
        let Account { user, password, user_domain, project, project_domain, .. } = self.account.clone();
        BTreeMap::from([
            ("username", user),
            ("password", password),
            ("user_domain_name", user_domain),
            ("project_name", project),
            ("project_domain_name", project_domain),
        ])
    }

    /// Replaces the Secret.
    pub fn write_secret(&self, values: &BTreeMap<&'static str, String>) {
        let _ = std::fs::remove_dir_all(self.secrets.path().join("vim"));
        fabrics::write_secret(self.secrets.path(), "vim", values.iter().map(|(key, value)| (*key, value)));
        self.list_device(&self.proxy.keystone());
    }

    /// The folder of Secrets.
    pub fn secrets(&self) -> &Path {
        self.secrets.path()
    }

    /// Adds a Secret for another Keystone.
    pub fn add_secret(&self, name: &str, keystone: &str) {
        let values = self.login().into_iter().chain([("devices", keystone.to_owned())]);
        fabrics::write_secret(self.secrets.path(), name, values);
    }

    /// Makes the Keystone at this address the only one that the Secret is for.
    pub fn list_device(&self, address: &str) {
        std::fs::write(self.secrets.path().join("vim/devices"), address).unwrap();
    }

    /// Makes a resource in the user's project and returns its id.
    pub async fn post(&self, kind: &str, attributes: Value) -> String {
        post(&self.client, kind, attributes).await
    }

    /// A list of the user's project.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        let collection = path.split('?').next().unwrap();
        let separator = if path.contains('?') { '&' } else { '?' };
        let project = &self.account.project_id;
        let answer = self.client.get(&format!("/v2.0/{path}{separator}project_id={project}")).await.unwrap();
        answer[collection].as_array().unwrap().clone()
    }

    /// The id of a trunk.
    pub async fn trunk(&self, name: &str) -> String {
        self.list(&format!("trunks?name={name}")).await[0]["id"].as_str().unwrap().to_owned()
    }

    /// The VLAN with this number among those of the test.
    pub fn vlan(&self, item: usize) -> u16 {
        self.first_vlan + u16::try_from(item).unwrap()
    }

    /// Deletes a trunk, and makes another one with its name and parent port.
    pub async fn make_trunk_again(&self, name: &str) {
        let trunk = self.list(&format!("trunks?name={name}")).await[0].clone();
        let id = trunk["id"].as_str().unwrap();
        self.client.delete(&format!("/v2.0/trunks/{id}")).await.unwrap();
        self.post("trunk", json!({ "name": name, "port_id": trunk["port_id"] })).await;
    }

    /// A driver as a new process has it.
    pub fn driver(&self) -> NeutronDriver {
        self.driver_that_looks(Duration::from_mins(10))
    }

    /// A driver that looks for its trunks once per `interval`.
    pub fn driver_that_looks(&self, interval: Duration) -> NeutronDriver {
        NeutronDriver::new(Options {
            look_interval: interval,
            secrets: SecretSource::Directory(self.secrets.path().to_owned()),
            limits: Limits { connect: Duration::from_secs(2), request: REQUEST_LIMIT },
            audit_interval: Duration::from_mins(10),
        })
    }

    /// A desired state with VLANs of the test by port: items as a list such as `0-2`.
    pub fn desired(&self, ports: &[(&str, &[usize])]) -> FabricDesired {
        let texts: Vec<String> = ports
            .iter()
            .map(|(_, items)| {
                items.iter().map(|item| self.vlan(*item).to_string()).collect::<Vec<_>>().join(",")
            })
            .collect();
        let listed: Vec<(&str, &str)> =
            ports.iter().zip(&texts).map(|((name, _), vlans)| (*name, vlans.as_str())).collect();
        let mut desired = world::desired(&listed);
        desired.device = Device {
            credential: Some("vim".into()),
            neutron: desired.device.neutron.take(),
            ..Device::new(self.proxy.keystone())
        };
        // Each test is a cluster of its own, since all share one Neutron.
        desired.cluster = format!("c{}", self.first_vlan);
        desired
    }

    /// The VLANs of the test for which a port of ours is a sub-port of `trunk`.
    pub async fn placed(&self, trunk: &str) -> BTreeSet<u16> {
        let trunks = self.list(&format!("trunks?name={trunk}")).await;
        let ports = self.list("ports?fields=id&fields=name").await;
        let ours = |sub: &Value| {
            let vlan = u16::try_from(sub["segmentation_id"].as_u64()?).ok()?;
            let name = format!("eno-c{}-{vlan}", self.first_vlan);
            let port = ports.iter().find(|port| port["id"] == sub["port_id"])?;
            (port["name"] == name).then_some(vlan)
        };
        trunks[0]["sub_ports"].as_array().unwrap().iter().filter_map(ours).collect()
    }

    /// Names and attributes of all that is not ours in the project, without what changes by itself.
    pub async fn foreign(&self) -> String {
        let prefix = format!("eno-c{}-", self.first_vlan);
        let mut all = Vec::new();
        let ports = self.list("ports").await;
        let is_ours =
            |resource: &Value| resource["name"].as_str().is_some_and(|name| name.starts_with(&prefix));
        let own_ports: BTreeSet<String> = ports
            .iter()
            .filter(|port| is_ours(port))
            .map(|port| port["id"].as_str().unwrap().to_owned())
            .collect();
        for mut resource in self.list("networks").await.into_iter().chain(ports) {
            if is_ours(&resource) {
                continue;
            }
            if let Some(details) = resource.get_mut("trunk_details") {
                details.take();
            }
            resource["revision_number"].take();
            resource["updated_at"].take();
            all.push(resource.to_string());
        }
        for trunk in self.list("trunks").await {
            let foreign = |sub: &&Value| !own_ports.contains(sub["port_id"].as_str().unwrap());
            let subs: Vec<&Value> = trunk["sub_ports"].as_array().unwrap().iter().filter(foreign).collect();
            all.push(format!("{} {} {subs:?}", trunk["name"], trunk["admin_state_up"]));
        }
        all.sort();
        all.join("\n")
    }
}

/// Uses the administrator's connections, in their runtime.
async fn on<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    server: &'static Server,
    action: impl FnOnce(&'static OpenStack) -> F,
) -> T {
    server.runtime.spawn(action(&server.openstack)).await.unwrap()
}

fn addresses(server: &Server) -> (&str, &str) {
    (server.openstack.auth_url().trim_end_matches("/v3"), server.openstack.network_url())
}

/// Makes a resource and returns its id.
pub async fn post(client: &OpenStackClient, kind: &str, attributes: Value) -> String {
    let made = client.post(&format!("/v2.0/{kind}s"), json!({ kind: attributes })).await.unwrap();
    made[kind]["id"].as_str().unwrap().to_owned()
}

/// Runs one reconcile.
pub async fn reconcile(driver: &NeutronDriver, desired: &FabricDesired) -> Reconciled {
    fabrics::reconcile(driver, TARGET, desired.clone()).await
}

/// The applied VLANs by port of a successful reconcile without rejections.
#[track_caller]
pub fn applied(reconciled: &Reconciled) -> BTreeMap<String, String> {
    assert!(reconciled.rejected.is_empty(), "{:?}", reconciled.rejected);
    fabrics::applied(reconciled)
}

/// A port of a desired state.
pub fn port_of<'a>(desired: &'a mut FabricDesired, name: &str) -> &'a mut FabricPort {
    desired.ports.iter_mut().find(|port| port.name == name).unwrap()
}
