//! `eno import`: configuration of other implementations as manifests.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use crate::import::Source;
use crate::import::ovs_plugin::{ImportOptions, import, yaml};

/// Print the custom resources that say the same as the configuration of another implementation.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  eno import ovs-plugin links.yaml node-pools.yaml --address tcp:192.0.2.1:6640")]
pub(super) struct ImportArgs {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// The fabric plugin for Open vSwitch of the reference implementation: FabricDevices, NodePools and
    /// ConnectionPoints of its two ConfigMaps.
    OvsPlugin(OvsPluginArgs),
}

#[derive(Debug, Args)]
struct OvsPluginArgs {
    /// The ConfigMaps with links and nodePools, or just these, as YAML or JSON; also the plugin's Deployment and
    /// ConnectionPoints, which say what the ConfigMaps don't. -: standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where the Open vSwitch is: tcp:host:port, ssl:host:port or unix:/path; absent: as the plugin's Deployment says
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// The Secret in the operator's namespace with ca.crt, tls.crt and tls.key, for ssl
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
}

pub(super) fn run(args: ImportArgs) -> anyhow::Result<()> {
    let From::OvsPlugin(args) = args.from;
    let is_tls = args.address.as_ref().is_some_and(|address| address.starts_with("ssl:"));
    if is_tls && args.secret.is_none() {
        bail!("add --secret, the name of the Secret with the certificates: --address has ssl");
    }
    let sources = args.files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let objects = import(&sources, &ImportOptions { address: args.address, secret: args.secret })?;
    let text = yaml(&objects).context("writing YAML")?;
    crate::screen::write(format_args!("{text}"));
    Ok(())
}

fn read(path: &PathBuf) -> anyhow::Result<Source> {
    let name = path.display().to_string();
    if name == "-" {
        let text = crate::yaml::read(std::io::stdin()).context("reading standard input")?;
        return Ok(Source { name: "standard input".into(), text });
    }
    let text = File::open(path).and_then(crate::yaml::read).with_context(|| format!("reading {name}"))?;
    Ok(Source { name, text })
}
