//! OCI image layouts (OCI image specification 1.1, "Image Layout"): a directory, or a tar archive of it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::image::{MANIFEST, digest};
use crate::{Blob, Image};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The annotation with the tag in a layout.
const REFERENCE: &str = "org.opencontainers.image.ref.name";
/// The annotation from which containerd takes the whole name of an imported image.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// A layout can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A file can't be written or read.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// The failed operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The directory has no image of one layer, or a damaged one.
    #[error("{} is not the layout of an image that `make image` makes: {problem}", path.display())]
    Malformed {
        /// The directory.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayoutError + use<> {
    let path = path.to_owned();
    move |source| LayoutError::File { operation, path, source }
}

/// The files of a layout, by their paths in it. `name` is `REPOSITORY:TAG`.
fn files(image: &Image, name: &str) -> Vec<(String, Vec<u8>)> {
    let mut manifest = image.manifest.descriptor();
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    manifest["annotations"] = json!({ REFERENCE: tag, CONTAINERD_NAME: full_name(name) });
    if let Ok(config) = serde_json::from_slice::<Value>(&image.config.bytes) {
        manifest["platform"] = json!({"architecture": config["architecture"], "os": config["os"]});
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]});
    let mut files = vec![
        ("oci-layout".to_owned(), json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes()),
        ("index.json".to_owned(), index.to_string().into_bytes()),
    ];
    for blob in image.blobs() {
        files.push((format!("blobs/{}", blob.digest.replace(':', "/")), blob.bytes.to_vec()));
    }
    files
}

/// The name with its registry: what `eno:dev` means to containerd.
fn full_name(name: &str) -> String {
    let registry = name.split_once('/').map_or("", |(first, _)| first);
    match name.contains('/') {
        false => format!("docker.io/library/{name}"),
        true if registry.contains(['.', ':']) || registry == "localhost" => name.to_owned(),
        true => format!("docker.io/{name}"),
    }
}

/// Writes the layout of an image into a directory, which may exist.
pub fn write_layout(image: &Image, name: &str, directory: &Path) -> Result<(), LayoutError> {
    for (path, content) in files(image, name) {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(file("making the directory", parent))?;
        }
        fs::write(&path, content).map_err(file("writing", &path))?;
    }
    Ok(())
}

/// Writes the layout as a tar archive, which `ctr image import`, `podman load` and `skopeo copy oci-archive:` take.
pub fn write_archive(image: &Image, name: &str, archive: &Path) -> Result<(), LayoutError> {
    let failed = || file("writing", archive);
    let mut tar = tar::Builder::new(fs::File::create(archive).map_err(failed())?);
    for (path, content) in files(image, name) {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, &content[..]).map_err(failed())?;
    }
    tar.into_inner().and_then(|mut file| file.flush()).map_err(failed())
}

/// Reads the image of a layout in a directory, and checks its digests.
pub fn read_layout(directory: &Path) -> Result<Image, LayoutError> {
    let malformed = |problem: String| LayoutError::Malformed { path: directory.to_owned(), problem };
    let blob = |descriptor: &Value| {
        let text = |key: &str| descriptor[key].as_str().unwrap_or_default().to_owned();
        let named = text("digest");
        let hex = named.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(malformed(format!("{named:?} is no SHA-256 digest")));
        }
        let path = directory.join("blobs/sha256").join(hex);
        let bytes = fs::read(&path).map_err(file("reading", &path))?;
        if digest(&bytes) != named {
            return Err(malformed(format!("the content of {named} is another one")));
        }
        Ok(Blob::new(&text("mediaType"), bytes))
    };
    let json =
        |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).map_err(|error| malformed(error.to_string()));
    let path = directory.join("index.json");
    let index = json(&fs::read(&path).map_err(file("reading", &path))?)?;
    let manifest = blob(&index["manifests"][0])?;
    if manifest.media_type != MANIFEST {
        return Err(malformed(format!("a manifest of the type {:?}", manifest.media_type)));
    }
    let content = json(&manifest.bytes)?;
    if content["layers"].as_array().map(Vec::len) != Some(1) {
        return Err(malformed("it has not one layer".to_owned()));
    }
    Ok(Image { config: blob(&content["config"])?, layer: blob(&content["layers"][0])?, manifest })
}
