//! What Neutron has for VLANs, in sandboxes with OpenStack.

use std::collections::BTreeSet;

use eno_control_plane::openstack::PHYSICAL_NETWORKS;
use eno_lab::sandbox::Cloud;
use serde_json::{Value, json};

use crate::{System, VLAN_PREFIX};

/// The physical network of the sandbox's FabricDevice.
pub const PHYSICAL_NETWORK: &str = PHYSICAL_NETWORKS[0].0;

/// What Neutron has for a VLAN under the operator's names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placed {
    /// The number of networks of the VLAN on the physical network.
    pub networks: usize,
    /// The number of ports on them.
    pub ports: usize,
    /// The trunks that have such a port as a sub-port with the VLAN as its segmentation id.
    pub trunks: BTreeSet<String>,
}

impl Placed {
    /// One network with a port for each of these trunks.
    pub fn on(trunks: &[&str]) -> Self {
        Self {
            networks: 1,
            ports: trunks.len(),
            trunks: trunks.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

impl System {
    /// Keystone and Neutron.
    pub fn cloud(&self) -> &Cloud {
        self.sandbox.cloud().expect("a sandbox with OpenStack")
    }

    /// A list of Neutron, which may have a query.
    pub async fn neutron(&self, path: &str) -> Vec<Value> {
        let collection = path.split('?').next().unwrap_or_default();
        let answer = self.cloud().client().get(&format!("/v2.0/{path}")).await.expect("Neutron");
        answer[collection].as_array().expect("a list").clone()
    }

    /// Creates a resource in the project with the trunks, and returns its id.
    pub async fn create_in_neutron(&self, kind: &str, attributes: Value) -> String {
        let created =
            self.cloud().client().post(&format!("/v2.0/{kind}s"), json!({ kind: attributes })).await;
        created.expect("Neutron")[kind]["id"].as_str().expect("an id").to_owned()
    }

    /// Deletes a resource of Neutron.
    pub async fn delete_in_neutron(&self, kind: &str, id: &str) {
        self.cloud().client().delete(&format!("/v2.0/{kind}s/{id}")).await.expect("Neutron");
    }

    /// The trunk with this name.
    pub async fn trunk(&self, name: &str) -> Value {
        let mut found = self.neutron(&format!("trunks?name={name}")).await;
        assert_eq!(found.len(), 1, "trunks with the name {name}");
        found.remove(0)
    }

    /// What Neutron has for a VLAN.
    pub async fn placed(&self, vid: u16) -> Placed {
        let name = format!("{VLAN_PREFIX}{vid}");
        let query = format!("provider:physical_network={PHYSICAL_NETWORK}&provider:segmentation_id={vid}");
        let networks = self.neutron(&format!("networks?name={name}&{query}")).await;
        let ports = self.neutron(&format!("ports?name={name}")).await;
        let is_on = |port: &&Value| networks.iter().any(|network| network["id"] == port["network_id"]);
        let ports: Vec<&Value> = ports.iter().filter(is_on).collect();
        let trunks = self.neutron("trunks").await;
        let has_vlan = |trunk: &&Value| {
            trunk["sub_ports"].as_array().into_iter().flatten().any(|sub| {
                sub["segmentation_id"] == vid && ports.iter().any(|port| port["id"] == sub["port_id"])
            })
        };
        let trunks = trunks.iter().filter(has_vlan).filter_map(|trunk| trunk["name"].as_str());
        Placed { networks: networks.len(), ports: ports.len(), trunks: trunks.map(str::to_owned).collect() }
    }

    /// Panics if Neutron has a network, port or sub-port of the operator.
    pub async fn assert_neutron_is_clean(&self) {
        for kind in ["networks", "ports"] {
            let names: Vec<Value> =
                self.neutron(kind).await.into_iter().map(|mut one| one["name"].take()).collect();
            let left: Vec<&Value> = names
                .iter()
                .filter(|name| name.as_str().is_some_and(|name| name.starts_with("eno-")))
                .collect();
            assert!(left.is_empty(), "{kind}: {left:?}");
        }
        for trunk in self.neutron("trunks").await {
            assert_eq!(trunk["sub_ports"], json!([]), "{trunk}");
        }
    }
}
