//! Runs Keystone and Neutron in the foreground until SIGINT or SIGTERM.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use eno_control_plane::openstack::{OpenStack, OpenStackOptions, REGION, Release};
use eno_control_plane::parts::Parts;
use tokio::signal::unix::{SignalKind, signal};

/// Runs Keystone and Neutron, and prints `ready` and the administrator's environment when they answer.
#[derive(Parser)]
struct Arguments {
    /// Holds the databases, the keys and the logs; used again, it is the same instance.
    #[arg(long)]
    dir: PathBuf,
    /// The release: current or debian.
    #[arg(long, default_value_t)]
    release: Release,
    /// Maximum objects in one answer to a list; without it there is no limit.
    #[arg(long)]
    page_limit: Option<u32>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let Arguments { dir, release, page_limit } = Arguments::parse();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let options = OpenStackOptions { release, page_limit, ..OpenStackOptions::new(dir, Parts::from_env()?) };
    // Cancelling the start kills its child processes.
    let openstack = tokio::select! {
        started = OpenStack::start(options) => started?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    println!("ready");
    let admin = openstack.admin();
    for (name, value) in [
        ("OS_AUTH_URL", openstack.auth_url()),
        ("OS_USERNAME", &admin.user),
        ("OS_PASSWORD", &admin.password),
        ("OS_USER_DOMAIN_NAME", &admin.user_domain),
        ("OS_PROJECT_NAME", &admin.project),
        ("OS_PROJECT_DOMAIN_NAME", &admin.project_domain),
        ("OS_REGION_NAME", REGION),
    ] {
        println!("export {name}={value}");
    }
    let exited = tokio::select! {
        exited = openstack.exited() => Some(exited),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    openstack.stop().await;
    exited.map_or(Ok(()), |exited| Err(anyhow::anyhow!("{exited}")))
}
