//! The figures, as a table and as JSON.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::{Deserialize, Serialize};

use super::counters::Cpu;
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
    /// The same between two racks, which involves their leaves and the spines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) between_racks_ms: Option<BetweenRacks>,
    /// The engine's resident memory with all objects existing, in MiB.
    pub(super) engine_memory_mib: f64,
    /// The netconf driver's resident memory, in MiB.
    pub(super) driver_memory_mib: f64,
    /// The largest resident memory of each part since its start, in MiB. The engine was started anew in between.
    #[serde(default)]
    pub(super) peak_memory_mib: BTreeMap<String, u64>,
    /// From the first delete until no object, no NetworkAttachmentDefinition and no VLAN is left.
    pub(super) delete_to_nothing: f64,
    /// All writes to the API server in that time.
    pub(super) deleting_writes: BTreeMap<String, u64>,
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

    /// The figures that miss their target by more than twice.
    pub(super) fn missed(&self) -> Vec<String> {
        let missed = |row: &Row| row.target.as_ref().is_some_and(|target| target.times > 2.0);
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
        // With few pairs, the operator's fixed delays dominate.
        let at_most_from_1000 = |figure, ratio: f64, bound: f64, text| {
            let value = if self.size < 1000 { 0.0 } else { ratio };
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
            rows.push(at_most_from_1000("ratio of creating", ratio, 1.3, "at most 1.3 from 1,000 on"));
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
            Row::at_most("one change, median", format!("{median:.0} ms"), median, 150.0, "under 150 ms"),
            Row::plain("one change, 95th percentile", format!("{:.0} ms", self.one_change_p95_ms)),
        ]);
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
            Row::at_most(
                "engine memory",
                format!("{memory:.0} MiB"),
                memory,
                100e6 / f64::from(1 << 20) * scale_above(10_000.0),
                "under 100 MB at 10,000",
            ),
            Row::plain("netconf driver memory", format!("{:.0} MiB", self.driver_memory_mib)),
        ]);
        if !self.peak_memory_mib.is_empty() {
            let largest = self.peak_memory_mib.iter().map(|(part, memory)| format!("{part} {memory}"));
            rows.push(Row::plain("largest memory, MiB", largest.collect::<Vec<_>>().join(", ")));
        }
        rows.push(Row::at_most(
            "delete to nothing left",
            format!("{delete:.2} s"),
            delete,
            10.0 * scale_above(1000.0),
            "under 10 s at 1,000",
        ));
        if let Some(bare) = self.bare_client_deleting {
            let ratio = delete / bare;
            rows.push(Row::plain("a bare client's same deletes", format!("{bare:.2} s")));
            rows.push(at_most_from_1000("ratio of deleting", ratio, 1.5, "at most 1.5 from 1,000 on"));
        }
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

/// The sample at a percentile; sorts the samples.
pub(super) fn percentile(samples: &mut [f64], percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    samples.get((last * percent).div_ceil(100)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_missed_by_more_than_twice_is_reported() {
        let mut figures = Figures {
            size: 10_000,
            switches: 4,
            nodes: 4,
            concurrency: 16,
            create_to_ready: 80.0,
            bare_client: Some(50.0),
            bare_client_deleting: Some(40.0),
            cpu: CpuSeconds::default(),
            our_writes: BTreeMap::new(),
            our_writes_per_pair: 3.0,
            transactions: [("leaf1".to_owned(), 150)].into(),
            idle_writes: 0,
            idle_seconds: 10,
            restart: Restart { seconds: 11.0, seconds_of_leading: 9.9, writes: 0 },
            one_change_median_ms: 60.0,
            one_change_p95_ms: 90.0,
            between_racks_ms: None,
            engine_memory_mib: 90.0,
            driver_memory_mib: 20.0,
            peak_memory_mib: BTreeMap::new(),
            delete_to_nothing: 90.0,
            deleting_writes: BTreeMap::new(),
            answers: None,
        };
        assert!(figures.missed().is_empty(), "{:?}", figures.missed());
        figures.restart.seconds_of_leading = 10.1;
        figures.idle_writes = 1;
        let missed = figures.missed();
        assert_eq!(missed.len(), 2, "{missed:?}");
        assert!(missed[0].starts_with("writes when nothing changes: 1 in 10 s"), "{missed:?}");
        assert!(missed[1].ends_with("(aim: at most 5 s of leading at 10,000)"), "{missed:?}");
    }

    #[test]
    fn percentiles_are_taken_from_sorted_samples() {
        let mut samples: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert!((percentile(&mut samples, 50) - 51.0).abs() < f64::EPSILON);
        assert!((percentile(&mut samples, 95) - 96.0).abs() < f64::EPSILON);
        assert!(percentile(&mut [], 50).abs() < f64::EPSILON);
    }
}
