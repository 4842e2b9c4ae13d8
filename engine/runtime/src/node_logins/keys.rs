//! The keys of the answers to logins: the issuer signs, and the answerer's key opens requests and seals answers.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use nkeys::{KeyPair, KeyPairType, XKey};

/// The pairs that a directory may have, by what stands before `.seed` in the names of their files. `eno rotate` has a new
/// pair beside the old one until all servers have the new one.
const PAIRS: [(&str, &str); 3] =
    [("issuer", "answerer"), ("issuer.next", "answerer.next"), ("issuer.old", "answerer.old")];

/// The keys that one configuration of the servers names.
pub(super) struct LoginKeys {
    /// Signs answers: the seed of an account (`SA…`).
    pub issuer: KeyPair,
    /// Opens requests and seals answers: the seed of a curve key (`SX…`).
    pub answerer: XKey,
}

impl fmt::Debug for LoginKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginKeys(…)")
    }
}

/// The keys can't be read. A retry helps once the files are corrected.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    /// A file can't be read.
    #[error("reading the key {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file has no seed of its kind.
    #[error("{} holds no seed of {kind}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Of what the seed should be.
        kind: &'static str,
    },
    /// There is no pair.
    #[error("{} has no issuer.seed with answerer.seed", path.display())]
    None {
        /// The directory.
        path: PathBuf,
    },
}

impl LoginKeys {
    /// New keys.
    #[cfg(test)]
    pub fn new() -> Self {
        Self { issuer: KeyPair::new_account(), answerer: XKey::new() }
    }

    /// The pairs in a directory, the current one first. They are read at each request: the files change while a process
    /// runs.
    pub fn read(directory: &Path) -> Result<Vec<Self>, KeysError> {
        let mut pairs = Vec::new();
        for (issuer, answerer) in PAIRS {
            let file = |name: &str| directory.join(format!("{name}.seed"));
            let (issuer, answerer) = (file(issuer), file(answerer));
            let (Some(signing), Some(opening)) = (seed(&issuer)?, seed(&answerer)?) else { continue };
            let form = |path: PathBuf, kind| KeysError::Form { path, kind };
            let signing = KeyPair::from_seed(signing.trim()).ok();
            let signing = signing.filter(|key| key.key_pair_type() == KeyPairType::Account);
            pairs.push(Self {
                issuer: signing.ok_or_else(|| form(issuer, "an account"))?,
                answerer: XKey::from_seed(opening.trim()).map_err(|_| form(answerer, "a curve key"))?,
            });
        }
        if pairs.is_empty() { Err(KeysError::None { path: directory.to_owned() }) } else { Ok(pairs) }
    }
}

/// `None`: there is no such file.
fn seed(path: &Path) -> Result<Option<String>, KeysError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KeysError::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let write = |name: &str, text: &str| std::fs::write(path.join(format!("{name}.seed")), text).unwrap();
        assert!(matches!(LoginKeys::read(path), Err(KeysError::None { .. })));
        let (old, new) = (LoginKeys::new(), LoginKeys::new());
        for (keys, suffix) in [(&new, ""), (&old, ".old")] {
            write(&format!("issuer{suffix}"), &format!("{}\n", keys.issuer.seed().unwrap()));
            write(&format!("answerer{suffix}"), &keys.answerer.seed().unwrap());
        }
        let read: Vec<_> =
            LoginKeys::read(path).unwrap().iter().map(|keys| keys.issuer.public_key()).collect();
        assert_eq!(read, [new.issuer.public_key(), old.issuer.public_key()]);
        write("issuer", &KeyPair::new_user().seed().unwrap());
        let error = LoginKeys::read(path).unwrap_err();
        assert!(error.to_string().ends_with("issuer.seed holds no seed of an account"), "{error}");
        assert!(!format!("{new:?}").contains('S'));
    }
}
