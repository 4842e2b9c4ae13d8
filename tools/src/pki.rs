//! Keys and certificates of one control plane.
//!
//! Authorities and the service accounts' key are made once and kept; what they sign is made anew at each
//! start. etcd has an authority of its own, so that a certificate for the API opens no way around the API.
//! Nothing expires: the directory is the cluster, however old.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::directory::{DirectoryError, write_private};

/// A key or certificate can't be made. Not retryable: remove the directory that holds a damaged key.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The key in the file can't be read, or signing failed.
    #[error("{operation} {name}: {source}")]
    Crypto {
        /// What failed.
        operation: &'static str,
        /// For whom.
        name: String,
        /// Why.
        source: rcgen::Error,
    },
    /// A file.
    #[error(transparent)]
    File(#[from] DirectoryError),
}

fn crypto(operation: &'static str, name: &str) -> impl FnOnce(rcgen::Error) -> PkiError + use<> {
    let name = name.to_owned();
    move |source| PkiError::Crypto { operation, name, source }
}

/// Files of one certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A client certificate, as a kubeconfig carries it.
pub(crate) struct ClientCertificate {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

/// Whom a serving certificate is for.
const SERVER_NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    // The first address of the services' range.
    "10.0.0.1",
];

/// A certificate authority that is kept in a directory.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    /// Its certificate.
    pub(crate) path: PathBuf,
}

impl Authority {
    /// Reads the key of the authority, or makes one.
    pub(crate) fn open(directory: &Path, name: &str) -> Result<Self, PkiError> {
        let key = keep_key(&directory.join(format!("{name}.key")), name)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
        params.distinguished_name = subject(name, None);
        let path = directory.join(format!("{name}.crt"));
        // Kept as it is, so that kubeconfigs handed out before stay true byte by byte.
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

    /// For a server that also dials its like, as etcd does. It has these names and addresses besides those that every
    /// server has.
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

    /// For a client that reads its certificate from files.
    pub(crate) fn client_files(
        &self,
        directory: &Path,
        name: &str,
        group: Option<&str>,
    ) -> Result<CertificateFiles, PkiError> {
        let client = self.client(name, group)?;
        save(directory, name, &client.certificate_pem, &client.key_pem)
    }

    /// For a client: the API server takes the user from the common name, the group from the organization.
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

/// The key that signs service accounts' tokens: `key` holds the private half, `certificate` the public one.
pub(crate) fn service_account_key(directory: &Path) -> Result<CertificateFiles, PkiError> {
    let name = "service-accounts";
    let private = directory.join(format!("{name}.key"));
    let key = keep_key(&private, name)?;
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

fn keep_key(path: &Path, name: &str) -> Result<KeyPair, PkiError> {
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
    fn an_authority_is_the_same_when_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open(directory.path(), "ca").unwrap();
        let second = Authority::open(directory.path(), "ca").unwrap();
        assert_eq!(first.certificate_pem(), second.certificate_pem());
        assert_eq!(first.issuer.key().serialize_der(), second.issuer.key().serialize_der());
    }

    #[test]
    fn a_damaged_key_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.key"), "nonsense").unwrap();
        let error = Authority::open(directory.path(), "ca").err().unwrap();
        assert!(error.to_string().starts_with("reading the key of ca"), "{error}");
    }
}
