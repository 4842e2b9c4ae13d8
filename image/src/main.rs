//! Writes the images of a release: `make image`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use eno_image::release::{self, About, Release};
use eno_image::{write_archive, write_layout};

/// Writes an image of a release as an OCI layout DIR/NAME, as an archive DIR/NAME.tar, and its bill of materials
/// DIR/NAME.cdx.json.
#[derive(Parser)]
struct Arguments {
    /// The directory of what is written.
    #[arg(long)]
    out: PathBuf,
    /// The tag of the images.
    #[arg(long)]
    tag: String,
    /// The version that the images state.
    #[arg(long)]
    version: String,
    /// The commit that the programs were built from.
    #[arg(long)]
    commit: String,
    /// The time of that commit, in seconds since 1970.
    #[arg(long, env = "SOURCE_DATE_EPOCH")]
    time: i64,
    /// The Rust target of the programs.
    #[arg(long)]
    target: String,
    #[command(subcommand)]
    image: Kind,
}

#[derive(Subcommand)]
enum Kind {
    /// All programs of the operator.
    Eno {
        /// The directory of the statically linked programs.
        #[arg(long)]
        programs: PathBuf,
        /// The workspace that they were built from.
        #[arg(long)]
        workspace: PathBuf,
    },
    /// nats-server.
    Nats {
        /// The program, statically linked.
        #[arg(long)]
        server: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let about = About {
        version: arguments.version,
        commit: arguments.commit,
        time: arguments.time,
        target: arguments.target,
    };
    let (name, made) = match arguments.image {
        Kind::Eno { programs, workspace } => ("eno", release::eno(&programs, &workspace, &about)?),
        Kind::Nats { server } => ("eno-nats", release::nats(&server, &about)?),
    };
    write(&made, name, &format!("{name}:{}", arguments.tag), &arguments.out)
}

fn write(made: &Release, name: &str, reference: &str, out: &Path) -> anyhow::Result<()> {
    let layout = out.join(name);
    if layout.exists() {
        fs::remove_dir_all(&layout).with_context(|| layout.display().to_string())?;
    }
    write_layout(&made.image, reference, &layout)?;
    let archive = out.join(format!("{name}.tar"));
    write_archive(&made.image, reference, &archive)?;
    let bill = out.join(format!("{name}.cdx.json"));
    fs::write(&bill, &made.bill_of_materials).with_context(|| bill.display().to_string())?;
    println!("{reference} {}  {}", made.image.manifest.digest, archive.display());
    Ok(())
}
