//! The Secrets with the credentials of devices, and the logins that they are for. A command asks for a [`Login`]. Its
//! driver gets a [`Permit`] only if the FabricDevice has the same address, host key and Secret, so no message decides
//! where a password goes. The driver reads the Secret at each login and never passes it on.
//!
//! A Secret with what is written on a device, such as a password of BGP, has no FabricDevice that names it. Its owner names
//! the FabricDevices in its annotation [`FOR_DEVICES`]. It is read with the permit of a login to one of them.

mod login;
mod permit;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Secret;

pub use login::{Login, Mismatch};
pub use permit::{Permit, PermitError};

use eno_sbi::is_secret_name;
use permit::API_LIMIT;

/// The annotation of a Secret with the names of the FabricDevices on which it may be written, separated by commas. The
/// Secret of a login has none.
pub const FOR_DEVICES: &str = "eno.k8s.io/bgp-devices";
/// The file beside a mounted Secret that takes its place. It has a line for each device, as `devices` beside a credential.
const FOR_DEVICES_FILE: &str = "bgp-devices";

/// Where Secrets are read from, and what confirms the logins that they are for.
#[derive(Clone)]
pub enum SecretSource {
    /// `DIR/NAME/KEY`: Secrets mounted as directories. `DIR/NAME/devices` lists the devices that one is for.
    Directory(PathBuf),
    /// The Secret of that name in the client's default namespace, for the FabricDevice that names it.
    Namespace(kube::Client),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(directory) => f.debug_tuple("Directory").field(directory).finish(),
            Self::Namespace(client) => f.debug_tuple("Namespace").field(&client.default_namespace()).finish(),
        }
    }
}

/// The flags of a driver that say where Secrets are read from.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct SecretArgs {
    /// Read DIR/NAME/KEY for the key KEY of the Secret NAME. DIR/NAME/devices has a line for each device that it is
    /// for: the address, and for SSH the type and the key of HostKey
    #[arg(long, env = "ENO_CREDENTIALS_DIR", value_name = "DIR")]
    credentials_dir: Option<PathBuf>,
    /// Read the Secret NAME of this namespace, for the FabricDevice that names it
    #[arg(long, env = "ENO_CREDENTIALS_NAMESPACE", value_name = "NAMESPACE")]
    credentials_namespace: Option<String>,
}

impl SecretArgs {
    /// The source. Fails when there is no configuration for the API server.
    pub async fn source(self) -> anyhow::Result<SecretSource> {
        match (self.credentials_dir, self.credentials_namespace) {
            (Some(directory), _) => Ok(SecretSource::Directory(directory)),
            (None, Some(namespace)) => {
                let mut config = kube::Config::infer().await?;
                config.default_namespace = namespace;
                Ok(SecretSource::Namespace(kube::Client::try_from(config)?))
            }
            // The flags are a required group.
            (None, None) => anyhow::bail!("neither --credentials-dir nor --credentials-namespace"),
        }
    }
}

/// Why a Secret can't be used. It is read at each try, so a retry helps once it is corrected.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The command names no Secret.
    #[error("no credential is named: set Credentials.SecretName of the FabricDevice")]
    NotNamed,
    /// The name is no Secret name (RFC 1123 subdomain).
    #[error("{0:?} is not the name of a Secret")]
    BadName(String),
    /// The Secret could not be read.
    #[error("credential {name:?} can't be read from {from}: {reason}")]
    Unreadable {
        /// Its name.
        name: String,
        /// The directory or namespace.
        from: String,
        /// The error of the system.
        reason: String,
    },
    /// It is not for the device.
    #[error(
        "Secret {name:?} is not for {device}: {remedy}. No other word decides on which devices what a Secret holds is written"
    )]
    NotFor {
        /// Its name.
        name: String,
        /// The FabricDevice.
        device: String,
        /// What its owner has to do.
        remedy: String,
    },
    /// Keys are missing or empty.
    #[error("credential {name:?} lacks {keys}")]
    Incomplete {
        /// Its name.
        name: String,
        /// The missing keys, as a text.
        keys: String,
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

    /// The text without line ends at its end, which files written by hand have; `None`: nothing is left.
    pub fn line(&self) -> Option<Self> {
        let line = self.0.trim_end_matches(['\r', '\n']);
        (!line.is_empty()).then(|| Self(line.to_owned()))
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

/// The values of a Secret that are there and not blank.
#[derive(Clone, Debug)]
pub struct DeviceSecret {
    /// The Secret's name, for messages.
    pub name: String,
    values: BTreeMap<&'static str, Hidden>,
}

impl DeviceSecret {
    /// The value of a key, as it is.
    pub fn text(&self, key: &str) -> Option<Hidden> {
        self.values.get(key).cloned()
    }

    /// The value of a key without line ends at its end.
    pub fn line(&self, key: &str) -> Option<Hidden> {
        self.values.get(key).and_then(Hidden::line)
    }

    /// The error that `keys` are missing.
    pub fn lacks(&self, keys: impl Into<String>) -> SecretError {
        SecretError::Incomplete { name: self.name.clone(), keys: keys.into() }
    }
}

impl SecretSource {
    /// Reads these keys of the Secret of a login.
    pub async fn read(&self, permit: &Permit, keys: &[&'static str]) -> Result<DeviceSecret, SecretError> {
        self.read_keys(permit.login().secret()?, keys, None).await
    }

    /// Reads these keys of a Secret of any name, which a message may have chosen, if its owner says that it is for the
    /// device of this login.
    pub async fn read_for_device(
        &self,
        permit: &Permit,
        name: &str,
        keys: &[&'static str],
    ) -> Result<DeviceSecret, SecretError> {
        // The name becomes part of a path.
        if !is_secret_name(name) {
            return Err(SecretError::BadName(name.to_owned()));
        }
        self.read_keys(name, keys, Some(permit.login())).await
    }

    /// `device`: the login to the device that the Secret has to be for; `None`: it is permitted already.
    async fn read_keys(
        &self,
        name: &str,
        keys: &[&'static str],
        device: Option<&Login>,
    ) -> Result<DeviceSecret, SecretError> {
        let not_for = |login: &Login, remedy: String| SecretError::NotFor {
            name: name.to_owned(),
            device: login.device().to_owned(),
            remedy,
        };
        let mut values = BTreeMap::new();
        match self {
            Self::Directory(directory) => {
                let directory = directory.join(name);
                if let Some(login) = device {
                    let file = directory.join(FOR_DEVICES_FILE);
                    let lines = tokio::fs::read_to_string(&file).await.unwrap_or_default();
                    if !login.is_listed(&lines) {
                        let remedy = format!("if it is, add to {} the line {}", file.display(), login.line());
                        return Err(not_for(login, remedy));
                    }
                }
                for key in keys {
                    match tokio::fs::read_to_string(directory.join(key)).await {
                        Ok(text) => drop(values.insert(*key, Hidden(text))),
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                        Err(error) => {
                            return Err(SecretError::Unreadable {
                                name: name.to_owned(),
                                from: directory.display().to_string(),
                                reason: error.to_string(),
                            });
                        }
                    }
                }
            }
            Self::Namespace(client) => {
                let unreadable = |reason: String| SecretError::Unreadable {
                    name: name.to_owned(),
                    from: format!("namespace {}", client.default_namespace()),
                    reason,
                };
                let api = kube::Api::<Secret>::default_namespaced(client.clone());
                let secret = tokio::time::timeout(API_LIMIT, Box::pin(api.get(name))).await;
                let secret = secret
                    .map_err(|_| unreadable(format!("no answer within {} s", API_LIMIT.as_secs())))?
                    .map_err(|error| unreadable(error.to_string()))?;
                let named =
                    secret.metadata.annotations.unwrap_or_default().remove(FOR_DEVICES).unwrap_or_default();
                if let Some(login) =
                    device.filter(|login| !named.split(',').any(|one| one.trim() == login.device()))
                {
                    let remedy = format!("if it is, name the FabricDevice in its annotation {FOR_DEVICES}");
                    return Err(not_for(login, remedy));
                }
                let mut data = secret.data.unwrap_or_default();
                for key in keys {
                    let Some(bytes) = data.remove(*key) else { continue };
                    let text =
                        String::from_utf8(bytes.0).map_err(|_| unreadable(format!("{key} is not UTF-8")))?;
                    values.insert(*key, Hidden(text));
                }
            }
        }
        values.retain(|_, value| !value.0.trim().is_empty());
        Ok(DeviceSecret { name: name.to_owned(), values })
    }
}

#[cfg(test)]
mod tests {
    use eno_schemas::Device;

    use super::*;

    #[tokio::test]
    async fn mounted_secret_is_for_the_devices_that_it_names() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, key: &str, value: &str| {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
            std::fs::write(directory.path().join(name).join(key), value).unwrap();
        };
        put("leaf", "devices", "leaf1\n");
        put("leaf", "password", "login");
        put("bgp", "password", "s3cret\n");
        let source = SecretSource::Directory(directory.path().to_owned());
        let device = Device { credential: Some("leaf".into()), ..Device::new("leaf1") };
        let permit = source.permit(Login::new("netconf", "gw1", &device)).await.unwrap();
        let read = async |name: &str| source.read_for_device(&permit, name, &["password"]).await;
        for name in ["bgp", "leaf", "none"] {
            let refused = read(name).await.unwrap_err().to_string();
            assert!(refused.contains("is not for gw1") && refused.contains("the line leaf1"), "{refused}");
        }
        put("bgp", "bgp-devices", "leaf2\n");
        assert!(matches!(read("bgp").await, Err(SecretError::NotFor { .. })));
        put("bgp", "bgp-devices", "leaf2\nleaf1\n");
        assert_eq!(read("bgp").await.unwrap().line("password").unwrap().expose(), "s3cret");
        assert!(matches!(read("../bgp").await, Err(SecretError::BadName(_))));
    }

    #[tokio::test]
    async fn mounted_secrets_are_read_and_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, key: &str, value: &str| {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
            std::fs::write(directory.path().join(name).join(key), value).unwrap();
        };
        put("leaf", "username", "admin\n");
        put("leaf", "password", "s3cret");
        put("leaf", "empty", " \n");
        let source = SecretSource::Directory(directory.path().to_owned());
        put("leaf", "devices", "leaf1\n");
        let permit = |name: Option<&str>| {
            let device = Device { credential: name.map(str::to_owned), ..Device::new("leaf1") };
            source.permit(Login::new("netconf", "leaf1", &device))
        };
        let permitted = permit(Some("leaf")).await.unwrap();
        let read = source.read(&permitted, &["username", "password", "empty", "other"]).await.unwrap();
        assert_eq!(read.line("username").unwrap().expose(), "admin");
        assert_eq!(read.text("username").unwrap().expose(), "admin\n");
        assert_eq!((read.text("empty"), read.text("other")), (None, None));
        assert!(!format!("{read:?}").contains("s3cret"));
        assert_eq!(read.lacks("other").to_string(), "credential \"leaf\" lacks other");
        for (name, message) in [
            (Some("../leaf"), "\"../leaf\" is not the name of a Secret"),
            (Some(".."), "\"..\" is not the name of a Secret"),
            (None, "no credential is named: set Credentials.SecretName of the FabricDevice"),
        ] {
            assert_eq!(permit(name).await.unwrap_err().to_string(), message);
        }
    }
}
