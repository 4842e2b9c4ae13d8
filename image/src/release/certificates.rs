//! The certificate authorities that Mozilla trusts, for callbacks over HTTPS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Where TLS libraries look for them.
pub(super) const PATH: &str = "etc/ssl/certs/ca-certificates.crt";

/// All certificates in PEM.
pub(super) fn pem() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text += "-----BEGIN CERTIFICATE-----\n";
        let encoded = STANDARD.encode(certificate);
        for line in encoded.as_bytes().chunks(64) {
            text += &String::from_utf8_lossy(line);
            text += "\n";
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text
}
