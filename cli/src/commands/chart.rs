//! `eno chart`.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::install::chart;
use crate::install::installer::VERSION;

/// Write the Helm chart of this version: the objects that `eno install` applies, as templates.
///
/// The same version and images give the same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno chart
  eno chart target/eno.tgz")]
pub(super) struct ChartArgs {
    /// The archive; absent: eno-VERSION.tgz in this directory.
    file: Option<PathBuf>,
}

pub(super) fn run(args: &ChartArgs) -> anyhow::Result<()> {
    let path = args.file.clone().unwrap_or_else(|| PathBuf::from(format!("eno-{VERSION}.tgz")));
    let failed = || format!("writing {}", path.display());
    let file = File::create(&path).with_context(failed)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::best()));
    for (name, text) in chart::files()? {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        let name = format!("{}/{name}", chart::NAME);
        archive.append_data(&mut header, name, text.as_bytes()).with_context(failed)?;
    }
    archive.into_inner().and_then(GzEncoder::finish).with_context(failed)?;
    crate::outln!("{}", path.display());
    Ok(())
}
