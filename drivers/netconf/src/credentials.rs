//! The credentials of switches.

use eno_device_secrets::{Hidden, Permit, SecretError, SecretSource};

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

impl Credentials {
    /// Reads the credential of a login.
    pub async fn read(source: &SecretSource, permit: &Permit) -> Result<Self, SecretError> {
        let secret = source.read(permit, &["username", "password", "ssh-privatekey"]).await?;
        let username = secret.line("username").ok_or_else(|| secret.lacks("username"))?;
        let (password, private_key) = (secret.line("password"), secret.text("ssh-privatekey"));
        if password.is_none() && private_key.is_none() {
            return Err(secret.lacks("password or ssh-privatekey"));
        }
        Ok(Self { username: username.expose().to_owned(), password, private_key, name: secret.name })
    }
}

#[cfg(test)]
mod tests {
    use eno_conformance::fabrics::write_secret;
    use eno_device_secrets::Login;
    use eno_schemas::Device;

    use super::*;

    #[tokio::test]
    async fn credentials_need_username_and_password_or_key() {
        let directory = tempfile::tempdir().unwrap();
        write_secret(directory.path(), "leaf", [("username", "admin\n"), ("password", "s3cret")]);
        write_secret(directory.path(), "half", [("username", "admin")]);
        let source = SecretSource::Directory(directory.path().to_owned());
        let read = async |name: &str| {
            write_secret(directory.path(), name, [("devices", "leaf1")]);
            let device = Device { credential: Some(name.to_owned()), ..Device::new("leaf1") };
            let permit = source.permit(Login::new("netconf", "leaf1", &device)).await.unwrap();
            Credentials::read(&source, &permit).await
        };
        let leaf = read("leaf").await.unwrap();
        assert_eq!((leaf.username.as_str(), leaf.password.unwrap().expose()), ("admin", "s3cret"));
        for (name, message) in [
            ("half", "credential \"half\" lacks password or ssh-privatekey"),
            ("none", "credential \"none\" lacks username"),
        ] {
            assert_eq!(read(name).await.unwrap_err().to_string(), message);
        }
    }
}
