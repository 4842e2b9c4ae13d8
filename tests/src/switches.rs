//! The state of the switches, read from their control API.

use std::collections::{BTreeMap, BTreeSet};

use eno_lab::switch::{self, Stats};
use eno_simulator::{HandEdit, PortView, SwitchInfo, View};
use serde_json::Value;
use tokio::time::timeout;

use crate::{System, TIMEOUT, VLAN_PREFIX, until};

/// Ports of switches: `("leaf1", "Ethernet1")`.
pub type Ports<'a> = BTreeSet<(&'a str, &'a str)>;

/// The ports on the paths between both leaves of a sandbox's fabric, over both spines.
pub fn between_leaves() -> Ports<'static> {
    let uplinks = ["leaf1", "leaf2"].map(|leaf| [(leaf, "Ethernet49"), (leaf, "Ethernet50")]);
    let downlinks = ["spine1", "spine2"].map(|spine| [(spine, "Ethernet1"), (spine, "Ethernet2")]);
    uplinks.into_iter().chain(downlinks).flatten().collect()
}

fn managed_vlans(view: &View) -> BTreeSet<u16> {
    let named = |name: &Option<String>| name.as_deref().is_some_and(|name| name.starts_with("eno-"));
    view.vlans.iter().filter(|(_, vlan)| named(&vlan.name)).map(|(vid, _)| *vid).collect()
}

impl System {
    fn info(&self, switch: &str) -> &SwitchInfo {
        self.sandbox.switch(switch).unwrap_or_else(|| panic!("there is no switch {switch}"))
    }

    /// The running configuration of a switch.
    pub async fn view(&self, switch: &str) -> View {
        switch::running(&self.http, self.info(switch)).await.expect("the control API of the simulator").view
    }

    /// Waits until `good` accepts a switch's running configuration.
    pub async fn until_view(&self, switch: &str, what: &str, mut good: impl FnMut(&View) -> bool) -> View {
        let info = self.info(switch);
        let mut now = switch::running(&self.http, info).await.expect("the control API of the simulator");
        let wait = async {
            while !good(&now.view) {
                let next = switch::wait_for_change(&self.http, info, now.version).await;
                now = next.expect("the control API of the simulator");
            }
        };
        if timeout(TIMEOUT, wait).await.is_err() {
            let ports: BTreeMap<_, _> =
                now.view.ports.iter().filter(|(_, port)| **port != PortView::default()).collect();
            panic!("{switch}: {what}: not seen; it has {:?} on {ports:#?}", now.view.vlans);
        }
        now.view
    }

    /// The ports of all switches on which a VLAN is listed or carried.
    pub async fn ports_of(&self, vid: u16) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for info in self.sandbox.switches() {
            let view = self.view(&info.name).await;
            let carries = |port: &PortView| port.vlans.contains(vid) || port.configured.contains(vid);
            let ports = view.ports.iter().filter(|(_, port)| carries(port));
            found.extend(ports.map(|(port, _)| (info.name.clone(), port.clone())));
        }
        found
    }

    /// Panics unless exactly these ports carry a VLAN and the operator defined it on exactly their switches.
    pub async fn assert_vlan_on(&self, vid: u16, wanted: &Ports<'_>) {
        let found = self.ports_of(vid).await;
        let found: Ports<'_> = found.iter().map(|(switch, port)| (&**switch, &**port)).collect();
        assert_eq!(&found, wanted, "the ports of VLAN {vid}");
        for info in self.sandbox.switches() {
            let view = self.view(&info.name).await;
            let expected_here = wanted.iter().any(|(switch, _)| *switch == info.name);
            assert_eq!(view.vlans.contains_key(&vid), expected_here, "VLAN {vid} defined on {}", info.name);
            if let Some(vlan) = view.vlans.get(&vid) {
                assert_eq!(vlan.name, Some(format!("{VLAN_PREFIX}{vid}")), "its name on {}", info.name);
            }
            for (name, port) in &view.ports {
                let listed = port.configured.contains(vid);
                assert_eq!(port.vlans.contains(vid), listed, "VLAN {vid} on {} {name}", info.name);
            }
        }
    }

    /// Waits until no switch has any of these VLANs under the operator's names.
    pub async fn until_without(&self, vids: impl IntoIterator<Item = u16>) {
        let vids: BTreeSet<u16> = vids.into_iter().collect();
        for info in self.sandbox.switches() {
            let what = format!("none of the VLANs {vids:?}");
            let view =
                self.until_view(&info.name, &what, |view| managed_vlans(view).is_disjoint(&vids)).await;
            for (name, port) in &view.ports {
                let listed = vids.iter().find(|vid| port.configured.contains(**vid));
                assert_eq!(listed, None, "a VLAN is still listed on {} {name}", info.name);
            }
        }
    }

    /// Deletes all documents of a YAML text, and waits until their VLANs are on no switch.
    pub async fn delete_with_vlans(&self, yaml: &str, vids: impl IntoIterator<Item = u16>) {
        self.delete(yaml).await;
        self.until_without(vids).await;
    }

    /// The number of transactions on a switch.
    pub async fn transactions(&self, switch: &str) -> u64 {
        self.switch_stats(switch).await.transactions
    }

    /// What a switch has counted.
    pub async fn switch_stats(&self, switch: &str) -> Stats {
        let stats = switch::stats(&self.http, self.info(switch)).await;
        stats.expect("the control API of the simulator")
    }

    /// Whether a switch has a pending confirmed commit.
    pub async fn is_pending(&self, switch: &str) -> bool {
        let answer = self.http.get(&self.info(switch).control_url).send().await;
        let answer = answer.expect("the control API of the simulator").json::<Value>().await;
        answer.expect("JSON")["pendingConfirmation"] == Value::Bool(true)
    }

    /// Waits until a switch has no pending confirmed commit.
    pub async fn until_confirmed(&self, switch: &str) {
        until(&format!("a confirmation on {switch}"), async || !self.is_pending(switch).await).await;
    }

    /// Changes a switch like an administrator at its console.
    pub async fn edit_manually(&self, switch: &str, edit: &HandEdit) {
        self.post(switch, "edit", &serde_json::to_value(edit).expect("JSON")).await;
    }

    /// Merges XML into the configuration of a switch like an administrator at its console.
    pub async fn edit_by_xml(&self, switch: &str, xml: &str) {
        let url = format!("{}/edit", self.info(switch).control_url);
        let answer = self.http.post(url).body(xml.to_owned()).send().await;
        accepted(switch, "edit", answer.expect("the control API of the simulator")).await;
    }

    /// Sets a fault of a switch, in the format of the control API's `faults`.
    pub async fn fault(&self, switch: &str, fault: Value) {
        self.post(switch, "faults", &fault).await;
    }

    /// Ends all faults of a switch.
    pub async fn clear_faults(&self, switch: &str) {
        let url = format!("{}/faults", self.info(switch).control_url);
        let answer = self.http.delete(url).send().await.expect("the control API of the simulator");
        assert!(answer.status().is_success(), "{switch}: {}", answer.status());
    }

    async fn post(&self, switch: &str, what: &str, body: &Value) {
        let url = format!("{}/{what}", self.info(switch).control_url);
        let answer = self.http.post(url).json(body).send().await.expect("the control API of the simulator");
        accepted(switch, what, answer).await;
    }
}

/// Panics unless the simulator carried a request out.
async fn accepted(switch: &str, what: &str, answer: reqwest::Response) {
    let status = answer.status();
    assert!(status.is_success(), "{switch}: {what}: {status}: {}", answer.text().await.unwrap_or_default());
}
