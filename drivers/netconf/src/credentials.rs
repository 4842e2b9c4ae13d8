//! The credentials of devices. A command names one. The driver reads it at each login and never passes it on.

use std::fmt;
use std::path::PathBuf;

use eno_sbi::is_secret_name;
use k8s_openapi::api::core::v1::Secret;

/// The source of credentials.
#[derive(Clone)]
pub enum CredentialSource {
    /// `DIR/NAME/{username,password,ssh-privatekey}`: Secrets mounted as directories.
    Directory(PathBuf),
    /// The Secret of that name in the client's default namespace.
    Secrets(kube::Client),
}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(directory) => f.debug_tuple("Directory").field(directory).finish(),
            Self::Secrets(client) => f.debug_tuple("Secrets").field(&client.default_namespace()).finish(),
        }
    }
}

/// The reason why a credential can't be used. It is read at each try, so a retry helps once it is corrected.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The command names no credential.
    #[error("no credential is named: set Credentials.SecretName of the FabricDevice")]
    NotNamed,
    /// The name is no Secret name (RFC 1123 subdomain).
    #[error("{0:?} is not the name of a Secret")]
    BadName(String),
    /// The credential could not be read.
    #[error("credential {name:?} can't be read from {from}: {reason}")]
    Unreadable {
        /// Its name.
        name: String,
        /// The directory or namespace.
        from: String,
        /// The error of the system.
        reason: String,
    },
    /// A key is missing or empty.
    #[error("credential {name:?} lacks {key}")]
    Incomplete {
        /// Its name.
        name: String,
        /// The missing key.
        key: &'static str,
    },
}

/// A text that is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    /// The text, for login only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<hidden>")
    }
}

/// The content of a credential. At least one of password and private key is present.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The credential's name, for messages.
    pub name: String,
    /// Secret key `username`.
    pub username: String,
    /// Secret key `password`.
    pub password: Option<Hidden>,
    /// Secret key `ssh-privatekey`: OpenSSH or PEM, without a passphrase.
    pub private_key: Option<Hidden>,
}

impl CredentialSource {
    /// Reads the credential of this name.
    pub async fn read(&self, name: Option<&str>) -> Result<Credentials, CredentialError> {
        let name = name.ok_or(CredentialError::NotNamed)?;
        if !is_secret_name(name) {
            return Err(CredentialError::BadName(name.to_owned()));
        }
        let [username, password, private_key] = match self {
            Self::Directory(directory) => {
                let directory = directory.join(name);
                let mut values = [None, None, None];
                for (value, key) in values.iter_mut().zip(KEYS) {
                    *value = match tokio::fs::read_to_string(directory.join(key)).await {
                        Ok(text) => Some(text),
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                        Err(error) => {
                            return Err(CredentialError::Unreadable {
                                name: name.to_owned(),
                                from: directory.display().to_string(),
                                reason: error.to_string(),
                            });
                        }
                    };
                }
                values
            }
            Self::Secrets(client) => {
                let unreadable = |reason: String| CredentialError::Unreadable {
                    name: name.to_owned(),
                    from: format!("namespace {}", client.default_namespace()),
                    reason,
                };
                let api = kube::Api::<Secret>::default_namespaced(client.clone());
                let secret = api.get(name).await.map_err(|error| unreadable(error.to_string()))?;
                let mut data = secret.data.unwrap_or_default();
                let mut values = [None, None, None];
                for (value, key) in values.iter_mut().zip(KEYS) {
                    let bytes = data.remove(key).map(|bytes| bytes.0);
                    *value = bytes
                        .map(String::from_utf8)
                        .transpose()
                        .map_err(|_| unreadable(format!("{key} is not UTF-8")))?;
                }
                values
            }
        };
        let incomplete = |key| CredentialError::Incomplete { name: name.to_owned(), key };
        // Files written by hand end with a newline.
        let line = |text: String| text.trim_end_matches(['\r', '\n']).to_owned();
        let username =
            username.map(line).filter(|text| !text.is_empty()).ok_or_else(|| incomplete("username"))?;
        let password = password.map(line).filter(|text| !text.is_empty()).map(Hidden);
        let private_key = private_key.filter(|text| !text.trim().is_empty()).map(Hidden);
        if password.is_none() && private_key.is_none() {
            return Err(incomplete("password or ssh-privatekey"));
        }
        Ok(Credentials { name: name.to_owned(), username, password, private_key })
    }
}

const KEYS: [&str; 3] = ["username", "password", "ssh-privatekey"];

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn credentials_are_read_from_mounted_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, key: &str, value: &str| {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
            std::fs::write(directory.path().join(name).join(key), value).unwrap();
        };
        put("leaf", "username", "admin\n");
        put("leaf", "password", "s3cret");
        put("half", "username", "admin");
        let source = CredentialSource::Directory(directory.path().to_owned());
        let read = source.read(Some("leaf")).await.unwrap();
        assert_eq!((read.username.as_str(), read.password.as_ref().unwrap().expose()), ("admin", "s3cret"));
        assert!(!format!("{read:?}").contains("s3cret"));
        for (name, message) in [
            (Some("half"), "credential \"half\" lacks password or ssh-privatekey"),
            (Some("none"), "credential \"none\" lacks username"),
            (Some("../leaf"), "\"../leaf\" is not the name of a Secret"),
            (Some(".."), "\"..\" is not the name of a Secret"),
            (None, "no credential is named: set Credentials.SecretName of the FabricDevice"),
        ] {
            assert_eq!(source.read(name).await.unwrap_err().to_string(), message);
        }
    }
}
