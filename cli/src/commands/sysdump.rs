//! `eno sysdump`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::inspect::{ClusterArgs, NatsClientArgs};
use crate::sysdump::{Collector, Limits, Made, collect_cluster, collect_nats, is_stream, with_causes};

/// Write what a search for a fault needs into one file: objects, messages, logs, metrics and versions.
///
/// Nothing in it is the value of a Secret. What can't be read is left out, and named in the file and on standard error.
/// The commands status, trace, plan, blame and addresses answer from the file by --from.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno sysdump
  eno sysdump -o /tmp/eno.tar.gz --since 1h --log-lines 2000
  eno status --from /tmp/eno.tar.gz")]
pub(super) struct SysdumpArgs {
    /// The file to write; absent: eno-sysdump-TIME.tar.gz in this directory.
    #[arg(short, long, value_name = "FILE.tar.gz")]
    output: Option<PathBuf>,
    /// Only logs and Events of this time, such as 30m or 2h; absent: all that there are.
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    since: Option<Duration>,
    /// The last lines of each log.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    log_lines: u32,
    /// How long it may take. What is not read by then is left out.
    #[arg(long, value_name = "DURATION", value_parser = super::duration, default_value = "2m")]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    messages: NatsClientArgs,
}

pub(super) async fn run(args: SysdumpArgs) -> anyhow::Result<()> {
    let limits = Limits { timeout: args.timeout, since: args.since, log_lines: args.log_lines };
    let collector = Collector::new(limits)?;
    let file = args.output.unwrap_or_else(|| {
        PathBuf::from(collector.made_at().strftime("eno-sysdump-%Y%m%d-%H%M%S.tar.gz").to_string())
    });
    if file
        .try_exists()
        .with_context(|| format!("name another file with -o: looking at {}", file.display()))?
    {
        bail!("name another file with -o: {} exists", file.display());
    }
    let client = args.cluster.client().await;
    let cluster = async {
        match &client {
            Ok(client) => {
                let namespace = client.default_namespace().to_owned();
                collect_cluster(&collector, client, &namespace).await;
                Some(namespace)
            }
            Err(error) => {
                collector.not_read("the API server", with_causes(error));
                None
            }
        }
    };
    let messages = collect_nats(&collector, &args.messages, client.as_ref().ok());
    let (namespace, ()) = futures::join!(cluster, messages);
    let Made { size, files, not_read } = collector.finish(namespace, &file)?;
    for one in &not_read {
        eprintln!("eno: not read: {}: {}", one.what, one.reason);
    }
    let Some(size) = size else {
        bail!("check --kubeconfig, --context and --nats-url: nothing could be read, so there is no dump")
    };
    let lines_below = |folder: &str| -> u64 {
        files.iter().filter(|file| file.path.starts_with(folder)).map(|file| file.lines).sum()
    };
    let logs = files.iter().filter(|file| file.path.starts_with("logs/")).count();
    crate::outln!(
        "{}: {} files of {} objects, {} messages and {logs} logs in {}",
        file.display(),
        files.len(),
        lines_below("cluster/"),
        files.iter().filter(|file| is_stream(&file.path)).map(|file| file.lines).sum::<u64>(),
        bytes(size),
    );
    Ok(())
}

/// A size for people.
fn bytes(size: u64) -> String {
    match size {
        0..1_024 => format!("{size} bytes"),
        1_024..1_048_576 => format!("{} KiB", size / 1_024),
        _ => format!("{} MiB", size / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (size, text) in [(7, "7 bytes"), (2_048, "2 KiB"), (3 << 20, "3 MiB")] {
            assert_eq!(bytes(size), text);
        }
    }
}
