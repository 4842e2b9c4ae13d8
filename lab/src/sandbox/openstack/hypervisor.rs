//! A bridge of Open vSwitch in the place of a cloud's hypervisors and their agents. It connects the NICs of VMs with the
//! gateway behind the physical network.
//!
//! The port of a VM's NIC carries untagged frames, which are those of the management network, and the VLANs of the
//! trunk's sub-ports. A sub-port counts when its network is the VLAN of the same ID on the physical network: the bridge
//! translates no VLAN IDs. Port security and security groups have no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use eno_control_plane::Nodes;
use eno_control_plane::node::Machine;
use eno_control_plane::openstack::{OpenStackClient, PHYSICAL_NETWORKS};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::{Cloud, GATEWAY, INTERFACE};
use crate::sandbox::SandboxError;
use crate::sandbox::options::Report;

/// The machine of the bridge.
pub(in crate::sandbox) const MACHINE: &str = "hypervisor";
const BRIDGE: &str = "cloud";
/// The bridge's port to the gateway.
const UPLINK: &str = "uplink";
/// The gateway's interface.
const GATEWAY_INTERFACE: &str = "eth1";
/// MTU of the interfaces on the bridge.
const MTU: &str = "9216";
/// Untagged frames, in a port's list of VLANs.
const UNTAGGED: u16 = 0;
/// No VLAN. It keeps a port's list from being empty, which would mean all VLANs.
const NO_VLAN: u16 = 4095;
/// Interval of reads of Neutron. The agents of a real cloud are told of changes by Neutron's messages.
const INTERVAL: Duration = Duration::from_millis(300);

/// The bridge with its cables.
#[derive(Debug)]
pub(in crate::sandbox) struct Hypervisor {
    machine: Machine,
    cables: Vec<Cable>,
    /// The trunk's name by the port of the VM's NIC.
    trunks: BTreeMap<String, String>,
    client: OpenStackClient,
    project: String,
    /// The VLANs that the bridge has; `None`: they are to be set again.
    applied: tokio::sync::Mutex<Option<Vlans>>,
}

/// A cable from a port of the bridge to an interface of a machine.
#[derive(Debug)]
struct Cable {
    port: String,
    to: Machine,
    interface: &'static str,
    mac_address: Option<String>,
}

/// VLANs by port of the bridge.
type Vlans = BTreeMap<String, BTreeSet<u16>>;

impl Hypervisor {
    /// Connects the machines and sets the bridge's VLANs.
    pub(in crate::sandbox) async fn start(nodes: &Nodes, cloud: &Cloud) -> Result<Arc<Self>, SandboxError> {
        let machine = |name: &str| {
            nodes.machine(name).cloned().ok_or_else(|| SandboxError::NoSuchChild(name.to_owned()))
        };
        let mut cables = vec![Cable {
            port: UPLINK.to_owned(),
            to: machine(GATEWAY)?,
            interface: GATEWAY_INTERFACE,
            mac_address: None,
        }];
        let mut trunks = BTreeMap::new();
        for (number, vm) in cloud.vms().iter().enumerate() {
            let port = format!("vm{}", number + 1);
            trunks.insert(port.clone(), vm.trunk());
            let mac_address = Some(vm.mac_address.clone());
            cables.push(Cable { port, to: machine(&vm.node)?, interface: INTERFACE, mac_address });
        }
        let hypervisor = Self {
            machine: machine(MACHINE)?,
            cables,
            trunks,
            client: cloud.server().client_for(cloud.account())?,
            project: cloud.account().project_id.clone(),
            applied: tokio::sync::Mutex::default(),
        };
        hypervisor.connect(None).await?;
        hypervisor.update().await?;
        Ok(Arc::new(hypervisor))
    }

    /// Makes the cables of a machine again that was restarted; `None`: all cables.
    pub(in crate::sandbox) async fn connect(&self, restarted: Option<&str>) -> Result<(), SandboxError> {
        let mut applied = self.applied.lock().await;
        let is_concerned =
            |cable: &&Cable| restarted.is_none_or(|name| name == MACHINE || name == cable.to.name());
        for cable in self.cables.iter().filter(is_concerned) {
            self.make(cable).await?;
        }
        *applied = None;
        Ok(())
    }

    async fn make(&self, cable: &Cable) -> Result<(), SandboxError> {
        let Cable { port, to, interface, mac_address } = cable;
        let mut remove = self.machine.command("ovs-vsctl");
        remove.args(["--timeout=10", "--if-exists", "del-port", port]);
        run(remove).await?;
        // The kernel removes the namespace of an ended machine later than its processes, and with it the former cable.
        let mut remove = self.ip();
        remove.args(["link", "del", "dev", port]);
        let _ = run(remove).await;
        let namespace = to.network_namespace();
        let mut add = self.ip();
        add.args(["link", "add", "name", port, "mtu", MTU, "type", "veth", "peer", "name", interface]);
        add.args(mac_address.iter().flat_map(|address| ["address", address]));
        add.arg("netns").arg(&namespace);
        run(add).await?;
        let mut up = self.ip();
        up.args(["link", "set", "dev", port, "up"]);
        run(up).await?;
        // Open vSwitch in user space computes no checksums, so the sender has to.
        let mut offload = to.command("ethtool");
        offload.args(["-K", interface, "tx", "off"]);
        run(offload).await?;
        let mut up = to.command("ip");
        up.args(["link", "set", "dev", interface, "up"]);
        run(up).await
    }

    /// The program `ip` in the bridge's network namespace, with paths and processes of this machine.
    fn ip(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.machine.network_namespace().display())).arg("ip");
        command
    }

    /// Lets the bridge follow Neutron; never returns.
    pub(in crate::sandbox) async fn follow(self: Arc<Self>, report: Report) {
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_error = String::new();
        loop {
            tick.tick().await;
            // Without an answer, the bridge stays as it is.
            let error = self.update().await.err().map(|error| error.to_string()).unwrap_or_default();
            if error != last_error && !error.is_empty() {
                report(&format!("the bridge of the VMs: {error}"));
            }
            last_error = error;
        }
    }

    /// Reads Neutron, and changes the bridge if it differs.
    async fn update(&self) -> Result<(), SandboxError> {
        let mut applied = self.applied.lock().await;
        let vlans = self.read().await?;
        if applied.as_ref() != Some(&vlans) {
            self.apply(&vlans).await?;
            *applied = Some(vlans);
        }
        Ok(())
    }

    async fn read(&self) -> Result<Vlans, SandboxError> {
        let physical_network = PHYSICAL_NETWORKS[0].0;
        let trunks =
            format!("trunks?project_id={}&fields=name&fields=admin_state_up&fields=sub_ports", self.project);
        let ports = "ports?fields=id&fields=admin_state_up&fields=network_id";
        let networks = format!(
            "networks?provider:network_type=vlan&provider:physical_network={physical_network}\
             &fields=id&fields=admin_state_up&fields=provider:segmentation_id"
        );
        let (trunks, ports, networks) =
            tokio::try_join!(self.list(&trunks), self.list(ports), self.list(&networks))?;
        Ok(vlans(&self.trunks, &trunks, &ports, &networks))
    }

    async fn list<T: DeserializeOwned>(&self, query: &str) -> Result<Vec<T>, SandboxError> {
        let collection = query.split('?').next().unwrap_or_default();
        let mut answer = self.client.get(&format!("/v2.0/{query}")).await?;
        let list = answer.get_mut(collection).map(Value::take).unwrap_or_default();
        let failed = |source| SandboxError::NeutronAnswer { collection: collection.to_owned(), source };
        serde_json::from_value(list).map_err(failed)
    }

    /// Sets the VLANs in one transaction, and waits until ovs-vswitchd has them.
    async fn apply(&self, vlans: &Vlans) -> Result<(), SandboxError> {
        let mut command = self.machine.command("ovs-vsctl");
        command.args(["--timeout=10", "--may-exist", "add-br", BRIDGE]);
        // The datapath in user space needs no kernel module and works on every machine.
        command.args(["--", "set", "Bridge", BRIDGE, "datapath_type=netdev"]);
        for (port, vlans) in vlans {
            let list = vlans.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            command.args(["--", "--may-exist", "add-port", BRIDGE, port]);
            command.args(["--", "set", "Port", port, "vlan_mode=trunk"]).arg(format!("trunks={list}"));
        }
        run(command).await
    }
}

/// A trunk of Neutron.
#[derive(Debug, Deserialize)]
struct Trunk {
    name: String,
    admin_state_up: bool,
    sub_ports: Vec<SubPort>,
}

#[derive(Debug, Deserialize)]
struct SubPort {
    port_id: String,
    segmentation_id: u16,
}

/// A port.
#[derive(Debug, Deserialize)]
struct Port {
    id: String,
    admin_state_up: bool,
    network_id: String,
}

/// A VLAN of the physical network.
#[derive(Debug, Deserialize)]
struct Network {
    id: String,
    admin_state_up: bool,
    #[serde(rename = "provider:segmentation_id")]
    segmentation_id: u16,
}

/// The VLANs of the bridge's ports. `trunk_of` has the trunk's name by the port of the VM's NIC.
fn vlans(
    trunk_of: &BTreeMap<String, String>,
    trunks: &[Trunk],
    ports: &[Port],
    networks: &[Network],
) -> Vlans {
    let networks: BTreeMap<&str, u16> = networks
        .iter()
        .filter(|network| network.admin_state_up)
        .map(|network| (network.id.as_str(), network.segmentation_id))
        .collect();
    let ports: BTreeMap<&str, u16> = ports
        .iter()
        .filter(|port| port.admin_state_up)
        .filter_map(|port| Some((port.id.as_str(), *networks.get(port.network_id.as_str())?)))
        .collect();
    let carries = |sub: &&SubPort| ports.get(sub.port_id.as_str()) == Some(&sub.segmentation_id);
    let of_trunk = |name: &String| {
        let named = trunks.iter().filter(|trunk| trunk.name == *name && trunk.admin_state_up);
        let sub_ports = named.flat_map(|trunk| &trunk.sub_ports).filter(carries);
        sub_ports.map(|sub| sub.segmentation_id).chain([UNTAGGED]).collect()
    };
    let of_uplink = networks.values().copied().chain([NO_VLAN]).collect();
    trunk_of
        .iter()
        .map(|(port, name)| (port.clone(), of_trunk(name)))
        .chain([(UPLINK.to_owned(), of_uplink)])
        .collect()
}

async fn run(command: Command) -> Result<(), SandboxError> {
    let what = format!("{command:?}");
    let mut command = tokio::process::Command::from(command);
    let output = command.stdin(std::process::Stdio::null()).kill_on_drop(true).output().await;
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(SandboxError::Exec { what, why })
        }
        Err(error) => Err(SandboxError::Exec { what, why: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_carry_sub_ports_whose_network_is_their_vlan() {
        let sub_ports = json!([
            { "port_id": "p100", "segmentation_id": 100 },
            { "port_id": "translated", "segmentation_id": 101 },
            { "port_id": "tunnel", "segmentation_id": 102 },
            { "port_id": "down", "segmentation_id": 103 },
        ]);
        let trunks = json!([
            { "name": "a-trunk", "admin_state_up": true, "sub_ports": sub_ports },
            { "name": "b-trunk", "admin_state_up": false, "sub_ports": sub_ports },
        ]);
        let port = |id: &str, network: &str, up: bool| json!({ "id": id, "network_id": network, "admin_state_up": up });
        let ports = json!([
            port("p100", "n100", true),
            port("translated", "n100", true),
            port("tunnel", "other", true),
            port("down", "n103", false),
        ]);
        let network = |id: &str, vlan: u16| json!({ "id": id, "admin_state_up": true, "provider:segmentation_id": vlan });
        let networks = json!([network("n100", 100), network("n103", 103)]);
        let trunk_of = ["a", "b", "c"].map(|vm| (vm.to_owned(), format!("{vm}-trunk"))).into();
        let found = vlans(
            &trunk_of,
            &serde_json::from_value::<Vec<_>>(trunks).expect("trunks"),
            &serde_json::from_value::<Vec<_>>(ports).expect("ports"),
            &serde_json::from_value::<Vec<_>>(networks).expect("networks"),
        );
        let expected = [("a", vec![0, 100]), ("b", vec![0]), ("c", vec![0]), (UPLINK, vec![100, 103, 4095])];
        let expected = expected.map(|(port, vlans)| (port.to_owned(), vlans.into_iter().collect()));
        assert_eq!(found, expected.into());
    }
}
