//! The BGP instance of a VRF: zebra, bgpd and, where BFD is asked for, bfdd of FRR in the namespace of the VRF.
//!
//! They are private: sockets, files of process ids and configurations are in a directory of their own, and the daemons
//! of the host are not touched. Their configuration is changed through their vty sockets while they run.

mod config;
mod sessions;
mod vty;

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::dataplane::DataPlaneError;
use crate::dataplane::frr::config::{Change, FrrConfig};
use crate::dataplane::namespace::{Daemon, NetworkNamespace, find_program, path_of};
use crate::dataplane::unixctl;
use crate::dialect::BgpView;

pub(crate) use sessions::BgpReader;

const ZEBRA: &str = "zebra";
const BGPD: &str = "bgpd";
const BFDD: &str = "bfdd";

/// Timeout in seconds for a daemon to listen.
const TIMEOUT_SECONDS: u64 = 20;

/// Runs `$@` in the directory `$1` with its own `/etc/group`: the daemons insist on a user in the group `frrvty`.
/// As another user than root they would outlive the simulator: the kernel drops the signal at the death of the parent
/// with a change of the user.
const IN_DIRECTORY: &str = "cd \"$1\" && mount --bind group /etc/group && shift && exec \"$@\"";
const GROUPS: &str = "root:x:0:\nfrrvty:x:0:root\n";

/// The daemons of a VRF; dropping this kills them.
#[derive(Debug)]
pub(super) struct Frr {
    directory: PathBuf,
    // Dropped before zebra: otherwise it would log a lost connection.
    bgpd: Daemon,
    bfdd: Option<Daemon>,
    zebra: Daemon,
    /// The BGP identifier where the configuration has none. It stays while the daemons run.
    own_id: Ipv4Addr,
    /// What was applied last.
    applied: FrrConfig,
}

/// The directory of the daemons of a VRF, below that of the data plane.
fn directory_of(data_plane: &Path, bridge: &str, vrf: &str) -> PathBuf {
    // Names of VRFs may hold any character.
    let mut hasher = DefaultHasher::new();
    vrf.hash(&mut hasher);
    data_plane.join("frr").join(format!("{bridge}-{:016x}", hasher.finish()))
}

/// Removes the files of an earlier run.
pub(super) fn remove_files(data_plane: &Path) -> Result<(), DataPlaneError> {
    remove_directory(&data_plane.join("frr"))
}

fn remove_directory(directory: &Path) -> Result<(), DataPlaneError> {
    match fs::remove_dir_all(directory) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(DataPlaneError::State { path: directory.to_owned(), source })
        }
        _ => Ok(()),
    }
}

impl Frr {
    /// Starts zebra and bgpd in the namespace of a VRF, without a configuration. `own_id` is the BGP identifier where
    /// the configuration has none.
    pub(super) async fn start(
        namespace: &NetworkNamespace,
        netns: &File,
        (data_plane, bridge, vrf): (&Path, &str, &str),
        own_id: Ipv4Addr,
    ) -> Result<Self, DataPlaneError> {
        find_program(BGPD)?;
        let directory = directory_of(data_plane, bridge, vrf);
        remove_directory(&directory)?;
        let failed = |source| DataPlaneError::State { path: directory.clone(), source };
        fs::create_dir_all(&directory).map_err(failed)?;
        fs::write(directory.join("group"), GROUPS).map_err(failed)?;
        fs::write(directory.join("empty.conf"), "").map_err(failed)?;
        let zebra = launch(namespace, netns, &directory, ZEBRA, &["-P", "0"]).await?;
        let bgpd = launch(namespace, netns, &directory, BGPD, &["-P", "0"]).await?;
        Ok(Self { directory, bgpd, bfdd: None, zebra, own_id, applied: FrrConfig::default() })
    }

    /// Whether a daemon has ended. The others are of no use then.
    pub(super) fn has_ended(&mut self) -> bool {
        [Some(&mut self.zebra), Some(&mut self.bgpd), self.bfdd.as_mut()]
            .into_iter()
            .flatten()
            .any(|daemon| daemon.exit_status().is_some())
    }

    /// Changes the configuration. After an error the daemons may have a part of it.
    pub(super) async fn apply(
        &mut self,
        namespace: &NetworkNamespace,
        netns: &File,
        bgp: &BgpView,
    ) -> Result<(), DataPlaneError> {
        let desired = FrrConfig::new(bgp, self.own_id);
        if desired == self.applied {
            return Ok(());
        }
        if desired.uses_bfd() && self.bfdd.is_none() {
            self.bfdd =
                Some(launch(namespace, netns, &self.directory, BFDD, &["--bfdctl", "./bfdd.sock"]).await?);
        }
        let Change { commands, retried } = self.applied.change_to(&desired);
        self.run(&commands).await?;
        if !retried.is_empty() {
            let shown = self.run(&[sessions::SHOW.to_owned()]).await?.pop().unwrap_or_default();
            let exceeded = sessions::exceeded(&shown);
            let again = retried.into_iter().filter(|neighbour| exceeded.contains(neighbour));
            self.run(&again.map(|neighbour| format!("clear bgp {neighbour}")).collect::<Vec<_>>()).await?;
        }
        self.applied = desired;
        Ok(())
    }

    /// Ends sessions with too many prefixes.
    pub(super) async fn enforce_maxima(&self) -> Result<(), DataPlaneError> {
        self.run(&self.applied.maxima()).await.map(drop)
    }

    async fn run(&self, commands: &[String]) -> Result<Vec<String>, DataPlaneError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        vty::run(&self.directory, BGPD, commands).await.map_err(|error| DataPlaneError::Daemon {
            program: BGPD,
            problem: error.to_string(),
            log: log(&self.directory, BGPD),
        })
    }

    /// Ends the sessions, so that the neighbours are told, and the daemons.
    pub(super) async fn stop(self) -> Result<(), DataPlaneError> {
        let change = self.applied.change_to(&FrrConfig::default());
        if let Err(error) = self.run(&change.commands).await {
            tracing::warn!(%error, "the neighbours of BGP see a lost connection");
        }
        let directory = self.directory.clone();
        drop(self);
        remove_directory(&directory)
    }
}

/// The BGP identifier of a VRF with these addresses: the highest one of IPv4, else `other`.
pub(super) fn identifier(addresses: impl Iterator<Item = IpAddr>, other: Ipv4Addr) -> Ipv4Addr {
    let ipv4 = addresses.filter_map(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    ipv4.max().unwrap_or(other)
}

/// Starts a daemon and waits until it listens.
async fn launch(
    namespace: &NetworkNamespace,
    netns: &File,
    directory: &Path,
    program: &'static str,
    more: &[&str],
) -> Result<Daemon, DataPlaneError> {
    let log = log(directory, program);
    let file = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(|source| DataPlaneError::State { path: log.clone(), source })?;
    let net = format!("--net={}", path_of(netns).display());
    let (path, pid_file) = (find_program(program)?, format!("./{program}.pid"));
    let (directory_text, path) = (directory.to_string_lossy(), path.to_string_lossy());
    // Relative paths: those of sockets have at most 107 bytes.
    let mut args = vec!["-m", "sh", "-c", IN_DIRECTORY, "sh", &directory_text, "nsenter", &net, "--", &path];
    args.extend(["-u", "root", "-g", "root", "--vty_socket", ".", "-z", "./zserv.api", "-i", &pid_file]);
    args.extend(["-f", "./empty.conf", "--log", "stdout", "--log-level", "warning"]);
    args.extend(more);
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let mut daemon = namespace.spawn("unshare", &args, &[], file).await?;
    let deadline = Instant::now() + Duration::from_secs(TIMEOUT_SECONDS);
    let problem = loop {
        if unixctl::connect(directory, &format!("{program}.vty")).await.is_ok() {
            return Ok(daemon);
        }
        if let Some(status) = daemon.exit_status() {
            break format!("ended ({status})");
        }
        if Instant::now() > deadline {
            break format!("does not listen after {TIMEOUT_SECONDS} s");
        }
        sleep(Duration::from_millis(10)).await;
    };
    Err(DataPlaneError::Daemon { program, problem, log })
}

fn log(directory: &Path, program: &str) -> PathBuf {
    directory.join(format!("{program}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_is_the_highest_address_of_ipv4() {
        let other = Ipv4Addr::new(198, 51, 100, 254);
        let of = |addresses: &[&str]| {
            identifier(addresses.iter().map(|text| text.parse().expect(text)), other).to_string()
        };
        assert_eq!(of(&["10.7.0.254", "10.200.0.1", "2001:db8::1"]), "10.200.0.1");
        assert_eq!(of(&["2001:db8::1"]), "198.51.100.254");
    }

    #[test]
    fn directory_of_a_vrf_holds_no_character_of_its_name() {
        let of = |vrf| directory_of(Path::new("/d"), "sw1", vrf);
        let path = of("a/../b c");
        assert_eq!(path.parent(), Some(Path::new("/d/frr")));
        assert_ne!(path, of("a/../b d"));
    }
}
