//! Self-contained kubeconfigs, with embedded certificates and keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::pki::{Authority, ClientCertificate};

/// Builds the kubeconfig of a user as JSON, which is valid YAML.
pub(crate) fn kubeconfig(
    server: &str,
    authority: &Authority,
    user: &str,
    client: &ClientCertificate,
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "eno", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority.certificate_pem()),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": STANDARD.encode(&client.certificate_pem),
            "client-key-data": STANDARD.encode(&client.key_pem),
        }}],
        "contexts": [{"name": "eno", "context": {"cluster": "eno", "user": user}}],
        "current-context": "eno",
    })
}

/// Encodes a user's name as a file name: bytes outside `[A-Za-z0-9_.-]` and a leading dot become `=HH`.
pub(crate) fn file_name(user: &str) -> String {
    let plain = |index: usize, byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && index > 0)
    };
    user.bytes()
        .enumerate()
        .map(
            |(index, byte)| if plain(index, byte) { char::from(byte).into() } else { format!("={byte:02X}") },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_escapes_special_characters() {
        assert_eq!(file_name("system:serviceaccount:a:b"), "system=3Aserviceaccount=3Aa=3Ab");
        assert_eq!(file_name("../x"), "=2E.=2Fx");
    }
}
