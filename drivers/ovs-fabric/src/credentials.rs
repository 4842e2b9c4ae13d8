//! The certificates for TLS. A command names a credential; its files are read here, at each connection.

use std::path::PathBuf;

use eno_ovsdb::{BadEndpoint, Endpoint, TlsError, tls_config};
use eno_sbi::is_secret_name;

use crate::address::{Address, HostPort};

/// The files of a credential: as in a Secret of type `kubernetes.io/tls`, with the authority's certificate beside.
const KEYS: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// Where credentials are: `DIR/NAME/{ca.crt,tls.crt,tls.key}`, Secrets mounted as directories.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Absent: TLS can't be used.
    pub directory: Option<PathBuf>,
}

/// Why a credential can't be used. It is read again at the next try, so a retry helps once it is put right.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The command names none.
    #[error("ssl needs certificates: set Credentials.SecretName of the FabricDevice")]
    NotNamed,
    /// The driver has no directory of credentials.
    #[error("credential {0:?} can't be read: the driver runs without --credentials-dir")]
    NoDirectory(String),
    /// Not the name of a Secret (RFC 1123 subdomain).
    #[error("{0:?} is not the name of a Secret")]
    BadName(String),
    /// A file is not there or is not what it should be. What is in it is not shown.
    #[error("credential {name:?} needs ca.crt, tls.crt and tls.key: {source}")]
    Unusable {
        /// Its name.
        name: String,
        /// Which file, and why.
        source: TlsError,
    },
    /// The host is none that a certificate can be for.
    #[error(transparent)]
    Host(#[from] BadEndpoint),
}

impl Credentials {
    /// Where to connect to for this address.
    pub async fn endpoint(
        &self,
        address: Address,
        credential: Option<&str>,
    ) -> Result<Endpoint, CredentialError> {
        match address {
            Address::Unix(path) => Ok(Endpoint::Unix(path)),
            Address::Tcp(HostPort { host, port }) => Ok(Endpoint::Tcp { host, port }),
            Address::Tls(HostPort { host, port }) => {
                let name = credential.ok_or(CredentialError::NotNamed)?.to_owned();
                if !is_secret_name(&name) {
                    return Err(CredentialError::BadName(name));
                }
                let Some(directory) = &self.directory else { return Err(CredentialError::NoDirectory(name)) };
                let files = KEYS.map(|key| directory.join(&name).join(key));
                let read = tokio::task::spawn_blocking(move || {
                    let [authorities, certificate, key] = &files;
                    tls_config(authorities, certificate, key)
                });
                let config = match read.await {
                    Ok(config) => config,
                    // Reading was broken off: as if the files were not there.
                    Err(error) => {
                        Err(TlsError::File { path: directory.join(&name), reason: error.to_string() })
                    }
                };
                let config = config.map_err(|source| CredentialError::Unusable { name, source })?;
                Ok(Endpoint::tls(&host, port, config)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn faults_are_named_and_nothing_secret_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, key: &str, value: &str| {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
            std::fs::write(directory.path().join(name).join(key), value).unwrap();
        };
        put("bad", "ca.crt", "s3cret");
        let address: Address = "ssl:leaf1:6640".parse().unwrap();
        let with = Credentials { directory: Some(directory.path().to_owned()) };
        let without = Credentials::default();
        for (credentials, name, said) in [
            (&with, None, "set Credentials.SecretName"),
            (&with, Some("../bad"), "\"../bad\" is not the name of a Secret"),
            (&with, Some("none"), "ca.crt"),
            (&with, Some("bad"), "no certificate in it"),
            (&without, Some("bad"), "--credentials-dir"),
        ] {
            let error = credentials.endpoint(address.clone(), name).await.unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn without_tls_no_credential_is_needed() {
        for text in ["unix:/run/db.sock", "tcp:[::1]:6640"] {
            let endpoint = Credentials::default().endpoint(text.parse().unwrap(), None).await.unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
    }
}
