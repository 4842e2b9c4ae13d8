//! An image of one layer: its manifest, configuration and layer as blobs.

use std::collections::BTreeMap;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{LayerBuilder, PackError};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// A blob of an image with its digest.
#[derive(Debug, Clone)]
pub struct Blob {
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// Its media type.
    pub media_type: String,
    /// Its content.
    pub bytes: Bytes,
}

impl Blob {
    pub(crate) fn new(media_type: &str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { digest: digest(&bytes), media_type: media_type.to_owned(), bytes }
    }

    /// The descriptor by which others refer to it.
    pub(crate) fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len()})
    }
}

/// The digest of bytes: `sha256:` and 64 hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// How the program of an image runs (the field `config` of the image configuration), and what the image says of itself.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    /// `NAME=VALUE`.
    pub env: Vec<String>,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, which a pod can replace.
    pub cmd: Vec<String>,
    /// `UID:GID`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The working directory.
    pub working_dir: String,
    /// The signal that ends it, if it is not SIGTERM.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    /// Labels (`org.opencontainers.image.…`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The processor architecture as Go names it; by default that of this program.
    #[serde(skip)]
    pub architecture: String,
    /// The time of creation (RFC 3339), if it shall have one.
    #[serde(skip)]
    pub created: Option<String>,
}

/// The Go name of a processor architecture, which images use.
pub fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An image of one layer.
#[derive(Debug, Clone)]
pub struct Image {
    /// The manifest.
    pub manifest: Blob,
    /// The image configuration.
    pub config: Blob,
    /// The layer.
    pub layer: Blob,
}

impl Image {
    /// Builds an image with an uncompressed layer, for a registry on this machine.
    pub fn new(layer: LayerBuilder, config: &Config) -> Result<Self, PackError> {
        let layer = layer.finish()?;
        let diff = digest(&layer);
        Ok(Self::of(Blob::new(LAYER, layer), &diff, config))
    }

    /// Builds an image with a layer in gzip.
    pub fn compressed(layer: LayerBuilder, config: &Config) -> Result<Self, PackError> {
        let layer = layer.finish()?;
        let diff = digest(&layer);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let compressed = gzip.write_all(&layer).and_then(|()| gzip.finish());
        let compressed = compressed.map_err(PackError::of("layer"))?;
        Ok(Self::of(Blob::new(LAYER_GZIP, compressed), &diff, config))
    }

    fn of(layer: Blob, diff: &str, config: &Config) -> Self {
        let architecture = match config.architecture.as_str() {
            "" => architecture(std::env::consts::ARCH),
            named => named,
        };
        let mut whole = json!({
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [diff]},
        });
        if let Some(created) = &config.created {
            whole["created"] = json!(created);
        }
        let config = Blob::new(CONFIG, whole.to_string());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        Self { manifest: Blob::new(MANIFEST, manifest.to_string()), config, layer }
    }

    pub(crate) fn blobs(&self) -> [&Blob; 3] {
        [&self.manifest, &self.config, &self.layer]
    }
}
