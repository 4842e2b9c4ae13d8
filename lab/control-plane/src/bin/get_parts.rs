//! Gets parts and prints their paths, one per line: those named, or all that the user can run.

use std::process::ExitCode;
use std::str::FromStr;

use clap::Parser;
use eno_control_plane::openstack::{Packages, Release};
use eno_control_plane::parts::{Part, Parts, PartsError};

/// Gets the programs of the control plane and of the tests, and prints their paths.
#[derive(Parser)]
struct Arguments {
    /// Which; when none is named all, but those that only root can run only for root. `openstack` is the Python that
    /// has the packages of OpenStack.
    parts: Vec<Wanted>,
}

/// A part, or the packages of OpenStack.
#[derive(Clone)]
enum Wanted {
    Part(Part),
    OpenStack,
}

impl FromStr for Wanted {
    type Err = PartsError;

    fn from_str(name: &str) -> Result<Self, PartsError> {
        if name == "openstack" { Ok(Self::OpenStack) } else { name.parse().map(Self::Part) }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match get().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn get() -> anyhow::Result<()> {
    let mut wanted = Arguments::parse().parts;
    if wanted.is_empty() {
        let root = eno_control_plane::node::is_root();
        let usable =
            Part::ALL.into_iter().filter(|part| (root || !part.needs_root()) && !part.is_for_lanes());
        wanted.extend(usable.map(Wanted::Part).chain([Wanted::OpenStack]));
    }
    let parts = Parts::from_env()?;
    for wanted in wanted {
        let path = match wanted {
            Wanted::Part(part) => parts.get(part).await?,
            Wanted::OpenStack => Packages::get(&parts, Release::Current).await?.python().to_owned(),
        };
        println!("{}", path.display());
    }
    Ok(())
}
