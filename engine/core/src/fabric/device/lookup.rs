//! Where a switch has learnt the MAC addresses of probes: when it is asked, and what it answered.
//!
//! It is asked again when a node got its first verdict at a connection point, when it changes where packets of a node are
//! lost, and when new probes on request are complete. Results that are missing for a while, such as while a path changes, stay as they were.

use std::collections::BTreeMap;

use eno_schemas::{Applied, Station};

use super::DeviceTarget;
use crate::Name;
use crate::status::inputs::Inputs;

/// A node at a connection point.
pub type Prober = (Name, Name);

/// By prober: whether something is lost, and the answered requests.
type Probers = BTreeMap<Prober, (bool, u64)>;

/// What the probes of a node at a connection point found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProberState {
    /// The node and the connection point.
    pub prober: Prober,
    /// The node is at this switch. Else it asks one that is.
    pub is_here: bool,
    /// Something is lost. `None`: there is no verdict, or none now.
    pub lost: Option<bool>,
    /// Identifies the requests for new probes there that are answered.
    pub renewed: u64,
}

/// When a switch is asked, and what it answered.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// Identifies what it is asked for. `None`: it is not asked.
    pub(super) revision: Option<String>,
    /// What the revision stands for. `None`: another process made it.
    probers: Option<Probers>,
    /// What it answered.
    stations: Vec<Station>,
}

impl Lookup {
    /// Notes the present state of probers. Returns true when the revision changes.
    fn update(&mut self, states: &[ProberState]) -> bool {
        let (mut probers, mut is_missing) = (BTreeMap::new(), false);
        let former = self.probers.as_ref();
        for ProberState { prober, is_here, lost, renewed } in states {
            is_missing |= lost.is_none();
            let known = former.and_then(|former| former.get(prober));
            let lost = lost.or_else(|| known.map(|(lost, _)| *lost));
            // A request that is taken back asks nothing.
            let renewed = known.filter(|_| *renewed == 0).map_or(*renewed, |(_, renewed)| *renewed);
            if let Some(lost) = lost.filter(|lost| *is_here || *lost) {
                probers.insert(prober.clone(), (lost, renewed));
            }
        }
        let revision = revision_of(&probers, self.revision.as_deref());
        let former = self.probers.replace(probers);
        // What is missing now may be part of what another process asked for, until nothing is missing.
        let is_kept = match former {
            Some(former) => self.probers.as_ref() == Some(&former),
            None => self.revision.is_some(),
        };
        !(is_missing && is_kept) && self.set(revision)
    }

    fn set(&mut self, revision: Option<String>) -> bool {
        let changes = self.revision != revision;
        self.revision = revision;
        changes
    }
}

/// Identifies the states of probers, and behind a hyphen the answered requests. `None`: there are none. Without a request, those
/// of the revision before stay, which may be of another process.
fn revision_of(probers: &Probers, before: Option<&str>) -> Option<String> {
    let [mut hash, mut requests] = [(); 2].map(|()| Inputs::default());
    for ((node, point), (lost, _)) in probers {
        hash.add(&(&**node, &**point, (lost, 0_u64)));
    }
    let mut renewed = probers.iter().filter(|(_, (_, renewed))| *renewed != 0).peekable();
    let answered = if renewed.peek().is_some() {
        for ((node, point), (_, renewed)) in renewed {
            requests.add(&(&**node, &**point, renewed));
        }
        format!("-{:016x}", requests.finish())
    } else {
        before.and_then(|before| before.find('-').map(|at| before[at..].to_owned())).unwrap_or_default()
    };
    (!probers.is_empty()).then(|| format!("{:016x}{answered}", hash.finish()))
}

impl DeviceTarget {
    /// Decides whether the switch is asked anew for the ports of probes. `states`: of the nodes at it, and of those that ask
    /// them; `None`: its driver answers no lookups. Returns true when its command changes.
    pub fn update_lookup(&mut self, states: Option<&[ProberState]>) -> bool {
        let changes = if let Some(states) = states {
            self.lookup.update(states)
        } else {
            self.lookup.probers = None;
            self.lookup.set(None)
        };
        self.rendering.switch_changed |= changes;
        changes
    }

    /// A former leader asked for this.
    pub(super) fn restore_lookup(&mut self, revision: Option<&String>) {
        self.lookup.revision = revision.cloned();
    }

    /// Takes the answer of a report.
    pub(super) fn observe_lookup(&mut self, applied: Option<&Applied>) {
        self.lookup.stations = match applied {
            Some(Applied::Fabric { lookup: Some(lookup), .. }) => lookup.stations.clone(),
            _ => Vec::new(),
        };
    }

    /// Where the switch has learnt MAC addresses of probes, by its last report.
    pub fn stations(&self) -> &[Station] {
        &self.lookup.stations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(all: &[(&str, bool, Option<bool>)]) -> Vec<ProberState> {
        let state = |(node, is_here, lost): &(&str, bool, Option<bool>)| ProberState {
            prober: ((*node).into(), "cp".into()),
            is_here: *is_here,
            lost: *lost,
            renewed: 0,
        };
        all.iter().map(state).collect()
    }

    #[test]
    fn only_first_verdicts_and_changed_losses_ask_again() {
        let mut lookup = Lookup::default();
        for (all, changes, why) in [
            (&[("n1", true, None)][..], false, "no verdict"),
            (&[("n1", true, Some(false)), ("n2", true, None)], true, "the first one"),
            (&[("n1", true, Some(false)), ("n2", true, None)], false, "nothing new"),
            (
                &[("n1", true, None), ("n2", true, Some(false))],
                true,
                "the second one, and the first one stays",
            ),
            (&[("n1", true, Some(false)), ("n2", true, Some(false))], false, "the first one is there again"),
            (&[("n1", true, Some(true)), ("n2", true, Some(false))], true, "something is lost"),
            (&[("n1", true, None), ("n2", true, None)], false, "both are probed anew"),
            (&[("n1", true, Some(false)), ("n2", true, Some(false))], true, "it passes"),
            (
                &[("n1", true, Some(false)), ("n2", true, Some(false)), ("n9", false, Some(false))],
                false,
                "elsewhere",
            ),
            (
                &[("n1", true, Some(false)), ("n2", true, Some(false)), ("n9", false, Some(true))],
                true,
                "does not reach n1",
            ),
            (&[("n2", true, Some(false))], true, "others are probed no longer"),
            (&[], true, "nothing is probed"),
        ] {
            assert_eq!(lookup.update(&states(all)), changes, "{why}");
        }
        assert_eq!(lookup.revision, None);
    }

    #[test]
    fn answered_request_asks_again() {
        let mut lookup = Lookup::default();
        let state = |renewed| ProberState { renewed, ..states(&[("n1", true, Some(false))]).remove(0) };
        for (renewed, changes) in [(0, true), (1, true), (1, false), (2, true), (0, false), (3, true)] {
            assert_eq!(lookup.update(&[state(renewed)]), changes, "{renewed}");
        }
        // Nor does another process ask for what is answered or taken back.
        for (renewed, changes) in [(3, false), (0, false), (4, true)] {
            let mut restored = Lookup { revision: lookup.revision.clone(), ..Lookup::default() };
            assert_eq!(restored.update(&[state(renewed)]), changes, "{renewed}");
            assert!(!restored.update(&[state(0)]), "{renewed}");
        }
    }

    #[test]
    fn revision_of_a_former_process_stays_while_results_are_missing() {
        let full = states(&[("n1", true, Some(false)), ("n2", true, Some(true))]);
        let part = states(&[("n1", true, Some(false)), ("n2", true, None)]);
        let mut former = Lookup::default();
        assert!(former.update(&full));
        let restored = || Lookup { revision: former.revision.clone(), ..Lookup::default() };
        let mut lookup = restored();
        assert!(!lookup.update(&full));
        let mut lookup = restored();
        assert!(!lookup.update(&part) && !lookup.update(&full), "the same again");
        let mut lookup = restored();
        assert!(lookup.update(&states(&[("n1", true, Some(true)), ("n2", true, Some(true))])));
        let mut lookup = restored();
        assert!(!lookup.update(&states(&[("n1", true, None), ("n2", true, None)])), "all of it is missing");
        assert!(lookup.update(&[]) && lookup.revision.is_none(), "nothing is probed any more");
    }
}
