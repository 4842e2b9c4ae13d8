//! The documents: links lead somewhere, and console blocks show what the commands print.

mod blocks;
mod console;
mod links;
mod output;

use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages of the book in the order of its summary.
pub fn pages() -> Vec<PathBuf> {
    let source = root().join("docs/src");
    let summary = read(&source.join("SUMMARY.md"));
    links::targets(&summary).into_iter().map(|target| source.join(target)).collect()
}
