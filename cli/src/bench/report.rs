//! The figures, as a table and as JSON.

use std::collections::BTreeMap;

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

use super::restart::Restart;

/// All that was measured. Times are in seconds, unless their name says otherwise.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub(super) size: usize,
    pub(super) switches: usize,
    pub(super) nodes: usize,
    pub(super) concurrency: usize,
    /// From the first create to the last `ready`.
    pub(super) create_to_ready: f64,
    /// The same creates and as many writes as ours, by a client alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bare_client: Option<f64>,
    /// Writes to the API server but for the client's creates, by verb and resource.
    pub(super) our_writes: BTreeMap<String, u64>,
    /// Their sum per pair of a service and an attachment.
    pub(super) our_writes_per_pair: f64,
    /// NETCONF transactions by switch.
    pub(super) transactions: BTreeMap<String, u64>,
    /// Writes while nothing changed, for [`Self::idle_seconds`].
    pub(super) idle_writes: u64,
    pub(super) idle_seconds: u64,
    /// An engine that starts with everything there.
    pub(super) restart: Restart,
    /// One service and one attachment more, from the create to both ready, in milliseconds.
    pub(super) one_change_median_ms: f64,
    pub(super) one_change_p95_ms: f64,
    /// The same between two racks, which concerns their leaves and the spines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) between_racks_ms: Option<BetweenRacks>,
    /// The engine's resident memory with everything there, in MiB.
    pub(super) engine_memory_mib: f64,
    /// The same of the driver of all switches.
    pub(super) driver_memory_mib: f64,
    /// From the first delete until no object, no NetworkAttachmentDefinition and no VLAN is left.
    pub(super) delete_to_nothing: f64,
}

/// Single changes between two racks. Medians, in milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BetweenRacks {
    /// Nothing else changes.
    pub(super) alone: f64,
    /// Before each, one between two other racks is begun,
    pub(super) beside: f64,
    /// of which one has a leaf that takes seconds for every operation,
    pub(super) slow: f64,
    /// or can't be reached.
    pub(super) dead: f64,
}

impl Figures {
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY).set_header(["figure", "measured", "aim"]);
        let mut row = |figure: &str, measured: String, aim: &str| {
            table.add_row([figure, &measured, aim]);
        };
        row("L2Services with an attachment each", self.size.to_string(), "");
        row("switches, nodes", format!("{}, {}", self.switches, self.nodes), "");
        row("first create to last ready", format!("{:.2} s", self.create_to_ready), "");
        if let Some(bare) = self.bare_client {
            row("a bare client's same writes", format!("{bare:.2} s"), "");
            row("ratio", format!("{:.2}", self.create_to_ready / bare), "at most 1.3");
        }
        row("our writes per pair", format!("{:.2}", self.our_writes_per_pair), "at most 3");
        let most = self.transactions.values().max().copied().unwrap_or(0);
        row("NETCONF transactions per switch, at most", most.to_string(), "at most 20");
        let idle = format!("{} in {} s", self.idle_writes, self.idle_seconds);
        row("writes when nothing changes", idle, "0");
        let restart = format!("{:.2} s, {} writes", self.restart.seconds, self.restart.writes);
        row("start of an engine with everything there", restart, "under 10 s at 10,000 objects, 0 writes");
        row("one change, median", format!("{:.0} ms", self.one_change_median_ms), "under 150 ms");
        row("one change, 95th percentile", format!("{:.0} ms", self.one_change_p95_ms), "");
        if let Some(BetweenRacks { alone, beside, slow, dead }) = self.between_racks_ms {
            let added = |ms: f64| format!("{ms:.0} ms, {:+.1}%", (ms / beside - 1.0) * 100.0);
            row("one change between two racks", format!("{alone:.0} ms"), "under 300 ms with 64 switches");
            row("the same beside other racks' changes", format!("{beside:.0} ms"), "");
            row("the same, of these racks one's leaf is slow", added(slow), "less than +5%");
            row("the same, of these racks one's leaf is dead", added(dead), "less than +5%");
        }
        row("engine memory", format!("{:.0} MiB", self.engine_memory_mib), "under 100 MB at 10,000");
        row("netconf driver memory", format!("{:.0} MiB", self.driver_memory_mib), "");
        row("delete to nothing left", format!("{:.2} s", self.delete_to_nothing), "under 10 s at 1,000");
        table
    }
}

/// The value below which a share of the sorted samples is.
pub(super) fn percentile(samples: &mut [f64], percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    samples.get((last * percent).div_ceil(100)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_samples() {
        let mut samples: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert!((percentile(&mut samples, 50) - 51.0).abs() < f64::EPSILON);
        assert!((percentile(&mut samples, 95) - 96.0).abs() < f64::EPSILON);
        assert!(percentile(&mut [], 50).abs() < f64::EPSILON);
    }
}
