//! What a simulated switch says of itself on its control API.

use std::collections::BTreeMap;

use eno_simulator::{Boot, Fault, HandEdit, PortView, SwitchInfo, View, VlanView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A switch's running state.
#[derive(Debug, Clone)]
pub struct Running {
    /// Counts up with every change.
    pub version: u64,
    /// Its VLANs and ports.
    pub view: View,
}

/// The same as it is written. (A flattened map can't have numbers for keys.)
#[derive(Deserialize)]
struct Written {
    version: u64,
    vlans: BTreeMap<u16, VlanView>,
    ports: BTreeMap<String, PortView>,
}

impl From<Written> for Running {
    fn from(Written { version, vlans, ports }: Written) -> Self {
        Self { version, view: View { vlans, ports } }
    }
}

/// What a switch has counted since it was started.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Commits of a candidate and edits of running; not those that only confirm.
    pub transactions: u64,
}

/// Its running state now.
pub async fn running(http: &reqwest::Client, switch: &SwitchInfo) -> Result<Running, reqwest::Error> {
    Ok(get::<Written>(http, format!("{}/running", switch.control_url)).await?.into())
}

/// Its running state once it is newer than a version, or after half a minute.
pub async fn running_since(
    http: &reqwest::Client,
    switch: &SwitchInfo,
    version: u64,
) -> Result<Running, reqwest::Error> {
    Ok(get::<Written>(http, format!("{}/running?since={version}", switch.control_url)).await?.into())
}

/// What it has counted.
pub async fn stats(http: &reqwest::Client, switch: &SwitchInfo) -> Result<Stats, reqwest::Error> {
    get(http, format!("{}/stats", switch.control_url)).await
}

/// Makes it misbehave, or ends that.
pub async fn inject(
    http: &reqwest::Client,
    switch: &SwitchInfo,
    fault: &Fault,
) -> Result<(), reqwest::Error> {
    post(http, format!("{}/faults", switch.control_url), fault).await
}

/// Changes it as somebody at its console would.
pub async fn by_hand(
    http: &reqwest::Client,
    switch: &SwitchInfo,
    edit: &HandEdit,
) -> Result<(), reqwest::Error> {
    post(http, format!("{}/edit", switch.control_url), edit).await
}

/// Has it come up anew.
pub async fn reboot(http: &reqwest::Client, switch: &SwitchInfo, boot: Boot) -> Result<(), reqwest::Error> {
    let load = match boot {
        Boot::Saved => "saved",
        Boot::Factory => "factory",
    };
    post(http, format!("{}/reboot", switch.control_url), &serde_json::json!({ "load": load })).await
}

/// Waits until it has no VLAN that the operator made; it answers when something changes.
pub async fn until_without_our_vlans(
    http: &reqwest::Client,
    switch: &SwitchInfo,
) -> Result<(), reqwest::Error> {
    let ours = |view: &View| {
        view.vlans.values().any(|vlan| vlan.name.as_deref().is_some_and(|name| name.starts_with("eno-")))
    };
    let mut now = running(http, switch).await?;
    while ours(&now.view) {
        now = running_since(http, switch, now.version).await?;
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
    fn running_is_read_as_the_simulator_writes_it() {
        let text = r#"{"version": 7, "vlans": {"100": {"name": "eno-x-100", "status": "ACTIVE"}}, "ports": {"Ethernet1":
            {"mode": "trunk", "vlans": "100", "configured": "100", "native": null, "access": null, "openTrunk": false,
            "lag": null}}}"#;
        let running: Running = serde_json::from_str::<Written>(text).expect("valid").into();
        assert!(running.view.ports["Ethernet1"].vlans.contains(100));
        assert_eq!(running.view.vlans[&100].name.as_deref(), Some("eno-x-100"));
    }
}
