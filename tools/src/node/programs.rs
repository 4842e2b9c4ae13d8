//! The programs of a node that distributions package.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where programs of root are, which not everyone has in `PATH`.
const SYSTEM: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const OVS_SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// What is not installed.
#[derive(Debug, thiserror::Error)]
pub struct MissingPrograms(pub Vec<Missing>);

/// A program, and the package of Debian that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// The program or file.
    pub program: &'static str,
    /// The package.
    pub package: &'static str,
}

impl fmt::Display for MissingPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs: Vec<_> = self.0.iter().map(|missing| missing.program).collect();
        let mut packages: Vec<_> = self.0.iter().map(|missing| missing.package).collect();
        packages.dedup();
        write!(
            f,
            "nodes need what is not installed: {}. On Debian: apt-get install {}",
            programs.join(", "),
            packages.join(" ")
        )
    }
}

/// Their paths.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) containerd: PathBuf,
    pub(super) ovsdb_server: PathBuf,
    pub(super) ovs_vswitchd: PathBuf,
    pub(super) ovsdb_tool: PathBuf,
    pub(super) ovs_schema: PathBuf,
    pub(super) busybox: PathBuf,
    pub(super) ping: PathBuf,
}

impl Programs {
    /// Finds all, or says what is missing.
    pub(super) fn find() -> Result<Self, MissingPrograms> {
        let mut missing = Vec::new();
        let mut need = |program: &'static str, package, usable: fn(&Path) -> bool| {
            let found =
                env::split_paths(&path()).map(|folder| folder.join(program)).find(|path| usable(path));
            if found.is_none() {
                missing.push(Missing { program, package });
            }
            found.unwrap_or_default()
        };
        let programs = Self {
            containerd: need("containerd", "containerd", Path::is_file),
            ovsdb_server: need("ovsdb-server", "openvswitch-switch", Path::is_file),
            ovs_vswitchd: need("ovs-vswitchd", "openvswitch-switch", Path::is_file),
            ovsdb_tool: need("ovsdb-tool", "openvswitch-switch", Path::is_file),
            ovs_schema: need(OVS_SCHEMA, "openvswitch-switch", Path::is_file),
            busybox: need("busybox", "busybox-static", is_static),
            ping: need("ping", "iputils-ping", Path::is_file),
        };
        // containerd runs these.
        need("containerd-shim-runc-v2", "containerd", Path::is_file);
        need("runc", "runc", Path::is_file);
        if missing.is_empty() { Ok(programs) } else { Err(MissingPrograms(missing)) }
    }
}

/// `PATH`, with the system's own directories.
pub(super) fn path() -> OsString {
    let given = env::var_os("PATH").unwrap_or_default();
    let all = env::split_paths(&given).chain(SYSTEM.map(PathBuf::from));
    env::join_paths(all).unwrap_or(given)
}

/// Whether a file is a program that asks for no loader: an ELF file of 64 bits without `PT_INTERP`.
pub(super) fn is_static(path: &Path) -> bool {
    let Ok(elf) = std::fs::read(path) else { return false };
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at + size)?;
        usize::try_from(bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))).ok()
    };
    let headers = || {
        let (begin, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).map(|index| number(begin + index * size, 4)).collect::<Option<Vec<_>>>()
    };
    elf.starts_with(b"\x7fELF\x02\x01") && headers().is_some_and(|types| !types.contains(&3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let missing = MissingPrograms(vec![
            Missing { program: "ovsdb-server", package: "openvswitch-switch" },
            Missing { program: "ovs-vswitchd", package: "openvswitch-switch" },
            Missing { program: "runc", package: "runc" },
        ]);
        assert_eq!(
            missing.to_string(),
            "nodes need what is not installed: ovsdb-server, ovs-vswitchd, runc. On Debian: apt-get install \
             openvswitch-switch runc"
        );
    }

    #[test]
    fn this_test_is_not_statically_linked() {
        assert!(!is_static(&env::current_exe().unwrap()));
        assert!(!is_static(Path::new("/dev/null")));
    }
}
