//! News of what changes in a namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use rtnetlink::MulticastGroup;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};

use super::Netlink;
use super::socket::attribute;

/// What is listened to: interfaces, and addresses, routes and rules of both families.
const ALL: &[MulticastGroup] = &[
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// Bytes that may wait; what does not fit is lost, which counts as a change.
const BACKLOG: u32 = 32 * 1024;

/// `struct nlmsghdr` and `struct ifinfomsg`.
const LINK_HEADER: usize = 32;
/// `IFLA_GROUP`.
const IFLA_GROUP: u16 = 27;

/// Tells that something has changed in one namespace, not what. It holds the namespace alive.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    group: Option<u32>,
}

impl Watch {
    /// Listens to all changes in the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Self::listen(Socket::new(NETLINK_ROUTE)?, 0, ALL, None)
    }

    /// Listens to changes of interfaces of one group (`IFLA_GROUP`).
    pub fn links_of_group(group: u32) -> io::Result<Self> {
        Self::listen(Socket::new(NETLINK_ROUTE)?, 0, &[MulticastGroup::Link], Some(group))
    }

    /// Listens to all changes, from now on, in the namespace where `netlink` has worked.
    pub fn instead_of(netlink: Netlink) -> io::Result<Self> {
        let (socket, port) = netlink.into_socket();
        Self::listen(socket, port, ALL, None)
    }

    fn listen(mut socket: Socket, port: u32, to: &[MulticastGroup], group: Option<u32>) -> io::Result<Self> {
        socket.set_non_blocking(true)?;
        socket.set_rx_buf_sz(BACKLOG)?;
        let groups = to.iter().fold(0_u32, |all, group| all | 1 << (*group as u32 - 1));
        socket.bind(&SocketAddr::new(port, groups))?;
        Ok(Self { socket, group })
    }

    /// Forgets what has come so far, such as one's own changes; true when there was something.
    pub fn drain(&self) -> bool {
        let mut buffer = Vec::with_capacity(8192);
        let mut any = false;
        loop {
            buffer.clear();
            match self.socket.recv_from(&mut buffer, 0) {
                Ok(_) => any |= self.matters(&buffer),
                // What was lost is news too.
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => any = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return any,
            }
        }
    }

    fn matters(&self, message: &[u8]) -> bool {
        let Some(group) = self.group else { return true };
        let found = message.get(LINK_HEADER..).and_then(|attributes| attribute(attributes, IFLA_GROUP));
        found.and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes) == Some(group)
    }
}

/// Readable when there is news.
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
