//! VRFs that forward: a network namespace for each, with an access port of the switch's second bridge for each of its
//! interfaces, and a host behind it in a namespace of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::dataplane::DataPlaneError;
use crate::dataplane::frr::{self, Frr};
use crate::dataplane::namespace::{self, NetworkNamespace, path_of};
use crate::dataplane::ovs::Ovs;
use crate::dataplane::plan::Bridge;
use crate::dataplane::routed::{InterfaceConfig, VrfConfig};
use crate::dataplane::status::{HostStatus, VrfStatus};
use crate::dataplane::veth::{MTU, switch_end_command};
use crate::dialect::BgpView;

/// The addresses of the host behind each VRF.
const HOST_ADDRESSES: [&str; 2] = ["198.51.100.1/24", "2001:db8:ffff::1/64"];

/// The addresses of the VRF on the host's link: the host's default gateways.
const GATEWAYS: [(&str, &str); 2] = [("198.51.100.254", "/24"), ("2001:db8:ffff::fe", "/64")];

/// What a VRF's namespace has other than the kernel's defaults: it forwards, keeps the other addresses when the first
/// of a network goes, keeps IPv6 addresses while a link is down, and announces addresses when a link comes up or is
/// given its MAC address.
const ROUTER_SETTINGS: [(&str, &str); 9] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/promote_secondaries", "1"),
    ("ipv4/conf/all/arp_notify", "1"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/all/keep_addr_on_down", "1"),
    ("ipv6/conf/all/ndisc_notify", "1"),
];

/// The BGP identifier of a VRF without an address of IPv4: its address on the host's link.
const IDENTIFIER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);

/// The interval at which sessions with too many prefixes are ended.
const ENFORCEMENT: Duration = Duration::from_secs(1);

const HOST_SETTINGS: [(&str, &str); 1] = [("ipv6/conf/all/disable_ipv6", "0")];

/// The VRFs of all switches: by switch and name.
#[derive(Debug)]
pub(super) struct Vrfs {
    /// The directory of the data plane.
    directory: PathBuf,
    /// When sessions with too many prefixes were ended last.
    enforced: Instant,
    running: BTreeMap<(String, String), Vrf>,
}

/// One VRF. Its namespaces end with it.
#[derive(Debug)]
struct Vrf {
    bridge: Bridge,
    netns: File,
    host: File,
    /// The VLANs whose interfaces may exist.
    connected: BTreeSet<u16>,
    /// What was applied last, without BGP.
    config: VrfConfig,
    /// The daemons of its BGP instance.
    frr: Option<Frr>,
    /// The desired BGP instance.
    bgp: Option<BgpView>,
    /// Whether the kernel may have routes of BGP.
    has_bgp_routes: bool,
}

impl Vrfs {
    /// No VRF yet. The files of an earlier run are removed from the directory of the data plane.
    pub(super) fn new(directory: PathBuf) -> Result<Self, DataPlaneError> {
        frr::remove_files(&directory)?;
        Ok(Self { directory, enforced: Instant::now(), running: BTreeMap::new() })
    }

    /// Makes the VRFs as desired. A VRF that can't be changed is removed, so that a retry makes it anew.
    pub(super) async fn apply(
        &mut self,
        namespace: &NetworkNamespace,
        ovs: &Ovs,
        mut desired: BTreeMap<(String, String), (Bridge, VrfConfig)>,
    ) -> Result<(), DataPlaneError> {
        let gone: Vec<_> = self.running.keys().filter(|key| !desired.contains_key(*key)).cloned().collect();
        for key in gone {
            if let Some(vrf) = self.running.remove(&key) {
                vrf.remove(namespace, ovs).await?;
            }
        }
        // A VLAN may move from one VRF to another: interfaces go before others come.
        for (key, vrf) in &mut self.running {
            if let Some((_, config)) = desired.get(key) {
                vrf.remove_interfaces(namespace, ovs, config).await?;
            }
        }
        let mut result = Ok(());
        while let Some((key, (bridge, mut config))) = desired.pop_first() {
            let present = self.running.remove(&key);
            let bgp = config.bgp.take();
            match Vrf::changed(present, namespace, ovs, bridge, config).await {
                Ok(mut vrf) => {
                    vrf.bgp = bgp;
                    // Without BGP, the VRF forwards nevertheless.
                    result = result.and(vrf.apply_bgp(namespace, &self.directory, &key.1).await);
                    self.running.insert(key, vrf);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Starts the daemons of BGP again where one has ended, and ends sessions with too many prefixes.
    pub(super) async fn heal(&mut self, namespace: &NetworkNamespace) -> Result<(), DataPlaneError> {
        let enforces = self.enforced.elapsed() >= ENFORCEMENT;
        if enforces {
            self.enforced = Instant::now();
        }
        for ((switch, name), vrf) in &mut self.running {
            if vrf.frr.as_mut().is_some_and(Frr::has_ended) {
                tracing::warn!(switch, vrf = name, "a daemon of BGP has ended, and is started again");
                vrf.frr = None;
                vrf.apply_bgp(namespace, &self.directory, name).await?;
            } else if let Some(frr) = vrf.frr.as_ref().filter(|_| enforces) {
                frr.enforce_maxima().await?;
            }
        }
        Ok(())
    }

    /// The VRFs of each switch, for the control API.
    pub(super) fn status(&self) -> BTreeMap<String, BTreeMap<String, VrfStatus>> {
        let mut status: BTreeMap<String, BTreeMap<String, VrfStatus>> = BTreeMap::new();
        for ((switch, name), vrf) in &self.running {
            let host =
                HostStatus { netns: path_of(&vrf.host), addresses: HOST_ADDRESSES.map(str::to_owned).into() };
            let vlans = vrf.config.interfaces.keys().copied().collect();
            let vrf = VrfStatus { netns: path_of(&vrf.netns), vlans, host };
            status.entry(switch.clone()).or_default().insert(name.clone(), vrf);
        }
        status
    }
}

impl Vrf {
    /// Creates the namespaces of a VRF and of its host, and their link.
    async fn new(namespace: &NetworkNamespace, bridge: Bridge) -> Result<Self, DataPlaneError> {
        let netns = namespace::create(|| write_settings(&ROUTER_SETTINGS)).await?;
        let host = namespace::create(|| write_settings(&HOST_SETTINGS)).await?;
        let mut commands = vec![
            "link set dev lo up".to_owned(),
            format!("link add name host type veth peer name eth0 netns {}", path_of(&host).display()),
            "link set dev host up".to_owned(),
        ];
        let mut in_host = vec!["link set dev lo up".to_owned(), "link set dev eth0 up".to_owned()];
        let families = HOST_ADDRESSES.into_iter().zip(GATEWAYS).take(if has_ipv6() { 2 } else { 1 });
        for (address, (gateway, length)) in families {
            commands.push(address_command("add", &format!("{gateway}{length}"), "host"));
            in_host.push(address_command("add", address, "eth0"));
            in_host.push(format!("route add default via {gateway}"));
        }
        namespace.ip(Some(&netns), &commands).await?;
        namespace.ip(Some(&host), &in_host).await?;
        let (connected, config) = (BTreeSet::new(), VrfConfig::default());
        Ok(Self { bridge, netns, host, connected, config, frr: None, bgp: None, has_bgp_routes: false })
    }

    /// Creates or changes a VRF. After an error it does not exist.
    async fn changed(
        present: Option<Self>,
        namespace: &NetworkNamespace,
        ovs: &Ovs,
        bridge: Bridge,
        config: VrfConfig,
    ) -> Result<Self, DataPlaneError> {
        let mut vrf = match present {
            Some(vrf) => vrf,
            None => Self::new(namespace, bridge).await?,
        };
        if let Err(error) = vrf.update(namespace, ovs, config).await {
            vrf.remove(namespace, ovs).await?;
            return Err(error);
        }
        Ok(vrf)
    }

    /// Gives the VRF its interfaces, addresses and routes.
    async fn update(
        &mut self,
        namespace: &NetworkNamespace,
        ovs: &Ovs,
        config: VrfConfig,
    ) -> Result<(), DataPlaneError> {
        if self.config == config {
            return Ok(());
        }
        if self.config.boots != config.boots {
            self.frr = None;
        }
        self.add_interfaces(namespace, ovs, &config).await?;
        let mut commands = Vec::new();
        for (vlan, interface) in &config.interfaces {
            self.address_commands(*vlan, interface, &mut commands);
        }
        namespace.ip(Some(&self.netns), &commands).await?;
        self.flush_routes(namespace).await?;
        let routes: Vec<_> =
            config.routes.iter().map(|route| format!("route append {route} proto static")).collect();
        namespace.ip(Some(&self.netns), &routes).await?;
        self.config = config;
        Ok(())
    }

    /// Removes the static routes of both families. They come back after each change: the kernel drops some with an
    /// address or a link.
    async fn flush_routes(&self, namespace: &NetworkNamespace) -> Result<(), DataPlaneError> {
        if self.config.routes.is_empty() {
            return Ok(());
        }
        let net = format!("--net={}", path_of(&self.netns).display());
        for family in families() {
            namespace.run("nsenter", &[&net, "ip", family, "route", "flush", "proto", "static"]).await?;
        }
        Ok(())
    }

    /// Creates the new interfaces and connects them to the bridge.
    async fn add_interfaces(
        &mut self,
        namespace: &NetworkNamespace,
        ovs: &Ovs,
        config: &VrfConfig,
    ) -> Result<(), DataPlaneError> {
        let new: Vec<u16> =
            config.interfaces.keys().copied().filter(|vlan| !self.connected.contains(vlan)).collect();
        self.connected.extend(&new);
        let netns = path_of(&self.netns);
        let mut commands = Vec::new();
        for vlan in &new {
            let port = port_interface(&self.bridge, *vlan);
            commands.push(format!(
                "link add name {port} mtu {MTU} type veth peer name {} address {} netns {}",
                interface(*vlan),
                mac_address(&self.bridge, *vlan),
                netns.display()
            ));
            commands.push(switch_end_command(&port));
        }
        namespace.ip(None, &commands).await?;
        let net = format!("--net={}", netns.display());
        for vlan in &new {
            // Open vSwitch in userspace does not compute checksums, so the sender must.
            namespace.run("nsenter", &[&net, "ethtool", "-K", &interface(*vlan), "tx", "off"]).await?;
        }
        let ports: Vec<_> = new.iter().map(|vlan| (port_interface(&self.bridge, *vlan), *vlan)).collect();
        ovs.add_access_ports(namespace, &self.bridge.vrf_bridge(), &ports).await
    }

    /// Removes the interfaces that `config` does not have.
    async fn remove_interfaces(
        &mut self,
        namespace: &NetworkNamespace,
        ovs: &Ovs,
        config: &VrfConfig,
    ) -> Result<(), DataPlaneError> {
        let old: Vec<u16> =
            self.connected.iter().copied().filter(|vlan| !config.interfaces.contains_key(vlan)).collect();
        if old.is_empty() {
            return Ok(());
        }
        let ports: Vec<_> = old.iter().map(|vlan| port_interface(&self.bridge, *vlan)).collect();
        ovs.remove_ports(namespace, &self.bridge.vrf_bridge(), &ports).await?;
        for port in &ports {
            // It is missing after a failed creation.
            let _ = namespace.ip(None, &[format!("link del dev {port}")]).await;
        }
        self.connected.retain(|vlan| config.interfaces.contains_key(vlan));
        self.config.interfaces.retain(|vlan, _| config.interfaces.contains_key(vlan));
        Ok(())
    }

    /// Makes the BGP instance as desired. After an error it does not run; a retry starts it.
    async fn apply_bgp(
        &mut self,
        namespace: &NetworkNamespace,
        directory: &Path,
        name: &str,
    ) -> Result<(), DataPlaneError> {
        let present = self.frr.take();
        let Some(bgp) = &self.bgp else { return self.stop_bgp(present, namespace).await };
        self.has_bgp_routes = true;
        let mut frr = if let Some(frr) = present {
            frr
        } else {
            let addresses = self.config.interfaces.values().flat_map(|interface| &interface.addresses);
            let id = frr::identifier(addresses.map(ipnet::IpNet::addr), IDENTIFIER);
            Frr::start(namespace, &self.netns, (directory, &self.bridge.name, name), id).await?
        };
        frr.apply(namespace, &self.netns, bgp).await?;
        self.frr = Some(frr);
        Ok(())
    }

    /// Ends the daemons and removes their routes. After an error, a retry removes the rest of these.
    async fn stop_bgp(
        &mut self,
        frr: Option<Frr>,
        namespace: &NetworkNamespace,
    ) -> Result<(), DataPlaneError> {
        if let Some(frr) = frr {
            frr.stop().await?;
        }
        if self.has_bgp_routes {
            let net = format!("--net={}", path_of(&self.netns).display());
            // With a next hop go its routes. `ip route flush` fails on these: it names the object and its parts.
            namespace.run("nsenter", &[&net, "ip", "nexthop", "flush"]).await?;
            for family in families() {
                namespace.run("nsenter", &[&net, "ip", family, "route", "flush", "proto", "bgp"]).await?;
            }
            self.has_bgp_routes = false;
        }
        Ok(())
    }

    /// Removes the VRF with all its interfaces.
    async fn remove(mut self, namespace: &NetworkNamespace, ovs: &Ovs) -> Result<(), DataPlaneError> {
        if let Some(frr) = self.frr.take() {
            frr.stop().await?;
        }
        self.remove_interfaces(namespace, ovs, &VrfConfig::default()).await
    }

    /// Changes the addresses and the MTU of an interface, and announces the addresses.
    fn address_commands(&self, vlan: u16, desired: &InterfaceConfig, commands: &mut Vec<String>) {
        let present = self.config.interfaces.get(&vlan);
        if present == Some(desired) {
            return;
        }
        let name = interface(vlan);
        commands.push(format!("link set dev {name} mtu {} up", desired.mtu));
        let old = present.map(|present| &present.addresses[..]).unwrap_or_default();
        for address in desired.addresses.iter().filter(|address| !old.contains(address)) {
            commands.push(address_command("add", &address.to_string(), &name));
        }
        for address in old.iter().filter(|address| !desired.addresses.contains(address)) {
            commands.push(address_command("del", &address.to_string(), &name));
        }
        // The kernel announces the addresses of a link whose MAC address is set, even to the same.
        commands.push(format!("link set dev {name} address {}", mac_address(&self.bridge, vlan)));
    }
}

/// A command of ip(8) that adds or deletes an address. IPv6 addresses are used at once.
fn address_command(action: &str, address: &str, interface: &str) -> String {
    let nodad = if action == "add" && address.contains(':') { " nodad" } else { "" };
    format!("address {action} {address} dev {interface}{nodad}")
}

/// The name of a routed interface in its VRF's namespace.
fn interface(vlan: u16) -> String {
    format!("vlan{vlan}")
}

/// The interface of the bridge to which a routed interface is connected, at most 15 bytes.
fn port_interface(bridge: &Bridge, vlan: u16) -> String {
    format!("{}v{vlan}", bridge.name)
}

/// The MAC address of a routed interface; it is the same after each start of the fabric.
fn mac_address(bridge: &Bridge, vlan: u16) -> String {
    let [a, b] = u16::try_from(bridge.number).unwrap_or(u16::MAX).to_be_bytes();
    let [c, d] = vlan.to_be_bytes();
    format!("02:e2:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// The options of ip(8) for the families of this kernel.
fn families() -> &'static [&'static str] {
    if has_ipv6() { &["-4", "-6"] } else { &["-4"] }
}

fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Writes settings of this thread's network namespace.
fn write_settings(settings: &[(&str, &str)]) -> io::Result<()> {
    for (name, value) in settings.iter().filter(|(name, _)| !name.starts_with("ipv6/") || has_ipv6()) {
        fs::write(Path::new("/proc/sys/net").join(name), value)?;
    }
    Ok(())
}
