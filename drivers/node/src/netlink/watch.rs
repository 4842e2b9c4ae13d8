//! News of what changes in a namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::MulticastGroup;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};

use super::Netlink;
use super::told::{Last, Told};

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

/// Bytes that may wait where it only counts that there is something.
const BACKLOG: u32 = 32 * 1024;

/// Bytes that may wait where everything counts: some 2 KiB are counted for a message, of which the end of a pair that
/// is made takes about ten.
const ROOM: usize = 4 * 1024 * 1024;

/// Tells that something has changed in one namespace. It holds the namespace alive.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Listens to all changes in the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Self::waiting(Socket::new(NETLINK_ROUTE)?, 0)
    }

    /// Listens to changes of interfaces in the namespace of the calling thread.
    pub(super) fn links() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        // Without CAP_NET_ADMIN it has the size that it has.
        let _ = setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &ROOM);
        Self::listen(socket, 0, &[MulticastGroup::Link])
    }

    /// Listens to all changes, from now on, in the namespace where `netlink` has worked.
    pub fn instead_of(netlink: Netlink) -> io::Result<Self> {
        let (socket, port) = netlink.into_socket();
        Self::waiting(socket, port)
    }

    fn waiting(socket: Socket, port: u32) -> io::Result<Self> {
        socket.set_rx_buf_sz(BACKLOG)?;
        Self::listen(socket, port, ALL)
    }

    fn listen(mut socket: Socket, port: u32, to: &[MulticastGroup]) -> io::Result<Self> {
        socket.set_non_blocking(true)?;
        let groups = to.iter().fold(0_u32, |all, group| all | 1 << (*group as u32 - 1));
        socket.bind(&SocketAddr::new(port, groups))?;
        Ok(Self { socket })
    }

    /// Forgets what has come so far, such as one's own changes; true when there was something.
    pub fn drain(&self) -> bool {
        let mut any = false;
        let whole = self.read(|_| any = true);
        any || !whole
    }

    /// What has come last of each interface, and of those `ports`. `None`: some was lost.
    pub(super) fn read_links(&self, ports: impl Fn(u32) -> bool) -> Option<Told> {
        let mut last = Last::default();
        let whole = self.read(|message| last.keep(message, &ports));
        whole.then(|| last.decode())
    }

    /// Each message that has come so far. False when some were lost.
    fn read(&self, mut each: impl FnMut(&[u8])) -> bool {
        let mut buffer = Vec::with_capacity(8192);
        let mut whole = true;
        loop {
            buffer.clear();
            match self.socket.recv_from(&mut buffer, 0) {
                // Only the kernel (port 0) is listened to.
                Ok((_, from)) if from.port_number() != 0 => {}
                Ok(_) => {
                    whole &= is_whole(&buffer);
                    each(&buffer);
                }
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => whole = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return whole,
            }
        }
    }
}

/// It was not longer than the buffer.
fn is_whole(message: &[u8]) -> bool {
    let length = message.get(..4).and_then(|field| field.try_into().ok()).map(u32::from_ne_bytes);
    length.is_some_and(|length| length as usize <= message.len())
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
