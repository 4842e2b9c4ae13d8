//! Writes the table of the parts. Each member of the workspace, and the folder of NATS, may have a `part.toml`. The parts
//! are in the order of the members.

#[path = "src/part.rs"]
mod part;

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use part::Part;
use serde::Deserialize;

/// The folder of the one part that is no member.
const NATS: &str = "deploy/nats";

#[derive(Deserialize)]
struct Manifest {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    members: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..").canonicalize()?;
    let manifest = root.join("Cargo.toml");
    println!("cargo::rerun-if-changed={}", manifest.display());
    let manifest: Manifest = toml::from_str(&fs::read_to_string(manifest)?)?;
    let (mut code, mut constants) = (String::new(), Vec::new());
    for folder in [NATS.to_owned()].iter().chain(&manifest.workspace.members) {
        let file = root.join(folder).join("part.toml");
        if !file.exists() {
            continue;
        }
        println!("cargo::rerun-if-changed={}", file.display());
        let text: &'static str = fs::read_to_string(&file)?.leak();
        let part: Part = toml::from_str(text).map_err(|error| format!("{}: {error}", file.display()))?;
        let constant = part.name.replace('-', "_").to_uppercase();
        // Debug writes what Rust reads.
        writeln!(code, "/// The part of `{folder}`.\npub const {constant}: &Part = &{part:?};")?;
        constants.push(constant);
    }
    let (count, list) = (constants.len(), constants.join(", "));
    writeln!(code, "/// All parts, NATS first.\npub const ALL: [&Part; {count}] = [{list}];")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("parts.rs"), code)?;
    Ok(())
}
