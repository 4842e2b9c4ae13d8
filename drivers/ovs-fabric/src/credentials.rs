//! TLS certificates. A command names a credential, whose files are read at each connection.

use std::path::PathBuf;

use eno_ovsdb::{BadEndpoint, Endpoint, TlsError, tls_config};
use eno_sbi::is_secret_name;

use crate::address::{Address, HostPort};

/// The files of a credential: those of a Secret of type `kubernetes.io/tls`, and the authority's certificate.
const KEYS: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// The directory of credentials: `DIR/NAME/{ca.crt,tls.crt,tls.key}`, such as mounted Secrets.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Absent: TLS is not available.
    pub directory: Option<PathBuf>,
}

/// Why a credential can't be used. Its files are read again at each try, so a retry helps once they are
/// correct.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The command names no credential.
    #[error("ssl needs certificates: set Credentials.SecretName of the FabricDevice")]
    NotNamed,
    /// The driver has no directory of credentials.
    #[error("credential {0:?} can't be read: the driver runs without --credentials-dir")]
    NoDirectory(String),
    /// Not the name of a Secret (RFC 1123 subdomain).
    #[error("{0:?} is not the name of a Secret")]
    BadName(String),
    /// A file is missing or invalid. Its content is not shown.
    #[error("credential {name:?} needs ca.crt, tls.crt and tls.key: {source}")]
    Unusable {
        /// The credential's name.
        name: String,
        /// The file and the reason.
        source: TlsError,
    },
    /// No certificate can be for this host.
    #[error(transparent)]
    Host(#[from] BadEndpoint),
}

impl Credentials {
    /// The OVSDB endpoint of an address.
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
                    // A cancelled read counts as missing files.
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
    async fn credential_errors_name_the_fault_without_secrets() {
        let directory = tempfile::tempdir().unwrap();
        eno_conformance::fabrics::write_secret(directory.path(), "bad", [("ca.crt", "s3cret")]);
        let address: Address = "ssl:leaf1:6640".parse().unwrap();
        let with = Credentials { directory: Some(directory.path().to_owned()) };
        let without = Credentials::default();
        for (credentials, name, expected) in [
            (&with, None, "set Credentials.SecretName"),
            (&with, Some("../bad"), "\"../bad\" is not the name of a Secret"),
            (&with, Some("none"), "ca.crt"),
            (&with, Some("bad"), "no certificate in it"),
            (&without, Some("bad"), "--credentials-dir"),
        ] {
            let error = credentials.endpoint(address.clone(), name).await.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn plain_transports_need_no_credential() {
        for text in ["unix:/run/db.sock", "tcp:[::1]:6640"] {
            let endpoint = Credentials::default().endpoint(text.parse().unwrap(), None).await.unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
    }
}
