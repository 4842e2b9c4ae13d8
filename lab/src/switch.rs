//! The control API of simulated switches.

use std::collections::BTreeMap;

use eno_simulator::{BgpView, Boot, Fault, HandEdit, PortView, SwitchInfo, View, VlanView, VrfView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A switch's running state.
#[derive(Debug, Clone)]
pub struct Running {
    /// Counts up with every change.
    pub version: u64,
    /// Its VLANs, ports and VRFs.
    pub view: View,
}

/// The JSON form of [`Running`]. (serde can't flatten a map with integer keys.)
#[derive(Deserialize)]
struct Written {
    version: u64,
    vlans: BTreeMap<u16, VlanView>,
    ports: BTreeMap<String, PortView>,
    #[serde(default)]
    vrfs: BTreeMap<String, VrfView>,
    #[serde(default)]
    bgp: BTreeMap<String, BgpView>,
}

impl From<Written> for Running {
    fn from(Written { version, vlans, ports, vrfs, bgp }: Written) -> Self {
        Self { version, view: View { vlans, ports, vrfs, bgp } }
    }
}

/// Counters of a switch since its start.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Commits of a candidate and edits of running; confirming commits are not counted.
    pub transactions: u64,
    /// NETCONF sessions opened.
    pub sessions_opened: u64,
    /// Failed logins.
    pub auth_failures: u64,
}

/// Its running state now.
pub async fn running(http: &reqwest::Client, switch: &SwitchInfo) -> Result<Running, reqwest::Error> {
    Ok(get::<Written>(http, format!("{}/running", switch.control_url)).await?.into())
}

/// Waits for a running state newer than a version, for up to half a minute.
pub async fn wait_for_change(
    http: &reqwest::Client,
    switch: &SwitchInfo,
    version: u64,
) -> Result<Running, reqwest::Error> {
    Ok(get::<Written>(http, format!("{}/running?since={version}", switch.control_url)).await?.into())
}

/// Its counters.
pub async fn stats(http: &reqwest::Client, switch: &SwitchInfo) -> Result<Stats, reqwest::Error> {
    get(http, format!("{}/stats", switch.control_url)).await
}

/// Sets or clears a fault.
pub async fn inject(
    http: &reqwest::Client,
    switch: &SwitchInfo,
    fault: &Fault,
) -> Result<(), reqwest::Error> {
    post(http, format!("{}/faults", switch.control_url), fault).await
}

/// Changes it like an administrator at its console.
pub async fn edit_manually(
    http: &reqwest::Client,
    switch: &SwitchInfo,
    edit: &HandEdit,
) -> Result<(), reqwest::Error> {
    post(http, format!("{}/edit", switch.control_url), edit).await
}

/// Reboots it.
pub async fn reboot(http: &reqwest::Client, switch: &SwitchInfo, boot: Boot) -> Result<(), reqwest::Error> {
    let load = match boot {
        Boot::Saved => "saved",
        Boot::Factory => "factory",
    };
    post(http, format!("{}/reboot", switch.control_url), &serde_json::json!({ "load": load })).await
}

/// Waits until it has no VLAN of the operator, by long polling.
pub async fn until_without_managed_vlans(
    http: &reqwest::Client,
    switch: &SwitchInfo,
) -> Result<(), reqwest::Error> {
    let has_managed = |view: &View| {
        view.vlans.values().any(|vlan| vlan.name.as_deref().is_some_and(|name| name.starts_with("eno-")))
    };
    let mut now = running(http, switch).await?;
    while has_managed(&now.view) {
        now = wait_for_change(http, switch, now.version).await?;
    }
    Ok(())
}

async fn get<T: DeserializeOwned>(http: &reqwest::Client, url: String) -> Result<T, reqwest::Error> {
    http.get(url).send().await?.error_for_status()?.json().await
}

async fn post(http: &reqwest::Client, url: String, body: &impl Serialize) -> Result<(), reqwest::Error> {
    http.post(url).json(body).send().await?.error_for_status()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_config_of_the_simulator_is_parsed() {
        let text = r#"{"version": 7, "vlans": {"100": {"name": "eno-x-100", "status": "ACTIVE"}}, "ports": {"Ethernet1":
            {"mode": "trunk", "vlans": "100", "configured": "100", "native": null, "access": null, "openTrunk": false,
            "lag": null}}}"#;
        let running: Running = serde_json::from_str::<Written>(text).expect("valid").into();
        assert!(running.view.ports["Ethernet1"].vlans.contains(100));
        assert_eq!(running.view.vlans[&100].name.as_deref(), Some("eno-x-100"));
    }
}
