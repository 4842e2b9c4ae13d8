//! What the host's networks read of the kernel, and how they change it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use super::interface::{SYSCTLS, Settings};
use super::state::{Installation, State};
use super::{HostError, ownership};
use crate::netlink::{Ethtool, Kind, Link, Netlink, NetlinkError, Nftables, Request, TableChange};
use crate::pods::sysctl;

/// A change of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A request of rtnetlink.
    Netlink(Request),
    /// Changes ENO's table of nftables.
    Nftables(TableChange),
    /// Sets a sysctl of an interface.
    Sysctl {
        /// The interface.
        interface: String,
        /// Such as `ipv4/conf/rp_filter`.
        key: &'static str,
        /// The value.
        value: &'static str,
    },
    /// Has the kernel compute the checksums of what an interface sends.
    ComputeChecksums {
        /// The interface.
        interface: String,
        /// Its index.
        index: u32,
    },
}

impl From<Request> for Change {
    fn from(request: Request) -> Self {
        Self::Netlink(request)
    }
}

impl From<TableChange> for Change {
    fn from(change: TableChange) -> Self {
        Self::Nftables(change)
    }
}

impl Change {
    /// The operation; completes "can't …".
    pub fn operation(&self) -> String {
        match self {
            Self::Netlink(request) => request.operation().to_owned(),
            Self::Nftables(change) => change.operation().to_owned(),
            Self::Sysctl { interface, key, value } => {
                format!("set the sysctl {key} of {interface} to {value}")
            }
            Self::ComputeChecksums { interface, .. } => format!("have {interface} compute checksums"),
        }
    }
}

/// Access to the kernel: real, counted, or interrupted in tests.
pub trait Kernel {
    /// Reads the observed state. `group`: the group of ENO's interfaces ([`ownership::group`]).
    fn state(&mut self, group: u32) -> Result<State, HostError>;
    /// Carries out one change.
    fn change(&mut self, change: Change) -> Result<(), HostError>;
}

/// The kernel of the calling thread's namespace.
#[derive(Debug)]
pub struct HostKernel {
    netlink: Netlink,
    installation: Arc<Installation>,
}

impl HostKernel {
    /// Opens it.
    pub fn open(installation: Arc<Installation>) -> Result<Self, NetlinkError> {
        Ok(Self { netlink: Netlink::open()?, installation })
    }

    /// The settings of an interface for BGP sessions.
    fn settings(&mut self, link: &Link) -> Result<Settings, HostError> {
        let read = |key: &str| {
            let path = self.installation.proc_sys_net.join(sysctl::path(key, &link.name)?);
            // An interface without IPv6 has no sysctls of it, and one that is gone by now has none.
            fs::read_to_string(path).ok().map(|value| value.trim().to_owned())
        };
        Ok(Settings {
            sysctls: SYSCTLS.map(|(key, _)| read(key)),
            program: self.netlink.ingress_program(link.index)?,
            // Who can't be asked is told, and the error of that is reported.
            leaves_checksums: link.kind == Kind::Veth
                && Ethtool::open()
                    .and_then(|mut ethtool| ethtool.leaves_checksums(link.index))
                    .unwrap_or(true),
        })
    }
}

impl Kernel for HostKernel {
    fn state(&mut self, group: u32) -> Result<State, HostError> {
        let snapshot = self.netlink.snapshot()?;
        let ours = |index: Option<u32>| {
            index.and_then(|index| snapshot.link(index)).is_some_and(|link| {
                link.group == group && matches!(link.kind, Kind::Bridge { vlan_filtering: true, .. })
            })
        };
        // Ports of pods have neither a recorded original setting nor this group: their VLANs are not read.
        let ports = snapshot.links.iter().filter(|link| {
            ours(link.master)
                && (link.group == group
                    || link.altnames.iter().any(|name| ownership::is_original_altname(name)))
        });
        let mut vlans = BTreeMap::new();
        for port in ports {
            vlans.insert(port.index, self.netlink.port_vlans(port.index)?);
        }
        let mut interfaces = BTreeMap::new();
        let for_sessions =
            |link: &&Link| link.group == group && link.name.starts_with(ownership::INTERFACE_PREFIX);
        for link in snapshot.links.iter().filter(for_sessions) {
            interfaces.insert(link.index, self.settings(link)?);
        }
        // Where it can't be asked there is no table. A change then fails with the reason.
        let chains = match Nftables::open() {
            Ok(mut nftables) => nftables.rules()?,
            Err(_) => BTreeMap::new(),
        };
        Ok(State { snapshot, vlans, interfaces, chains, installation: Arc::clone(&self.installation) })
    }

    fn change(&mut self, change: Change) -> Result<(), HostError> {
        match change {
            Change::Netlink(request) => Ok(self.netlink.execute(request)?),
            Change::Nftables(change) => Ok(Nftables::open()?.execute(&change)?),
            Change::ComputeChecksums { interface, index } => {
                Ok(Ethtool::open()?.compute_checksums(&interface, index)?)
            }
            Change::Sysctl { ref interface, key, value } => {
                let path = sysctl::path(key, interface).unwrap_or_default();
                fs::write(self.installation.proc_sys_net.join(path), value)
                    .map_err(|source| HostError::Sysctl { operation: change.operation(), source })
            }
        }
    }
}
