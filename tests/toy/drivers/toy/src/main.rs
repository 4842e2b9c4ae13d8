//! `eno-driver-toy`: switches that are as desired at once.

use std::convert::Infallible;
use std::process::ExitCode;

use eno_sbi::{Driver, DriverAbout, Identity, Ownership, Reconciled, Work, driver_main};
use eno_schemas::{Desired, Failure, PayloadKind};

#[derive(clap::Args)]
struct Args {}

struct Toy;

impl Driver for Toy {
    fn identity(&self) -> Identity {
        Identity { name: "toy".into(), kinds: vec![PayloadKind::Fabric], capabilities: Vec::new() }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let Desired::Fabric(desired) = &work.command.desired else {
            return Reconciled::failed(Failure::permanent("it has switches only"));
        };
        Reconciled::applied(desired.carried_out())
    }
}

fn main() -> ExitCode {
    let about = DriverAbout {
        program: "eno-driver-toy",
        description: "Switches that are as desired at once",
        version: eno_sbi::VERSION,
        ownership: Ownership::PerTarget,
        threads: None,
    };
    driver_main(about, async |_: Args, _| Ok::<_, Infallible>(Toy))
}
