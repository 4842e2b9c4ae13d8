//! Metrics of probes, by connection point: those of the last command.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::schedule::{Outcome, Verdict};

/// Labels of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    point: String,
    outcome: &'static str,
}

/// Counters of probes; clones share their values.
#[derive(Clone, Debug, Default)]
pub struct ProbeMetrics {
    probes: Family<Labels, Counter>,
    /// The connection points that have a counter.
    points: Arc<Mutex<BTreeSet<String>>>,
}

/// The outcomes of probes: of the next node, of the next node on another VLAN, then of gateways.
const OUTCOMES: [&str; 8] =
    ["passed", "lost", "too-big", "unasked", "isolated", "leaking", "answered", "silent"];

impl ProbeMetrics {
    /// Registers them under `eno_agent_…`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("eno_agent");
        registry.register("probes", "Probes by connection point and outcome", self.probes.clone());
    }

    /// Removes the counters of other connection points than these.
    pub(super) fn keep(&self, points: &BTreeSet<&str>) {
        let mut known = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|point| {
            let stays = points.contains(point.as_str());
            if !stays {
                for outcome in OUTCOMES {
                    self.probes.remove(&Labels { point: point.clone(), outcome });
                }
            }
            stays
        });
        known.extend(points.iter().map(|point| (*point).to_owned()));
    }

    /// Counts what was found at a connection point, unless it is not wanted any more.
    pub(super) fn count<'a>(&self, point: &str, found: impl Iterator<Item = &'a Outcome>) {
        for outcome in found {
            let of_next = outcome.next.as_ref().map(|next| match next {
                Verdict::Passed => "passed",
                Verdict::Lost => "lost",
                Verdict::TooBig => "too-big",
                Verdict::Unasked(_) => "unasked",
            });
            let gateways = outcome.gateways.values();
            let gateways = gateways.map(|macs| if macs.is_empty() { "silent" } else { "answered" });
            self.count_all(point, of_next.into_iter().chain(gateways));
        }
    }

    /// Counts across how many VLANs the next node has answered, and has not.
    pub(super) fn count_crossing<'a>(&self, point: &str, found: impl Iterator<Item = &'a bool>) {
        self.count_all(point, found.map(|leaks| if *leaks { "leaking" } else { "isolated" }));
    }

    fn count_all(&self, point: &str, outcomes: impl Iterator<Item = &'static str>) {
        let known = self.points.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(point) {
            return;
        }
        for outcome in outcomes {
            let labels = Labels { point: point.to_owned(), outcome };
            self.probes.get_or_create(&labels).inc();
        }
    }
}
