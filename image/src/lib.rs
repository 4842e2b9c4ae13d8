//! Container images (OCI image specification 1.1) from files of this machine, without a daemon and without privileges.
//!
//! The same files and the same [`Config`] give the same bytes: entries have no times and no owners of this machine.
//! `tar` writes the layers. `ocidir` needs OpenSSL, and `oci-spec` would add ten crates for a few JSON objects.

mod image;
mod layer;
mod layout;
pub mod release;

pub use image::{Blob, Config, Image, architecture};
pub use layer::LayerBuilder;
pub use layout::{LayoutError, read_layout, write_archive, write_layout};

use std::io;
use std::path::{Path, PathBuf};

/// A file can't be packed into an image.
#[derive(Debug, thiserror::Error)]
#[error("packing {} into an image: {source}", path.display())]
pub struct PackError {
    /// The file, or its path in the image.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl PackError {
    fn of(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self { path, source }
    }
}
