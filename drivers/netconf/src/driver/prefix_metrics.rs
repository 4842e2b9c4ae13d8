//! How many prefixes the neighbours of each group of BGP sessions announce, as metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Labels of a gauge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    device: String,
    group: String,
}

/// Gauges of prefixes; clones share their values.
#[derive(Clone, Debug, Default)]
pub struct PrefixMetrics {
    prefixes: Family<Labels, Gauge>,
    /// The groups that have a gauge, by device.
    known: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

impl PrefixMetrics {
    /// Registers them as `eno_driver_bgp_prefixes`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("eno_driver");
        let help = "Prefixes that the neighbours of a group of BGP sessions announce to a device";
        registry.register("bgp_prefixes", help, self.prefixes.clone());
    }

    /// Sets the numbers of a device by the owners of its groups, such as `BGPSessionGroup/internet`. Others go.
    pub(super) fn set(&self, device: &str, prefixes: &BTreeMap<String, u64>) {
        let labels = |group: &str| Labels { device: device.to_owned(), group: group.to_owned() };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let groups: BTreeMap<&str, u64> = prefixes
            .iter()
            .map(|(owner, number)| (owner.rsplit('/').next().unwrap_or(owner), *number))
            .collect();
        for group in known.remove(device).unwrap_or_default() {
            if !groups.contains_key(&*group) {
                self.prefixes.remove(&labels(&group));
            }
        }
        for (group, number) in &groups {
            self.prefixes.get_or_create(&labels(group)).set(i64::try_from(*number).unwrap_or(i64::MAX));
        }
        if !groups.is_empty() {
            known.insert(device.to_owned(), groups.keys().map(|group| (*group).to_owned()).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_go_have_no_gauge() {
        let metrics = PrefixMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).expect("encoded");
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        let owners = |all: &[(&str, u64)]| {
            all.iter().map(|(group, number)| (format!("BGPSessionGroup/{group}"), *number)).collect()
        };
        metrics.set("gw1", &owners(&[("a", 3), ("b", 4)]));
        metrics.set("gw2", &owners(&[("a", 1)]));
        metrics.set("gw1", &owners(&[("b", 5)]));
        let mut all = text();
        all.sort();
        assert_eq!(
            all,
            [
                r#"eno_driver_bgp_prefixes{device="gw1",group="b"} 5"#,
                r#"eno_driver_bgp_prefixes{device="gw2",group="a"} 1"#,
            ]
        );
        metrics.set("gw1", &BTreeMap::new());
        metrics.set("gw2", &BTreeMap::new());
        assert_eq!(text(), [""; 0]);
    }
}
