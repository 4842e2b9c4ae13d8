//! TLS to NATS that records the end of the server's certificate.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::certificates::CertificateEnd;

/// Verifies servers by the authorities in a PEM file, which it reads at each handshake: they may be exchanged.
#[derive(Debug)]
struct RecordingVerifier {
    authorities: PathBuf,
    end: CertificateEnd,
    provider: Arc<CryptoProvider>,
}

/// A TLS configuration that verifies servers by `authorities` and records the end of their certificate.
pub fn recording_config(authorities: PathBuf, end: CertificateEnd) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(RecordingVerifier { authorities, end, provider: provider.clone() });
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

impl RecordingVerifier {
    fn current(&self) -> Result<Arc<WebPkiServerVerifier>, Error> {
        let failed = |why: String| Error::General(format!("{}: {why}", self.authorities.display()));
        let mut roots = RootCertStore::empty();
        let authorities =
            CertificateDer::pem_file_iter(&self.authorities).map_err(|e| failed(e.to_string()))?;
        for authority in authorities {
            roots.add(authority.map_err(|error| failed(error.to_string()))?)?;
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| failed(error.to_string()))
    }
}

impl ServerCertVerifier for RecordingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // Also of a certificate that is refused, since it has ended.
        self.end.record(end_entity);
        self.current()?.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::duplex;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    /// An authority, and the configuration of a server whose certificate ends in 2030.
    fn server(authority: &Path) -> ServerConfig {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(authority, issuer.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["eno-nats".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }

    async fn connects(client: &ClientConfig, server: &ServerConfig) -> bool {
        let (near, far) = duplex(16 * 1024);
        let connector = TlsConnector::from(Arc::new(client.clone()));
        let acceptor = TlsAcceptor::from(Arc::new(server.clone()));
        let name = ServerName::try_from("eno-nats").unwrap();
        let (connected, _) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        connected.is_ok()
    }

    #[tokio::test]
    async fn servers_are_verified_by_the_authorities_of_the_moment() {
        let directory = tempfile::tempdir().unwrap();
        let (file, other) = (directory.path().join("ca.crt"), directory.path().join("other.crt"));
        let (end, old) = (CertificateEnd::default(), server(&file));
        let client = recording_config(file.clone(), end.clone()).unwrap();
        assert!(connects(&client, &old).await);
        assert_eq!(end.timestamp(), Some(1_893_456_000));
        let new = server(&other);
        assert!(!connects(&client, &new).await, "its authority is unknown");
        std::fs::rename(&other, &file).unwrap();
        assert!(connects(&client, &new).await);
        assert!(!connects(&client, &old).await, "its authority is no longer trusted");
        std::fs::remove_file(&file).unwrap();
        assert!(!connects(&client, &new).await, "no authority is trusted");
    }
}
