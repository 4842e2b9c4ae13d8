//! The ends of the certificates that a part serves or sees, for its metrics.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

/// The time at which the last seen certificate of one purpose ends. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CertificateEnd(Arc<AtomicI64>);

impl CertificateEnd {
    /// Reads the end of a certificate. One that can't be parsed changes nothing.
    pub fn record(&self, certificate: &CertificateDer<'_>) {
        if let Ok((_, parsed)) = parse_x509_certificate(certificate) {
            self.0.store(parsed.validity().not_after.timestamp(), Ordering::Relaxed);
        }
    }

    /// Unix time in seconds; `None`: no certificate was seen.
    pub fn timestamp(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|end| *end != 0)
    }
}

/// The certificates of a part.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// That of the NATS server, as the last connection saw it.
    pub nats: CertificateEnd,
    /// That with which the part serves its metrics.
    pub metrics: CertificateEnd,
}

impl Certificates {
    /// Adds the gauge `eno_certificate_expiration_timestamp_seconds` to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Collector for Certificates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let ends = [("nats", &self.nats), ("metrics", &self.metrics)];
        let mut known = ends.into_iter().filter_map(|(name, end)| Some((name, end.timestamp()?))).peekable();
        if known.peek().is_none() {
            return Ok(());
        }
        let mut metric = encoder.encode_descriptor(
            "eno_certificate_expiration_timestamp_seconds",
            "Unix time at which a certificate ends",
            None,
            MetricType::Gauge,
        )?;
        for (name, end) in known {
            ConstGauge::new(end).encode(metric.encode_family(&[("certificate", name)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_seen_certificates_are_metrics() {
        let certificates = Certificates::default();
        let mut registry = Registry::default();
        certificates.register(&mut registry);
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        assert_eq!(text(), "# EOF\n");
        let mut params = rcgen::CertificateParams::new(["eno-nats".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        certificates.nats.record(certificate.der());
        certificates.nats.record(&CertificateDer::from(vec![1, 2, 3]));
        let line = "eno_certificate_expiration_timestamp_seconds{certificate=\"nats\"} 1893456000\n";
        assert!(text().contains(line), "{}", text());
    }
}
