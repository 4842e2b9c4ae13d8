//! `eno-driver-nad`: the southbound driver of NetworkAttachmentDefinitions as a daemon.
//!
//! It finds the API server by `KUBECONFIG`, or by its service account inside a cluster.

use std::process::ExitCode;

use eno_driver_nad::NadDriver;
use eno_sbi::{DriverAbout, Ownership, driver_main};

/// It has no flags of its own.
#[derive(clap::Args)]
struct Args {}

fn main() -> ExitCode {
    let about = DriverAbout {
        program: "eno-driver-nad",
        description: "Realises L2ServiceAttachments as NetworkAttachmentDefinitions",
        version: eno_sbi::VERSION,
        ownership: Ownership::WholeDriver,
        threads: None,
    };
    driver_main(about, async |_: Args, _| kube::Client::try_default().await.map(NadDriver::new))
}
