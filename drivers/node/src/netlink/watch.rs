//! Subscription to netlink notifications of a namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::MulticastGroup;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::notification::{LatestNotifications, Notifications};
use super::{Link, Neighbour, Netlink, NetlinkError, neighbour};

/// Interfaces, and addresses, routes and rules of both families.
const ALL_GROUPS: &[MulticastGroup] = &[
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// Bytes of the receive buffer where the content of notifications is not used.
const SIGNAL_BUFFER: u32 = 32 * 1024;

/// Bytes of the receive buffer where notifications are decoded. The kernel accounts some 2 KiB per message, and making
/// the end of a veth pair takes about ten messages.
const LINKS_BUFFER: usize = 4 * 1024 * 1024;

/// Wakes the waiting task when a notification arrives.
pub type Readiness = AsyncFd<Arc<Watch>>;

/// A subscription to changes in one namespace. It keeps the namespace alive.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Subscribes to all changes in the calling thread's namespace, and to those of filters of packets.
    pub fn open() -> io::Result<Self> {
        Self::signal_only(Socket::new(NETLINK_ROUTE)?, 0, &[ALL_GROUPS, &[MulticastGroup::Tc]].concat())
    }

    /// Subscribes to changes of interfaces in the calling thread's namespace.
    pub fn links() -> Result<Self, NetlinkError> {
        let open = || {
            let socket = Socket::new(NETLINK_ROUTE)?;
            // Without CAP_NET_ADMIN the default size remains.
            let _ = setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &LINKS_BUFFER);
            Self::listen(socket, 0, &[MulticastGroup::Link])
        };
        open().map_err(|source| NetlinkError::Socket {
            operation: "listen to what becomes of interfaces".to_owned(),
            source,
        })
    }

    /// Subscribes to changes of neighbour entries in the calling thread's namespace.
    pub fn neighbours() -> Result<Self, NetlinkError> {
        let open = || Self::listen(Socket::new(NETLINK_ROUTE)?, 0, &[MulticastGroup::Neigh]);
        open().map_err(|source| NetlinkError::Socket {
            operation: "listen to what becomes of neighbours".to_owned(),
            source,
        })
    }

    /// Turns a request socket into a subscription to all later changes in its namespace.
    pub fn instead_of(netlink: Netlink) -> io::Result<Self> {
        let (socket, port) = netlink.into_socket();
        Self::signal_only(socket, port, ALL_GROUPS)
    }

    fn signal_only(socket: Socket, port: u32, groups: &[MulticastGroup]) -> io::Result<Self> {
        socket.set_rx_buf_sz(SIGNAL_BUFFER)?;
        Self::listen(socket, port, groups)
    }

    fn listen(mut socket: Socket, port: u32, groups: &[MulticastGroup]) -> io::Result<Self> {
        socket.set_non_blocking(true)?;
        let groups = groups.iter().fold(0_u32, |all, group| all | 1 << (*group as u32 - 1));
        socket.bind(&SocketAddr::new(port, groups))?;
        Ok(Self { socket })
    }

    /// Registers the socket for wake-ups; it is ready at once when notifications are waiting.
    pub fn register(self: &Arc<Self>) -> io::Result<Readiness> {
        // The successor of this function is unsafe: a type might change its descriptor. `Watch` owns its descriptor.
        #[expect(deprecated, reason = "unsafe code is forbidden here")]
        AsyncFd::with_interest(Arc::clone(self), Interest::READABLE)
    }

    /// Discards the waiting notifications, such as those of ENO's own changes. True when there were any.
    pub fn drain(&self) -> bool {
        let mut any = false;
        let complete = self.read(|_| any = true);
        any || !complete
    }

    /// Lists all interfaces of the namespace, which must be that of `netlink`. The waiting notifications are discarded
    /// before: later ones are newer than the list.
    pub fn list(&self, netlink: &mut Netlink) -> Result<Vec<Link>, NetlinkError> {
        self.drain();
        netlink.links()
    }

    /// The latest notification of each interface, and of each port that `ports` accepts. `None`: some were lost.
    pub fn read_links(&self, ports: impl Fn(u32) -> bool) -> Option<Notifications> {
        let mut latest = LatestNotifications::default();
        let complete = self.read(|message| latest.keep(message, &ports));
        complete.then(|| latest.decode())
    }

    /// The changes of neighbour entries, in their order. `None`: some were lost.
    pub fn read_neighbours(&self) -> Option<Vec<Neighbour>> {
        let mut found = Vec::new();
        let complete = self.read(|message| found.extend(neighbour::notified(message)));
        complete.then_some(found)
    }

    /// Calls `each` for every waiting message. False when some were lost.
    fn read(&self, mut each: impl FnMut(&[u8])) -> bool {
        let mut buffer = Vec::with_capacity(8192);
        let mut complete = true;
        loop {
            buffer.clear();
            match self.socket.recv_from(&mut buffer, 0) {
                // Messages of other senders than the kernel (port 0) are dropped.
                Ok((_, from)) if from.port_number() != 0 => {}
                Ok(_) => {
                    complete &= is_complete(&buffer);
                    each(&buffer);
                }
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => complete = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return complete,
            }
        }
    }
}

/// True when the message was not truncated to the buffer's length.
fn is_complete(message: &[u8]) -> bool {
    let length = message.get(..4).and_then(|field| field.try_into().ok()).map(u32::from_ne_bytes);
    length.is_some_and(|length| length as usize <= message.len())
}

/// Readable when notifications are waiting.
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::os::fd::AsRawFd for Watch {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}
