//! A soak test: objects are created, changed and deleted at random under faults, and every layer is checked repeatedly.
//!
//! It works in rounds. Networks are created, changed and deleted over many namespaces while processes and switches
//! fail. Then the faults are repaired. Once all is quiet, every object, NetworkAttachmentDefinition, switch and
//! callback must match a model ([`model`]). At the end everything is deleted and nothing may remain, neither in NATS
//! ([`streams`]). Processes must not grow ([`growth`]). A seed determines the actions and the faults.

mod action_generator;
mod args;
mod callback_log;
mod check;
mod fabric;
mod faults;
mod growth;
mod inject;
mod model;
mod objects;
mod observed;
mod quiescence;
mod report;
mod rng;
mod round;
mod streams;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use eno_control_plane::parts::Parts;
use tokio_util::sync::CancellationToken;

use crate::receiver::Receiver;
use crate::sandbox::{Sandbox, SandboxOptions};
use callback_log::CallbackLog;
use fabric::Fabric;
use inject::{DRIVERS, ENGINES, FaultInjector};
use objects::Objects;
use report::Tally;
use rng::SeededRng;
use round::Soak;

pub use args::SoakArgs;
pub use faults::{Fault, Faults, UnknownFault};

/// Counters that survive the cancellation of the run.
#[derive(Debug, Clone, Default)]
struct SharedTally(Arc<Mutex<Tally>>);

impl SharedTally {
    fn update(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn get(&self) -> Tally {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs the soak, and prints the report. An error describes the violations.
pub async fn run(args: SoakArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = args.seed.unwrap_or_else(now);
    eno::outln!("{}", args.command(seed));
    let dir = tempfile::Builder::new().prefix("eno-soak-").tempdir().context("making a directory")?;
    let tally = SharedTally::default();
    let mut options = SandboxOptions::new(dir.path().join("sandbox"), Parts::from_env()?)?;
    options.topology = args.topology();
    let (prefix, restarts) = (format!("eno-{}-", options.cluster_id), tally.clone());
    options.report = Arc::new(move |line| {
        eprintln!("  {line}");
        if let Some(name) = restarted(line) {
            restarts.update(|tally| *tally.restarts.entry(name.to_owned()).or_default() += 1);
        }
    });
    let fabric = Fabric::new(&options.topology);
    let started = async {
        let sandbox = Sandbox::start(options).await?;
        sandbox.admission_bound().await;
        // Start the second instance of each part; the first one runs already.
        for (part, name) in [
            (eno_parts::ENGINE, ENGINES[1]),
            (eno_parts::DRIVER_NETCONF, DRIVERS[1]),
            (eno_parts::DRIVER_NAD, DRIVERS[3]),
        ] {
            sandbox.add(part, name).await?;
        }
        anyhow::Ok(sandbox)
    };
    let sandbox = tokio::select! {
        sandbox = started => sandbox?,
        // Dropping the future kills the children.
        () = stop.cancelled() => {
            eno::outln!("stopped before anything was done");
            return Ok(());
        }
    };
    let http = reqwest::Client::new();
    let ended = {
        let injector = FaultInjector::new(&sandbox, &http, &fabric);
        let soak = async {
            let mut rng = SeededRng::new(seed);
            let receiver = Receiver::start_with(Ipv4Addr::LOCALHOST, round::answers(rng.fork())).await;
            let receiver = receiver.context("listening for callbacks")?;
            let mut soak = Soak {
                objects: Objects::new(sandbox.client(), args.namespaces, receiver.url().to_owned()),
                world: args.world(),
                callback_log: CallbackLog::default(),
                foreign_vlans: 0,
                args: &args,
                sandbox: &sandbox,
                http: &http,
                fabric: &fabric,
                injector: &injector,
                tally: tally.clone(),
                prefix,
                receiver,
                rng,
            };
            Box::pin(soak.run()).await
        };
        let ended = tokio::select! {
            result = soak => Some(result),
            ended = sandbox.supervise() => Some(Err(anyhow::anyhow!("{ended}"))),
            () = stop.cancelled() => None,
        };
        // A paused process can't be stopped.
        injector.resume_all();
        ended
    };
    let panics = panics(&sandbox);
    sandbox.stop().await;
    let tally = tally.get();
    eno::outln!("{}\n{}", tally.table(), tally.processes());
    let stopped = ended.is_none();
    let result = match ended.unwrap_or(Ok(())) {
        Ok(()) if !panics.is_empty() => Err(anyhow::anyhow!("panics in logs:\n  {}", panics.join("\n  "))),
        Ok(()) if !stopped => {
            let violations: Vec<String> =
                tally.growth.evaluate().into_iter().flat_map(|grown| grown.violations).collect();
            if violations.is_empty() { Ok(()) } else { Err(anyhow::anyhow!("{}", violations.join("; "))) }
        }
        result => result,
    };
    if let Err(error) = result {
        eno::outln!("logs are kept in {}", dir.keep().join("sandbox/logs").display());
        return Err(error.context(format!("seed {seed} failed; again: {}", args.command(seed))));
    }
    eno::outln!("{}", if stopped { "stopped early; nothing wrong until then" } else { "nothing wrong" });
    Ok(())
}

/// The process that a line of the sandbox's report says is restarted.
fn restarted(line: &str) -> Option<&str> {
    line.lines().find_map(|line| line.strip_prefix("restarting ")?.split(' ').next())
}

/// Lines with panics in the processes' logs.
fn panics(sandbox: &Sandbox) -> Vec<String> {
    let mut found = Vec::new();
    for process in sandbox.info().processes {
        // A process without output has no log.
        let Ok(bytes) = std::fs::read(&process.log) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter(|line| line.contains("panicked at"));
        found.extend(lines.map(|line| format!("{}: {line}", process.name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_counts_are_read_from_the_report() {
        assert_eq!(restarted("engine ended\nrestarting engine in 0.2 s"), Some("engine"));
        assert_eq!(restarted("FabricDevices ready (3.0 s)"), None);
    }
}
