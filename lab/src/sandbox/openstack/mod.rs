//! Keystone and Neutron with trunks for the NICs of VMs: the VMs are the sandbox's nodes that run pods, or Node objects
//! without a machine.
//!
//! The state is in the sandbox's directory. A start with an existing directory uses what is there, and creates what is
//! missing.

mod hypervisor;

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use eno_control_plane::Exited;
use eno_control_plane::openstack::{
    Account, OpenStack, OpenStackClient, OpenStackOptions, PHYSICAL_NETWORKS, REGION,
};
use eno_nbi_crds::{FabricDevice, FabricDeviceSpec, FabricPort, Neutron, PhysicalNetwork};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{SandboxError, SandboxOptions, fabric};
use eno::apply::{ApplyError, dynamic};

pub(super) use hypervisor::{Hypervisor, MACHINE as HYPERVISOR};

/// The name of the FabricDevice and of its Secret.
pub(super) const DEVICE: &str = "openstack";
/// The PhysicalNetwork behind Neutron's physical network. With nodes, it is also the machine of its gateway.
pub(super) const GATEWAY: &str = "cloud-gw";
/// The value of the label [`POOL`](super::POOL) of VMs without a machine.
pub(super) const VM_POOL: &str = "vm-workers";
/// The project with the trunks, and its user.
const PROJECT: &str = "workers";
/// The role of that user. By Neutron's default policy, no other one may set provider attributes.
const ROLE: &str = "admin";
/// The network of the trunks' parent ports.
const MANAGEMENT_NETWORK: &str = "management";
/// The VMs of a sandbox without nodes that run pods.
const VMS: [&str; 2] = ["vm1", "vm2"];
/// The NIC of each VM.
const INTERFACE: &str = "eth1";
/// The directory within the sandbox's.
const FOLDER: &str = "openstack";
/// The file in the sandbox's directory with the variables `OS_*`.
const OPENRC: &str = "openrc";

/// A running Keystone and Neutron, with a project whose trunks are the NICs of VMs.
#[derive(Debug)]
pub struct Cloud {
    server: OpenStack,
    account: Account,
    client: OpenStackClient,
    vms: Vec<Vm>,
    openrc: PathBuf,
}

/// A VM, whose NIC is the parent port of a trunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// The name of the VM and of its Node.
    pub node: String,
    /// The MAC address of the NIC, which is that of the parent port.
    pub mac_address: String,
}

impl Vm {
    /// The name of the trunk.
    pub fn trunk(&self) -> String {
        trunk_name(&self.node)
    }
}

fn trunk_name(node: &str) -> String {
    format!("{node}-trunk")
}

/// The names of the VMs that are only Node objects.
pub(super) fn nodes_without_machine(options: &SandboxOptions) -> &'static [&'static str] {
    if options.openstack && options.nodes == 0 { &VMS } else { &[] }
}

/// Takes the NICs of nodes that run pods off the simulated fabric: they are VMs.
pub(super) fn adapt(options: &mut SandboxOptions) -> Result<(), SandboxError> {
    if !options.openstack {
        return Ok(());
    }
    if options.in_cluster.is_some() {
        return Err(SandboxError::OpenStackInCluster);
    }
    if options.nodes > 0 {
        options.topology.nodes.iter_mut().for_each(|node| node.interfaces.clear());
    }
    Ok(())
}

impl Cloud {
    /// Starts the servers, and creates the project, its user, the management network, and a trunk for each VM.
    pub(super) async fn start(options: &SandboxOptions) -> Result<Self, SandboxError> {
        let dir = options.dir.join(FOLDER);
        let server = Box::pin(OpenStack::start(OpenStackOptions::new(dir, options.parts.clone()))).await?;
        let account = server.create_project(PROJECT).await?;
        server.grant_role(&account, ROLE).await?;
        let client = server.client_for(&account)?;
        let openrc = options.dir.join(OPENRC);
        write_openrc(&openrc, server.auth_url(), &account)?;
        let mut cloud = Self { server, account, client, vms: Vec::new(), openrc };
        let names: Vec<String> = match options.nodes {
            0 => VMS.map(str::to_owned).to_vec(),
            count => options.topology.nodes.iter().take(count).map(|node| node.name.clone()).collect(),
        };
        let network = cloud.ensure("network", json!({ "name": MANAGEMENT_NETWORK })).await?;
        for node in names {
            let vm = cloud.ensure_trunk(node, &network["id"]).await?;
            cloud.vms.push(vm);
        }
        Ok(cloud)
    }

    /// Creates the trunk of a VM if it is absent.
    async fn ensure_trunk(&self, node: String, network: &Value) -> Result<Vm, SandboxError> {
        let nic = json!({ "name": format!("{node}-nic"), "network_id": network });
        let nic = self.ensure("port", nic).await?;
        self.ensure("trunk", json!({ "name": trunk_name(&node), "port_id": nic["id"] })).await?;
        let mac_address = nic["mac_address"].as_str().unwrap_or_default().to_owned();
        Ok(Vm { node, mac_address })
    }

    /// The resource of the project with the name in these attributes, which is created if absent.
    async fn ensure(&self, kind: &str, attributes: Value) -> Result<Value, SandboxError> {
        let (name, project) = (attributes["name"].as_str().unwrap_or_default(), &self.account.project_id);
        let mut found = self.client.get(&format!("/v2.0/{kind}s?name={name}&project_id={project}")).await?;
        if let Some(first) = found.pointer_mut(&format!("/{kind}s/0")) {
            return Ok(first.take());
        }
        let mut created = self.client.post(&format!("/v2.0/{kind}s"), json!({ kind: attributes })).await?;
        Ok(created[kind].take())
    }

    /// Keystone and Neutron.
    pub fn server(&self) -> &OpenStack {
        &self.server
    }

    /// The user whose credentials the driver has.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// A client with the rights of that user.
    pub fn client(&self) -> &OpenStackClient {
        &self.client
    }

    /// The VMs.
    pub fn vms(&self) -> &[Vm] {
        &self.vms
    }

    /// The file with the variables `OS_*` of that user.
    pub fn openrc(&self) -> &Path {
        &self.openrc
    }

    /// Starts a server again that exited; `None`: no server has this name.
    pub(super) async fn respawn(&self, exited: &Exited) -> Option<Result<(), SandboxError>> {
        if !OpenStack::SERVERS.contains(&exited.name.as_str()) {
            return None;
        }
        Some(self.server.supervisor().respawn(&exited.name).await.map_err(SandboxError::from))
    }

    pub(super) async fn stop(self) {
        self.server.stop().await;
    }

    /// The Secret with the credentials, and the PhysicalNetwork.
    pub(super) fn objects(&self) -> Result<Vec<DynamicObject>, ApplyError> {
        let network = PhysicalNetwork::new(GATEWAY, fabric::physical_network());
        Ok(vec![dynamic(&self.secret())?, dynamic(&network)?])
    }

    fn secret(&self) -> Secret {
        let Account { user, password, user_domain, project, project_domain, .. } = &self.account;
        fabric::opaque_secret(
            DEVICE,
            [
                ("username", user.as_str()),
                ("password", password),
                ("user_domain_name", user_domain),
                ("project_name", project),
                ("project_domain_name", project_domain),
                ("region_name", REGION),
            ],
        )
    }

    /// The FabricDevice: its ports are the trunks and the physical network.
    pub(super) fn device(&self) -> FabricDevice {
        let (physical_network, _) = PHYSICAL_NETWORKS[0];
        let trunk = |vm: &Vm| FabricPort {
            name: vm.trunk(),
            node: Some(vm.node.clone()),
            interface: Some(INTERFACE.to_owned()),
            ..FabricPort::default()
        };
        let uplink = FabricPort {
            name: physical_network.to_owned(),
            physical_nw: Some(GATEWAY.to_owned()),
            ..FabricPort::default()
        };
        let neutron = Neutron { physical_network: Some(physical_network.to_owned()), ..Neutron::default() };
        let ports = self.vms.iter().map(trunk).chain([uplink]).collect();
        let spec = fabric::device_spec("neutron", self.server.auth_url(), DEVICE, ports);
        FabricDevice::new(DEVICE, FabricDeviceSpec { neutron: Some(neutron), ..spec })
    }
}

/// Writes the variables with which the clients of OpenStack log in. Only the owner may read the file.
fn write_openrc(path: &Path, auth_url: &str, account: &Account) -> Result<(), SandboxError> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written =
        options.open(path).and_then(|mut file| file.write_all(openrc(auth_url, account).as_bytes()));
    written.map_err(SandboxError::file("writing", path))
}

fn openrc(auth_url: &str, account: &Account) -> String {
    let Account { user, password, user_domain, project, project_domain, .. } = account;
    let variables = [
        ("AUTH_URL", auth_url),
        ("IDENTITY_API_VERSION", "3"),
        ("USERNAME", user),
        ("PASSWORD", password),
        ("USER_DOMAIN_NAME", user_domain),
        ("PROJECT_NAME", project),
        ("PROJECT_DOMAIN_NAME", project_domain),
        ("REGION_NAME", REGION),
    ];
    let export = |text: String, (name, value): &(&str, &str)| text + "export OS_" + name + "=" + value + "\n";
    variables.iter().fold(String::new(), export)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openrc_has_the_login() {
        let account = Account {
            user: "workers".to_owned(),
            user_id: "1".to_owned(),
            password: "secret".to_owned(),
            user_domain: "Default".to_owned(),
            project: "workers".to_owned(),
            project_id: "2".to_owned(),
            project_domain: "Default".to_owned(),
        };
        let text = openrc("http://127.0.0.1:5000/v3", &account);
        assert!(text.starts_with("export OS_AUTH_URL=http://127.0.0.1:5000/v3\n"), "{text}");
        assert!(text.contains("\nexport OS_USERNAME=workers\nexport OS_PASSWORD=secret\n"), "{text}");
    }
}
