//! TLS certificates.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::switch::fixture::credential;

/// Writes the server's files to `dir` and the driver's to its credential.
pub fn issue_all(dir: &Path) {
    let authority = authority("ours");
    let credential = credential(dir);
    std::fs::create_dir_all(&credential).unwrap();
    std::fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(credential.join("ca.crt"), authority.pem()).unwrap();
    issue(&dir.join("server.pem"), &dir.join("server.key"), "127.0.0.1", &authority);
    issue(&credential.join("tls.crt"), &credential.join("tls.key"), "eno", &authority);
}

/// Makes the driver trust another authority.
pub fn distrust(dir: &Path) {
    std::fs::write(credential(dir).join("ca.crt"), authority("others").pem()).unwrap();
}

/// Makes the driver trust the server's authority again.
pub fn trust(dir: &Path) {
    std::fs::copy(dir.join("ca.pem"), credential(dir).join("ca.crt")).unwrap();
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issue(certificate: &Path, key: &Path, host: &str, authority: &CertifiedIssuer<'_, KeyPair>) {
    let pair = KeyPair::generate().unwrap();
    let issued = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&pair, authority).unwrap();
    std::fs::write(certificate, issued.pem()).unwrap();
    std::fs::write(key, pair.serialize_pem()).unwrap();
}
