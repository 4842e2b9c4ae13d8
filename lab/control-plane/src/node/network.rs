//! The network between the control plane and its nodes: a bridge in a namespace of its own with a veth pair to each
//! node and one to the host. The kernel deletes them with the namespace.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::thread;

use futures::TryStreamExt;
use ipnet::Ipv4Net;
use nix::sched::{CloneFlags, setns};
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use tokio::runtime;

/// The address block for benchmarks (RFC 2544). Each control plane uses a `/24` of it.
const ADDRESS_BLOCK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15);
const SUBNET_COUNT: u16 = 512;
/// The bridge, in its own namespace.
const BRIDGE: &str = "cluster";
/// Name of a node's interface to this network.
pub const NODE_INTERFACE: &str = "eth0";

/// The network of the nodes can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A netlink request failed.
    #[error("{operation}: {source}")]
    Netlink {
        /// The failed operation.
        operation: String,
        /// The cause.
        source: Box<rtnetlink::Error>,
    },
    /// A namespace can't be opened or entered.
    #[error("{operation} {}: {source}", path.display())]
    Namespace {
        /// The failed operation.
        operation: &'static str,
        /// Path of the namespace.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No `/24` is free: all are routed or used by other sandboxes.
    #[error("no /24 of {ADDRESS_BLOCK} is free: another network uses the addresses, or 512 sandboxes run")]
    NoSubnet,
}

fn netlink(operation: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    let operation = operation.into();
    move |source| NetworkError::Netlink { operation, source: Box::new(source) }
}

/// A `/24` that is reserved for this control plane until this is dropped.
#[derive(Debug)]
pub(crate) struct Subnet {
    net: Ipv4Net,
    /// The reservation: an abstract socket, which like addresses belongs to the network namespace.
    _reservation: UnixListener,
}

impl Subnet {
    /// Reserves a free subnet, preferably that of the seed.
    async fn reserve(handle: &Handle, seed: u32) -> Result<Self, NetworkError> {
        let used = used_networks(handle).await?;
        free_subnets(seed, &used)
            .find_map(|net| {
                let name = format!("eno-sandbox-{net}");
                let address = SocketAddr::from_abstract_name(name).ok()?;
                Some(Self { net, _reservation: UnixListener::bind_addr(&address).ok()? })
            })
            .ok_or(NetworkError::NoSubnet)
    }

    /// The address of the host.
    pub(crate) fn machine(&self) -> Ipv4Addr {
        self.host(1)
    }

    /// The address of the node with this index, from 0.
    pub(crate) fn node(&self, index: u8) -> Ipv4Addr {
        self.host(10 + index)
    }

    fn host(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.net.network()) + u32::from(number))
    }
}

/// Returns the subnets without overlap with used ones, starting with that of the seed.
fn free_subnets(seed: u32, used: &[Ipv4Net]) -> impl Iterator<Item = Ipv4Net> {
    let base = u32::from(ADDRESS_BLOCK.network());
    (0..u32::from(SUBNET_COUNT))
        .map(move |step| (seed % u32::from(SUBNET_COUNT) + step) % u32::from(SUBNET_COUNT))
        .filter_map(move |index| Ipv4Net::new(Ipv4Addr::from(base + (index << 8)), 24).ok())
        .filter(|net| !used.iter().any(|other| other.contains(net) || net.contains(other)))
}

/// Returns the networks of the host's addresses and routes, without default routes.
async fn used_networks(handle: &Handle) -> Result<Vec<Ipv4Net>, NetworkError> {
    let mut used = Vec::new();
    let mut addresses = handle.address().get().execute();
    while let Some(message) = addresses.try_next().await.map_err(netlink("listing addresses"))? {
        let prefix = message.header.prefix_len;
        for attribute in &message.attributes {
            if let AddressAttribute::Address(IpAddr::V4(address)) = attribute {
                used.extend(Ipv4Net::new(*address, prefix));
            }
        }
    }
    let all = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let mut routes = handle.route().get(all).execute();
    while let Some(message) = routes.try_next().await.map_err(netlink("listing routes"))? {
        let prefix = message.header.destination_prefix_length;
        for attribute in &message.attributes {
            if let RouteAttribute::Destination(RouteAddress::Inet(address)) = attribute {
                used.extend(Ipv4Net::new(*address, prefix));
            }
        }
    }
    used.retain(|net| net.prefix_len() > 0);
    Ok(used)
}

/// The bridge, its connection to the host, and the subnet.
#[derive(Debug)]
pub(crate) struct ClusterNetwork {
    subnet: Subnet,
    handle: Handle,
    bridge: u32,
}

impl ClusterNetwork {
    /// Creates the bridge in an existing namespace and connects it to the host by the interface `link` (at most 15
    /// bytes).
    pub(crate) async fn start(namespace: &Path, link: &str, seed: u32) -> Result<Self, NetworkError> {
        let machine = open_netlink(Path::new("/proc/self/ns/net")).await?;
        let subnet = Subnet::reserve(&machine, seed).await?;
        let handle = open_netlink(namespace).await?;
        set_up(&handle, "lo").await?;
        let made = handle.link().add(LinkBridge::new(BRIDGE).build()).execute().await;
        made.map_err(netlink(format!("making the bridge {BRIDGE}")))?;
        let bridge = link_index(&handle, BRIDGE).await?;
        create_veth(&handle, "machine", bridge, link, Path::new("/proc/self/ns/net")).await?;
        add_address(&machine, link, subnet.machine()).await?;
        set_up(&machine, link).await?;
        Ok(Self { subnet, handle, bridge })
    }

    pub(crate) fn subnet(&self) -> &Subnet {
        &self.subnet
    }

    /// Connects a node by its namespace. `routes` are networks with the addresses of their next hops.
    pub(crate) async fn connect_node(
        &self,
        name: &str,
        namespace: &Path,
        address: Ipv4Addr,
        routes: &[(Ipv4Net, Ipv4Addr)],
    ) -> Result<(), NetworkError> {
        create_veth(&self.handle, name, self.bridge, NODE_INTERFACE, namespace).await?;
        let node = open_netlink(namespace).await?;
        set_up(&node, "lo").await?;
        add_address(&node, NODE_INTERFACE, address).await?;
        set_up(&node, NODE_INTERFACE).await?;
        for (network, via) in routes {
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(network.network(), network.prefix_len())
                .gateway(*via)
                .build();
            let added = node.route().add(route).execute().await;
            added.map_err(netlink(format!("routing {network} via {via}")))?;
        }
        Ok(())
    }
}

/// Enables the loopback interface in a namespace.
pub(crate) async fn set_loopback_up(namespace: &Path) -> Result<(), NetworkError> {
    set_up(&open_netlink(namespace).await?, "lo").await
}

/// Creates a veth pair: `port` on a bridge here, and `peer`, which is down, in another namespace.
async fn create_veth(
    handle: &Handle,
    port: &str,
    bridge: u32,
    peer: &str,
    namespace: &Path,
) -> Result<(), NetworkError> {
    // The kernel removes the namespace of a killed node later than the process, and with it the former pair.
    if let Ok(former) = link_index(handle, port).await {
        let _ = handle.link().del(former).execute().await;
    }
    let file = open_namespace(namespace)?;
    let end = LinkMessageBuilder::<LinkUnspec>::new().name(peer).setns_by_fd(file.as_raw_fd()).build();
    let message = LinkVeth::new(port, peer)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(end)))
        .controller(bridge)
        .up()
        .build();
    let added = handle.link().add(message).execute().await;
    added.map_err(netlink(format!("making the interface {peer} of {}", namespace.display())))
}

async fn add_address(handle: &Handle, link: &str, address: Ipv4Addr) -> Result<(), NetworkError> {
    let index = link_index(handle, link).await?;
    let added = handle.address().add(index, IpAddr::V4(address), 24).execute().await;
    added.map_err(netlink(format!("giving {link} the address {address}")))
}

async fn set_up(handle: &Handle, link: &str) -> Result<(), NetworkError> {
    let message = LinkMessageBuilder::<LinkUnspec>::new().index(link_index(handle, link).await?).up().build();
    let changed = handle.link().change(message).execute().await;
    changed.map_err(netlink(format!("setting {link} up")))
}

async fn link_index(handle: &Handle, link: &str) -> Result<u32, NetworkError> {
    let failed = || netlink(format!("finding the interface {link}"));
    let found = handle.link().get().match_name(link.to_owned()).execute().try_next().await;
    match found.map_err(failed())? {
        Some(message) => Ok(message.header.index),
        None => Err(failed()(rtnetlink::Error::RequestFailed)),
    }
}

fn open_namespace(namespace: &Path) -> Result<File, NetworkError> {
    File::open(namespace).map_err(|source| NetworkError::Namespace {
        operation: "opening the network namespace",
        path: namespace.to_owned(),
        source,
    })
}

/// Opens a netlink socket in a namespace. It stays in the namespace regardless of the thread that uses it.
async fn open_netlink(namespace: &Path) -> Result<Handle, NetworkError> {
    let file = open_namespace(namespace)?;
    let runtime = runtime::Handle::current();
    // A thread of its own enters the namespace.
    let opening = thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
        let _entered = runtime.enter();
        rtnetlink::new_connection()
    });
    let joined = tokio::task::spawn_blocking(move || opening.join()).await;
    let gone = || io::Error::other("the thread that opens the socket ended");
    let opened = joined.map_err(|_| gone()).and_then(|result| result.map_err(|_| gone())?);
    let (connection, handle, _) = opened.map_err(|source| NetworkError::Namespace {
        operation: "opening a netlink socket in",
        path: namespace.to_owned(),
        source,
    })?;
    tokio::spawn(connection);
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_subnets_exclude_used_networks() {
        let first = free_subnets(7, &[]).next().unwrap();
        assert_eq!(first.to_string(), "198.18.7.0/24");
        assert_eq!(free_subnets(7, &[first]).next().unwrap().to_string(), "198.18.8.0/24");
        let half: Ipv4Net = "198.18.0.0/16".parse().unwrap();
        assert_eq!(free_subnets(7, &[half]).next().unwrap().to_string(), "198.19.0.0/24");
        let host: Ipv4Net = "198.19.255.9/32".parse().unwrap();
        let last = free_subnets(511, &[half, host]).next().unwrap();
        assert_eq!(last.to_string(), "198.19.0.0/24");
        assert_eq!(free_subnets(0, &[ADDRESS_BLOCK]).next(), None);
        assert_eq!(free_subnets(600, &[]).count(), 512);
    }
}
