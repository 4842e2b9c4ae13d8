//! The options of the command, and the sandbox that they describe.

use std::time::Duration;

use eno_simulator::Topology;

use super::action_generator::Bounds;
use super::faults::Faults;
use super::model::{Point, World};

const NODES_PER_LEAF: usize = 2;

/// Creates, changes and deletes networks at random in a sandbox of its own, with faults, and checks every layer.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  eno soak --for 30m
  eno soak --for 40s --seed 7 --faults engine-killed,switch-reboots")]
pub struct SoakArgs {
    /// For how long, such as 40s, 30m or 8h; what has begun by then is still finished and checked.
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(super) time: Duration,
    /// Decides what is asked for and what goes wrong; another one each time when absent.
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Over how many namespaces attachments are spread.
    #[arg(long, default_value_t = 8, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(super) namespaces: usize,
    /// How many leaves the fabric has, with two nodes each.
    #[arg(long, default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    leaves: usize,
    /// How many spines it has.
    #[arg(long, default_value_t = 2, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=16))]
    spines: usize,
    /// How many L2Services there are at a time, at most.
    #[arg(long, default_value_t = 60, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    services: usize,
    /// How many L2ServiceAttachments there are at a time, at most.
    #[arg(long, default_value_t = 120, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    attachments: usize,
    /// What goes wrong: all, none, or some of engine-killed, engine-paused, driver-killed, driver-paused, nats-killed,
    /// switch-silent, switch-refuses, switch-reboots, switch-edited, with commas between.
    #[arg(long, default_value = "all", value_name = "all|none|LIST")]
    pub(super) faults: Faults,
}

impl SoakArgs {
    /// The command that repeats this run.
    pub(super) fn command(&self, seed: u64) -> String {
        format!(
            "eno soak --for {}s --seed {seed} --namespaces {} --leaves {} --spines {} --services {} --attachments {} \
             --faults {}",
            self.time.as_secs(),
            self.namespaces,
            self.leaves,
            self.spines,
            self.services,
            self.attachments,
            self.faults
        )
    }

    /// The topology; its last leaf has a separate startup configuration.
    pub(super) fn topology(&self) -> Topology {
        let mut topology = Topology::leaf_spine(self.leaves, self.spines, self.leaves * NODES_PER_LEAF);
        let last = format!("leaf{}", self.leaves);
        for switch in topology.switches.iter_mut().filter(|switch| switch.name == last) {
            switch.capabilities.startup = true;
        }
        topology
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { services: self.services, attachments: self.attachments, nodes: self.leaves * NODES_PER_LEAF }
    }

    /// The initial world: a ConnectionPoint on each leaf, and one on all leaves.
    pub(super) fn world(&self) -> World {
        let of_leaf = |leaf: usize| (leaf * NODES_PER_LEAF..(leaf + 1) * NODES_PER_LEAF).collect();
        let everywhere = (0..self.leaves).map(|leaf| leaf * NODES_PER_LEAF).collect();
        let members = (0..self.leaves).map(of_leaf).chain([everywhere]);
        World { points: members.map(|members| Point { bridge: 0, members }).collect(), ..World::default() }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a time such as 40s, 30m or 8h");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(invalid)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(invalid()),
    };
    let number: u64 = number.parse().map_err(|_| invalid())?;
    number.checked_mul(seconds).filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_with_their_unit() {
        for (text, seconds) in [("40s", 40), ("30m", 1800), ("8h", 28_800)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "s", "0s", "40", "1d", "-1m", "99999999999999999999h", "ä"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
