//! Builds a layer: a tar archive whose entries have no times and belong to root.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::PackError;

/// Builds an uncompressed layer.
pub struct LayerBuilder {
    tar: tar::Builder<Vec<u8>>,
    /// Directories of the archive.
    directories: BTreeSet<String>,
}

impl Default for LayerBuilder {
    fn default() -> Self {
        Self { tar: tar::Builder::new(Vec::new()), directories: BTreeSet::new() }
    }
}

impl LayerBuilder {
    fn add(
        &mut self,
        path: &str,
        kind: tar::EntryType,
        mode: u32,
        target: Option<&str>,
        content: &[u8],
    ) -> Result<(), PackError> {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent, 0o755)?;
        }
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        let added = match target {
            Some(target) => self.tar.append_link(&mut header, path, target),
            None => self.tar.append_data(&mut header, path, content),
        };
        added.map_err(PackError::of(path))
    }

    /// Adds a file. `path` has no leading slash; its directories are added.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<(), PackError> {
        self.add(path, tar::EntryType::Regular, mode, None, content)
    }

    /// Adds an executable file of this machine, without its capabilities.
    pub fn copy(&mut self, path: &str, from: &Path) -> Result<(), PackError> {
        let content = fs::read(from).map_err(PackError::of(from))?;
        self.file(path, 0o755, &content)
    }

    /// Adds a directory and those above it, unless it is there.
    pub fn directory(&mut self, path: &str, mode: u32) -> Result<(), PackError> {
        if path.is_empty() || !self.directories.insert(path.to_owned()) {
            return Ok(());
        }
        self.add(path, tar::EntryType::Directory, mode, None, &[])
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), PackError> {
        // What is below the link is no directory of the archive.
        self.directories.insert(path.to_owned());
        self.add(path, tar::EntryType::Symlink, 0o777, Some(target), &[])
    }

    /// The archive.
    pub fn finish(self) -> Result<Vec<u8>, PackError> {
        self.tar.into_inner().map_err(PackError::of("layer"))
    }
}
