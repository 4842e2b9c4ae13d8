//! Properties over random fabrics.

use proptest::prelude::*;

use super::model::{Place, carried_out, has, random};
use super::*;

proptest! {
    /// What is broken is named, and nothing that a probe has cleared.
    #[test]
    fn broken_edges_are_named(random in random(12, 24, 0..=2)) {
        let model = random.model();
        let done = carried_out(&random, &model);
        let probes: Vec<Probe> = done.iter().map(|(probe, ..)| probe.clone()).collect();
        let found = locate(&model.topology, &model.ports, &probes);
        let lost: Vec<_> = done.iter().filter(|(probe, ..)| !probe.passed).collect();
        prop_assert_eq!(found.is_empty(), lost.is_empty());
        for (probe, .., met) in &lost {
            prop_assert!(found.iter().any(|suspicion| has(suspicion, met, probe)), "{:?}: {:?}", probe, found);
        }
        let cleared: BTreeSet<&Fault> = done.iter().filter(|(probe, ..)| probe.passed)
            .flat_map(|(_, from, to, _)| model.on_all(*from, *to)).collect();
        for suspicion in &found {
            prop_assert!(suspicion.alone.is_subset(&suspicion.faults) && !suspicion.faults.is_empty());
            prop_assert!(suspicion.faults.iter().all(|fault| !cleared.contains(fault)), "{:?}", suspicion);
            prop_assert!(suspicion.to_string().len() < 320 && suspicion.lost > 0);
        }
        // One fault, which no path of what fails avoids.
        let broken: BTreeSet<&Fault> = lost.iter().flat_map(|(.., met)| met.iter().copied()).collect();
        let is_on_all = |fault: &Fault| lost.iter().all(|(_, from, to, _)| model.on_all(*from, *to).contains(fault));
        if random.broken.len() == 1 && broken.iter().all(|fault| is_on_all(fault)) && !lost.is_empty() {
            prop_assert_eq!(found.len(), 1, "{:?}", found);
            let (probe, .., met) = lost[0];
            prop_assert!(has(&found[0], met, probe));
            prop_assert!(found[0].alone.contains(met[0]) || !found[0].faults.contains(met[0]), "{:?}", found);
            prop_assert_eq!(found[0].lost, lost.len());
        }
    }

    /// Exactly what may explain a probe is named: what is on any of its paths, and not on all of one that passes.
    #[test]
    fn nothing_else_is_named(random in random(5, 7, 0..=3)) {
        let mut random = random;
        random.gateways.retain(|(place, _)| !matches!(place, Place::Anywhere));
        let model = random.model();
        let done = carried_out(&random, &model);
        let probes: Vec<Probe> = done.iter().map(|(probe, ..)| probe.clone()).collect();
        let found = locate(&model.topology, &model.ports, &probes);
        let cleared: BTreeSet<&Fault> = done.iter().filter(|(probe, ..)| probe.passed)
            .flat_map(|(_, from, to, _)| model.on_all(*from, *to)).collect();
        let lost = done.iter().filter(|(probe, ..)| !probe.passed);
        let candidates: Vec<BTreeSet<Fault>> = lost.map(|(_, from, to, _)| {
            model.on_any(*from, *to).difference(&cleared).map(|fault| (*fault).clone()).collect()
        }).collect();
        for suspects in &candidates {
            prop_assert!(found.iter().any(|suspicion| {
                suspects.is_subset(&suspicion.faults)
                    || suspicion.faults.len() == 1 && suspicion.faults.is_subset(suspects)
            }), "{:?}: {:?}", suspects, found);
        }
        for suspicion in &found {
            let mut explained = candidates.iter().filter(|suspects| !suspects.is_disjoint(&suspicion.faults));
            prop_assert!(explained.clone().count() >= suspicion.lost);
            prop_assert!(suspicion.faults.iter().all(|fault| explained.clone().any(|set| set.contains(fault))));
            for fault in &suspicion.alone {
                let explains = candidates.iter().filter(|set| set.contains(fault)).count();
                prop_assert!(explains >= suspicion.lost, "{:?}", suspicion);
            }
            // Nothing is left out that explains all alone.
            if let Some(first) = explained.next().cloned() {
                let all = explained.fold(first, |all, set| &all & set);
                prop_assert!(all.is_subset(&suspicion.alone), "{:?}: {:?}", all, suspicion);
            }
        }
    }
}
