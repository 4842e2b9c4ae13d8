//! `eno-driver-neutron`: the southbound driver of trunk ports in OpenStack as a daemon.

use std::process::ExitCode;
use std::time::Duration;

use eno_device_secrets::SecretArgs;
use eno_driver_neutron::driver::{NeutronDriver, Options};
use eno_driver_neutron::http::Limits;
use eno_sbi::{DriverAbout, Ownership, driver_main};

const ABOUT: DriverAbout = DriverAbout {
    program: "eno-driver-neutron",
    description: "Configures trunk ports of OpenStack over the API of Neutron",
    version: eno_sbi::VERSION,
    ownership: Ownership::PerTarget,
    threads: None,
};

/// A look takes one request for 100 trunks.
const LOOK_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
struct Args {
    #[command(flatten)]
    secrets: SecretArgs,
    /// Seconds until a server that does not accept a connection counts as unreachable
    #[arg(long, env = "ENO_CONNECT_TIMEOUT", value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    connect_timeout: u64,
    /// Seconds to wait for the answer to a request. Neutron takes about 50 ms for each of up to 100 networks in one request
    #[arg(long, env = "ENO_REQUEST_TIMEOUT", value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    request_timeout: u64,
    /// Seconds after which a project that nobody spoke of is read again, to find what was changed by another hand, unless
    /// AuditInterval of its FabricDevice says otherwise
    #[arg(long, env = "ENO_AUDIT_INTERVAL", value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    audit_interval: u64,
}

fn main() -> ExitCode {
    driver_main(ABOUT, async |args: Args, _| {
        let options = Options {
            secrets: args.secrets.source().await?,
            limits: Limits {
                connect: Duration::from_secs(args.connect_timeout),
                request: Duration::from_secs(args.request_timeout),
            },
            audit_interval: Duration::from_secs(args.audit_interval),
            look_interval: LOOK_INTERVAL,
        };
        Ok::<_, anyhow::Error>(NeutronDriver::new(options))
    })
}
