//! Finds the programs of a node that must be installed on the host.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// System directories, which the `PATH` of some users lacks.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const OVS_SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Programs that are not installed.
#[derive(Debug, thiserror::Error)]
pub struct MissingPrograms(pub Vec<Missing>);

/// A missing program and its Debian package.
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

/// Paths of the installed programs.
#[derive(Debug)]
pub(super) struct Programs {
    /// containerd.
    pub(super) containerd: PathBuf,
    /// ovsdb-server.
    pub(super) ovsdb_server: PathBuf,
    /// ovs-vswitchd.
    pub(super) ovs_vswitchd: PathBuf,
    /// ovsdb-tool.
    pub(super) ovsdb_tool: PathBuf,
    /// The database schema of Open vSwitch.
    pub(super) ovs_schema: PathBuf,
    /// A statically linked busybox.
    pub(super) busybox: PathBuf,
    /// ping of iputils.
    pub(super) ping: PathBuf,
}

impl Programs {
    /// Finds all programs, or returns the missing ones.
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
        // containerd executes these.
        need("containerd-shim-runc-v2", "containerd", Path::is_file);
        need("runc", "runc", Path::is_file);
        if missing.is_empty() { Ok(programs) } else { Err(MissingPrograms(missing)) }
    }
}

/// `PATH` with the system directories appended.
pub(super) fn path() -> OsString {
    let given = env::var_os("PATH").unwrap_or_default();
    let all = env::split_paths(&given).chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    env::join_paths(all).unwrap_or(given)
}

/// Whether a program needs no dynamic loader.
fn is_static(path: &Path) -> bool {
    eno_image::release::is_static(path).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_error_names_debian_packages() {
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
    fn is_static_rejects_dynamically_linked_program() {
        assert!(!is_static(&env::current_exe().unwrap()));
        assert!(!is_static(Path::new("/dev/null")));
    }
}
