//! Who has an address, and who waits for one.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The network namespace of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netns {
    /// `CNI_NETNS`, as the container runtime sees it.
    pub path: String,
    /// Of the file at the path.
    pub device: u64,
    /// Of the file at the path.
    pub inode: u64,
}

impl Netns {
    /// The namespace at a path.
    pub fn at(path: &str) -> io::Result<Self> {
        let file = std::fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), device: file.dev(), inode: file.ino() })
    }
}

/// True when the namespace of a lease is gone: its path is missing or is another (device, inode). The caller has to see
/// the paths of the container runtime.
pub fn is_gone(netns: &Netns) -> bool {
    match Netns::at(&netns.path) {
        Ok(found) => found != *netns,
        Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}

/// An address of an interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// `CNI_CONTAINERID`: the sandbox.
    pub container: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The address.
    pub address: IpAddr,
    /// `metadata.namespace` of the pod.
    pub namespace: String,
    /// `metadata.name` of the pod.
    pub pod: String,
    /// Of the sandbox.
    pub netns: Netns,
}

/// An interface of a pod that waits for an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// `CNI_CONTAINERID`: the sandbox.
    pub container: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `metadata.namespace` of the pod.
    pub namespace: String,
    /// `metadata.name` of the pod.
    pub pod: String,
    /// The address that it asks for; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Of the sandbox.
    pub netns: Netns,
}

/// An interface of a pod that asks for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester {
    /// `CNI_CONTAINERID`: the sandbox. Without a dot.
    pub container: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `metadata.namespace` of the pod.
    pub namespace: String,
    /// `metadata.name` of the pod.
    pub pod: String,
    /// The addresses that it asks for, of all its networks. A pool goes by the one of its own network.
    pub wanted: Vec<IpAddr>,
    /// Of the sandbox.
    pub netns: Netns,
}

impl Requester {
    pub(crate) fn lease(&self, address: IpAddr) -> Lease {
        Lease {
            container: self.container.clone(),
            ifname: self.ifname.clone(),
            address,
            namespace: self.namespace.clone(),
            pod: self.pod.clone(),
            netns: self.netns.clone(),
        }
    }

    pub(crate) fn waiting(&self, address: Option<IpAddr>) -> Waiting {
        Waiting {
            container: self.container.clone(),
            ifname: self.ifname.clone(),
            namespace: self.namespace.clone(),
            pod: self.pod.clone(),
            address,
            netns: self.netns.clone(),
        }
    }
}

/// True for names that are safe as a part of a path.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Checks a name that comes from outside.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), Error> {
    if is_name(name) { Ok(()) } else { Err(Error::Name { what, name: name.chars().take(253).collect() }) }
}

/// The name of the files of an interface.
pub(crate) fn file_name(container: &str, ifname: &str) -> Result<String, Error> {
    check_name("container ID", container)?;
    check_name("interface", ifname)?;
    if container.contains('.') {
        return Err(Error::Container(container.to_owned()));
    }
    let name = format!("{container}.{ifname}");
    check_name("container ID and interface", &name)?;
    Ok(name)
}
