//! Asks the API server, or a file, whether a login may be made.

use std::path::PathBuf;
use std::time::Duration;

use eno_sbi::is_secret_name;
use kube::api::{Api, ApiResource, DynamicObject};

use crate::login::{DeviceSpec, Login, Mismatch, shown};
use crate::{SecretError, SecretSource};

/// The file beside a mounted credential with the devices that it is for.
const DEVICES: &str = "devices";
/// Time limit of a request to the API server.
pub(crate) const API_LIMIT: Duration = Duration::from_secs(10);

/// A login that the FabricDevice, or the file beside the credential, confirms. Only [`SecretSource::permit`] makes one,
/// and no Secret is read without one.
#[derive(Clone, Debug)]
pub struct Permit(Login);

impl Permit {
    /// The login.
    pub fn login(&self) -> &Login {
        &self.0
    }
}

/// Why a login may not be made. Nothing was sent to the device. A retry helps in each case: the FabricDevice, the file
/// and the rights are read anew, and the engine commands anew.
#[derive(Debug, thiserror::Error)]
pub enum PermitError {
    /// The FabricDevice says another thing than the command.
    #[error(transparent)]
    Differs(#[from] Mismatch),
    /// The command names no Secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// There is no such FabricDevice.
    #[error("no login: there is no FabricDevice {0}, and a driver logs in only as a FabricDevice says")]
    NoDevice(String),
    /// The API server does not answer.
    #[error(
        "no login: the API server does not say whether FabricDevice {device} is as the command has it: {reason}. The \
         driver tries again"
    )]
    Unavailable {
        /// The FabricDevice.
        device: String,
        /// The error.
        reason: String,
    },
    /// The API server refuses to show the FabricDevice, or shows something else.
    #[error(
        "no login: FabricDevice {device} can't be read: {reason}. The driver's service account needs the right to get \
         fabricdevices, which deploy/rbac of the driver's version grants"
    )]
    Unreadable {
        /// The FabricDevice.
        device: String,
        /// The error.
        reason: String,
    },
    /// The file can't be read.
    #[error("no login: {} can't be read: {reason}. It lists the devices that the credential is for", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// The file does not list the device.
    #[error("no login: {} does not list this device. If the credential is for it, add the line: {line}", file.display())]
    NotListed {
        /// The file.
        file: PathBuf,
        /// The line to add.
        line: String,
    },
}

impl PermitError {
    /// The API server did not answer, so nothing is known to be wrong.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

impl SecretSource {
    /// Permits a login if the FabricDevice has the same values. For mounted Secrets, if the file beside the credential
    /// lists them.
    pub async fn permit(&self, login: Login) -> Result<Permit, PermitError> {
        match self {
            // Boxed, since each reconcile holds this future.
            Self::Namespace(client) => login.compare(&Box::pin(read_spec(client, login.device())).await?)?,
            Self::Directory(directory) => {
                let file = directory.join(login.secret()?).join(DEVICES);
                match tokio::fs::read_to_string(&file).await {
                    Ok(lines) if login.is_listed(&lines) => {}
                    Ok(_) => return Err(PermitError::NotListed { line: login.line(), file }),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        return Err(PermitError::NotListed { line: login.line(), file });
                    }
                    Err(error) => return Err(PermitError::File { file, reason: error.to_string() }),
                }
            }
        }
        Ok(Permit(login))
    }

    /// Permits the same login once more. While the API server does not answer, its earlier answer counts.
    pub async fn renew(&self, permit: &Permit) -> Result<Permit, PermitError> {
        match self.permit(permit.0.clone()).await {
            Err(error) if error.is_unavailable() => Ok(permit.clone()),
            permitted => permitted,
        }
    }
}

/// The spec of a FabricDevice.
async fn read_spec(client: &kube::Client, device: &str) -> Result<DeviceSpec, PermitError> {
    let no_device = || PermitError::NoDevice(shown(device));
    // The name becomes part of a path, and comes from a message.
    if !is_secret_name(device) {
        return Err(no_device());
    }
    let name = || device.to_owned();
    let unavailable = |reason: String| PermitError::Unavailable { device: name(), reason };
    let unreadable = |reason: String| PermitError::Unreadable { device: name(), reason };
    let resource = ApiResource {
        group: "eno.k8s.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "eno.k8s.io/v1alpha1".to_owned(),
        kind: "FabricDevice".to_owned(),
        plural: "fabricdevices".to_owned(),
    };
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let answer = tokio::time::timeout(API_LIMIT, api.get_opt(device)).await;
    let answer = answer.map_err(|_| unavailable(format!("no answer within {} s", API_LIMIT.as_secs())))?;
    let object = answer.map_err(|error| match &error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
            unreadable(error.to_string())
        }
        _ => unavailable(error.to_string()),
    })?;
    let mut object = object.ok_or_else(no_device)?;
    serde_json::from_value(object.data["spec"].take()).map_err(|error| unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use eno_schemas::Device;

    use super::*;

    #[tokio::test]
    async fn mounted_credential_is_for_listed_devices_only() {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("leaf1");
        std::fs::create_dir(&secret).unwrap();
        std::fs::write(secret.join("password"), "s3cret").unwrap();
        let source = SecretSource::Directory(directory.path().to_owned());
        let permit = |address: &str, credential: &str| {
            let device = Device {
                credential: Some(credential.to_owned()),
                host_key: Some("ssh-ed25519 AAAA admin@example.com".into()),
                ..Device::new(address)
            };
            source.permit(Login::new("netconf", "leaf1", &device).default_port(830))
        };
        // A credential without the file is for no device.
        let refused = permit("leaf1:830", "leaf1").await.unwrap_err().to_string();
        assert!(refused.ends_with("add the line: leaf1:830 ssh-ed25519 AAAA"), "{refused}");
        assert!(refused.contains(&secret.join(DEVICES).display().to_string()), "{refused}");
        std::fs::write(secret.join(DEVICES), "leaf1 ssh-ed25519 AAAA\n").unwrap();
        let permitted = permit("leaf1:830", "leaf1").await.unwrap();
        let read = source.read(&permitted, &["password"]).await.unwrap();
        assert_eq!(read.line("password").unwrap().expose(), "s3cret");
        assert!(matches!(permit("evil:830", "leaf1").await, Err(PermitError::NotListed { .. })));
        assert!(matches!(permit("leaf1:830", "leaf2").await, Err(PermitError::NotListed { .. })));
        assert!(matches!(
            permit("leaf1:830", "../leaf1").await,
            Err(PermitError::Secret(SecretError::BadName(_)))
        ));
    }
}
