//! Who may speak to NATS: the users of `deploy/nats`, each with a key of its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::directory::{DirectoryError, write_private};

/// What `deploy/nats` allows each user; it names the public keys by [`NatsUser::variable`].
pub const AUTHORIZATION: &str = include_str!("../../deploy/nats/authorization.conf");

/// A user of [`AUTHORIZATION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NatsUser {
    /// The engine.
    Engine,
    /// The driver `netconf`.
    DriverNetconf,
    /// The driver `ovs-fabric`.
    DriverOvsFabric,
    /// The driver `nad`.
    DriverNad,
    /// The agents of all nodes.
    Agent,
    /// People who look, by `eno`.
    Inspect,
    /// Everything, for repairs.
    Admin,
}

impl NatsUser {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Engine,
        Self::DriverNetconf,
        Self::DriverOvsFabric,
        Self::DriverNad,
        Self::Agent,
        Self::Inspect,
        Self::Admin,
    ];

    /// What its keys are called in the Secret `eno-nats`, before `.seed` and `.pub`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::DriverNetconf => "driver-netconf",
            Self::DriverOvsFabric => "driver-ovs-fabric",
            Self::DriverNad => "driver-nad",
            Self::Agent => "agent",
            Self::Inspect => "inspect",
            Self::Admin => "admin",
        }
    }

    /// The environment variable of nats-server with its public key.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Engine => "ENGINE_NKEY",
            Self::DriverNetconf => "DRIVER_NETCONF_NKEY",
            Self::DriverOvsFabric => "DRIVER_OVS_FABRIC_NKEY",
            Self::DriverNad => "DRIVER_NAD_NKEY",
            Self::Agent => "AGENT_NKEY",
            Self::Inspect => "INSPECT_NKEY",
            Self::Admin => "ADMIN_NKEY",
        }
    }
}

/// How to reach NATS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsInfo {
    /// `nats://ADDRESS:PORT`; of several servers, separated by commas.
    pub url: String,
    /// Holds the seeds.
    pub(crate) directory: PathBuf,
}

impl NatsInfo {
    /// A file that only its owner can read, with one line: the seed (`SU…`) of the user's nkey.
    pub fn seed_of(&self, user: NatsUser) -> PathBuf {
        self.directory.join(format!("{}.seed", user.name()))
    }
}

/// A user's key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum NatsKeyError {
    /// The file.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// It holds no seed, or none can be made.
    #[error("the key of the NATS user in {}: {source}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        source: nkeys::error::Error,
    },
}

/// The public key of each user. Seeds that are not there are made; the directory has to be there.
pub fn nats_keys(directory: &Path) -> Result<Vec<(NatsUser, String)>, NatsKeyError> {
    let info = NatsInfo { url: String::new(), directory: directory.to_owned() };
    let public_key = |user| {
        let path = info.seed_of(user);
        let failed = |source| NatsKeyError::Key { path: path.clone(), source };
        let pair = if path.exists() {
            let seed = fs::read_to_string(&path).map_err(DirectoryError::io("reading", &path))?;
            nkeys::KeyPair::from_seed(seed.trim()).map_err(failed)?
        } else {
            let pair = nkeys::KeyPair::new_user();
            write_private(&path, &format!("{}\n", pair.seed().map_err(failed)?))?;
            pair
        };
        Ok((user, pair.public_key()))
    };
    NatsUser::ALL.into_iter().map(public_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_is_in_the_configuration_once() {
        for user in NatsUser::ALL {
            let variable = format!("${}", user.variable());
            assert_eq!(AUTHORIZATION.matches(&variable).count(), 1, "{variable}");
        }
        assert_eq!(AUTHORIZATION.matches("nkey:").count(), NatsUser::ALL.len());
    }
}
