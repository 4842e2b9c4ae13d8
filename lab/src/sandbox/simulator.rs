//! The simulated fabric, as a process of its own.

use std::io;
use std::process::Command;
use std::time::Duration;

use eno::programs;
use eno_simulator::SwitchInfo;
use tokio::fs;

use super::wait::Deadline;
use super::{Sandbox, SandboxError, nodes, wait};

/// The process's name.
pub(super) const NAME: &str = "simulator";
/// The file in the sandbox's directory with the endpoints of the switches.
pub(super) const FABRIC: &str = "fabric.json";
/// The simulator's directory within the sandbox's.
const FOLDER: &str = "simulator";
/// The simulator's file with the endpoints.
const OWN_FABRIC: &str = "simulator/fabric.json";
/// The simulator's topology file.
const TOPOLOGY: &str = "simulator/topology.json";
/// Interval of polls for the simulator's file.
const POLL: Duration = Duration::from_millis(10);

/// Starts the switches, waits until they listen, and writes `fabric.json`.
pub(super) async fn start(sandbox: &Sandbox, deadline: Deadline) -> Result<Vec<SwitchInfo>, SandboxError> {
    let dir = sandbox.dir();
    let folder = dir.join(FOLDER);
    fs::create_dir_all(&folder).await.map_err(SandboxError::file("making the directory", &folder))?;
    let path = dir.join(TOPOLOGY);
    let mut topology = sandbox.options.topology.clone();
    if sandbox.options.in_cluster.is_some() {
        // The drivers' pods don't reach the loopback interface of the host.
        for switch in &mut topology.switches {
            switch.listen.set_ip(sandbox.control_plane.address().into());
        }
    }
    let json = serde_json::to_vec_pretty(&topology)
        .map_err(|source| SandboxError::Json { path: path.clone(), source })?;
    fs::write(&path, json).await.map_err(SandboxError::file("writing", &path))?;
    // A file of an earlier run would be mistaken for the new one.
    let own_fabric = dir.join(OWN_FABRIC);
    match fs::remove_file(&own_fabric).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(SandboxError::file("removing", &own_fabric)(error));
        }
        _ => {}
    }
    spawn(sandbox).await?;
    deadline
        .wait("a simulator that listens", async {
            let mut tick = tokio::time::interval(POLL);
            loop {
                tick.tick().await;
                match fs::read(&own_fabric).await {
                    Ok(bytes) => {
                        let switches = serde_json::from_slice(&bytes)
                            .map_err(|source| SandboxError::Json { path: own_fabric.clone(), source })?;
                        let path = dir.join(FABRIC);
                        // The copy keeps the permissions, since it contains passwords.
                        fs::copy(&own_fabric, &path).await.map_err(SandboxError::file("writing", path))?;
                        return Ok(switches);
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(SandboxError::file("reading", &own_fabric)(error)),
                }
            }
        })
        .await
}

/// Waits until the data plane forwards as the switches are configured.
pub(super) async fn data_plane_ready(
    sandbox: &Sandbox,
    switches: &[SwitchInfo],
    deadline: Deadline,
) -> Result<(), SandboxError> {
    // All switches are behind one control API.
    let base = switches.iter().find_map(|switch| switch.control_url.split_once("/switches/"));
    let Some((base, _)) = base else { return Ok(()) };
    let ready = |answer: &str| {
        serde_json::from_str::<serde_json::Value>(answer).is_ok_and(|status| status["ready"] == true)
    };
    let url = format!("{base}/dataplane?ready=true");
    wait::http(&sandbox.http, "a fabric that forwards", &url, deadline, ready).await
}

/// Starts the process; its directory holds ports, keys and configurations.
pub(super) async fn spawn(sandbox: &Sandbox) -> Result<(), SandboxError> {
    let dir = sandbox.dir();
    let mut command = Command::new(programs::find_program("eno-lab")?);
    command.arg("simulator").arg("--topology").arg(dir.join(TOPOLOGY)).arg("--dir").arg(dir.join(FOLDER));
    if let Some(nodes) = sandbox.control_plane.nodes() {
        command.arg("--data-plane");
        for wire in nodes::wires(&sandbox.options.topology, nodes) {
            command.arg("--wire").arg(wire);
        }
    }
    Ok(sandbox.control_plane.supervisor().spawn(NAME, command).await?)
}
