//! Reconciles the data plane with the running configurations and observes RSTP.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::dataplane::DataPlaneError;
use crate::dataplane::namespace::NetworkNamespace;
use crate::dataplane::ovs::Ovs;
use crate::dataplane::plan::{Bridge, Plan};
use crate::dataplane::port_config::PortConfig;
use crate::dataplane::routed::{RoutedVlans, VrfConfig};
use crate::dataplane::rstp::{self, RstpState};
use crate::dataplane::status::VrfStatus;
use crate::dataplane::veth;
use crate::dataplane::vrf::Vrfs;
use crate::dialect::View;
use crate::switch::Switch;

/// Intervals of the reconciliation: while RSTP converges, and afterwards.
const BUSY_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// The observed state of the data plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// The applied version of running, by switch.
    pub(super) applied: BTreeMap<String, u64>,
    /// The interfaces that are enabled.
    pub(super) up: BTreeSet<String>,
    /// The VRFs, by switch and name.
    pub(super) vrfs: BTreeMap<String, BTreeMap<String, VrfStatus>>,
    /// RSTP's state.
    pub(super) rstp: RstpState,
    /// Whether RSTP has converged and flows are up to date.
    pub(super) settled: bool,
    /// The last error; `None` after a success.
    pub(super) problem: Option<String>,
}

/// Owns the data plane and reconciles it.
#[derive(Debug)]
pub(super) struct Reconciler {
    /// The planned bridges and ports.
    plan: Arc<Plan>,
    /// The switches by name.
    switches: BTreeMap<String, Arc<Switch>>,
    /// The applied port configurations by interface.
    port_configs: BTreeMap<String, PortConfig>,
    /// The VRFs that have interfaces.
    vrfs: Vrfs,
    /// Publishes the observed state.
    observed: watch::Sender<Observed>,
    /// Open vSwitch; dropped before its namespace.
    ovs: Ovs,
    /// The network namespace of the data plane.
    namespace: NetworkNamespace,
}

impl Reconciler {
    /// Creates the data plane from the running configurations.
    pub(super) async fn start(
        plan: Arc<Plan>,
        directory: &Path,
        switches: BTreeMap<String, Arc<Switch>>,
    ) -> Result<Self, DataPlaneError> {
        let namespace = NetworkNamespace::new().await?;
        let ovs = Ovs::start(&namespace, directory).await?;
        veth::create_links(&namespace, &plan).await?;
        let versions = versions(&switches);
        let views = views(&switches);
        let port_configs = port_configs(&plan, &switches, &views);
        // Enable interfaces after RSTP, so that no loop forwards frames.
        ovs.create_bridges(&namespace, &plan, |interface| port_configs[interface].clone()).await?;
        let up: BTreeSet<_> = enabled_interfaces(&port_configs).map(str::to_owned).collect();
        for interface in &up {
            veth::set_link_state(&namespace, interface, true).await?;
        }
        let mut vrfs = Vrfs::new(ovs.directory().to_owned())?;
        vrfs.apply(&namespace, &ovs, vrf_configs(&plan, &switches, &views)).await?;
        let observed = Observed { applied: versions, up, vrfs: vrfs.status(), ..Observed::default() };
        Ok(Self {
            plan,
            switches,
            port_configs,
            vrfs,
            observed: watch::Sender::new(observed),
            ovs,
            namespace,
        })
    }

    /// Subscribes to the observed state.
    pub(super) fn observed(&self) -> watch::Receiver<Observed> {
        self.observed.subscribe()
    }

    /// Path of the network namespace of the switches.
    pub(super) fn netns(&self) -> PathBuf {
        self.namespace.netns()
    }

    /// Reconciles until `stop` is cancelled, then deletes the interfaces. `changes` signals a change of any running
    /// configuration.
    pub(super) async fn run(mut self, mut changes: watch::Receiver<u64>, stop: CancellationToken) {
        loop {
            let result = self.reconcile().await;
            let problem = result.err().map(|error| error.to_string());
            let retry = problem.is_some();
            if self.observed.borrow().problem != problem {
                if let Some(problem) = &problem {
                    tracing::warn!(problem, "the data plane is not as it should be");
                }
                self.observed.send_modify(|observed| {
                    observed.settled &= problem.is_none();
                    observed.problem = problem;
                });
            }
            let busy = !retry && !self.observed.borrow().settled;
            let again = tokio::time::sleep(if busy { BUSY_INTERVAL } else { IDLE_INTERVAL });
            tokio::select! {
                () = stop.cancelled() => break,
                () = again => {}
                // Never an error: `switches` hold the sender.
                _ = changes.changed() => {}
            }
        }
        if let Err(error) = veth::delete_links(&self.namespace).await {
            tracing::warn!(%error, "the kernel removes the interfaces with their namespace");
        }
    }

    /// Applies the running configurations and observes the result.
    async fn reconcile(&mut self) -> Result<(), DataPlaneError> {
        if !self.ovs.is_running() {
            self.observed.send_modify(|observed| observed.settled = false);
            self.ovs.restart(&self.namespace).await?;
        }
        self.vrfs.heal(&self.namespace).await?;
        self.apply_port_configs().await?;
        let rstp = self.ovs.rstp().await?;
        let before = self.observed.borrow().clone();
        let settled = rstp::converged(&self.plan, |interface| before.up.contains(interface), &rstp)
            && rstp::second_bridges_are_reached(&self.plan, &rstp);
        if settled && !before.settled {
            self.ovs.wait_for_revalidation().await?;
        }
        let after = Observed { rstp, settled, ..before.clone() };
        if after != before {
            self.observed.send_replace(after);
        }
        Ok(())
    }

    async fn apply_port_configs(&mut self) -> Result<(), DataPlaneError> {
        // Read the versions before the configurations: a change in between is then applied twice instead of missed.
        let versions = versions(&self.switches);
        if versions == self.observed.borrow().applied {
            return Ok(());
        }
        let views = views(&self.switches);
        let port_configs = port_configs(&self.plan, &self.switches, &views);
        let others = port_configs
            .iter()
            .filter(|(interface, config)| self.port_configs.get(*interface) != Some(*config));
        let changes: Vec<_> = others.map(|(interface, config)| (interface.as_str(), config)).collect();
        if !changes.is_empty() {
            self.ovs.change_ports(&self.namespace, changes.iter().copied()).await?;
        }
        let mut links_changed = false;
        for (interface, config) in changes {
            if self.port_configs.get(interface).is_none_or(|before| before.mtu != config.mtu) {
                veth::set_mtu(&self.namespace, interface, config.mtu).await?;
            }
            if self.port_configs.get(interface).is_none_or(|before| before.up != config.up) {
                veth::set_link_state(&self.namespace, interface, config.up).await?;
                links_changed = true;
            }
        }
        let desired = vrf_configs(&self.plan, &self.switches, &views);
        let vrfs = self.vrfs.apply(&self.namespace, &self.ovs, desired).await;
        self.observed.send_if_modified(|observed| {
            let (status, before) = (self.vrfs.status(), std::mem::take(&mut observed.vrfs));
            observed.vrfs = status;
            observed.vrfs != before
        });
        vrfs?;
        self.ovs.wait_for_revalidation().await?;
        let up = enabled_interfaces(&port_configs).map(str::to_owned).collect();
        self.port_configs = port_configs;
        self.observed.send_modify(|observed| {
            observed.applied = versions;
            observed.up = up;
            observed.settled &= !links_changed;
        });
        Ok(())
    }
}

/// The versions of the running configurations.
fn versions(switches: &BTreeMap<String, Arc<Switch>>) -> BTreeMap<String, u64> {
    switches.iter().map(|(name, switch)| (name.clone(), *switch.version().borrow())).collect()
}

/// The views of the running configurations, by switch.
fn views(switches: &BTreeMap<String, Arc<Switch>>) -> BTreeMap<String, View> {
    switches.iter().map(|(name, switch)| (name.clone(), switch.view())).collect()
}

/// The desired port configurations by interface.
fn port_configs(
    plan: &Plan,
    switches: &BTreeMap<String, Arc<Switch>>,
    views: &BTreeMap<String, View>,
) -> BTreeMap<String, PortConfig> {
    let mut port_configs = BTreeMap::new();
    for bridge in &plan.bridges {
        let Some(view) = views.get(&bridge.switch) else { continue };
        let routed = RoutedVlans::new(view);
        let faults = switches.get(&bridge.switch).map(|switch| switch.faults()).unwrap_or_default();
        for port in &bridge.ports {
            // What the cable of this interface is in.
            let name = faults.iter().find_map(|fault| fault.swapped(&port.name)).unwrap_or(&port.name);
            let config = PortConfig::from_view(view, &routed, name).with_faults(name, &faults);
            port_configs.insert(port.interface.clone(), config);
        }
    }
    port_configs
}

/// The desired VRFs by switch and name, with the bridge of the switch.
fn vrf_configs(
    plan: &Plan,
    switches: &BTreeMap<String, Arc<Switch>>,
    views: &BTreeMap<String, View>,
) -> BTreeMap<(String, String), (Bridge, VrfConfig)> {
    let mut configs = BTreeMap::new();
    for bridge in &plan.bridges {
        let Some(view) = views.get(&bridge.switch) else { continue };
        for (name, mut config) in RoutedVlans::new(view).vrfs(view) {
            config.boots = switches.get(&bridge.switch).map_or(0, |switch| switch.boots());
            configs.insert((bridge.switch.clone(), name), (bridge.clone(), config));
        }
    }
    configs
}

/// The enabled interfaces.
fn enabled_interfaces(port_configs: &BTreeMap<String, PortConfig>) -> impl Iterator<Item = &str> {
    port_configs.iter().filter(|(_, config)| config.up).map(|(interface, _)| interface.as_str())
}
