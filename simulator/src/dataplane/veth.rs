//! The veth(4) pairs between bridges and to external namespaces.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::dataplane::DataPlaneError;
use crate::dataplane::namespace::NetworkNamespace;
use crate::dataplane::plan::{Bridge, Peer, Plan, Port};

/// MTU of the switches' interfaces. External ends keep the kernel's default.
pub(super) const MTU: u32 = 9216;

/// Link group of all interfaces in the namespace of the data plane.
const LINK_GROUP: &str = "1";

/// Timeout for an interface name to become free: the kernel cleans up asynchronously after a killed simulator.
const NAME_CONFLICT_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates all veth pairs. Switch ends are down; external ends are up and in their namespaces.
pub(super) async fn create_links(namespace: &NetworkNamespace, plan: &Plan) -> Result<(), DataPlaneError> {
    let mtu = MTU.to_string();
    for (bridge, port) in plan.ports() {
        match &port.peer {
            // Create each pair once.
            Peer::Port { interface, .. } if port.interface < *interface => {
                let peer = ["peer", "name", interface, "mtu", &mtu];
                namespace.run("ip", &[&veth_arguments(&port.interface, &mtu)[..], &peer].concat()).await?;
            }
            Peer::Port { .. } => {}
            Peer::Outside { netns, interface } => {
                let address = mac_address(bridge, port);
                create_outside_link(namespace, &port.interface, netns.as_deref(), interface, &address)
                    .await?;
            }
        }
    }
    for (bridge, port) in plan.ports() {
        let alias = format!("{} {}", bridge.switch, port.name);
        let mut args = vec!["link", "set", "dev", &port.interface, "group", LINK_GROUP, "alias", &alias];
        // Interfaces of switches have no addresses, so that they send nothing themselves.
        if Path::new("/proc/sys/net/ipv6").exists() {
            args.extend(["addrgenmode", "none"]);
        }
        namespace.run("ip", &args).await?;
    }
    let pairs = plan.bridges.iter().flat_map(|bridge| {
        let (uplink, downlink) = (bridge.vrf_uplink(), bridge.vrf_downlink());
        let add = format!("link add name {uplink} mtu {MTU} type veth peer name {downlink} mtu {MTU}");
        [add, switch_end_command(&uplink), switch_end_command(&downlink)]
    });
    namespace.ip(None, &pairs.collect::<Vec<_>>()).await
}

/// A command of ip(8) that enables an interface of a switch, without addresses.
pub(super) fn switch_end_command(interface: &str) -> String {
    let addresses = if Path::new("/proc/sys/net/ipv6").exists() { "addrgenmode none" } else { "" };
    format!("link set dev {interface} group {LINK_GROUP} {addresses} up")
}

fn veth_arguments<'a>(interface: &'a str, mtu: &'a str) -> [&'a str; 8] {
    ["link", "add", "name", interface, "mtu", mtu, "type", "veth"]
}

/// The MAC address of the external interface of a port; it is the same after each start of the fabric.
fn mac_address(bridge: &Bridge, port: &Port) -> String {
    let [a, b] = u16::try_from(bridge.number).unwrap_or(u16::MAX).to_be_bytes();
    let [c, d] = u16::try_from(port.number).unwrap_or(u16::MAX).to_be_bytes();
    format!("02:e1:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Creates a veth pair whose other end is in an external namespace.
async fn create_outside_link(
    namespace: &NetworkNamespace,
    own: &str,
    netns: Option<&Path>,
    interface: &str,
    address: &str,
) -> Result<(), DataPlaneError> {
    let netns = match netns {
        None => PathBuf::from(format!("/proc/{}/ns/net", std::process::id())),
        // `ip` would resolve a relative name in /run/netns.
        Some(path) => std::path::absolute(path)
            .map_err(|source| DataPlaneError::State { path: path.to_owned(), source })?,
    };
    let netns = netns.to_string_lossy();
    let peer = ["peer", "name", interface, "address", address, "netns", &netns];
    let mtu = MTU.to_string();
    let add = [&veth_arguments(own, &mtu)[..], &peer].concat();
    let deadline = Instant::now() + NAME_CONFLICT_TIMEOUT;
    loop {
        match namespace.run("ip", &add).await {
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
    let netns_flag = format!("--net={netns}");
    // Open vSwitch in userspace does not compute checksums, so the sender must.
    namespace.run("nsenter", &[&netns_flag, "ethtool", "-K", interface, "tx", "off"]).await?;
    namespace.run("nsenter", &[&netns_flag, "ip", "link", "set", "dev", interface, "up"]).await?;
    Ok(())
}

/// Sets the MTU of an interface of a switch. A larger packet neither leaves nor enters by it.
pub(super) async fn set_mtu(
    namespace: &NetworkNamespace,
    interface: &str,
    mtu: u32,
) -> Result<(), DataPlaneError> {
    set_link(namespace, interface, &["mtu", &mtu.to_string()]).await
}

/// Enables or disables an interface of a switch.
pub(super) async fn set_link_state(
    namespace: &NetworkNamespace,
    interface: &str,
    up: bool,
) -> Result<(), DataPlaneError> {
    set_link(namespace, interface, &[if up { "up" } else { "down" }]).await
}

/// Changes an interface of a switch. Ignores a missing interface: the owner of its external end may have deleted the
/// pair.
async fn set_link(
    namespace: &NetworkNamespace,
    interface: &str,
    change: &[&str],
) -> Result<(), DataPlaneError> {
    match namespace.run("ip", &[&["link", "set", "dev", interface], change].concat()).await {
        Err(DataPlaneError::Failed { errors, .. }) if errors.contains("Cannot find device") => {
            tracing::warn!(interface, "removed by someone else");
            Ok(())
        }
        result => result.map(drop),
    }
}

/// Deletes all interfaces with their other ends.
pub(super) async fn delete_links(namespace: &NetworkNamespace) -> Result<(), DataPlaneError> {
    namespace.run("ip", &["link", "del", "group", LINK_GROUP]).await.map(drop)
}
