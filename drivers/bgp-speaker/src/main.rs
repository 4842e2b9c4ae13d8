//! `eno-driver-bgp-speaker`: the southbound driver of BGP speakers as a daemon.
//!
//! It finds the API server by `KUBECONFIG`, or by its service account inside a cluster.

use std::process::ExitCode;

use eno_driver_bgp_speaker::SpeakerDriver;
use eno_sbi::{DriverAbout, Ownership, driver_main};

#[derive(clap::Args)]
struct Args {
    /// The namespace of MetalLB
    #[arg(long, default_value = "metallb-system", env = "ENO_METALLB_NAMESPACE")]
    metallb_namespace: String,
}

fn main() -> ExitCode {
    let about = DriverAbout {
        program: "eno-driver-bgp-speaker",
        description: "Realises BGPSessionGroups as objects of BGP speakers",
        version: eno_sbi::VERSION,
        ownership: Ownership::WholeDriver,
        threads: None,
    };
    driver_main(about, async |args: Args, _| {
        kube::Client::try_default().await.map(|client| SpeakerDriver::new(client, args.metallb_namespace))
    })
}
