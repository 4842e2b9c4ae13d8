//! What a simulated switch says of itself on its control API.

use eno_simulator::{SwitchInfo, View};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A switch's running state.
#[derive(Debug, Clone, Deserialize)]
pub struct Running {
    /// Counts up with every change.
    pub version: u64,
    /// Its VLANs and ports.
    #[serde(flatten)]
    pub view: View,
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
    get(http, format!("{}/running", switch.control_url)).await
}

/// Its running state once it is newer than a version, or after half a minute.
pub async fn running_since(
    http: &reqwest::Client,
    switch: &SwitchInfo,
    version: u64,
) -> Result<Running, reqwest::Error> {
    get(http, format!("{}/running?since={version}", switch.control_url)).await
}

/// What it has counted.
pub async fn stats(http: &reqwest::Client, switch: &SwitchInfo) -> Result<Stats, reqwest::Error> {
    get(http, format!("{}/stats", switch.control_url)).await
}

async fn get<T: DeserializeOwned>(http: &reqwest::Client, url: String) -> Result<T, reqwest::Error> {
    http.get(url).send().await?.error_for_status()?.json().await
}
