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
/// The folders of which each is a driver.
const DRIVERS: &str = "drivers/";

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
    // A member that comes or goes changes it. Cargo would look at all files of a folder.
    println!("cargo::rerun-if-changed={}", root.join("Cargo.lock").display());
    let manifest: Manifest = toml::from_str(&fs::read_to_string(manifest)?)?;
    let (mut code, mut constants) = (String::new(), Vec::new());
    let mut folders = vec![NATS.to_owned()];
    for member in manifest.workspace.members {
        folders.extend(expanded(&root, &member)?);
    }
    for folder in folders {
        let file = root.join(&folder).join("part.toml");
        let crate_of = root.join(&folder).join("Cargo.toml");
        match (file.exists(), crate_of.exists() || folder == NATS) {
            (true, true) => {}
            (true, false) => return Err(format!("{} does not exist", crate_of.display()).into()),
            (false, _) if folder.starts_with(DRIVERS) => {
                return Err(format!("{} does not exist: each driver of ENO has one", file.display()).into());
            }
            (false, _) => continue,
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

/// The folders of a member: `drivers/*` stands for those in `drivers`.
fn expanded(root: &Path, member: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let Some(parent) = member.strip_suffix("/*") else { return Ok(vec![member.to_owned()]) };
    let mut names = fs::read_dir(root.join(parent))?.collect::<Result<Vec<_>, _>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    Ok(names.iter().map(|entry| format!("{parent}/{}", entry.file_name().to_string_lossy())).collect())
}
