//! The netconf driver as a process.

use std::process::ExitCode;
use std::time::Duration;

use eno_device_secrets::SecretArgs;
use eno_driver_netconf::dialect::DIALECTS;
use eno_driver_netconf::driver::{NetconfDriver, Options, PrefixMetrics};
use eno_driver_netconf::ssh::Limits;
use eno_sbi::{DriverAbout, Ownership, driver_main};

const ABOUT: DriverAbout = DriverAbout {
    program: "eno-driver-netconf",
    description: "Configures switches over NETCONF",
    version: eno_sbi::VERSION,
    ownership: Ownership::PerTarget,
    threads: None,
};

/// The mean interval between reads of BGP sessions while one is not established.
const SESSION_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
struct Args {
    #[command(flatten)]
    credentials: SecretArgs,
    /// Seconds until a device that does not answer counts as unreachable
    #[arg(long, env = "ENO_CONNECT_TIMEOUT", value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    connect_timeout: u64,
    /// Seconds to wait for the reply to a request. A device that exceeds them with a change gets twice the time at the
    /// next try, 300 at most
    #[arg(long, env = "ENO_RPC_TIMEOUT", value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    rpc_timeout: u64,
    /// Seconds of silence after which a device is asked whether it is there
    #[arg(long, env = "ENO_KEEP_ALIVE", value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    keep_alive: u64,
    /// Seconds after which a device takes back a commit that was not confirmed; more than --rpc-timeout
    #[arg(long, env = "ENO_CONFIRM_TIMEOUT", value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=4_294_967_295))]
    confirm_timeout: u64,
    /// Seconds after which a device that nobody spoke of is read again, to find what was changed by another hand, unless
    /// AuditInterval of its FabricDevice says otherwise
    #[arg(long, env = "ENO_AUDIT_INTERVAL", value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    audit_interval: u64,
}

impl Args {
    /// The device must not roll back a commit while the reply to the read-back, or to the confirmation, may still
    /// come.
    fn check(&self) -> anyhow::Result<()> {
        let Self { confirm_timeout, rpc_timeout, .. } = self;
        anyhow::ensure!(
            confirm_timeout > rpc_timeout,
            "--confirm-timeout ({confirm_timeout} s) must be longer than --rpc-timeout ({rpc_timeout} s): a device \
             would take back a change while its answer is still waited for"
        );
        Ok(())
    }
}

fn main() -> ExitCode {
    driver_main(ABOUT, async |args: Args, registry| {
        args.check()?;
        let limits = Limits {
            connect: Duration::from_secs(args.connect_timeout),
            rpc: Duration::from_secs(args.rpc_timeout),
            keep_alive: Duration::from_secs(args.keep_alive),
        };
        let credentials = args.credentials.source().await?;
        let confirm_timeout = Duration::from_secs(args.confirm_timeout);
        let audit_interval = Duration::from_secs(args.audit_interval);
        let options = Options {
            dialects: DIALECTS,
            credentials,
            limits,
            confirm_timeout,
            audit_interval,
            session_interval: SESSION_INTERVAL,
            prefixes: PrefixMetrics::default(),
        };
        options.prefixes.register(registry);
        Ok::<_, anyhow::Error>(NetconfDriver::new(options))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn rpc_timeout_is_below_confirm_timeout() {
        let check = |flags: &[&str]| {
            let all = ["program", "--credentials-dir", "/nowhere"].iter().chain(flags);
            Cli::try_parse_from(all).map(|cli| cli.args.check()).expect("flags that exist")
        };
        assert!(check(&[]).is_ok());
        assert!(check(&["--rpc-timeout", "119"]).is_ok());
        for flags in [["--rpc-timeout", "120"], ["--confirm-timeout", "60"]] {
            let error = check(&flags).expect_err("not longer").to_string();
            assert!(error.contains("--confirm-timeout") && error.contains("--rpc-timeout"), "{error}");
        }
    }
}
