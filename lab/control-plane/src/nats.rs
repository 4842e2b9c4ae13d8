//! The NATS users of `deploy/nats` and their nkeys.

use std::fs;
use std::path::{Path, PathBuf};

use eno_parts::Part;

use crate::directory::{DirectoryError, write_private};

/// The authorization of `deploy/nats`. It refers to public keys by the environment variables of
/// [`NatsKey::variable`].
pub const AUTHORIZATION: &str = include_str!("../../../deploy/nats/authorization.conf");

/// The largest message and the space of all streams, as in `deploy/nats/nats.conf`. By default a server takes three
/// quarters of the free disk, which may be less than the streams reserve.
pub const LIMITS: &str = "max_payload: 2MB\njetstream { max_file_store: 4GB }\n";

/// A user of [`AUTHORIZATION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NatsUser {
    /// A part that logs in with a key.
    Part(&'static Part),
    /// Read access for operators, through `eno`.
    Inspect,
    /// All rights, for repairs.
    Admin,
}

impl NatsUser {
    /// The engine.
    pub const ENGINE: Self = Self::Part(eno_parts::ENGINE);

    /// All users.
    pub fn all() -> impl Iterator<Item = Self> {
        eno_parts::nats_users().map(Self::Part).chain([Self::Inspect, Self::Admin])
    }

    /// The driver that logs in with its key.
    pub const fn driver(self) -> Option<&'static str> {
        match self {
            Self::Part(part) => part.driver,
            Self::Inspect | Self::Admin => None,
        }
    }

    /// The name of its keys in the Secret `eno-nats`, without `.seed` and `.pub`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Part(part) => part.name,
            Self::Inspect => "inspect",
            Self::Admin => "admin",
        }
    }
}

/// A key that [`AUTHORIZATION`] refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NatsKey {
    /// That of a user.
    User(NatsUser),
    /// The key that signs the engine's answers about logins of agents.
    Issuer,
    /// The key that encrypts requests and answers about logins.
    Answerer,
}

impl NatsKey {
    /// All keys.
    pub fn all() -> impl Iterator<Item = Self> {
        NatsUser::all().map(Self::User).chain([Self::Issuer, Self::Answerer])
    }

    /// Its name in the Secret `eno-nats`, without `.seed` and `.pub`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User(user) => user.name(),
            Self::Issuer => "issuer",
            Self::Answerer => "answerer",
        }
    }

    /// The environment variable with its public key, for nats-server.
    pub fn variable(self) -> String {
        eno_parts::nats_variable(self.name())
    }

    /// The seed and the public key of a new pair.
    fn generate(self) -> Result<(String, String), nkeys::error::Error> {
        let pair = match self {
            Self::User(_) => nkeys::KeyPair::new_user(),
            Self::Issuer => nkeys::KeyPair::new_account(),
            Self::Answerer => {
                let pair = nkeys::XKey::new();
                return Ok((pair.seed()?, pair.public_key()));
            }
        };
        Ok((pair.seed()?, pair.public_key()))
    }

    fn public(self, seed: &str) -> Result<String, nkeys::error::Error> {
        match self {
            Self::Answerer => Ok(nkeys::XKey::from_seed(seed)?.public_key()),
            Self::User(_) | Self::Issuer => Ok(nkeys::KeyPair::from_seed(seed)?.public_key()),
        }
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

    /// The directory of the seeds. The engine finds those of its answers about logins in it.
    pub fn seeds(&self) -> &Path {
        &self.directory
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

/// Returns the public keys and generates missing seeds. The directory must exist.
pub fn nats_keys(directory: &Path) -> Result<Vec<(NatsKey, String)>, NatsKeyError> {
    let public_key = |key: NatsKey| {
        let path = directory.join(format!("{}.seed", key.name()));
        let failed = |source| NatsKeyError::Key { path: path.clone(), source };
        let public = if path.exists() {
            let seed = fs::read_to_string(&path).map_err(DirectoryError::io("reading", &path))?;
            key.public(seed.trim()).map_err(failed)?
        } else {
            let (seed, public) = key.generate().map_err(failed)?;
            write_private(&path, &format!("{seed}\n"))?;
            public
        };
        Ok((key, public))
    };
    NatsKey::all().map(public_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorization_contains_each_key_once() {
        for key in NatsKey::all() {
            let variable = format!("${}", key.variable());
            // A user is also among those about whom no engine is asked.
            let count = if matches!(key, NatsKey::User(_)) { 2 } else { 1 };
            assert_eq!(AUTHORIZATION.matches(&variable).count(), count, "{variable}");
        }
        assert_eq!(AUTHORIZATION.matches("nkey:").count(), NatsUser::all().count());
    }

    #[test]
    fn limits_are_those_of_deploy() {
        let shipped = include_str!("../../../deploy/nats/nats.conf");
        for limit in ["max_payload: 2MB", "max_file_store: 4GB"] {
            assert!(LIMITS.contains(limit) && shipped.contains(limit), "{limit}");
        }
    }
}
