//! The images of a release: `eno`, with all programs of the operator, and `eno-nats`, with nats-server.

mod cargo;
mod certificates;
mod components;
mod go;
mod npm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::{Config, Image, LayerBuilder, PackError};
pub use components::{Component, bill_of_materials, licences};

/// Directory of the programs in an image.
pub const BIN: &str = "usr/local/bin";

/// The user and group of the programs, as the manifests of `deploy/` set it.
const USER: &str = "65532:65532";

/// What an image says of itself.
#[derive(Debug, Clone)]
pub struct About {
    /// The version, such as `0.1.0`.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// The time of that commit, in seconds since 1970 (`SOURCE_DATE_EPOCH`).
    pub time: i64,
    /// The Rust target of the programs, such as `x86_64-unknown-linux-musl`.
    pub target: String,
}

/// An image with its bill of materials (CycloneDX 1.6, JSON).
#[derive(Debug)]
pub struct Release {
    /// The image.
    pub image: Image,
    /// The bill of materials, which is in the image, too.
    pub bill_of_materials: String,
}

/// Builds the image `eno` from statically linked programs in a directory, and the workspace they were built from.
pub fn eno(programs: &Path, workspace: &Path, about: &About) -> anyhow::Result<Release> {
    let packages: Vec<&str> = eno_parts::programs().map(|program| program.package).collect();
    let mut components = cargo::components(workspace, &about.target, &packages)?;
    components.extend(npm::components(workspace)?);
    let mut layer = LayerBuilder::default();
    for name in eno_parts::programs().map(|program| program.binary) {
        let program = programs.join(name);
        ensure!(is_static(&program)?, "{} is not statically linked", program.display());
        layer.copy(&format!("{BIN}/{name}"), &program)?;
    }
    add_certificates(&mut layer)?;
    let licence = workspace.join("LICENSE");
    let licence = std::fs::read_to_string(&licence).with_context(|| licence.display().to_string())?;
    finish(layer, "eno", &licence, &components, about)
}

/// Adds the certificate authorities that Mozilla trusts, for callbacks and OpenStack over HTTPS.
pub fn add_certificates(layer: &mut LayerBuilder) -> Result<(), PackError> {
    layer.file(certificates::PATH, 0o644, certificates::pem().as_bytes())
}

/// Builds the image `eno-nats` from a statically linked nats-server. Reads its modules with `go version -m`, and their
/// licences from Go's module cache.
pub fn nats(server: &Path, about: &About) -> anyhow::Result<Release> {
    ensure!(is_static(server)?, "{} is not statically linked", server.display());
    let (licence, components) = go::components(server)?;
    let mut layer = LayerBuilder::default();
    layer.copy(&format!("{BIN}/nats-server"), server)?;
    finish(layer, "nats-server", &licence, &components, about)
}

fn finish(
    mut layer: LayerBuilder,
    name: &str,
    licence: &str,
    components: &[Component],
    about: &About,
) -> anyhow::Result<Release> {
    let created = jiff::Timestamp::from_second(about.time).context("the time of the commit")?.to_string();
    let bill_of_materials = bill_of_materials(name, about, &created, components);
    layer.file("etc/passwd", 0o644, b"eno:x:65532:65532:eno:/:/sbin/nologin\n")?;
    layer.file("etc/group", 0o644, b"eno:x:65532:\n")?;
    layer.file(&format!("usr/share/licenses/{name}/LICENSE"), 0o644, licence.as_bytes())?;
    let others = licences(components);
    layer.file(&format!("usr/share/licenses/{name}/THIRD-PARTY"), 0o644, others.as_bytes())?;
    layer.file(&format!("usr/share/sbom/{name}.cdx.json"), 0o644, bill_of_materials.as_bytes())?;
    let label = |key: &str, value: &str| (format!("org.opencontainers.image.{key}"), value.to_owned());
    let architecture = about.target.split('-').next().unwrap_or_default();
    let config = Config {
        env: vec![format!("PATH=/{BIN}")],
        entrypoint: vec![format!("/{BIN}/{name}")],
        user: USER.to_owned(),
        working_dir: "/".to_owned(),
        labels: BTreeMap::from([
            label("title", name),
            label("version", &about.version),
            label("revision", &about.commit),
            label("created", &created),
            label("licenses", "Apache-2.0"),
        ]),
        architecture: crate::architecture(architecture).to_owned(),
        created: Some(created),
        ..Config::default()
    };
    Ok(Release { image: Image::compressed(layer, &config)?, bill_of_materials })
}

/// Whether an ELF program needs no dynamic loader (no `PT_INTERP`).
pub fn is_static(path: &Path) -> anyhow::Result<bool> {
    let elf = std::fs::read(path).with_context(|| path.display().to_string())?;
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at + size)?;
        usize::try_from(bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))).ok()
    };
    let headers = || {
        let (begin, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).map(|index| number(begin + index * size, 4)).collect::<Option<Vec<_>>>()
    };
    Ok(elf.starts_with(b"\x7fELF\x02\x01") && headers().is_some_and(|types| !types.contains(&3)))
}

/// The files in a directory whose names are those of licences and notices, sorted.
fn licence_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| directory.display().to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_licence = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT"]
            .iter()
            .any(|start| name.starts_with(start));
        if is_licence && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The texts of [`licence_files`].
fn licence_texts(directory: &Path) -> anyhow::Result<Vec<String>> {
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    licence_files(directory)?.into_iter().map(read).collect()
}
