//! The operator in pods while its cluster changes: a rolling update, drained nodes, evicted and killed pods, three NATS
//! servers, rotated keys, and the images of a release. Meanwhile pods talk over a network, and other networks come and go.

mod disruptions;
mod helm;
mod image;
mod load;
mod memory;
mod nats_cluster;
mod pods;
mod rolling_update;
mod rotation;

use std::time::Duration;

use eno_lab::sandbox::{InCluster, SandboxOptions};
use eno_tests::{System, nodes, with_own_sandbox};

/// Maximum wait for pods that move or restart: their images are pulled and their probes have to pass.
const PATIENCE: Duration = Duration::from_mins(5);

/// Maximum time without a leader: the Lease of a leader that dies lasts 10 s, and the next one looks for it twice a
/// second.
const WITHOUT_LEADER: Duration = Duration::from_secs(15);

/// A sandbox with this number of nodes whose operator runs in pods.
fn in_cluster(options: &mut SandboxOptions, count: usize, in_cluster: InCluster) {
    nodes(options, count);
    options.in_cluster = Some(in_cluster);
    options.ready_timeout = PATIENCE;
}

/// Runs a test on a sandbox of its own with two nodes, whose operator runs in pods.
fn with_operator_in_pods<F: AsyncFnOnce(&System)>(test: F) {
    with_own_sandbox(|options| in_cluster(options, 2, InCluster::default()), test);
}
