//! Builds container images: the pause image, a test image with a shell and network tools (busybox, and ping of
//! iputils), and images with programs of this machine and their shared libraries.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use eno_image::release::{self, BIN, is_static};
use eno_image::{Config, Image, LayerBuilder, PackError};

/// Name of the image of pod sandboxes.
pub const PAUSE: &str = "eno.k8s.io/pause:latest";
/// Name of the test image with a shell.
pub const TEST: &str = "eno.k8s.io/test:latest";

/// The busybox applets of the test image: network tools and commands for scripts.
const APPLETS: &str = "[ arp arping ash awk base64 basename brctl cat chmod chown cp cut date dd df diff dirname \
    dmesg du echo env expr false find free getopt grep head hexdump hostname httpd id ifconfig ip ipcalc kill \
    killall less ln ls md5sum mkdir mkfifo mktemp mount mv nc netstat nice nohup nproc nslookup od pgrep pidof \
    pkill printf ps pwd readlink realpath rm rmdir route sed seq setsid sh sha256sum sleep sort stat stty sync \
    sysctl tail tar tee telnet test timeout top touch tr traceroute traceroute6 true tty udhcpc umount uname uniq \
    uptime usleep vi watch wc wget which whoami xargs yes";

/// An image can't be built.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file can't be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The layout of an image can't be read.
    #[error(transparent)]
    Layout(#[from] eno_image::LayoutError),
    /// A program can't be read.
    #[error("reading a program: {0}")]
    Program(anyhow::Error),
    /// The image has no programs, or one is not a file.
    #[error("{} is no program that an image could have", path.display())]
    NoProgram {
        /// The file.
        path: PathBuf,
    },
    /// The dynamic loader doesn't find the shared libraries of a program.
    #[error("the shared libraries of {}: {message}", program.display())]
    Libraries {
        /// The program.
        program: PathBuf,
        /// The error of `ldd`.
        message: String,
    },
    /// The pause program doesn't support this processor architecture.
    #[error("there is no pause program for {}", std::env::consts::ARCH)]
    Architecture,
}

/// An image with programs of this machine, like that of `deploy/images/Containerfile`. It contains only the programs,
/// in [`PROGRAMS`], and their shared libraries.
#[derive(Debug, Clone)]
pub struct ProgramsImage {
    /// Name in manifests; the tag is ignored.
    pub name: String,
    /// Paths of the programs. The first one is the entrypoint.
    pub programs: Vec<PathBuf>,
}

/// Builds an image of programs without signal handlers. As first process they would ignore SIGTERM until the end of the
/// grace period, so the stop signal is SIGKILL.
fn without_signal_handlers(
    layer: LayerBuilder,
    entrypoint: &[&str],
    command: &[&str],
) -> Result<Image, ImageError> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let config = Config {
        env: texts(&["PATH=/bin"]),
        entrypoint: texts(entrypoint),
        cmd: texts(command),
        working_dir: "/".to_owned(),
        stop_signal: "SIGKILL".to_owned(),
        ..Config::default()
    };
    Ok(Image::new(layer, &config)?)
}

/// Builds the pause image.
pub(crate) fn pause() -> Result<Image, ImageError> {
    let program = pause_program().ok_or(ImageError::Architecture)?;
    let mut layer = LayerBuilder::default();
    layer.file("pause", 0o755, &program)?;
    without_signal_handlers(layer, &["/pause"], &[])
}

/// Writes an archive with the pause image, whose name is [`PAUSE`].
pub fn write_pause_archive(archive: &Path) -> Result<(), ImageError> {
    Ok(eno_image::write_archive(&pause()?, PAUSE, archive)?)
}

/// Builds the test image from a statically linked busybox and this machine's ping. The ping of busybox needs raw
/// sockets and so NET_RAW. Blocks: it runs `ldd`.
pub(crate) fn test(busybox: &Path, ping: &Path) -> Result<Image, ImageError> {
    let mut layer = LayerBuilder::default();
    for directory in ["bin", "etc", "root", "tmp", "usr", "var"] {
        layer.directory(directory, if directory == "tmp" { 0o1777 } else { 0o755 })?;
    }
    layer.copy("bin/busybox", busybox)?;
    for applet in APPLETS.split_whitespace() {
        layer.link(&format!("bin/{applet}"), "busybox")?;
    }
    // The copy has no file capabilities, which a pod without NET_RAW could not execute.
    layer.copy("bin/ping", ping)?;
    layer.link("bin/ping6", "ping")?;
    add_libraries(&mut layer, &libraries_of(ping)?.into_iter().collect())?;
    // busybox has no applet `bash`.
    layer.file("bin/bash", 0o755, b"#!/bin/sh\nexec /bin/busybox sh \"$@\"\n")?;
    layer.link("usr/bin", "../bin")?;
    layer.link("sbin", "bin")?;
    layer.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
    layer.file("etc/group", 0o644, b"root:x:0:\n")?;
    without_signal_handlers(layer, &[], &["sleep", "2147483647"])
}

/// Builds an image with programs. Blocks: it reads large files and runs `ldd`.
pub(crate) fn programs(image: &ProgramsImage) -> Result<Image, ImageError> {
    let mut layer = LayerBuilder::default();
    let mut libraries = BTreeSet::new();
    let mut entrypoint = None;
    for program in &image.programs {
        let name = program.file_name().and_then(OsStr::to_str);
        let name = name.ok_or_else(|| ImageError::NoProgram { path: program.clone() })?;
        let path = format!("{BIN}/{name}");
        layer.copy(&path, program)?;
        entrypoint.get_or_insert(format!("/{path}"));
        libraries.extend(libraries_of(program)?);
    }
    add_libraries(&mut layer, &libraries)?;
    release::add_certificates(&mut layer)?;
    let config = Config {
        env: vec![format!("PATH=/{BIN}")],
        entrypoint: vec![entrypoint.ok_or_else(|| ImageError::NoProgram { path: PathBuf::new() })?],
        working_dir: "/".to_owned(),
        user: "65532:65532".to_owned(),
        ..Config::default()
    };
    Ok(Image::new(layer, &config)?)
}

/// Adds shared libraries under the paths that the loader uses; symbolic links are followed.
fn add_libraries(layer: &mut LayerBuilder, paths: &BTreeSet<String>) -> Result<(), PackError> {
    paths.iter().try_for_each(|path| layer.copy(path.trim_start_matches('/'), Path::new(path)))
}

/// Returns the paths of a program's shared libraries and loader; none for a statically linked program.
fn libraries_of(program: &Path) -> Result<Vec<String>, ImageError> {
    if is_static(program).map_err(ImageError::Program)? {
        return Ok(Vec::new());
    }
    let failed = |message: String| ImageError::Libraries { program: program.to_owned(), message };
    let output =
        Command::new("ldd").arg(program).output().map_err(|error| failed(format!("ldd: {error}")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    parse_ldd(&String::from_utf8_lossy(&output.stdout)).map_err(failed)
}

/// Parses the output of ldd(1): `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)`. The vDSO has no path.
fn parse_ldd(text: &str) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        let found = line.split_once(" => ").map_or(line, |(_, path)| path);
        if found == "not found" {
            return Err(line.to_owned());
        }
        let path = found.rsplit_once(" (").map_or(found, |(path, _)| path);
        if path.starts_with('/') {
            paths.push(path.to_owned());
        }
    }
    Ok(paths)
}

/// Builds a static ELF program (System V ABI, 64 bits) that waits for signals in a loop.
fn pause_program() -> Option<Vec<u8>> {
    const HEADERS: u16 = 64 + 56;
    const BASE: u64 = 0x0040_0000;
    let (machine, code): (u16, &[u8]) = match std::env::consts::ARCH {
        // mov eax, 34 (pause); syscall; jmp to the begin
        "x86_64" => (62, &[0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7]),
        // mov x0…x4, 0; mov x8, 73 (ppoll); svc 0; b to the begin
        "aarch64" => (
            183,
            &[
                0x00, 0x00, 0x80, 0xd2, 0x01, 0x00, 0x80, 0xd2, 0x02, 0x00, 0x80, 0xd2, 0x03, 0x00, 0x80,
                0xd2, 0x04, 0x00, 0x80, 0xd2, 0x28, 0x09, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xf9, 0xff,
                0xff, 0x17,
            ],
        ),
        _ => return None,
    };
    let size = u64::from(HEADERS) + code.len() as u64;
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |elf: &mut Vec<u8>, values: &[u16]| {
        for value in values {
            elf.extend(value.to_le_bytes());
        }
    };
    // An executable whose entry point follows the headers.
    half(&mut elf, &[2, machine, 1, 0]);
    for value in [BASE + u64::from(HEADERS), 64, 0] {
        elf.extend(value.to_le_bytes());
    }
    half(&mut elf, &[0, 0, 64, 56, 1, 0, 0, 0]);
    // One segment with the whole file, readable and executable.
    half(&mut elf, &[1, 0, 5, 0]);
    for value in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend(value.to_le_bytes());
    }
    elf.extend(code);
    Some(elf)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn pause_program_runs_and_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pause");
        // Let another process write it: a file that this process has open for writing can't be executed.
        let program = pause_program().unwrap();
        let from = dir.path().join("bytes");
        std::fs::write(&from, &program).unwrap();
        std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(std::process::Command::new("cp").arg(&from).arg(&path).status().unwrap().success());
        let mut child = std::process::Command::new(&path).spawn().unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        while !std::fs::read_to_string(&stat).unwrap().contains("(pause) S") {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn parse_ldd_returns_library_paths_and_reports_missing_ones() {
        let text = "\tlinux-vdso.so.1 (0x00007fd798d48000)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fd79761e000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007fd798d4a000)\n";
        let found = parse_ldd(text).unwrap();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert_eq!(parse_ldd("\tlibx.so => not found\n").unwrap_err(), "libx.so => not found");
    }

    #[test]
    fn programs_image_contains_programs_and_libraries() {
        let this = std::env::current_exe().unwrap();
        let image = ProgramsImage { name: "this".to_owned(), programs: vec![this.clone()] };
        let packed = programs(&image).unwrap();
        let mut layer = tar::Archive::new(&packed.layer.bytes[..]);
        let paths: Vec<_> =
            layer.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
        assert_eq!(paths[3], Path::new(BIN).join(this.file_name().unwrap()));
        assert!(paths.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{paths:?}");
        let config: serde_json::Value = serde_json::from_slice(&packed.config.bytes).unwrap();
        assert_eq!(config["config"]["Entrypoint"][0], format!("/{}", paths[3].display()));

        let none = ProgramsImage { name: "none".to_owned(), programs: Vec::new() };
        assert!(matches!(programs(&none), Err(ImageError::NoProgram { .. })));
    }

    #[test]
    fn manifest_references_config_and_layer() {
        let image = pause().unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&image.manifest.bytes).unwrap();
        assert_eq!(manifest["config"]["digest"], image.config.digest.as_str());
        assert_eq!(manifest["layers"][0]["size"], image.layer.bytes.len());
    }
}
