//! The NATS users of `deploy/nats` and their nkeys.

use std::fs;
use std::path::{Path, PathBuf};

use crate::directory::{DirectoryError, write_private};

/// The authorization of `deploy/nats`. It refers to public keys by the environment variables of
/// [`NatsUser::variable`].
pub const AUTHORIZATION: &str = include_str!("../../../deploy/nats/authorization.conf");

/// The largest message and the space of all streams, as in `deploy/nats/nats.conf`. By default a server takes three
/// quarters of the free disk, which may be less than the streams reserve.
pub const LIMITS: &str = "max_payload: 2MB\njetstream { max_file_store: 4GB }\n";

/// A user of [`AUTHORIZATION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NatsUser {
    /// The engine.
    Engine,
    /// The driver `netconf`.
    DriverNetconf,
    /// The driver `ovs-fabric`.
    DriverOvsFabric,
    /// The driver `neutron`.
    DriverNeutron,
    /// The driver `nad`.
    DriverNad,
    /// The agents of all nodes.
    Agent,
    /// Read access for operators, through `eno`.
    Inspect,
    /// All rights, for repairs.
    Admin,
}

impl NatsUser {
    /// All users.
    pub const ALL: [Self; 8] = [
        Self::Engine,
        Self::DriverNetconf,
        Self::DriverOvsFabric,
        Self::DriverNeutron,
        Self::DriverNad,
        Self::Agent,
        Self::Inspect,
        Self::Admin,
    ];

    /// The name of its keys in the Secret `eno-nats`, without `.seed` and `.pub`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::DriverNetconf => "driver-netconf",
            Self::DriverOvsFabric => "driver-ovs-fabric",
            Self::DriverNeutron => "driver-neutron",
            Self::DriverNad => "driver-nad",
            Self::Agent => "agent",
            Self::Inspect => "inspect",
            Self::Admin => "admin",
        }
    }

    /// The environment variable with its public key, for nats-server.
    pub fn variable(self) -> String {
        format!("{}_NKEY", self.name().replace('-', "_").to_uppercase())
    }
}

/// How to connect to NATS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsInfo {
    /// `nats://ADDRESS:PORT`; several servers are separated by commas.
    pub url: String,
    /// Directory of the seeds.
    pub(crate) directory: PathBuf,
}

impl NatsInfo {
    /// Path of the file with the seed (`SU…`) of a user's nkey. Only the owner can read it.
    pub fn seed_of(&self, user: NatsUser) -> PathBuf {
        self.directory.join(format!("{}.seed", user.name()))
    }
}

/// The key of a user can't be used.
#[derive(Debug, thiserror::Error)]
pub enum NatsKeyError {
    /// The file can't be read or written.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The file contains no valid seed, or a seed can't be generated.
    #[error("the key of the NATS user in {}: {source}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: nkeys::error::Error,
    },
}

/// Returns the public key of each user and generates missing seeds. The directory must exist.
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
    fn authorization_contains_each_user_once() {
        for user in NatsUser::ALL {
            let variable = format!("${}", user.variable());
            assert_eq!(AUTHORIZATION.matches(&variable).count(), 1, "{variable}");
        }
        assert_eq!(AUTHORIZATION.matches("nkey:").count(), NatsUser::ALL.len());
    }

    #[test]
    fn limits_are_those_of_deploy() {
        let shipped = include_str!("../../../deploy/nats/nats.conf");
        for limit in ["max_payload: 2MB", "max_file_store: 4GB"] {
            assert!(LIMITS.contains(limit) && shipped.contains(limit), "{limit}");
        }
    }
}
