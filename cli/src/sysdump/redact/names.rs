//! Which names belong to secrets. Pure.

/// The ends of names of secrets, in lower case and without separators. The plural counts too.
const ENDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "token",
    "secret",
    "credential",
    "privatekey",
    "apikey",
    "accesskey",
    "secretkey",
    "signingkey",
    "sharedkey",
    "encryptionkey",
    "community",
    "communities",
    "authorization",
    "seed",
];
/// The last words of names of secrets. They are too short to be looked for inside a word.
const LAST_WORDS: &[&str] = &["pass", "pwd", "pw", "psk"];

/// True for the name of a field, a setting, a variable or a flag whose value is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    let singular = plain.strip_suffix('s').unwrap_or(&plain);
    if ENDS.iter().any(|end| plain.ends_with(end) || singular.ends_with(end)) {
        return true;
    }
    let last = last_word(name).to_ascii_lowercase();
    LAST_WORDS.contains(&last.as_str())
}

/// The last word of a name in any spelling, such as `Pass` of `userPass`.
fn last_word(name: &str) -> &str {
    let name = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let mut start = name.len();
    for (index, c) in name.char_indices().rev() {
        let before = name[..index].chars().next_back();
        if !c.is_ascii_alphanumeric() {
            break;
        }
        start = index;
        if c.is_ascii_uppercase() && before.is_some_and(|before| before.is_ascii_lowercase()) {
            break;
        }
    }
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn names_of_secrets_are_known_in_any_spelling() {
        for name in [
            "password",
            "Passwd",
            "PASSWORD",
            "db-password",
            "dbPassword",
            "userPass",
            "snmp_pass",
            "pass",
            "psk",
            "wpa-psk",
            "PSK",
            "pwd",
            "token",
            "TOKENS",
            "ENO_TOKEN",
            "bearerToken",
            "community",
            "snmp-community",
            "credentials",
            "api_key",
            "apiKey",
            "APIKey",
            "privateKey",
            "clientSecret",
            "Authorization",
            "nkey_seed",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "",
            "-",
            "bypass",
            "compass",
            "SecretName",
            "secretKeyRef",
            "passthrough",
            "ENO_NATS_CA",
            "ENO_TLS_KEY",
            "ENO_CREDENTIALS_DIR",
            "tokenFile",
            "key",
            "hostKey",
            "uid",
            "resourceVersion",
            "tokenReview",
            "seedling",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
