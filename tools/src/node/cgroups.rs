//! The cgroup below which a node's pods are, in every hierarchy of the machine (cgroup v1, v2, or both).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use super::holder::HoldError;

/// What a kubelet limits, and so has to be there on cgroup v2.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
/// The kernel lets go of a cgroup a moment after its last process.
const EMPTYING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    path: PathBuf,
    unified: bool,
}

/// The cgroup file systems in the text of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
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

fn mounted() -> Result<Vec<Hierarchy>, HoldError> {
    let path = Path::new("/proc/self/mountinfo");
    let found = hierarchies(&fs::read_to_string(path).map_err(HoldError::file("reading", path))?);
    if found.is_empty() { Err(HoldError::NoCgroups) } else { Ok(found) }
}

/// Makes the cgroup in all hierarchies, with all of the machine's CPUs and memory.
pub(super) fn create(name: &str) -> Result<(), HoldError> {
    let all = mounted()?;
    let only_unified = all.iter().all(|hierarchy| hierarchy.unified);
    for hierarchy in &all {
        if only_unified {
            for controller in CONTROLLERS {
                let path = hierarchy.path.join("cgroup.subtree_control");
                fs::write(&path, format!("+{controller}"))
                    .map_err(HoldError::file("enabling a controller by", &path))?;
            }
        }
        let cgroup = hierarchy.path.join(name);
        fs::create_dir_all(&cgroup).map_err(HoldError::file("making the cgroup", &cgroup))?;
        // On cgroup v1 a new cpuset is empty, and lets nobody in.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (from, to) = (hierarchy.path.join(file), cgroup.join(file));
            if !hierarchy.unified && from.exists() {
                let value = fs::read_to_string(&from).map_err(HoldError::file("reading", &from))?;
                fs::write(&to, value).map_err(HoldError::file("writing", &to))?;
            }
        }
    }
    Ok(())
}

/// Removes the cgroup with all below it, once their processes are gone.
pub(super) fn remove(name: &str) -> Result<(), HoldError> {
    let until = Instant::now() + EMPTYING;
    for hierarchy in mounted()? {
        let cgroup = hierarchy.path.join(name);
        loop {
            match remove_tree(&cgroup) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    thread::sleep(POLL);
                }
                Err(error) => return Err(HoldError::file("removing the cgroup", &cgroup)(error)),
            }
        }
    }
    Ok(())
}

/// The files of a cgroup go with its directory.
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
    fn hierarchies_of_either_version_are_found() {
        let text = "\
            24 1 0:22 / /proc rw - proc proc rw\n\
            31 30 0:28 / /sys/fs/cgroup/cpuset rw,nosuid shared:9 - cgroup cgroup rw,cpuset\n\
            32 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            32 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = hierarchies(text);
        assert_eq!(
            found,
            [
                Hierarchy { path: "/sys/fs/cgroup/cpuset".into(), unified: false },
                Hierarchy { path: "/sys/fs/cgroup/unified".into(), unified: true },
            ]
        );
    }
}
