//! The report of a run, as tables.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::Table;
use eno::screen::bordered_table;

use super::growth::Growth;
use crate::receiver::Posts;

/// The counters of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// Number of actions, by kind.
    pub(super) actions: BTreeMap<&'static str, u64>,
    /// Number of injected faults, by kind.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// The time that each quiet time took to come.
    pub(super) quiet: Vec<Duration>,
    /// Samples of the processes.
    pub(super) growth: Growth,
    /// Number of callback posts.
    pub(super) posts: Posts,
    /// Number of repeated callbacks.
    pub(super) repeated: u64,
    /// Restarts of processes that exited by themselves.
    pub(super) restarts: BTreeMap<String, u64>,
    /// Ports that list a manually removed VLAN that nothing marks as the operator's.
    pub(super) ports_with_stale_vlan: usize,
    /// Maximum number of objects at a quiet time.
    pub(super) most_objects: usize,
}

impl Tally {
    pub(super) fn table(&self) -> Table {
        let mut table = bordered_table(&["what", "figure"]);
        let mut row = |what: &str, figure: String| {
            table.add_row([what, &figure]);
        };
        for (what, count) in &self.actions {
            row(what, count.to_string());
        }
        row("actions", self.actions.values().sum::<u64>().to_string());
        for (fault, count) in &self.faults {
            row(fault, count.to_string());
        }
        row("faults", self.faults.values().sum::<u64>().to_string());
        row("checkpoints", self.quiet.len().to_string());
        row("objects at a checkpoint, at most", self.most_objects.to_string());
        let longest = self.quiet.iter().max().copied().unwrap_or_default();
        let mut sorted = self.quiet.clone();
        sorted.sort();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        row("ports with a VLAN that was taken by hand", self.ports_with_stale_vlan.to_string());
        row("time to quiet, median", format!("{:.1} s", median.as_secs_f64()));
        row("time to quiet, longest", format!("{:.1} s", longest.as_secs_f64()));
        row("callbacks posted", self.posts.all.to_string());
        row("callbacks that were answered badly", self.posts.failed.to_string());
        row("callbacks taken again", self.repeated.to_string());
        for (name, count) in &self.restarts {
            row(&format!("{name} ended by itself"), count.to_string());
        }
        table
    }

    pub(super) fn processes(&self) -> Table {
        let header = [
            "process",
            "starts",
            "MiB first",
            "last",
            "most",
            "files first",
            "last",
            "most",
            "grew by",
            "evaluated by",
        ];
        let mut table = bordered_table(&header);
        for grown in self.growth.evaluate() {
            let mib = |kib: u64| format!("{}.{}", kib / 1024, kib % 1024 * 10 / 1024);
            let by = grown.by.map_or_else(String::new, |(kib, files)| {
                format!("{:+.1} MiB, {files:+.0} files", kib / 1024.0)
            });
            let mut row = vec![grown.name, grown.lives.to_string()];
            row.extend(grown.resident.map(mib));
            row.extend(grown.files.map(|files| files.to_string()));
            row.extend([by, grown.evaluated.to_owned()]);
            table.add_row(row);
        }
        table
    }
}
