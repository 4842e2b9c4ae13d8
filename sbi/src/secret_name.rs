//! Names of Secrets in commands.

/// Whether `name` is a valid Secret name: an RFC 1123 subdomain, as in Kubernetes. As a file name it can't
/// leave its directory.
pub fn is_secret_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let end = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    name.len() <= 253
        && name.split('.').all(|label| {
            label.bytes().all(inner) && end(label.bytes().next()) && end(label.bytes().next_back())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_cannot_escape_their_directory() {
        for name in ["leaf1", "a.b-c", "0"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["", ".", "..", "../leaf1", "a/b", "a..b", "-a", "a-", "A", "a\0", &"a".repeat(254)] {
            assert!(!is_secret_name(name), "{name:?}");
        }
    }
}
