//! Keys and certificates of a control plane.
//!
//! Certificate authorities and the key of the service accounts persist; certificates are signed anew at each start.
//! etcd has an authority of its own, so that certificates for the API give no access to etcd. Certificates don't
//! expire, so that old directories stay usable.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::directory::{DirectoryError, write_private};

/// A key or certificate can't be created. A retry doesn't help: remove the directory with the damaged key.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A key can't be parsed, or signing failed.
    #[error("{operation} {name}: {source}")]
    Crypto {
        /// The failed operation.
        operation: &'static str,
        /// The subject.
        name: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// A file can't be read or written.
    #[error(transparent)]
    File(#[from] DirectoryError),
}

fn crypto(operation: &'static str, name: &str) -> impl FnOnce(rcgen::Error) -> PkiError + use<> {
    let name = name.to_owned();
    move |source| PkiError::Crypto { operation, name, source }
}

/// Paths of a certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A client certificate for a kubeconfig.
pub(crate) struct ClientCertificate {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

/// Subject alternative names of every serving certificate.
const SERVER_NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    // The first address of the service cluster IP range.
    "10.0.0.1",
];

/// A certificate authority that persists in a directory.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    /// Path of its certificate.
    pub(crate) path: PathBuf,
}

impl Authority {
    /// Reads the key and certificate of the authority, or creates them.
    pub(crate) fn open(directory: &Path, name: &str) -> Result<Self, PkiError> {
        let key = load_or_create_key(&directory.join(format!("{name}.key")), name)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
        params.distinguished_name = subject(name, None);
        let path = directory.join(format!("{name}.crt"));
        // Reuse the certificate: existing kubeconfigs embed it.
        let certificate_pem = if let Ok(kept) = fs::read_to_string(&path) {
            kept
        } else {
            let made = params.self_signed(&key).map_err(crypto("signing the certificate of", name))?.pem();
            write_private(&path, &made)?;
            made
        };
        Ok(Self { issuer: Issuer::new(params, key), certificate_pem, path })
    }

    pub(crate) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Issues a certificate for server and client use, as etcd peers need. `further` are additional names and
    /// addresses.
    pub(crate) fn server(
        &self,
        directory: &Path,
        name: &str,
        further: &[String],
    ) -> Result<CertificateFiles, PkiError> {
        let names = [&SERVER_NAMES.map(str::to_owned), further].concat();
        let params = CertificateParams::new(names).map_err(crypto("naming", name))?;
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.sign(params, name, None, &usages)?;
        save(directory, name, &certificate, &key)
    }

    /// Issues a client certificate in files.
    pub(crate) fn client_files(
        &self,
        directory: &Path,
        name: &str,
        group: Option<&str>,
    ) -> Result<CertificateFiles, PkiError> {
        let client = self.client(name, group)?;
        save(directory, name, &client.certificate_pem, &client.key_pem)
    }

    /// Issues a client certificate. The API server takes the user from the common name and the group from the
    /// organization.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<ClientCertificate, PkiError> {
        let usages = [ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate_pem, key_pem) = self.sign(CertificateParams::default(), user, group, &usages)?;
        Ok(ClientCertificate { certificate_pem, key_pem })
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        name: &str,
        group: Option<&str>,
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<(String, String), PkiError> {
        params.distinguished_name = subject(name, group);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(crypto("making a key for", name))?;
        let certificate =
            params.signed_by(&key, &self.issuer).map_err(crypto("signing the certificate of", name))?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// Creates the key pair that signs service account tokens: the private key in `key`, the public one in
/// `certificate`.
pub(crate) fn service_account_key(directory: &Path) -> Result<CertificateFiles, PkiError> {
    let name = "service-accounts";
    let private = directory.join(format!("{name}.key"));
    let key = load_or_create_key(&private, name)?;
    let public = directory.join(format!("{name}.pub"));
    write_private(&public, &key.public_key_pem())?;
    Ok(CertificateFiles { certificate: public, key: private })
}

fn save(directory: &Path, name: &str, certificate: &str, key: &str) -> Result<CertificateFiles, PkiError> {
    let files = CertificateFiles {
        certificate: directory.join(format!("{name}.crt")),
        key: directory.join(format!("{name}.key")),
    };
    write_private(&files.certificate, certificate)?;
    write_private(&files.key, key)?;
    Ok(files)
}

fn load_or_create_key(path: &Path, name: &str) -> Result<KeyPair, PkiError> {
    if path.exists() {
        let pem = fs::read_to_string(path).map_err(DirectoryError::io("reading", path))?;
        return KeyPair::from_pem(&pem).map_err(crypto("reading the key of", name));
    }
    let key = KeyPair::generate().map_err(crypto("making a key for", name))?;
    write_private(path, &key.serialize_pem())?;
    Ok(key)
}

fn subject(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    subject.push(DnType::CommonName, common_name);
    subject
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reopened_authority_has_same_key_and_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open(directory.path(), "ca").unwrap();
        let second = Authority::open(directory.path(), "ca").unwrap();
        assert_eq!(first.certificate_pem(), second.certificate_pem());
        assert_eq!(first.issuer.key().serialize_der(), second.issuer.key().serialize_der());
    }

    #[test]
    fn error_names_damaged_key() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.key"), "nonsense").unwrap();
        let error = Authority::open(directory.path(), "ca").err().unwrap();
        assert!(error.to_string().starts_with("reading the key of ca"), "{error}");
    }
}
