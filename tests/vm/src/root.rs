//! The machine's root file system: programs, libraries and modules.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

use crate::archive::Archive;
use crate::kernel::Kernel;
use crate::modules;

/// A root file system under construction: busybox, a shell, kernel modules, and added files.
#[derive(Debug)]
pub struct Root {
    archive: Archive,
    kernel: Kernel,
    libraries: BTreeSet<PathBuf>,
}

impl Root {
    /// A root file system for this kernel, with busybox, a shell and the modules.
    pub fn new(kernel: Kernel) -> Result<Self> {
        let mut root = Self { archive: Archive::default(), kernel, libraries: BTreeSet::new() };
        let busybox = program("busybox")?;
        if !libraries(&busybox)?.is_empty() {
            bail!("{} is not static: install busybox-static", busybox.display());
        }
        root.file(&busybox, "/bin/busybox")?;
        // Busybox's shell would prefer its own `ip` to the one on `PATH`.
        root.executable(&program("dash")?, "/bin/sh")?;
        for folder in
            ["/dev", "/proc", "/sys", "/tmp", "/run", "/etc", "/root", "/var/lib", "/usr/sbin", "/sbin"]
        {
            root.archive.folder(folder);
        }
        root.modules()?;
        Ok(root)
    }

    fn modules(&mut self) -> Result<()> {
        let found = modules::find(&self.kernel.modules)?;
        let mut contents = std::collections::BTreeMap::new();
        let order = modules::in_order(&modules::WANTED, |name| {
            let path = found.get(name).context("the kernel has none of that name")?;
            let content = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            let dependencies = modules::dependencies(&content);
            contents.insert(name.to_owned(), content);
            Ok(dependencies)
        })?;
        for (name, content) in &contents {
            self.archive.file(&format!("/modules/{name}.ko"), 0o644, content);
        }
        self.archive.file("/modules/order", 0o644, format!("{}\n", order.join("\n")).as_bytes());
        Ok(())
    }

    /// Adds a program from this machine's `PATH` (or `/usr/sbin`, `/sbin`) with its libraries.
    pub fn program(&mut self, name: &str) -> Result<()> {
        let path = program(name)?;
        self.executable(&path, &format!("/usr/bin/{name}"))
    }

    /// Adds an executable at a path, without debug information, with its libraries.
    pub fn executable(&mut self, path: &Path, at: &str) -> Result<()> {
        for library in libraries(path)? {
            if self.libraries.insert(library.clone()) {
                let at = library.to_str().context("a library's path")?.to_owned();
                self.file(&library, &at)?;
            }
        }
        let stripped = tempfile::NamedTempFile::new()?;
        let status =
            Command::new("strip").args(["--strip-debug", "-o"]).arg(stripped.path()).arg(path).status();
        // Scripts and Go programs can't be stripped and are copied unchanged.
        let is_stripped = status.context("strip (Debian: binutils)")?.success();
        let content = fs::read(if is_stripped { stripped.path() } else { path })?;
        self.archive.file(at, 0o755, &content);
        Ok(())
    }

    /// Adds a file with its permissions.
    pub fn file(&mut self, path: &Path, at: &str) -> Result<()> {
        let content = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let permissions = fs::metadata(path)?.permissions().mode() & 0o777;
        self.archive.file(at, permissions, &content);
        Ok(())
    }

    /// Adds a file with this text.
    pub fn text(&mut self, at: &str, permissions: u32, text: &str) {
        self.archive.file(at, permissions, text.as_bytes());
    }

    /// The kernel and the archive.
    pub(crate) fn finish(self) -> (Kernel, Vec<u8>) {
        (self.kernel, self.archive.finish())
    }
}

/// Finds a program of this machine; the error names its Debian package.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let package = match name {
        "busybox" => "busybox-static",
        "ip" | "bridge" | "tc" => "iproute2",
        "iptables-save" => "iptables",
        "nft" => "nftables",
        "ping" => "iputils-ping",
        "qemu-system-x86_64" => "qemu-system-x86",
        other => other,
    };
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed (Debian: apt-get install {package})"))
}

/// The shared libraries of an executable and its dynamic loader; none for a static one.
fn libraries(executable: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(executable).output().context("ldd (Debian: libc-bin)")?;
    parse_ldd(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("the libraries of {}", executable.display()))
}

/// Parses `libc.so.6 => /lib/…/libc.so.6 (0x…)` and `/lib64/ld-linux-x86-64.so.2 (0x…)`. For a static executable, ldd
/// prints no path.
fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        bail!("{}", missing.trim());
    }
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_output_is_parsed() {
        let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f12)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f14)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_ldd(text).unwrap(), expected);
        for of_static in ["\tstatically linked\n", ""] {
            assert!(parse_ldd(of_static).unwrap().is_empty());
        }
        assert!(parse_ldd("\tlibmnl.so.0 => not found\n").unwrap_err().to_string().contains("libmnl.so.0"));
    }

    #[test]
    fn missing_program_is_named_with_its_package() {
        assert_eq!(program("sh").unwrap().file_name().unwrap(), "sh");
        let error = program("eno-no-such-program").unwrap_err().to_string();
        assert!(error.ends_with("is not installed (Debian: apt-get install eno-no-such-program)"), "{error}");
    }
}
