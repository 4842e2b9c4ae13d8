//! NATS credentials.

use std::fmt;
use std::path::{Path, PathBuf};

use async_nats::{Auth, AuthError, ConnectOptions};

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
    /// A file with the token of a Kubernetes service account, which is read anew at each login: the kubelet renews it.
    Token(PathBuf),
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
        "{} holds no NATS credentials: an nkey seed (SU…), the token of a service account, the text of a .creds file, \
         or lines `user = …` and `password = …` are understood",
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
        if is_token(&text) {
            return Ok(Self::Token(path.to_owned()));
        }
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

    /// Connect options with the credentials.
    pub(super) fn options(&self) -> Result<ConnectOptions, CredentialsError> {
        let options = ConnectOptions::new();
        match self {
            Self::Seed(seed) => Ok(options.nkey(seed.clone())),
            // The cause may quote the file, and so a secret.
            Self::Creds(text) => options.credentials(text).map_err(|_| CredentialsError::Creds),
            Self::User { user, password } => Ok(options.user_and_password(user.clone(), password.clone())),
            Self::Token(path) => {
                let path = path.clone();
                // A read of a small file in memory, which blocks nothing.
                Ok(ConnectOptions::with_auth_callback(move |_| std::future::ready(auth_by_token(&path))))
            }
        }
    }
}

fn auth_by_token(path: &Path) -> Result<Auth, AuthError> {
    let token = std::fs::read_to_string(path)
        .map_err(|source| AuthError::new(CredentialsError::Read { path: path.to_owned(), source }))?;
    let mut auth = Auth::new();
    auth.token = Some(token.trim().to_owned());
    Ok(auth)
}

/// Whether a text is a JSON Web Token (RFC 7519): three parts in base64, of which the first is a JSON object.
fn is_token(text: &str) -> bool {
    let text = text.trim();
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.starts_with("eyJ")
        && text.split('.').count() == 3
        && text.split('.').all(|part| !part.is_empty() && part.bytes().all(is_base64))
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
        assert!(is_token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln_-\n"));
        for text in ["eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0", "eyJ.a.", "SUAB23", "user = eyJ.a.b"] {
            assert!(!is_token(text), "{text}");
        }
        assert_eq!(Credentials::parse("user = eno"), None);
        assert_eq!(Credentials::parse(""), None);
    }

    #[test]
    fn token_is_read_anew_at_each_login() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        for token in ["eyJ0eXAi.eyJz.c2ln", "eyJ0eXAi.eyJu.c2ln"] {
            std::fs::write(path, format!("{token}\n")).unwrap();
            assert_eq!(Credentials::read(path).unwrap(), Credentials::Token(path.to_owned()));
            assert_eq!(auth_by_token(path).unwrap().token.as_deref(), Some(token));
        }
        std::fs::remove_file(path).unwrap();
        assert!(auth_by_token(path).is_err());
    }

    #[test]
    fn debug_output_hides_secrets() {
        let user = Credentials::User { user: "eno".into(), password: "secret".into() };
        assert!(!format!("{user:?}").contains("secret"));
    }
}
