//! The interfaces between the bridges and to the outside: veth(4) pairs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::dataplane::DataPlaneError;
use crate::dataplane::lab::Lab;
use crate::dataplane::plan::{Bridge, LeadsTo, Plan, Port};

/// The size of the packets that switches take. The outside decides on its own end, which has the kernel's default.
const MTU: &str = "9216";

/// The link group of all interfaces of the data plane, in its own namespace.
const GROUP: &str = "1";

/// How long a name may be taken: the kernel takes its time to clean up after a simulator that was killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes all interfaces: those of the switches down, the others up and in their namespaces.
pub(super) async fn lay(lab: &Lab, plan: &Plan) -> Result<(), DataPlaneError> {
    for (bridge, port) in plan.ports() {
        match &port.leads_to {
            // Each pair once.
            LeadsTo::Port { interface, .. } if port.interface < *interface => {
                let peer = ["peer", "name", interface, "mtu", MTU];
                lab.run("ip", &[&pair(&port.interface)[..], &peer].concat()).await?;
            }
            LeadsTo::Port { .. } => {}
            LeadsTo::Outside { netns, interface } => {
                let address = address(bridge, port);
                hand_over(lab, &port.interface, netns.as_deref(), interface, &address).await?;
            }
        }
    }
    for (bridge, port) in plan.ports() {
        let alias = format!("{} {}", bridge.switch, port.name);
        let mut args = vec!["link", "set", "dev", &port.interface, "group", GROUP, "alias", &alias];
        // Switches' interfaces have no addresses, and say nothing of their own.
        if Path::new("/proc/sys/net/ipv6").exists() {
            args.extend(["addrgenmode", "none"]);
        }
        lab.run("ip", &args).await?;
    }
    Ok(())
}

fn pair(interface: &str) -> [&str; 8] {
    ["link", "add", "name", interface, "mtu", MTU, "type", "veth"]
}

/// The hardware address of the interface that is plugged into a port: the same whenever the fabric is started.
fn address(bridge: &Bridge, port: &Port) -> String {
    let [a, b] = u16::try_from(bridge.number).unwrap_or(u16::MAX).to_be_bytes();
    let [c, d] = u16::try_from(port.number).unwrap_or(u16::MAX).to_be_bytes();
    format!("02:e1:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Makes a pair with its other end in a namespace outside.
async fn hand_over(
    lab: &Lab,
    own: &str,
    netns: Option<&Path>,
    interface: &str,
    address: &str,
) -> Result<(), DataPlaneError> {
    let netns = match netns {
        None => PathBuf::from(format!("/proc/{}/ns/net", std::process::id())),
        // Programs take a name without a directory for something else.
        Some(path) => std::path::absolute(path)
            .map_err(|source| DataPlaneError::State { path: path.to_owned(), source })?,
    };
    let netns = netns.to_string_lossy();
    let peer = ["peer", "name", interface, "address", address, "netns", &netns];
    let add = [&pair(own)[..], &peer].concat();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match lab.run("ip", &add).await {
            Err(DataPlaneError::Failed { errors, .. })
                if errors.contains("File exists") && Instant::now() < deadline =>
            {
                sleep(Duration::from_millis(50)).await;
            }
            result => {
                result?;
                break;
            }
        }
    }
    let there = format!("--net={netns}");
    // Open vSwitch in userspace passes checksums on as they are, so they have to be there.
    lab.run("nsenter", &[&there, "ethtool", "-K", interface, "tx", "off"]).await?;
    lab.run("nsenter", &[&there, "ip", "link", "set", "dev", interface, "up"]).await?;
    Ok(())
}

/// Switches an interface of a switch on or off. One that is gone, because whoever got its other end removed it,
/// is off either way.
pub(super) async fn set_up(lab: &Lab, interface: &str, up: bool) -> Result<(), DataPlaneError> {
    let state = if up { "up" } else { "down" };
    match lab.run("ip", &["link", "set", "dev", interface, state]).await {
        Err(DataPlaneError::Failed { errors, .. }) if errors.contains("Cannot find device") => {
            tracing::warn!(interface, "removed by someone else");
            Ok(())
        }
        result => result.map(drop),
    }
}

/// Removes all interfaces, with their other ends.
pub(super) async fn remove(lab: &Lab) -> Result<(), DataPlaneError> {
    lab.run("ip", &["link", "del", "group", GROUP]).await.map(drop)
}
