//! Sockets of one namespace that are kept for the next who needs one.

use std::sync::{Mutex, PoisonError};

use super::{Namespace, NamespaceError, Netlink, NetlinkError};

/// How many are kept.
const KEPT: usize = 4;

/// Sockets of one namespace, each used by one at a time.
#[derive(Debug)]
pub struct Pool {
    namespace: Namespace,
    free: Mutex<Vec<Netlink>>,
}

impl Pool {
    /// Of that namespace. None is open yet.
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, free: Mutex::default() }
    }

    /// One of them. The calling thread may be in the namespace after that, or where it was.
    pub fn take<E: From<NamespaceError> + From<NetlinkError>>(&self) -> Result<Netlink, E> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(netlink) = free {
            return Ok(netlink);
        }
        self.namespace.enter()?;
        Ok(Netlink::open()?)
    }

    /// It is not needed any more, and works: one that failed is dropped instead.
    pub fn put(&self, netlink: Netlink) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(netlink);
        }
    }
}
