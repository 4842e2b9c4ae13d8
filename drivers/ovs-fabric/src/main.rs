//! `eno-driver-ovs-fabric`: the southbound driver of Open vSwitch bridges as a daemon.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use eno_driver_ovs_fabric::credentials::Credentials;
use eno_driver_ovs_fabric::device::Limits;
use eno_driver_ovs_fabric::driver::{Options, OvsFabricDriver};
use eno_sbi::{DriverAbout, Ownership, driver_main};

const ABOUT: DriverAbout = DriverAbout {
    program: "eno-driver-ovs-fabric",
    description: "Configures ports of Open vSwitch bridges over OVSDB",
    version: eno_sbi::VERSION,
    ownership: Ownership::PerTarget,
    threads: None,
};

#[derive(Debug, clap::Args)]
struct Args {
    /// Read the certificates for ssl addresses from DIR/NAME/{ca.crt,tls.crt,tls.key}
    #[arg(long, env = "ENO_CREDENTIALS_DIR", value_name = "DIR")]
    credentials_dir: Option<PathBuf>,
    /// Seconds until a device that does not answer counts as unreachable
    #[arg(long, env = "ENO_CONNECT_TIMEOUT", value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    connect_timeout: u64,
    /// Seconds to wait for the reply to a request
    #[arg(long, env = "ENO_RPC_TIMEOUT", value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    rpc_timeout: u64,
    /// Seconds that ovs-vswitchd may take to do what its database says
    #[arg(long, env = "ENO_APPLY_TIMEOUT", value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    apply_timeout: u64,
    /// Seconds of silence after which a device is asked whether it is there
    #[arg(long, env = "ENO_KEEP_ALIVE", value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    keep_alive: u64,
}

fn main() -> ExitCode {
    driver_main(ABOUT, async |args: Args, _| {
        let limits = Limits {
            connect: Duration::from_secs(args.connect_timeout),
            request: Duration::from_secs(args.rpc_timeout),
            apply: Duration::from_secs(args.apply_timeout),
            keep_alive: Duration::from_secs(args.keep_alive),
        };
        let credentials = Credentials { directory: args.credentials_dir };
        Ok::<_, Infallible>(OvsFabricDriver::new(Options { credentials, limits }))
    })
}
