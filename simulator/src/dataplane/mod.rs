//! The data plane: switches that forward frames.
//!
//! Each switch is a bridge of one private Open vSwitch in userspace (no kernel module). Links are veth pairs with RSTP
//! over them. Each port follows the running configuration of its switch. Each VRF with interfaces is a further network
//! namespace with an interface on the bridge of its device, and has daemons of FRR if it speaks BGP. The data plane runs in a network namespace of its own that
//! ends with this process (see [`namespace`]). Only the interfaces of [`PortWire`]s are visible outside.

mod frr;
mod mac_table;
mod namespace;
mod ovs;
mod plan;
mod port_config;
mod reconciler;
mod routed;
mod rstp;
mod status;
mod unixctl;
mod veth;
mod vrf;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dataplane::plan::Plan;
use crate::dataplane::reconciler::{Observed, Reconciler};
use crate::switch::Switch;
use crate::topology::Topology;

pub(crate) use frr::BgpReader;
pub(crate) use mac_table::MacTableReader;
pub use status::{BridgeStatus, DataPlaneStatus, DataPort, HostStatus, VrfStatus, Wire};

/// Options of a data plane. It needs root: CAP_SYS_ADMIN and CAP_NET_ADMIN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataPlaneOptions {
    /// Directory of Open vSwitch's database, sockets and logs. It is created if absent; the files of an earlier run
    /// are replaced.
    pub directory: PathBuf,
    /// The external interfaces that are connected to switch ports.
    pub wires: Vec<PortWire>,
}

/// An external interface and the switch port to which it is connected. Its text form is
/// `SWITCH/PORT=[NETNS:]INTERFACE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortWire {
    /// The switch's name.
    pub switch: String,
    /// The port's name. The port must have no link in the topology.
    pub port: String,
    /// Path of the network namespace that gets the interface, such as `/run/netns/node1`; that of this process if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<PathBuf>,
    /// The interface's name there, which must be free.
    pub interface: String,
}

/// The text is not a wire.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not of the form SWITCH/PORT=[NETNS:]INTERFACE")]
pub struct PortWireError(String);

impl FromStr for PortWire {
    type Err = PortWireError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = || {
            // Port names may contain slashes and paths any character. Names of switches and interfaces contain no
            // slash, names of interfaces no colon.
            let (port, interface) = text.split_once('=')?;
            let (switch, port) = port.split_once('/')?;
            let (netns, interface) = match interface.rsplit_once(':') {
                Some((netns, interface)) => (Some(netns), interface),
                None => (None, interface),
            };
            let whole = !switch.is_empty() && !port.is_empty() && netns.is_none_or(|path| !path.is_empty());
            (whole && is_interface_name(interface)).then(|| PortWire {
                switch: switch.to_owned(),
                port: port.to_owned(),
                netns: netns.map(PathBuf::from),
                interface: interface.to_owned(),
            })
        };
        parts().ok_or_else(|| PortWireError(text.to_owned()))
    }
}

impl fmt::Display for PortWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}=", self.switch, self.port)?;
        if let Some(netns) = &self.netns {
            write!(f, "{}:", netns.display())?;
        }
        f.write_str(&self.interface)
    }
}

/// Whether the kernel accepts an interface name (`dev_valid_name`). A leading `-` is refused too: programs would
/// parse the name as an option.
fn is_interface_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= 15
        && !name.starts_with('-')
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

/// The data plane failed to start or to apply a configuration.
#[derive(Debug, thiserror::Error)]
pub enum DataPlaneError {
    /// A wire names a port that does not exist.
    #[error("wire {wire}: the topology has no port {} on a switch {}", wire.port, wire.switch)]
    NoSuchPort {
        /// The wire.
        wire: PortWire,
    },
    /// A wire names a port that is already connected.
    #[error("wire {wire}: the port is taken by a link or another wire")]
    PortTaken {
        /// The wire.
        wire: PortWire,
    },
    /// Two wires name the same interface.
    #[error("wire {wire}: the interface is named twice")]
    InterfaceTwice {
        /// The wire.
        wire: PortWire,
    },
    /// The interface name of a wire is invalid.
    #[error("wire {wire}: {:?} can't be an interface's name", wire.interface)]
    InterfaceName {
        /// The wire.
        wire: PortWire,
    },
    /// A program is missing. A retry helps once the package is installed.
    #[error("{program} is not installed: it is in Debian's package {package}")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// Its Debian package.
        package: &'static str,
    },
    /// The network namespace can't be created.
    #[error("making a network namespace for the switches (this needs root): {source}")]
    Namespace {
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file of the data plane can't be read or written.
    #[error("{}: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A program can't be started.
    #[error("starting {program}: {source}")]
    Start {
        /// The program.
        program: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A program exited with an error.
    #[error("`{command}` failed ({status}): {errors}")]
    Failed {
        /// The command line, truncated.
        command: String,
        /// The exit status.
        status: String,
        /// Its standard error.
        errors: String,
    },
    /// A daemon exited or doesn't respond. A retry helps: it restarts the daemon.
    #[error("{program} {problem}; its log: {}", log.display())]
    Daemon {
        /// The program.
        program: &'static str,
        /// The problem.
        problem: String,
        /// Its log file.
        log: PathBuf,
    },
}

/// A running data plane. It stops with its fabric.
#[derive(Debug)]
pub struct DataPlane {
    plan: Arc<Plan>,
    switches: BTreeMap<String, Arc<Switch>>,
    observed: watch::Receiver<Observed>,
    netns: PathBuf,
}

impl DataPlane {
    /// Creates bridges and interfaces from the running configurations, and starts the reconciler. RSTP then begins to
    /// converge; [`DataPlane::settled`] waits for it.
    pub(crate) async fn start(
        topology: &Topology,
        options: &DataPlaneOptions,
        switches: &BTreeMap<String, Arc<Switch>>,
        changes: watch::Receiver<u64>,
        shutdown: CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<Self, DataPlaneError> {
        if let Some(wire) = options.wires.iter().find(|wire| !is_interface_name(&wire.interface)) {
            return Err(DataPlaneError::InterfaceName { wire: wire.clone() });
        }
        let plan = Arc::new(Plan::new(topology, &options.wires)?);
        let reconciler = Reconciler::start(Arc::clone(&plan), &options.directory, switches.clone()).await?;
        for bridge in &plan.bridges {
            if let Some(switch) = switches.get(&bridge.switch) {
                switch.learn_from(MacTableReader::new(options.directory.clone(), bridge));
                switch.read_bgp_from(BgpReader::new(options.directory.clone(), bridge));
            }
        }
        let (observed, netns) = (reconciler.observed(), reconciler.netns());
        tasks.spawn(reconciler.run(changes, shutdown));
        Ok(Self { plan, switches: switches.clone(), observed, netns })
    }

    /// The current status.
    pub fn status(&self) -> DataPlaneStatus {
        let observed = self.observed.borrow();
        DataPlaneStatus::new(&self.plan, &observed, self.in_force(&observed))
    }

    /// Waits until all current running configurations, or later ones, are applied and RSTP has converged. It has no
    /// timeout; [`DataPlane::status`] reports problems.
    pub async fn settled(&self) {
        let mut observed = self.observed.clone();
        if observed.wait_for(|observed| self.in_force(observed)).await.is_err() {
            // The data plane has ended.
            std::future::pending::<()>().await;
        }
    }

    /// Path of the network namespace of the switches. Processes of the same user can open it while the fabric runs.
    pub fn netns(&self) -> &std::path::Path {
        &self.netns
    }

    fn in_force(&self, observed: &Observed) -> bool {
        let applied = |switch: &Switch| observed.applied.get(&switch.name).copied().unwrap_or_default();
        observed.settled && self.switches.values().all(|switch| applied(switch) >= *switch.version().borrow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_round_trips_through_text() {
        for text in ["leaf1/Ethernet1=eth1", "s/xe-0/0/1=/run/netns/a:b:eth1", "l.1/e=/proc/12/ns/net:eth-0"]
        {
            let wire: PortWire = text.parse().expect(text);
            assert_eq!(wire.to_string(), text);
        }
        let wire: PortWire = "s/xe-0/0/1=/run/netns/a:b:eth1".parse().expect("a wire");
        assert_eq!((wire.port.as_str(), wire.interface.as_str()), ("xe-0/0/1", "eth1"));
        for bad in [
            "",
            "leaf1",
            "leaf1/p",
            "leaf1=eth1",
            "/p=e",
            "s/=e",
            "s/p=",
            "s/p=:e",
            "s/p=0123456789abcdef",
            "s/p=-x",
        ] {
            assert!(bad.parse::<PortWire>().is_err(), "{bad}");
        }
    }
}
