//! NATS credentials.

use std::fmt;
use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;

/// Credentials of one NATS user. `Debug` hides them.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The seed of an nkey.
    Seed(String),
    /// The text of a `.creds` file: a JWT and the seed that signs for it.
    Creds(String),
    /// A user and its password.
    User {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
}

/// Why a credentials file can't be used. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// It can't be read.
    #[error("reading the NATS credentials from {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file has another format.
    #[error(
        "{} holds no NATS credentials: an nkey seed (SU…), the text of a .creds file, or lines `user = …` and \
         `password = …` are understood",
        path.display()
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
    /// The `.creds` text is invalid.
    #[error("the NATS credentials are not a valid .creds file")]
    Creds,
}

impl Credentials {
    /// Reads them from a file.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CredentialsError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).ok_or_else(|| CredentialsError::Form { path: path.to_owned() })
    }

    fn parse(text: &str) -> Option<Self> {
        if text.contains("-----BEGIN NATS USER JWT-----") {
            return Some(Self::Creds(text.to_owned()));
        }
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        if let [seed] = lines[..]
            && seed.starts_with("SU")
            && seed.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        {
            return Some(Self::Seed(seed.to_owned()));
        }
        let value = |name: &str| {
            lines.iter().find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        Some(Self::User { user: value("user")?, password: value("password")? })
    }

    /// Adds the credentials to connect options.
    pub(super) fn add_to(&self, options: ConnectOptions) -> Result<ConnectOptions, CredentialsError> {
        match self {
            Self::Seed(seed) => Ok(options.nkey(seed.clone())),
            // The cause may quote the file, and so a secret.
            Self::Creds(text) => options.credentials(text).map_err(|_| CredentialsError::Creds),
            Self::User { user, password } => Ok(options.user_and_password(user.clone(), password.clone())),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_file_formats_are_recognised() {
        assert_eq!(Credentials::parse("SUAB23\n"), Some(Credentials::Seed("SUAB23".into())));
        assert_eq!(
            Credentials::parse("# who\nuser = eno\npassword = a=b\n"),
            Some(Credentials::User { user: "eno".into(), password: "a=b".into() })
        );
        assert!(matches!(Credentials::parse("-----BEGIN NATS USER JWT-----\n"), Some(Credentials::Creds(_))));
        assert_eq!(Credentials::parse("user = eno"), None);
        assert_eq!(Credentials::parse(""), None);
    }

    #[test]
    fn debug_output_hides_secrets() {
        let user = Credentials::User { user: "eno".into(), password: "secret".into() };
        assert!(!format!("{user:?}").contains("secret"));
    }
}
