//! The parent cgroup of a node's pods, in every cgroup hierarchy of the machine (v1, v2, or both).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use super::namespace_holder::HolderError;

/// The controllers that a kubelet needs on cgroup v2.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
/// Timeout for the kernel to release a cgroup after its last process.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    path: PathBuf,
    unified: bool,
}

/// Parses the cgroup file systems in `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn parse_mountinfo(mountinfo: &str) -> Vec<Hierarchy> {
    let parse = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let unified = match kind.split(' ').next()? {
            "cgroup" => false,
            "cgroup2" => true,
            _ => return None,
        };
        Some(Hierarchy { path: mount.split(' ').nth(4)?.into(), unified })
    };
    let mut found: Vec<_> = mountinfo.lines().filter_map(parse).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup();
    found
}

fn mounted_hierarchies() -> Result<Vec<Hierarchy>, HolderError> {
    let path = Path::new("/proc/self/mountinfo");
    let found = parse_mountinfo(&fs::read_to_string(path).map_err(HolderError::file("reading", path))?);
    if found.is_empty() { Err(HolderError::NoCgroups) } else { Ok(found) }
}

/// Creates the cgroup in all hierarchies, with all CPUs and memory nodes of the machine.
pub(super) fn create(name: &str) -> Result<(), HolderError> {
    let all = mounted_hierarchies()?;
    let only_unified = all.iter().all(|hierarchy| hierarchy.unified);
    for hierarchy in &all {
        if only_unified {
            for controller in CONTROLLERS {
                let path = hierarchy.path.join("cgroup.subtree_control");
                fs::write(&path, format!("+{controller}"))
                    .map_err(HolderError::file("enabling a controller by", &path))?;
            }
        }
        let cgroup = hierarchy.path.join(name);
        fs::create_dir_all(&cgroup).map_err(HolderError::file("making the cgroup", &cgroup))?;
        // On cgroup v1 a new cpuset is empty and accepts no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (from, to) = (hierarchy.path.join(file), cgroup.join(file));
            if !hierarchy.unified && from.exists() {
                let value = fs::read_to_string(&from).map_err(HolderError::file("reading", &from))?;
                fs::write(&to, value).map_err(HolderError::file("writing", &to))?;
            }
        }
    }
    Ok(())
}

/// Removes the cgroup and its descendants, once their processes have ended.
pub(super) fn remove(name: &str) -> Result<(), HolderError> {
    let until = Instant::now() + RELEASE_TIMEOUT;
    for hierarchy in mounted_hierarchies()? {
        let cgroup = hierarchy.path.join(name);
        loop {
            match remove_tree(&cgroup) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    thread::sleep(POLL_INTERVAL);
                }
                Err(error) => return Err(HolderError::file("removing the cgroup", &cgroup)(error)),
            }
        }
    }
    Ok(())
}

/// Removes a cgroup directory and its subdirectories. The kernel removes the files.
fn remove_tree(cgroup: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(cgroup) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(cgroup) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_mountinfo_finds_hierarchies_of_both_versions() {
        let text = "\
            24 1 0:22 / /proc rw - proc proc rw\n\
            31 30 0:28 / /sys/fs/cgroup/cpuset rw,nosuid shared:9 - cgroup cgroup rw,cpuset\n\
            32 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            32 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = parse_mountinfo(text);
        assert_eq!(
            found,
            [
                Hierarchy { path: "/sys/fs/cgroup/cpuset".into(), unified: false },
                Hierarchy { path: "/sys/fs/cgroup/unified".into(), unified: true },
            ]
        );
    }
}
