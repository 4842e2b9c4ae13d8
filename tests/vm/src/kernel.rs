//! Debian's kernel, unpacked from its package and not installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

/// The package that depends on Debian's newest kernel for virtual machines.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel and its modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The image to boot.
    pub image: PathBuf,
    /// The folder with its modules somewhere below.
    pub modules: PathBuf,
}

impl Kernel {
    /// Finds a kernel: in the folder `ENO_VM_KERNEL` (an unpacked kernel package), else the newest in the cache, else
    /// downloaded by `apt-get` into it. The cache is `ENO_CACHE`, else `eno` in `XDG_CACHE_HOME`, else `~/.cache/eno`.
    pub fn get() -> Result<Self> {
        if let Some(folder) = env::var_os("ENO_VM_KERNEL") {
            return Self::at(Path::new(&folder));
        }
        let cache = cache()?.join("vm-kernel");
        fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
        // Concurrent tests download it once.
        let lock = fs::File::create(cache.join("lock"))?;
        lock.lock()?;
        if let Some(newest) = newest(&cache)? {
            return Self::at(&newest);
        }
        Self::at(&download(&cache)?)
    }

    /// The kernel of an unpacked package.
    fn at(folder: &Path) -> Result<Self> {
        let boot = folder.join("boot");
        let entries = fs::read_dir(&boot).with_context(|| format!("no kernel in {}", boot.display()))?;
        for entry in entries {
            let image = entry?.path();
            if image.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")) {
                return Ok(Self { image, modules: folder.join("lib/modules") });
            }
        }
        bail!("no kernel in {}", boot.display())
    }
}

fn cache() -> Result<PathBuf> {
    let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("ENO_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|home| home.join("eno")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/eno")))
        .context("no folder to keep a kernel in: set ENO_CACHE (or XDG_CACHE_HOME, or HOME)")
}

fn newest(cache: &Path) -> Result<Option<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("linux-image-") && entry.path().is_dir() {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    Ok(found.into_iter().max().map(|(_, path)| path))
}

/// Downloads the package and unpacks it into the cache; returns the folder.
fn download(cache: &Path) -> Result<PathBuf> {
    let hint = "the virtual machine needs Debian's kernel: it is had by apt-get on Debian (after `apt-get update`), \
                or unpack a linux-image package and set ENO_VM_KERNEL to the folder";
    let depends = run(Command::new("apt-cache").args(["depends", "--important", PACKAGE])).context(hint)?;
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| format!("{PACKAGE} depends on no kernel: {depends}"))
        .context(hint)?;
    let folder = tempfile::Builder::new().prefix("download-").tempdir_in(cache)?;
    run(Command::new("apt-get").args(["download", package]).current_dir(folder.path())).context(hint)?;
    let file = fs::read_dir(folder.path())?.next().context("apt-get left nothing")??.path();
    let unpacked = folder.path().join("unpacked");
    run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&unpacked)).context(hint)?;
    // A rename makes only complete folders visible.
    let place = cache.join(package);
    fs::rename(&unpacked, &place)?;
    Ok(place)
}

/// Runs a program that must succeed; returns its output.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
