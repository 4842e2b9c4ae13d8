//! Writes what `deploy/` has of each kind and of each part, and the fields of all kinds to the book, or with `--check`
//! names the files that are stale. DIRECTORY is the repository.
//!
//! ```text
//! eno-deploy [--check] [DIRECTORY]
//! ```

mod crds;
mod drivers;
mod reference;
mod sections;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HEADER: &str = "# Written by `make crds`. Do not edit.\n";

/// The text of each file by its path.
type Files = BTreeMap<String, String>;

fn main() -> ExitCode {
    let mut check = false;
    let mut directory = PathBuf::from(".");
    for argument in std::env::args_os().skip(1) {
        if argument == "--check" {
            check = true;
        } else {
            directory = argument.into();
        }
    }
    match run(check, &directory) {
        Ok(stale) if stale.is_empty() => ExitCode::SUCCESS,
        Ok(stale) => {
            eprintln!("stale: {}; run `make crds`", stale.join(", "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the files, or with `check` compares them. Returns the names of files that differ or should not
/// exist.
fn run(check: bool, directory: &Path) -> Result<Vec<String>, Error> {
    let mut files = crds::files(directory)?;
    let mut stale = crds::leftovers(directory, &files)?;
    files.extend(drivers::files()?);
    // The sections name the roles that were written before.
    files.extend(sections::files(directory, &files)?);
    for (name, text) in files {
        let path = directory.join(&name);
        if check {
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                stale.push(name);
            }
        } else {
            path.parent().map_or(Ok(()), fs::create_dir_all).map_err(Error::io(&path))?;
            fs::write(&path, text).map_err(Error::io(&path))?;
        }
    }
    Ok(stale)
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{name} can't be written as YAML: {source}")]
    Yaml { name: String, source: serde_saphyr::ser::Error },
    #[error("{file}: {problem}")]
    Section { file: String, problem: String },
    #[error("the part.toml of {part}: {problem}")]
    Part { part: &'static str, problem: &'static str },
}

impl Error {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// The YAML of one object of the file `name`.
fn yaml(name: &str, object: &impl serde::Serialize) -> Result<String, Error> {
    serde_saphyr::to_string(object).map_err(|source| Error::Yaml { name: name.to_owned(), source })
}
