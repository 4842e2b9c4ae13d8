//! Keeps the data plane at what the running configurations say, and watches RSTP.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::dataplane::DataPlaneError;
use crate::dataplane::cables;
use crate::dataplane::lab::Lab;
use crate::dataplane::ovs::Ovs;
use crate::dataplane::plan::Plan;
use crate::dataplane::rstp::{self, Tree};
use crate::dataplane::settings::Setting;
use crate::switch::Switch;

/// How often RSTP is looked at: while something is under way, and when nothing is.
const BUSY: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(1);

/// What is known of the data plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// The version of running that is in force, by switch.
    pub(super) applied: BTreeMap<String, u64>,
    /// The interfaces that are switched on.
    pub(super) up: BTreeSet<String>,
    /// RSTP's state.
    pub(super) tree: Tree,
    /// Whether RSTP has settled and traffic flows accordingly.
    pub(super) settled: bool,
    /// What failed last.
    pub(super) problem: Option<String>,
}

/// Owns the data plane.
#[derive(Debug)]
pub(super) struct Follower {
    plan: Arc<Plan>,
    switches: BTreeMap<String, Arc<Switch>>,
    /// By interface, as they are in force.
    settings: BTreeMap<String, Setting>,
    observed: watch::Sender<Observed>,
    // Dropped before the namespace that it is in.
    ovs: Ovs,
    lab: Lab,
}

impl Follower {
    /// Makes all of it.
    pub(super) async fn start(
        plan: Arc<Plan>,
        directory: &Path,
        switches: BTreeMap<String, Arc<Switch>>,
    ) -> Result<Self, DataPlaneError> {
        let lab = Lab::new().await?;
        let ovs = Ovs::start(&lab, directory).await?;
        cables::lay(&lab, &plan).await?;
        let versions = versions(&switches);
        let settings = settings(&plan, &switches);
        // Interfaces come up after RSTP is on: a loop would not wait for it.
        ovs.build(&lab, &plan, |interface| settings[interface].clone()).await?;
        let up: BTreeSet<_> = up(&settings).map(str::to_owned).collect();
        for interface in &up {
            cables::set_up(&lab, interface, true).await?;
        }
        let observed = Observed { applied: versions, up, ..Observed::default() };
        Ok(Self { plan, switches, settings, observed: watch::Sender::new(observed), ovs, lab })
    }

    /// What is known, from here on.
    pub(super) fn observed(&self) -> watch::Receiver<Observed> {
        self.observed.subscribe()
    }

    /// A path of the namespace of the switches.
    pub(super) fn netns(&self) -> PathBuf {
        self.lab.netns()
    }

    /// Follows until told to stop, then removes everything. `changes` tells that some running configuration is
    /// another.
    pub(super) async fn run(mut self, mut changes: watch::Receiver<u64>, stop: CancellationToken) {
        loop {
            let result = self.step().await;
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
            let again = tokio::time::sleep(if busy { BUSY } else { IDLE });
            tokio::select! {
                () = stop.cancelled() => break,
                () = again => {}
                // The sender lives in the switches, and so as long as this.
                _ = changes.changed() => {}
            }
        }
        if let Err(error) = cables::remove(&self.lab).await {
            tracing::warn!(%error, "the kernel removes the interfaces with their namespace");
        }
    }

    /// Puts what is wanted into force, and looks at what became of it.
    async fn step(&mut self) -> Result<(), DataPlaneError> {
        if !self.ovs.runs() {
            self.observed.send_modify(|observed| observed.settled = false);
            self.ovs.restart(&self.lab).await?;
        }
        self.apply().await?;
        let tree = self.ovs.rstp().await?;
        let before = self.observed.borrow().clone();
        let settled = rstp::converged(&self.plan, |interface| before.up.contains(interface), &tree);
        if settled && !before.settled {
            self.ovs.revalidated().await?;
        }
        let after = Observed { tree, settled, ..before.clone() };
        if after != before {
            self.observed.send_replace(after);
        }
        Ok(())
    }

    async fn apply(&mut self) -> Result<(), DataPlaneError> {
        // Before the settings: a change in between is then seen once more, never missed.
        let versions = versions(&self.switches);
        if versions == self.observed.borrow().applied {
            return Ok(());
        }
        let settings = settings(&self.plan, &self.switches);
        let others =
            settings.iter().filter(|(interface, setting)| self.settings.get(*interface) != Some(*setting));
        let changes: Vec<_> = others.map(|(interface, setting)| (interface.as_str(), setting)).collect();
        if !changes.is_empty() {
            self.ovs.change(&self.lab, changes.iter().copied()).await?;
        }
        let mut moved = false;
        for (interface, setting) in changes {
            if self.settings.get(interface).is_none_or(|before| before.up != setting.up) {
                cables::set_up(&self.lab, interface, setting.up).await?;
                moved = true;
            }
        }
        self.ovs.revalidated().await?;
        let up = up(&settings).map(str::to_owned).collect();
        self.settings = settings;
        self.observed.send_modify(|observed| {
            observed.applied = versions;
            observed.up = up;
            observed.settled &= !moved;
        });
        Ok(())
    }
}

/// The versions of the running configurations.
fn versions(switches: &BTreeMap<String, Arc<Switch>>) -> BTreeMap<String, u64> {
    switches.iter().map(|(name, switch)| (name.clone(), *switch.version().borrow())).collect()
}

/// What the running configurations want, by interface.
fn settings(plan: &Plan, switches: &BTreeMap<String, Arc<Switch>>) -> BTreeMap<String, Setting> {
    let configured = plan.bridges.iter().filter_map(|bridge| Some((bridge, switches.get(&bridge.switch)?)));
    let settings = configured.flat_map(|(bridge, switch)| {
        let view = switch.view();
        let ports = bridge.ports.iter();
        ports.map(move |port| (port.interface.clone(), Setting::of(&view, &port.name)))
    });
    settings.collect()
}

/// The interfaces that are on.
fn up(settings: &BTreeMap<String, Setting>) -> impl Iterator<Item = &str> {
    settings.iter().filter(|(_, setting)| setting.up).map(|(interface, _)| interface.as_str())
}
