//! The data plane: switches that really forward, and really drop.
//!
//! Each switch is a bridge of one private Open vSwitch in userspace (no kernel module), links are pairs of
//! interfaces with RSTP over them, and each port does at any time what the switch's running configuration
//! says. All of it lives in a network namespace of its own that ends with this process (see [`namespace`]); others
//! see only the interfaces that they asked for ([`PortWire`]).

mod namespace;
mod ovs;
mod plan;
mod port_config;
mod reconciler;
mod rstp;
mod status;
mod unixctl;
mod veth;

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

pub use status::{BridgeStatus, DataPlaneStatus, DataPort, Wire};

/// How a data plane is run. It needs root: CAP_SYS_ADMIN and CAP_NET_ADMIN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataPlaneOptions {
    /// For Open vSwitch's database, sockets and logs; made when it isn't there. What an earlier run left in it
    /// is replaced.
    pub directory: PathBuf,
    /// What is plugged into the switches.
    pub wires: Vec<PortWire>,
}

/// An interface outside the fabric and the port that it is plugged into. Written
/// `SWITCH/PORT=[NETNS:]INTERFACE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortWire {
    /// The switch's name.
    pub switch: String,
    /// The port's name; no link of the topology has it.
    pub port: String,
    /// A path of the network namespace that gets the interface, such as `/run/netns/node1`; when absent, the
    /// one in which this process runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<PathBuf>,
    /// The name that the interface gets there; it must not be taken.
    pub interface: String,
}

/// Text that is no wire.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not of the form SWITCH/PORT=[NETNS:]INTERFACE")]
pub struct PortWireError(String);

impl FromStr for PortWire {
    type Err = PortWireError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = || {
            // Ports may have a slash in their names and a path may have anything, but neither switches nor
            // interfaces have a slash, and interfaces no colon.
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

/// What the kernel takes for a name (`dev_valid_name`), less what programs would take for an option.
fn is_interface_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= 15
        && !name.starts_with('-')
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

/// Why there is no data plane.
#[derive(Debug, thiserror::Error)]
pub enum DataPlaneError {
    /// A wire into nothing.
    #[error("wire {wire}: the topology has no port {} on a switch {}", wire.port, wire.switch)]
    NoSuchPort {
        /// The wire.
        wire: PortWire,
    },
    /// A port has one cable.
    #[error("wire {wire}: the port is taken by a link or another wire")]
    PortTaken {
        /// The wire.
        wire: PortWire,
    },
    /// One interface for two wires.
    #[error("wire {wire}: the interface is named twice")]
    InterfaceTwice {
        /// The wire.
        wire: PortWire,
    },
    /// The interface's name isn't one.
    #[error("wire {wire}: {:?} can't be an interface's name", wire.interface)]
    InterfaceName {
        /// The wire.
        wire: PortWire,
    },
    /// A program that isn't there. A retry helps once the package is installed.
    #[error("{program} is not installed: it is in Debian's package {package}")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// Where it is from.
        package: &'static str,
    },
    /// The network namespace.
    #[error("making a network namespace for the switches (this needs root): {source}")]
    Namespace {
        /// What the system said.
        source: io::Error,
    },
    /// A file of the data plane.
    #[error("{}: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program can't be started.
    #[error("starting {program}: {source}")]
    Start {
        /// The program.
        program: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A program was not content.
    #[error("`{command}` failed ({status}): {errors}")]
    Failed {
        /// The program and the first of its arguments.
        command: String,
        /// How it ended.
        status: String,
        /// What it wrote.
        errors: String,
    },
    /// A daemon ended, or doesn't answer. A retry helps: it is started again.
    #[error("{program} {problem}; its log: {}", log.display())]
    Daemon {
        /// The program.
        program: &'static str,
        /// What it did.
        problem: String,
        /// Its log.
        log: PathBuf,
    },
}

/// A running data plane. It ends with its fabric.
#[derive(Debug)]
pub struct DataPlane {
    plan: Arc<Plan>,
    switches: BTreeMap<String, Arc<Switch>>,
    observed: watch::Receiver<Observed>,
    netns: PathBuf,
}

impl DataPlane {
    /// Makes the bridges and the interfaces, with the running configurations in force, and follows these from
    /// then on. RSTP begins with this; [`DataPlane::settled`] waits for its end.
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
        let (observed, netns) = (reconciler.observed(), reconciler.netns());
        tasks.spawn(reconciler.run(changes, shutdown));
        Ok(Self { plan, switches: switches.clone(), observed, netns })
    }

    /// What it is and what it does at present.
    pub fn status(&self) -> DataPlaneStatus {
        let observed = self.observed.borrow();
        DataPlaneStatus::new(&self.plan, &observed, self.in_force(&observed))
    }

    /// Completes when every running configuration of this moment, or a later one, is in force and RSTP has
    /// settled. It waits for ever when that can't be: [`DataPlane::status`] says why.
    pub async fn settled(&self) {
        let mut observed = self.observed.clone();
        if observed.wait_for(|observed| self.in_force(observed)).await.is_err() {
            // The data plane has ended.
            std::future::pending::<()>().await;
        }
    }

    /// A path of the network namespace that holds the switches, for looking at them from outside. Processes of
    /// this user can open it while the fabric runs.
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
    fn wires_read_as_they_are_written() {
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
