//! The addresses that pods of this node get when they start, by the CNI plugin `eno-ipam`.
//!
//! Agent and plugin share files and nothing else: [`Addresses::reconcile`] writes what the plugin may give, and reports
//! what it gave. So pods start while no agent runs, and an agent that starts knows all of it.

mod pool;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eno_ipam::{Netns, PoolDir, Root};
use eno_sbi::{Baseline, BaselineGuard};
use eno_schemas::{AppliedAddresses, NodeAddresses, Text};
use futures::Stream;
use tokio::sync::{Mutex, watch as channel};
use tracing::warn;

use self::pool::Contents;
use crate::netlink::{Namespace, NamespaceError, NamespaceId, run_on_worker};

/// The commanded addresses, by the name of the Subnet.
type Commanded = BTreeMap<String, NodeAddresses>;
/// What is in the pools of the node, by the name of the Subnet.
type Pools = BTreeMap<String, Contents>;

/// The pools of this node.
#[derive(Clone, Debug)]
pub struct Addresses(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The folder of pools.
    folder: PathBuf,
    /// The folder of pods' network namespaces.
    namespaces: PathBuf,
    /// Held by a reconcile until its thread has ended, even if its future was dropped: an older command must not be
    /// written after a newer one.
    writing: Arc<Mutex<()>>,
    /// The last reconcile, with which the watch compares the files.
    last: channel::Sender<Baseline<Last>>,
}

/// A reconcile that came to its end.
#[derive(Debug)]
struct Last {
    commanded: Commanded,
    pools: Pools,
}

impl Addresses {
    /// `folder`: that of the pools, which must exist; `namespaces`: that of pods' network namespaces.
    pub fn new(folder: impl Into<PathBuf>, namespaces: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Shared {
            folder: folder.into(),
            namespaces: namespaces.into(),
            writing: Arc::default(),
            last: channel::Sender::new(Baseline::Unset),
        }))
    }

    /// Writes what the plugin may give, removes what pods that are gone have left, and returns what is in the pools. A
    /// pool with a file that can't be used does not delay the others. Without the folder, nothing is written.
    pub async fn reconcile(
        &self,
        commanded: &Commanded,
    ) -> Result<BTreeMap<String, AppliedAddresses>, NamespaceError> {
        if !self.0.folder.is_dir() {
            return Ok(self.0.settle(commanded).1);
        }
        let writing = Arc::clone(&self.0.writing).lock_owned().await;
        let (shared, commanded) = (Arc::clone(&self.0), commanded.clone());
        let settle = move || {
            let _writing = writing;
            let mut guard = BaselineGuard::start(&shared.last);
            let (pools, applied) = shared.settle(&commanded);
            guard.next = Baseline::Observed(Arc::new(Last { commanded, pools }));
            applied
        };
        run_on_worker(settle).await
    }

    /// Yields when the pools differ from the last reconcile: once for a burst of pods, and at once when a pod waits or no
    /// address is left.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + 'static {
        watch::changed(Arc::clone(&self.0))
    }
}

impl Shared {
    /// Brings all pools to the commanded state. Returns what is in them, and the report of it.
    fn settle(&self, commanded: &Commanded) -> (Pools, BTreeMap<String, AppliedAddresses>) {
        let mut failed: BTreeMap<String, Text> = BTreeMap::new();
        let pools = self.each_pool(commanded, |subnet, pool, wanted| {
            let (contents, changed) = pool::settle(pool, wanted, |netns| self.is_gone(netns));
            if let Err(error) = changed {
                warn!(subnet, %error, "can't change the files of addresses");
                failed.insert(subnet.to_owned(), error.to_string().into());
            }
            contents
        });
        let report = |(subnet, contents): (&String, &Contents)| {
            let mut applied = contents.applied.clone();
            applied.unread = applied.unread.or_else(|| failed.get(subnet).cloned());
            (subnet.clone(), applied)
        };
        let applied = pools.iter().map(report).collect();
        (pools, applied)
    }

    /// What is in the pools, without changing it.
    fn look(&self, commanded: &Commanded) -> Pools {
        self.each_pool(commanded, |_, pool, wanted| pool::look(pool, wanted))
    }

    /// Does the same with each commanded pool and each one that has files. Pools without content are left out.
    fn each_pool(
        &self,
        commanded: &Commanded,
        mut work: impl FnMut(&str, &PoolDir, Option<&NodeAddresses>) -> Contents,
    ) -> Pools {
        let root = Root::new(&self.folder);
        // Locking a pool would make the folder where nobody else sees it.
        let (names, problem) = match self.folder.read_dir().and_then(|_| root.pools()) {
            Ok(names) => (names, None),
            Err(error) => (Vec::new(), Some(no_folder(&self.folder, &error))),
        };
        let names: BTreeSet<String> = names.into_iter().chain(commanded.keys().cloned()).collect();
        let contents = names.into_iter().map(|subnet| {
            let wanted = commanded.get(&subnet);
            let contents = match (&problem, root.pool(&subnet)) {
                (Some(problem), _) => Contents::unread(wanted, problem),
                (None, Err(error)) => Contents::unread(wanted, error),
                (None, Ok(pool)) => work(&subnet, &pool, wanted),
            };
            (subnet, contents)
        });
        contents.filter(|(_, contents)| *contents != Contents::default()).collect()
    }

    /// True when the network namespace is gone, as far as the agent can see.
    fn is_gone(&self, netns: &Netns) -> bool {
        // Runtimes write it as /var/run, which is a link on the node.
        let path = netns.path.strip_prefix("/var").filter(|path| path.starts_with("/run/"));
        let path = Path::new(path.unwrap_or(&netns.path));
        if path.parent() != Some(&self.namespaces) {
            return false;
        }
        let id = NamespaceId { device: netns.device, inode: netns.inode };
        match Namespace::open_exactly(path, id) {
            Err(NamespaceError::Open { source, .. }) => source.kind() == io::ErrorKind::NotFound,
            Err(NamespaceError::Replaced { .. }) => true,
            // A file on which nothing is mounted yet, or whose mount the agent does not see, is no proof.
            Ok(_) | Err(_) => false,
        }
    }
}

fn no_folder(folder: &Path, error: &io::Error) -> String {
    format!(
        "reading {}: {error}; the agent needs this folder of the node, as deploy/agent mounts it",
        folder.display()
    )
}
