//! The files of a Subnet's pool.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use eno_schemas::NodeAddresses;
use ipnet::IpNet;
use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::choice::{Reason, choose};
use crate::folder::{Durable, Folder, is_missing};
use crate::lease::{check_name, file_name, is_name};
use crate::{Error, Lease, Requester, Waiting, is_gone};

const RANGES: &str = "ranges.json";
const LEASES: &str = "leases";
const WAITING: &str = "waiting";
const LAST: &str = "last";
const LOCK: &str = "lock";

/// Of `ranges.json`: more than 60,000 single addresses.
const MAX_RANGES: usize = 4 << 20;
/// Of other files.
const MAX_FILE: usize = 8 << 10;

/// The folder with all pools of a node.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// Where the agent and the plugin meet.
    pub const DEFAULT: &str = "/var/lib/eno/ipam";

    /// The folder at a path, which is made when a pool is locked.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The Subnets that have a pool, ascending.
    pub fn pools(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut pools = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pools.extend(entry.file_name().into_string().ok().filter(|name| is_name(name)));
            }
        }
        pools.sort_unstable();
        Ok(pools)
    }

    /// The pool of a Subnet, which need not exist.
    pub fn pool(&self, subnet: &str) -> Result<PoolDir, Error> {
        check_name("Subnet", subnet)?;
        Ok(PoolDir { root: self.0.clone(), subnet: subnet.to_owned() })
    }
}

/// The pool of a Subnet.
#[derive(Clone, Debug)]
pub struct PoolDir {
    root: PathBuf,
    subnet: String,
}

impl PoolDir {
    /// The name of the Subnet.
    pub fn subnet(&self) -> &str {
        &self.subnet
    }

    /// The folder with `ranges.json`.
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.subnet)
    }

    /// The folder with the leases. Files vanish from it when addresses are released.
    pub fn leases_path(&self) -> PathBuf {
        self.path().join(LEASES)
    }

    /// True when it has a folder.
    pub fn exists(&self) -> bool {
        self.path().symlink_metadata().is_ok_and(|found| found.is_dir())
    }

    /// Waits until nobody else reads or writes the pool, whose folder is made if it is missing.
    pub fn lock(&self) -> Result<Locked<'_>, Error> {
        loop {
            match self.try_lock() {
                Ok(Some(locked)) => return Ok(locked),
                Ok(None) => {}
                // Somebody removed the folder meanwhile.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// `None`: somebody removed the pool meanwhile.
    fn try_lock(&self) -> Result<Option<Locked<'_>>, Error> {
        let root = Folder::root(&self.root)?;
        let folder = root.folder(&self.subnet)?;
        let lock = folder.open(LOCK, OFlags::RDWR | OFlags::CREATE)?;
        lock.lock().map_err(|source| Error::Io { operation: "lock", path: self.path(), source })?;
        if !folder.has(LOCK, &lock)? {
            return Ok(None);
        }
        let (leases, waiting) = (folder.folder(LEASES)?, folder.folder(WAITING)?);
        Ok(Some(Locked { pool: self, root, folder, leases, waiting, _lock: lock }))
    }
}

/// What [`Locked::take`] led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The address, with the prefix length of the network.
    Lease(IpNet),
    /// There is none now. The pod is among [`Locked::waiting`].
    Wait(Reason),
}

/// A pool that nobody else reads or writes until this is dropped.
pub struct Locked<'a> {
    pool: &'a PoolDir,
    root: Folder,
    folder: Folder,
    leases: Folder,
    waiting: Folder,
    _lock: File,
}

impl Locked<'_> {
    /// What the node may give; `None`: the Subnet is unknown or gone.
    pub fn ranges(&self) -> Result<Option<NodeAddresses>, Error> {
        read(&self.folder, RANGES, MAX_RANGES)
    }

    /// Sets what the node may give; `None`: the Subnet is gone. The leases stay.
    pub fn set_ranges(&mut self, ranges: Option<&NodeAddresses>) -> Result<(), Error> {
        match ranges {
            Some(ranges) => write(&self.folder, RANGES, ranges),
            None => self.folder.remove(RANGES).map(|_| ()),
        }
    }

    /// The addresses that pods have, in the order of their containers.
    pub fn leases(&self) -> Result<Vec<Lease>, Error> {
        all(&self.leases)
    }

    /// The interfaces that wait, in the order of their containers.
    pub fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        all(&self.waiting)
    }

    /// Takes an address, which is stored when this returns. Who has one already gets the same. If there is none, first
    /// those are released whose sandbox is gone.
    pub fn take(&mut self, who: &Requester) -> Result<Taken, Error> {
        let name = file_name(&who.container, &who.ifname)?;
        let Some(ranges) = self.ranges()? else { return self.wait(&name, who, None, Reason::Unknown) };
        if let Some(former) = read::<Lease>(&self.leases, &name, MAX_FILE)? {
            let lease = who.lease(former.address);
            // The namespace may be another one at the same path.
            if lease != former {
                self.store(&name, &lease)?;
            }
            return Ok(Taken::Lease(net(&ranges, former.address)));
        }
        let wanted = who.wanted.iter().copied().find(|wanted| ranges.network.contains(wanted));
        let last = self.last();
        let choice = |leases: &[Lease]| choose(&ranges, leases, last, (&who.namespace, &who.pod), wanted);
        let mut chosen = choice(&self.leases()?);
        if chosen.is_err() && self.release_gone()? {
            chosen = choice(&self.leases()?);
        }
        match chosen {
            Ok(address) => {
                self.store(&name, &who.lease(address))?;
                self.folder.write(LAST, address.to_string().as_bytes(), Durable::No)?;
                Ok(Taken::Lease(net(&ranges, address)))
            }
            Err(reason) => self.wait(&name, who, wanted, reason),
        }
    }

    /// The lease of an interface.
    pub fn lease(&self, container: &str, ifname: &str) -> Result<Option<Lease>, Error> {
        read(&self.leases, &file_name(container, ifname)?, MAX_FILE)
    }

    /// Releases the address of an interface, which waits for none any more. False: it had none.
    pub fn release(&mut self, container: &str, ifname: &str) -> Result<bool, Error> {
        let name = file_name(container, ifname)?;
        let had_one = self.leases.remove(&name)?;
        self.waiting.remove(&name)?;
        Ok(had_one)
    }

    /// Releases the addresses whose sandbox is gone. False: there are none.
    pub fn release_gone(&mut self) -> Result<bool, Error> {
        let mut released = false;
        for lease in self.leases()?.into_iter().filter(|lease| is_gone(&lease.netns)) {
            released |= self.release(&lease.container, &lease.ifname)?;
        }
        Ok(released)
    }

    /// Removes the folder, unless there are ranges, leases or interfaces that wait.
    pub fn remove_if_empty(self) -> Result<(), Error> {
        if self.ranges()?.is_some() || !self.leases.names()?.is_empty() || !self.waiting.names()?.is_empty() {
            return Ok(());
        }
        self.leases.clear()?;
        self.waiting.clear()?;
        self.folder.remove_folder(LEASES)?;
        self.folder.remove_folder(WAITING)?;
        self.folder.remove(LAST)?;
        self.folder.clear()?;
        // Who waits for the lock finds that it is another file now, or none.
        self.folder.remove(LOCK)?;
        self.root.remove_folder(&self.pool.subnet)
    }

    /// Stores a lease. Its interface waits no more.
    fn store(&self, name: &str, lease: &Lease) -> Result<(), Error> {
        write(&self.leases, name, lease)?;
        self.waiting.remove(name).map(|_| ())
    }

    fn wait(
        &self,
        name: &str,
        who: &Requester,
        address: Option<IpAddr>,
        reason: Reason,
    ) -> Result<Taken, Error> {
        let waiting = who.waiting(address);
        // The agent looks at each change.
        if read::<Waiting>(&self.waiting, name, MAX_FILE)?.as_ref() != Some(&waiting) {
            write(&self.waiting, name, &waiting)?;
        }
        Ok(Taken::Wait(reason))
    }

    /// The address that was given last, as far as it is known: the search can begin anywhere.
    fn last(&self) -> Option<IpAddr> {
        let text = self.folder.read(LAST, MAX_FILE).ok()??;
        std::str::from_utf8(&text).ok()?.parse().ok()
    }
}

fn net(ranges: &NodeAddresses, address: IpAddr) -> IpNet {
    IpNet::new(address, ranges.network.prefix_len()).unwrap_or_else(|_| address.into())
}

fn read<T: DeserializeOwned>(folder: &Folder, name: &str, limit: usize) -> Result<Option<T>, Error> {
    let Some(content) = folder.read(name, limit)? else { return Ok(None) };
    serde_json::from_slice(&content).map(Some).map_err(|error| {
        folder.unlike(
            name,
            format!("has other content than expected at line {}, column {}", error.line(), error.column()),
        )
    })
}

fn write(folder: &Folder, name: &str, content: &impl Serialize) -> Result<(), Error> {
    let content = serde_json::to_vec(content)
        .map_err(|error| folder.unlike(name, format!("can't be written: {error}")))?;
    folder.write(name, &content, Durable::Yes)
}

fn all<T: DeserializeOwned>(folder: &Folder) -> Result<Vec<T>, Error> {
    let mut all = Vec::new();
    for name in folder.names()? {
        all.extend(read(folder, &name, MAX_FILE)?);
    }
    Ok(all)
}
