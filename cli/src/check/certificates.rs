//! The certificates in the operator's Secrets.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use super::{Check, Fact, NODE, Name, Problem, SYSTEM, listed};
use crate::install::secrets::{CA, CERT};

/// Time before the end of a certificate at which a warning begins, unless the certificate is for less than four times
/// as long.
const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The name under which clients reach NATS.
const NATS_NAME: &str = "eno-nats.eno-system.svc";
/// The remedy while the certificate is valid.
const ROTATE: &str = "renew it: eno rotate certificates";
/// The remedy for others. A rotation waits for clients that reach NATS by the old certificate, so it can't help.
const REPLACE: &str = "replace it: delete the Secret and run eno install";

/// A Secret with certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateSecret {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The keys with certificates.
    pub keys: &'static [&'static str],
    /// Whether an installation can do without it.
    pub is_optional: bool,
}

/// The Secrets of an installation with TLS.
pub const SECRETS: [CertificateSecret; 3] = [
    CertificateSecret { namespace: SYSTEM, name: "eno-nats-tls", keys: &[CA, CERT], is_optional: false },
    CertificateSecret { namespace: NODE, name: "eno-nats-tls", keys: &[CA], is_optional: false },
    CertificateSecret { namespace: NODE, name: "eno-metrics-tls", keys: &[CA, CERT], is_optional: true },
];

/// A certificate, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// From when on it is valid.
    pub begins: Timestamp,
    /// Until when it is valid.
    pub ends: Timestamp,
    /// The DNS names that it is for.
    pub names: BTreeSet<String>,
    /// Its DER bytes.
    der: Vec<u8>,
}

/// The data of a Secret; `None`: it does not exist.
pub type SecretData = Fact<Option<BTreeMap<String, ByteString>>>;

/// The certificates of a PEM file. The error has no content of the file.
fn parse(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let mut found = Vec::new();
    for block in Pem::iter_from_buffer(pem) {
        let block = block.map_err(|_| "it is not PEM")?;
        if block.label != "CERTIFICATE" {
            continue;
        }
        let parsed = block.parse_x509().map_err(|_| "it has a certificate that can't be read")?;
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| "it has an invalid time");
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|extension| &extension.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        });
        found.push(Certificate {
            begins: time(parsed.validity().not_before.timestamp())?,
            ends: time(parsed.validity().not_after.timestamp())?,
            names: names.collect(),
            der: block.contents.clone(),
        });
    }
    if found.is_empty() { Err("it has no certificate".to_owned()) } else { Ok(found) }
}

/// The checks of all Secrets with certificates.
pub fn judge(secrets: &[(CertificateSecret, SecretData)], now: Timestamp) -> Vec<Check> {
    let mut checks: Vec<Check> =
        secrets.iter().filter_map(|(secret, data)| judge_one(secret, data, now)).collect();
    checks.extend(judge_authorities(secrets));
    checks
}

fn judge_one(secret: &CertificateSecret, data: &SecretData, now: Timestamp) -> Option<Check> {
    let name = Name::Certificates;
    let subject = format!("Secret {}/{}", secret.namespace, secret.name);
    let data = match data {
        Ok(Some(data)) => data,
        Ok(None) if secret.is_optional => return None,
        Ok(None) => {
            let what = "it does not exist, so NATS and its clients have no TLS";
            return Some(Check::failed(name, subject, Problem::new(what, "run eno install")));
        }
        Err(unread) => return Some(Check::unread(name, subject, unread)),
    };
    let (mut failed, mut warnings, mut first_end) = (Vec::new(), Vec::new(), None);
    for key in secret.keys {
        let certificates = match data.get(*key).map(|value| parse(&value.0)) {
            None => {
                failed.push(format!("it lacks {key}"));
                continue;
            }
            Some(Err(error)) => {
                failed.push(format!("{key}: {error}"));
                continue;
            }
            Some(Ok(certificates)) => certificates,
        };
        let is_for_nats = secret.namespace == SYSTEM && *key == CERT;
        if let (true, Some(first)) = (is_for_nats, certificates.first())
            && !first.names.contains(NATS_NAME)
        {
            failed.push(format!("{key} is not for the name {NATS_NAME}, by which clients reach NATS"));
        }
        for certificate in &certificates {
            let left = certificate.ends.duration_since(now);
            let lifetime = certificate.ends.duration_since(certificate.begins);
            if left.is_negative() {
                failed.push(format!("{key} has expired on {}", day(certificate.ends)));
            } else if certificate.begins > now {
                failed.push(format!("{key} is not valid before {}", certificate.begins));
            } else if left < WARN_BEFORE.min(lifetime / 4) {
                warnings.push(format!("{key} expires on {}", day(certificate.ends)));
            }
            first_end = Some(first_end.map_or(certificate.ends, |end: Timestamp| end.min(certificate.ends)));
        }
    }
    let subject = first_end.map_or(subject.clone(), |end| format!("{subject}: valid until {}", day(end)));
    Some(if !failed.is_empty() {
        Check::failed(name, subject, Problem::new(listed(failed), REPLACE))
    } else if !warnings.is_empty() {
        Check::warning(name, subject, Problem::new(listed(warnings), ROTATE))
    } else {
        Check::ok(name, subject)
    })
}

/// The agents must trust an authority that NATS has. During a rotation, one of the files may have several.
fn judge_authorities(secrets: &[(CertificateSecret, SecretData)]) -> Option<Check> {
    let authorities = |namespace| {
        let of = |(secret, _): &&(CertificateSecret, SecretData)| {
            secret.namespace == namespace && secret.name == "eno-nats-tls"
        };
        let (_, data) = secrets.iter().find(of)?;
        let certificates = parse(&data.as_ref().ok()?.as_ref()?.get(CA)?.0).ok()?;
        Some(certificates.into_iter().map(|certificate| certificate.der).collect::<BTreeSet<_>>())
    };
    let (of_nats, of_agents) = (authorities(SYSTEM)?, authorities(NODE)?);
    of_nats.is_disjoint(&of_agents).then(|| {
        let what =
            format!("the agents trust another authority than NATS has: {CA} of {SYSTEM} and {NODE} differ");
        let remedy = format!("copy {CA} of the Secret eno-nats-tls from {SYSTEM} to {NODE}");
        Check::failed(Name::Certificates, format!("Secret {NODE}/eno-nats-tls"), Problem::new(what, remedy))
    })
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::super::Unread;
    use super::super::tests::{assert_outcome, text};
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).expect("a time")
    }

    /// A certificate in PEM for this name, valid for a time in days relative to [`NOW`].
    fn pem(name: &str, begins: i64, ends: i64) -> ByteString {
        let time = |days: i64| {
            let time = Timestamp::from_second(NOW + days * 86_400).expect("a time");
            let date = time.to_zoned(jiff::tz::TimeZone::UTC).date();
            let unsigned = |number: i8| u8::try_from(number).expect("a date");
            rcgen::date_time_ymd(i32::from(date.year()), unsigned(date.month()), unsigned(date.day()))
        };
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.not_before = time(begins);
        params.not_after = time(ends);
        let key = KeyPair::generate().expect("a key");
        ByteString(params.self_signed(&key).expect("a certificate").pem().into_bytes())
    }

    #[allow(clippy::unnecessary_wraps, reason = "checks take facts")]
    fn data(entries: &[(&str, &ByteString)]) -> SecretData {
        Ok(Some(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).clone())).collect()))
    }

    fn outcomes(secrets: &[(CertificateSecret, SecretData)]) -> Vec<String> {
        judge(secrets, now()).iter().map(text).collect()
    }

    #[test]
    fn certificates_must_be_valid_for_a_while() {
        let [nats, _, metrics] = SECRETS;
        let good = pem("ca", -10, 3650);
        let of = |certificate: &ByteString| data(&[(CA, &good), (CERT, certificate)]);
        let check = |secret, data| judge(&[(secret, data)], now()).into_iter().next().expect("a check");
        for (certificate, expected) in [
            (pem(NATS_NAME, -10, 365), "ok"),
            (pem(NATS_NAME, -340, 25), "warning: tls.crt expires on"),
            // Certificates of cert-manager are renewed when a third of their time is left.
            (pem(NATS_NAME, -60, 29), "ok"),
            (pem(NATS_NAME, -80, 10), "warning: tls.crt expires on"),
            (pem(NATS_NAME, -365, -2), "failed: tls.crt has expired"),
            (pem(NATS_NAME, 2, 365), "failed: tls.crt is not valid before"),
            (pem("elsewhere", -10, 365), "failed: not for the name eno-nats.eno-system.svc"),
            (ByteString(b"nonsense".to_vec()), "failed: tls.crt: it has no certificate"),
        ] {
            assert_outcome(&check(nats, of(&certificate)), expected);
        }
        for (ends, remedy) in [(25, "eno rotate certificates"), (-2, "delete the Secret and run eno install")]
        {
            let found = check(nats, of(&pem(NATS_NAME, -340, ends)));
            assert!(format!("{found:?}").contains(remedy), "{found:?}");
        }
        assert_outcome(&check(metrics, of(&pem("eno-agent", -10, 365))), "ok");
        assert_outcome(&check(nats, data(&[(CA, &good)])), "failed: it lacks tls.crt");
        assert_outcome(&check(nats, Ok(None)), "failed: does not exist");
        assert_outcome(&check(nats, Err(Unread::Forbidden("get secrets".into()))), "skipped: get secrets");
        assert!(judge(&[(metrics, Ok(None))], now()).is_empty(), "metrics of nodes are optional");
    }

    #[test]
    fn agents_must_trust_the_authority_of_nats() {
        let [nats, agents, _] = SECRETS;
        let (ca, other, server) = (pem("ca", -10, 3650), pem("other", -10, 3650), pem(NATS_NAME, -10, 365));
        let both = ByteString([ca.0.clone(), other.0.clone()].concat());
        let of_nats = || (nats, data(&[(CA, &ca), (CERT, &server)]));
        assert_eq!(outcomes(&[of_nats(), (agents, data(&[(CA, &ca)]))]), ["ok", "ok"]);
        assert_eq!(outcomes(&[of_nats(), (agents, data(&[(CA, &both)]))]), ["ok", "ok"]);
        let differ = outcomes(&[of_nats(), (agents, data(&[(CA, &other)]))]);
        assert!(differ[2].starts_with("failed: the agents trust another authority"), "{differ:?}");
    }
}
