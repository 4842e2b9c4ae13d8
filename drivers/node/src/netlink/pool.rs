//! Netlink sockets of one namespace, kept open for reuse.

use std::sync::{Mutex, PoisonError};

use super::{Namespace, NamespaceError, Netlink, NetlinkError};

/// Maximum sockets kept open while unused.
const MAX_FREE: usize = 4;

/// Netlink sockets of one namespace, each lent to one user at a time.
#[derive(Debug)]
pub struct Pool {
    namespace: Namespace,
    free: Mutex<Vec<Netlink>>,
}

impl Pool {
    /// An empty pool for that namespace.
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, free: Mutex::default() }
    }

    /// Takes a socket from the pool, or opens one. In the latter case the calling thread enters the namespace and stays
    /// there.
    pub fn take<E: From<NamespaceError> + From<NetlinkError>>(&self) -> Result<Netlink, E> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(netlink) = free {
            return Ok(netlink);
        }
        self.namespace.enter()?;
        Ok(Netlink::open()?)
    }

    /// Returns a working socket to the pool. A socket that failed is to be dropped instead.
    pub fn put(&self, netlink: Netlink) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MAX_FREE {
            free.push(netlink);
        }
    }
}
