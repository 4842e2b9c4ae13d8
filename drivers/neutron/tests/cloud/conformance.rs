//! The conformance suite.

use std::collections::BTreeSet;

use eno_conformance::DriverFixture;
use eno_driver_neutron::driver::NeutronDriver;
use eno_schemas::{Desired, Item, VlanId};
use serde_json::{Value, json};

use crate::cloud::fixture::{Cloud, PHYSICAL, Role, TARGET, post};

/// Item `n` is VLAN `n` of the test, on `t1`, which has a foreign sub-port, or on `t2`.
struct Project(Cloud);

impl Project {
    async fn new() -> Self {
        let cloud = Cloud::new(Role::Admin).await;
        let network = cloud.post("network", json!({ "name": "foreign" })).await;
        let port = cloud.post("port", json!({ "name": "foreign", "network_id": network })).await;
        let trunk = cloud.trunk("t1").await;
        let sub_port = json!({ "port_id": port, "segmentation_type": "vlan", "segmentation_id": 4000 });
        let body = json!({ "sub_ports": [sub_port] });
        cloud.client.put(&format!("/v2.0/trunks/{trunk}/add_subports"), body).await.unwrap();
        Self(cloud)
    }

    fn trunk(item: usize) -> &'static str {
        if item.is_multiple_of(2) { "t1" } else { "t2" }
    }

    fn name(&self, item: usize) -> String {
        format!("eno-c{}-{}", self.0.first_vlan, self.0.vlan(item))
    }

    async fn named(&self, collection: &str, name: &str) -> Option<Value> {
        self.0.list(&format!("{collection}?name={name}")).await.into_iter().next()
    }
}

impl DriverFixture for Project {
    type Driver = NeutronDriver;

    fn item_count(&self) -> usize {
        5
    }

    fn driver(&self) -> NeutronDriver {
        self.0.driver()
    }

    fn target(&self) -> String {
        TARGET.into()
    }

    fn desired(&self, items: &BTreeSet<usize>) -> Desired {
        let on = |trunk: &str| -> Vec<usize> {
            items.iter().copied().filter(|item| Self::trunk(*item) == trunk).collect()
        };
        let all: Vec<usize> = items.iter().copied().collect();
        Desired::Fabric(self.0.desired(&[("t1", &on("t1")), ("t2", &on("t2")), (PHYSICAL, &all)]))
    }

    async fn items(&self) -> BTreeSet<usize> {
        let (t1, t2) = (self.0.placed("t1").await, self.0.placed("t2").await);
        let networks = self.0.list("networks?fields=name").await;
        let there = |item: &usize| {
            let placed = if Self::trunk(*item) == "t1" { &t1 } else { &t2 };
            placed.contains(&self.0.vlan(*item))
                && networks.iter().any(|network| network["name"] == self.name(*item))
        };
        (0..self.item_count()).filter(there).collect()
    }

    async fn foreign(&self) -> String {
        self.0.foreign().await
    }

    async fn writes(&self) -> u64 {
        self.0.proxy.writes()
    }

    async fn set_reachable(&self, reachable: bool) {
        self.0.proxy.set_reachable(reachable).await;
    }

    /// Refused because a network of another project has the VLAN.
    async fn set_refused(&self, item: Option<usize>) {
        let admin = self.0.admin();
        let name = format!("refusing-{}", self.0.first_vlan);
        if let Some(item) = item {
            let vlan = json!({
                "name": name,
                "provider:network_type": "vlan",
                "provider:physical_network": PHYSICAL,
                "provider:segmentation_id": self.0.vlan(item),
            });
            post(&admin, "network", vlan).await;
        } else {
            let found = admin.get(&format!("/v2.0/networks?name={name}")).await.unwrap();
            let id = found["networks"][0]["id"].as_str().unwrap();
            admin.delete(&format!("/v2.0/networks/{id}")).await.unwrap();
        }
    }

    async fn edit(&self, item: usize, present: bool) {
        let (client, name) = (&self.0.client, self.name(item));
        let trunk = self.0.trunk(Self::trunk(item)).await;
        if present {
            let description = format!("ENO cluster c{}, FabricDevice {TARGET}", self.0.first_vlan);
            let network = json!({
                "name": name,
                "description": description,
                "port_security_enabled": false,
                // As that of the network of the trunk's parent port.
                "mtu": 1450,
                "provider:network_type": "vlan",
                "provider:physical_network": PHYSICAL,
                "provider:segmentation_id": self.0.vlan(item),
            });
            let network = self.0.post("network", network).await;
            let port = json!({ "name": name, "description": description, "network_id": network });
            let port = self.0.post("port", port).await;
            let sub_port = json!({
                "port_id": port, "segmentation_type": "vlan", "segmentation_id": self.0.vlan(item),
            });
            let body = json!({ "sub_ports": [sub_port] });
            client.put(&format!("/v2.0/trunks/{trunk}/add_subports"), body).await.unwrap();
        } else {
            let port = self.named("ports", &name).await.unwrap()["id"].clone();
            let body = json!({ "sub_ports": [{ "port_id": port }] });
            client.put(&format!("/v2.0/trunks/{trunk}/remove_subports"), body).await.unwrap();
            client.delete(&format!("/v2.0/ports/{}", port.as_str().unwrap())).await.unwrap();
            let network = self.named("networks", &name).await.unwrap()["id"].clone();
            client.delete(&format!("/v2.0/networks/{}", network.as_str().unwrap())).await.unwrap();
        }
    }

    fn names(&self, item: usize, found: &Item) -> bool {
        found.vlan.map(VlanId::get) == Some(self.0.vlan(item))
    }
}

eno_conformance::conformance_tests!(Project::new().await);
