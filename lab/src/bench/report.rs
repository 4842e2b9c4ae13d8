//! The figures, as a table and as JSON.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::{Deserialize, Serialize};

use super::changes::Changes;
use super::counters::{Cpu, NATS_SERVER};
use super::gateway::Gateway;
use super::pod_latency::Answers;
use super::restart::Restart;

/// All figures. Times are in seconds, unless their name says otherwise.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    /// Number of attachments.
    pub(super) size: usize,
    /// Number of switches.
    pub(super) switches: usize,
    /// Number of nodes.
    pub(super) nodes: usize,
    /// Concurrent requests of the client.
    pub(super) concurrency: usize,
    /// From the first create to the last `ready`.
    pub(super) create_to_ready: f64,
    /// The baseline: the same creates and as many writes, by a client alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bare_client: Option<f64>,
    /// The baseline's deletion of everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bare_client_deleting: Option<f64>,
    /// CPU time of the parts.
    pub(super) cpu: CpuSeconds,
    /// Writes to the API server without the client's creates, by verb and resource.
    pub(super) our_writes: BTreeMap<String, u64>,
    /// The number of these writes per pair of service and attachment.
    pub(super) our_writes_per_pair: f64,
    /// NETCONF transactions by switch.
    pub(super) transactions: BTreeMap<String, u64>,
    /// Writes while nothing changed, for [`Self::idle_seconds`].
    pub(super) idle_writes: u64,
    /// Seconds without changes.
    pub(super) idle_seconds: u64,
    /// The start of an engine with all objects existing.
    pub(super) restart: Restart,
    /// Median time of one more service and attachment, from the create to both ready, in milliseconds.
    pub(super) one_change_median_ms: f64,
    /// The 95th percentile of the same, in milliseconds.
    pub(super) one_change_p95_ms: f64,
    /// Single changes for each number of pairs there. The last one is the number of all.
    #[serde(default)]
    pub(super) changes: Vec<Changes>,
    /// One change between two racks, which involves their leaves and the spines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) between_racks_ms: Option<BetweenRacks>,
    /// The engine's resident memory with all objects existing, in MiB.
    pub(super) engine_memory_mib: f64,
    /// The netconf driver's resident memory, in MiB.
    pub(super) driver_memory_mib: f64,
    /// The largest resident memory of each part, in MiB.
    #[serde(default)]
    pub(super) peak_memory_mib: BTreeMap<String, u64>,
    /// Memory limits of containers in the manifests, in MiB, of the engine and of NATS.
    #[serde(default)]
    pub(super) memory_limits_mib: BTreeMap<String, u64>,
    /// From the first delete until no object, no NetworkAttachmentDefinition and no VLAN is left.
    pub(super) delete_to_nothing: f64,
    /// All writes to the API server in that time.
    pub(super) deleting_writes: BTreeMap<String, u64>,
    /// Networks in VRFs of a router against the same on a PhysicalNetwork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gateway: Option<Gateway>,
    /// On real nodes, from a running pod's label to its first answer over the fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answers: Option<Answers>,
}

/// CPU seconds of each part.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CpuSeconds {
    /// From the first create to the last `ready`.
    pub(super) creating: Cpu,
    /// From the first delete until nothing is left.
    pub(super) deleting: Cpu,
    #[serde(default, skip_serializing_if = "Cpu::is_empty")]
    pub(super) bare_creating: Cpu,
    #[serde(default, skip_serializing_if = "Cpu::is_empty")]
    pub(super) bare_deleting: Cpu,
}

/// Single changes between two racks. Medians, in milliseconds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BetweenRacks {
    /// Nothing else changes.
    pub(super) alone: f64,
    /// Before each, a change between two other racks is started.
    pub(super) beside: f64,
    /// One of those racks has a leaf that takes seconds for every operation.
    pub(super) slow: f64,
    /// One of those racks has an unreachable leaf.
    pub(super) dead: f64,
}

/// Maximum of a figure divided by its target.
const MAX_TIMES: f64 = 1.2;
/// The parts whose CPU time for one change must not depend on what is there.
const PARTS_OF_A_CHANGE: [&str; 3] = [eno_parts::ENGINE.name, NATS_SERVER, eno_parts::DRIVER_NETCONF.name];
/// The figure of [`Changes::sent_bytes_per_switch`].
const SENT_BYTES: &str = "bytes on NATS of one change, per switch";
/// Number of switches from which on a fabric counts as large.
const LARGE: usize = 64;

/// A row of the table.
struct Row {
    figure: &'static str,
    measured: String,
    target: Option<Target>,
}

/// The target of a figure.
struct Target {
    text: &'static str,
    /// The figure divided by its bound; 0 when the bound is met.
    times: f64,
}

impl Row {
    fn plain(figure: &'static str, measured: String) -> Self {
        Self { figure, measured, target: None }
    }

    fn at_most(figure: &'static str, measured: String, value: f64, bound: f64, text: &'static str) -> Self {
        let times = if value <= bound { 0.0 } else { value / bound };
        Self { figure, measured, target: Some(Target { text, times }) }
    }
}

impl Figures {
    pub(super) fn table(&self) -> Table {
        let mut table = eno::screen::bordered_table(&["figure", "measured", "aim"]);
        for Row { figure, measured, target } in self.rows() {
            table.add_row([figure, &measured, target.map_or("", |target| target.text)]);
        }
        table
    }

    /// The figures as a table in Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut text = "| figure | measured | aim |\n|---|---|---|\n".to_owned();
        for Row { figure, measured, target } in self.rows() {
            let aim = target.map_or("", |target| target.text);
            text.extend(["| ", figure, " | ", &measured, " | ", aim, " |\n"]);
        }
        text
    }

    /// The figures that are more than 1.2 times their target.
    pub(super) fn missed(&self) -> Vec<String> {
        let missed = |row: &Row| row.target.as_ref().is_some_and(|target| target.times > MAX_TIMES);
        let text = |row: Row| {
            let target = row.target.map_or("", |target| target.text);
            format!("{}: {} (aim: {target})", row.figure, row.measured)
        };
        self.rows().into_iter().filter(missed).map(text).collect()
    }

    fn rows(&self) -> Vec<Row> {
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let [pairs, most, idle, writes] = [
            self.size as u64,
            self.transactions.values().max().copied().unwrap_or(0),
            self.idle_writes,
            self.restart.writes,
        ]
        .map(|count| count as f64);
        // A target for a number of pairs holds for fewer as well, and scales with more.
        let scale_above = |count: f64| (pairs / count).max(1.0);
        let is_large = self.switches >= LARGE;
        // With few pairs, the operator's fixed delays dominate.
        let against_bare_client = |figure, ratio: f64, few: (f64, &'static str)| {
            let value = if self.size < 1000 { 0.0 } else { ratio };
            let large = (2.0, "at most 2.0 from 1,000 on, with 64 switches");
            let (bound, text) = if is_large { large } else { few };
            Row::at_most(figure, format!("{ratio:.2}"), value, bound, text)
        };
        let cpu = |cpu: &Cpu| {
            let text = cpu.iter().map(|(part, seconds)| format!("{part} {seconds:.1}"));
            text.collect::<Vec<_>>().join(", ")
        };
        let mut rows = vec![
            Row::plain("L2Services with an attachment each", self.size.to_string()),
            Row::plain("switches, nodes", format!("{}, {}", self.switches, self.nodes)),
            Row::plain("first create to last ready", format!("{:.2} s", self.create_to_ready)),
        ];
        if let Some(bare) = self.bare_client {
            let ratio = self.create_to_ready / bare;
            rows.push(Row::plain("a bare client's same writes", format!("{bare:.2} s")));
            rows.push(against_bare_client("ratio of creating", ratio, (1.3, "at most 1.3 from 1,000 on")));
        }
        let per_pair = self.our_writes_per_pair;
        let since_leading = self.restart.seconds_of_leading;
        let restart = format!("{:.2} s, {since_leading:.2} s of them leading", self.restart.seconds);
        let median = self.one_change_median_ms;
        rows.extend([
            Row::at_most("our writes per pair", format!("{per_pair:.2}"), per_pair, 3.0, "at most 3"),
            Row::at_most(
                "NETCONF transactions per switch, at most",
                most.to_string(),
                most,
                20.0 * scale_above(1000.0),
                "at most 20 at 1,000",
            ),
            Row::at_most(
                "writes when nothing changes",
                format!("{} in {} s", self.idle_writes, self.idle_seconds),
                idle,
                0.0,
                "0",
            ),
            Row::at_most(
                "start of an engine with everything there",
                restart,
                since_leading,
                5.0 * scale_above(10_000.0),
                "at most 5 s of leading at 10,000",
            ),
            Row::at_most("its writes", self.restart.writes.to_string(), writes, 0.0, "0"),
            if is_large {
                let text = "under 500 ms with 64 switches";
                Row::at_most("one change, median", format!("{median:.0} ms"), median, 500.0, text)
            } else {
                Row::at_most("one change, median", format!("{median:.0} ms"), median, 150.0, "under 150 ms")
            },
            Row::plain("one change, 95th percentile", format!("{:.0} ms", self.one_change_p95_ms)),
        ]);
        rows.extend(self.rows_of_changes());
        if let Some(BetweenRacks { alone, beside, slow, dead }) = self.between_racks_ms {
            let added = |figure, ms: f64| {
                let percent = (ms / beside - 1.0) * 100.0;
                Row::at_most(figure, format!("{ms:.0} ms, {percent:+.1}%"), percent, 5.0, "less than +5%")
            };
            rows.extend([
                Row::at_most(
                    "one change between two racks",
                    format!("{alone:.0} ms"),
                    alone,
                    300.0,
                    "under 300 ms with 64 switches",
                ),
                Row::plain("the same beside other racks' changes", format!("{beside:.0} ms")),
                added("the same, of these racks one's leaf is slow", slow),
                added("the same, of these racks one's leaf is dead", dead),
            ]);
        }
        let memory = self.engine_memory_mib;
        let delete = self.delete_to_nothing;
        rows.extend([
            if is_large {
                let text = "under 200 MiB with 64 switches";
                Row::at_most("engine memory", format!("{memory:.0} MiB"), memory, 200.0, text)
            } else {
                let aim = 100e6 / f64::from(1 << 20) * scale_above(10_000.0);
                Row::at_most(
                    "engine memory",
                    format!("{memory:.0} MiB"),
                    memory,
                    aim,
                    "under 100 MB at 10,000",
                )
            },
            Row::plain("netconf driver memory", format!("{:.0} MiB", self.driver_memory_mib)),
        ]);
        if !self.peak_memory_mib.is_empty() {
            let largest = self.peak_memory_mib.iter().map(|(part, memory)| format!("{part} {memory}"));
            rows.push(Row::plain("largest memory, MiB", largest.collect::<Vec<_>>().join(", ")));
        }
        rows.extend(self.rows_of_limits());
        rows.push(Row::plain("delete to nothing left", format!("{delete:.2} s")));
        if let Some(bare) = self.bare_client_deleting {
            let ratio = delete / bare;
            rows.push(Row::plain("a bare client's same deletes", format!("{bare:.2} s")));
            rows.push(against_bare_client("ratio of deleting", ratio, (1.5, "at most 1.5 from 1,000 on")));
        }
        rows.extend(self.gateway.iter().flat_map(rows_of_gateway));
        if let Some(Answers { tries, minimum, median, maximum }) = self.answers {
            rows.push(Row::at_most(
                "label of a pod to its first answer",
                format!("{minimum:.0}, {median:.0}, {maximum:.0} ms: least, median, most of {tries}"),
                maximum,
                100.0,
                "at most 100 ms, always",
            ));
        }
        let CpuSeconds { creating, deleting, bare_creating, bare_deleting } = &self.cpu;
        rows.extend([
            Row::plain("CPU seconds while creating", cpu(creating)),
            Row::plain("CPU seconds while deleting", cpu(deleting)),
        ]);
        if self.bare_client.is_some() {
            rows.extend([
                Row::plain("CPU seconds of the bare creates", cpu(bare_creating)),
                Row::plain("CPU seconds of the bare deletes", cpu(bare_deleting)),
            ]);
        }
        rows
    }
}

impl Figures {
    /// What one change costs, and how that depends on what is there.
    fn rows_of_changes(&self) -> Vec<Row> {
        let Some(most) = self.changes.last() else { return Vec::new() };
        let of_switches = |changes: &Changes| -> f64 {
            PARTS_OF_A_CHANGE.into_iter().filter_map(|part| changes.cpu_ms.get(part)).sum()
        };
        let cpu = most.cpu_ms.iter().map(|(part, ms)| format!("{part} {ms:.1}"));
        let sent = most.sent_bytes_per_switch;
        let mut rows = vec![
            Row::plain("CPU milliseconds of one change", cpu.collect::<Vec<_>>().join(", ")),
            // The messages about objects and pods don't depend on the number of switches.
            if self.switches >= LARGE {
                let text = "at most 4 KiB with 64 switches";
                Row::at_most(SENT_BYTES, format!("{sent:.0}"), sent, 4096.0, text)
            } else {
                Row::plain(SENT_BYTES, format!("{sent:.0}"))
            },
        ];
        let Some(few) = self.changes.first().filter(|few| few.there < most.there) else { return rows };
        let against = |figure, most: f64, few: f64, bound, text| {
            let ratio = most / few;
            Row::at_most(figure, format!("{ratio:.2}: {most:.0} ms against {few:.0} ms"), ratio, bound, text)
        };
        rows.extend([
            Row::plain("pairs there in the comparisons", format!("{} against {}", most.there, few.there)),
            against(
                "one change, the most there against the fewest",
                most.median_ms,
                few.median_ms,
                1.3,
                "at most 1.3",
            ),
            against(
                "CPU of engine, NATS and driver, the same",
                of_switches(most),
                of_switches(few),
                1.2,
                "at most 1.2",
            ),
        ]);
        if let (Some(most), Some(few)) = (most.between_racks_ms, few.between_racks_ms) {
            rows.push(against("one change between two racks, the same", most, few, 1.2, "at most 1.2"));
        }
        rows
    }

    /// The largest memory of parts against the limits of their containers.
    fn rows_of_limits(&self) -> Vec<Row> {
        let of = |part: &str, figure| {
            let (used, limit) = (self.peak_memory_mib.get(part)?, self.memory_limits_mib.get(part)?);
            #[expect(clippy::cast_precision_loss, reason = "figures for people")]
            let share = *used as f64 / *limit as f64;
            let measured = format!("{:.0}% of {limit} MiB", share * 100.0);
            Some(Row::at_most(figure, measured, share, 0.5, "at most half"))
        };
        [
            of(eno_parts::ENGINE.name, "largest memory of the engine, of its limit"),
            of(NATS_SERVER, "largest memory of NATS, of its limit"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Networks in VRFs against the same on a PhysicalNetwork.
fn rows_of_gateway(gateway: &Gateway) -> [Row; 4] {
    let Gateway { networks, vrfs, in_vrfs, on_physical_network: others } = gateway;
    let [ready, ready_of_others] = [in_vrfs, others].map(|side| side.create_to_ready);
    let [one, one_of_others] = [in_vrfs, others].map(|side| side.one_change_ms);
    let (ratio, ratio_of_one) = (ready / ready_of_others, one / one_of_others);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let transactions = in_vrfs.transactions as f64;
    [
        Row::plain("networks, VRFs of a router", format!("{networks}, {vrfs}")),
        Row::at_most(
            "create to ready in VRFs, against a PhysicalNetwork",
            format!("{ratio:.2}: {ready:.2} s against {ready_of_others:.2} s"),
            ratio,
            1.5,
            "at most 1.5",
        ),
        Row::at_most(
            "one more network in a VRF, the same",
            format!("{ratio_of_one:.2}: {one:.0} ms against {one_of_others:.0} ms"),
            ratio_of_one,
            1.2,
            "at most 1.2",
        ),
        Row::at_most(
            "transactions of the router",
            in_vrfs.transactions.to_string(),
            transactions,
            20.0,
            "at most 20 at 500",
        ),
    ]
}

/// The sample at a percentile; sorts the samples.
pub(super) fn percentile(samples: &mut [f64], percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    samples.get((last * percent).div_ceil(100)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(changes: Vec<Changes>) -> Figures {
        Figures {
            size: 4000,
            switches: 64,
            nodes: 480,
            concurrency: 16,
            create_to_ready: 90.0,
            bare_client: Some(45.0),
            bare_client_deleting: Some(40.0),
            cpu: CpuSeconds::default(),
            our_writes: BTreeMap::new(),
            our_writes_per_pair: 3.0,
            transactions: [("leaf1".to_owned(), 80)].into(),
            idle_writes: 0,
            idle_seconds: 10,
            restart: Restart { seconds: 7.0, seconds_of_leading: 5.9, writes: 0 },
            one_change_median_ms: 450.0,
            one_change_p95_ms: 500.0,
            changes,
            between_racks_ms: None,
            engine_memory_mib: 90.0,
            driver_memory_mib: 20.0,
            peak_memory_mib: [("engine".to_owned(), 256), (NATS_SERVER.to_owned(), 300)].into(),
            memory_limits_mib: [("engine".to_owned(), 512), (NATS_SERVER.to_owned(), 512)].into(),
            delete_to_nothing: 80.0,
            deleting_writes: BTreeMap::new(),
            gateway: None,
            answers: None,
        }
    }

    #[test]
    fn target_missed_by_more_than_a_fifth_is_reported() {
        let mut figures = figures(Vec::new());
        assert!(figures.missed().is_empty(), "{:?}", figures.missed());
        figures.restart.seconds_of_leading = 6.1;
        figures.idle_writes = 1;
        // Twice the bare client is the aim of a large fabric only.
        figures.switches = 4;
        figures.one_change_median_ms = 100.0;
        figures.peak_memory_mib.insert("engine".to_owned(), 310);
        let missed = figures.missed();
        let aims = [
            "ratio of creating: 2.00 (aim: at most 1.3 from 1,000 on)",
            "writes when nothing changes: 1 in 10 s (aim: 0)",
            "start of an engine with everything there: 7.00 s, 6.10 s of them leading (aim: at most 5 s of leading at 10,000)",
            "largest memory of the engine, of its limit: 61% of 512 MiB (aim: at most half)",
            "ratio of deleting: 2.00 (aim: at most 1.5 from 1,000 on)",
        ];
        assert_eq!(missed, aims);
    }

    #[test]
    fn change_that_costs_what_is_there_is_reported() {
        let changes = |there, ms: f64, sent_bytes_per_switch| Changes {
            there,
            median_ms: ms,
            p95_ms: ms,
            cpu_ms: [("engine", ms), ("kube-apiserver", 50.0)].map(|(part, ms)| (part.to_owned(), ms)).into(),
            sent_bytes_per_switch,
            between_racks_ms: Some(ms / 2.0),
        };
        assert!(figures(vec![changes(100, 100.0, 4000.0), changes(4000, 125.0, 4500.0)]).missed().is_empty());
        let missed = figures(vec![changes(100, 100.0, 4000.0), changes(4000, 160.0, 5000.0)]).missed();
        let aims = [
            "bytes on NATS of one change, per switch: 5000 (aim: at most 4 KiB with 64 switches)",
            "one change, the most there against the fewest: 1.60: 160 ms against 100 ms (aim: at most 1.3)",
            "CPU of engine, NATS and driver, the same: 1.60: 160 ms against 100 ms (aim: at most 1.2)",
            "one change between two racks, the same: 1.60: 80 ms against 50 ms (aim: at most 1.2)",
        ];
        assert_eq!(missed, aims);
        // Nothing to compare with.
        assert!(figures(vec![changes(4000, 160.0, 4000.0)]).missed().is_empty());
    }

    #[test]
    fn percentiles_are_taken_from_sorted_samples() {
        let mut samples: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert!((percentile(&mut samples, 50) - 51.0).abs() < f64::EPSILON);
        assert!((percentile(&mut samples, 95) - 96.0).abs() < f64::EPSILON);
        assert!(percentile(&mut [], 50).abs() < f64::EPSILON);
    }
}
