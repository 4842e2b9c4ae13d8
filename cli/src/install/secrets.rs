//! The Secrets of an installation: keys of NATS users, and certificates.
//!
//! The key of a certificate authority signs one certificate and is then dropped. Another certificate needs another
//! authority: see [`rotation`].

use std::collections::BTreeMap;

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::values::{Replicas, Values};

/// The data of a Secret. `Debug` of what contains it hides it.
pub type Data = BTreeMap<String, Vec<u8>>;

/// The keys of certificates in Secrets, as Kubernetes calls them.
pub const CA: &str = "ca.crt";
/// The certificate.
pub const CERT: &str = "tls.crt";
/// The private key of the certificate.
pub const KEY: &str = "tls.key";
/// The file of the authority of agents' metrics, for scrapers.
pub const METRICS_CA: &str = "metrics-ca.crt";
/// The certificate of scrapers.
const SCRAPER_CERT: &str = "scraper.crt";
/// Its private key.
const SCRAPER_KEY: &str = "scraper.key";
/// The password of the routes between three NATS servers.
pub const ROUTE_PASSWORD: &str = "route.password";

/// The user that all agents shared before they had tokens. An upgrade keeps its keys until no agent uses them.
pub const AGENT: &str = "agent";
/// The key that signs the engine's answers about logins of agents.
pub const ISSUER: &str = "issuer";
/// The key that encrypts requests and answers about logins of agents.
pub const ANSWERER: &str = "answerer";
/// The users whose seeds are on the admin's disk only.
pub const PEOPLE: [&str; 2] = ["inspect", "admin"];

/// Names in the certificate of NATS: the Service, the single servers, and a port-forward.
pub const NATS_NAMES: [&str; 4] = ["eno-nats", "eno-nats.eno-system.svc", "*.eno-nats", "localhost"];

/// The Secret with keys of NATS.
const NATS_SECRET: &str = "eno-system/eno-nats";

/// What people read about the certificates that are made.
const NATS_CERTIFICATE: &str = "the certificate of NATS";
const METRICS_CERTIFICATES: &str = "the certificates of node metrics";

/// How long certificates are valid, in years.
const YEARS: i64 = 10;

/// The users of NATS whose seeds are in the Secret of eno-system.
pub fn system_users() -> impl Iterator<Item = &'static str> {
    eno_parts::nats_users().map(|part| part.name)
}

/// All users of NATS.
pub fn users() -> impl Iterator<Item = &'static str> {
    system_users().chain(PEOPLE)
}

/// The Secrets of the operator. An empty one does not exist.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// `eno-system/eno-nats`: public keys of all users, the seeds of the engine and the drivers, and the keys of logins.
    pub nats: Data,
    /// `eno-node/eno-nats`: the seed that agents of an earlier version share.
    pub agent: Data,
    /// `eno-system/eno-nats-tls`: the certificate of NATS, its key and its authority.
    pub tls: Data,
    /// `eno-node/eno-nats-tls`: the authority.
    pub agent_tls: Data,
    /// `eno-node/eno-metrics-tls`: the certificate of agents' metrics, its key, and the scrapers' authority.
    pub metrics: Data,
}

impl Secrets {
    /// Whether agents of an earlier version may log in by the key that they share.
    pub fn has_shared_agent_key(&self) -> bool {
        !self.agent.is_empty() || self.nats.keys().any(|key| is_of_agents(key))
    }

    /// Drops that key. Returns the keys of `eno-system/eno-nats` that go.
    pub fn drop_shared_agent_key(&mut self) -> Vec<String> {
        self.agent.clear();
        self.nats.extract_if(.., |key, _| is_of_agents(key)).map(|(key, _)| key).collect()
    }
}

/// Whether a key of the Secret is one that agents shared: `agent.seed`, `agent.pub`, and `agent.next.…` of a rotation.
fn is_of_agents(key: &str) -> bool {
    key.strip_prefix(AGENT).is_some_and(|rest| rest.starts_with('.'))
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(…)")
    }
}

/// Files for people, by name. `Debug` hides them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Files(pub BTreeMap<String, String>);

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Secrets that are complete, what was made for that, and what people get of it.
#[derive(Debug)]
pub struct Completed {
    /// The Secrets.
    pub secrets: Secrets,
    /// Files that are on the admin's disk only.
    pub files: Files,
    /// What was made, for people.
    pub made: Vec<&'static str>,
}

/// A key or a certificate can't be made or read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// A stored key is damaged.
    #[error(
        "Secret {secret}: {key} is no valid key; delete that key of the Secret and run eno install again"
    )]
    Damaged {
        /// `namespace/name`.
        secret: &'static str,
        /// The key of the data.
        key: String,
    },
    /// The crypto library failed.
    #[error("making {what}: {source}")]
    Crypto {
        /// What could not be made.
        what: &'static str,
        /// The library's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn crypto<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl FnOnce(E) -> SecretError {
    move |source| SecretError::Crypto { what, source: Box::new(source) }
}

/// A pair of keys of a NATS user.
pub struct UserKey {
    /// The seed, `SU…`.
    pub seed: String,
    /// The public key, `U…`.
    pub public: String,
}

/// Makes the keys of a user.
pub fn user_key() -> Result<UserKey, SecretError> {
    let pair = nkeys::KeyPair::new_user();
    let seed = pair.seed().map_err(crypto("the key of a NATS user"))?;
    Ok(UserKey { seed, public: pair.public_key() })
}

/// Makes the keys of the answers about logins of agents: first the issuer's.
pub fn login_keys() -> Result<[UserKey; 2], SecretError> {
    let what = "the keys of logins";
    let issuer = nkeys::KeyPair::new_account();
    let answerer = nkeys::XKey::new();
    Ok([
        UserKey { seed: issuer.seed().map_err(crypto(what))?, public: issuer.public_key() },
        UserKey { seed: answerer.seed().map_err(crypto(what))?, public: answerer.public_key() },
    ])
}

/// The public key of the issuer's or the answerer's seed; `None`: it is no such seed.
pub fn public_login_key(name: &str, seed: &[u8]) -> Option<String> {
    let seed = std::str::from_utf8(seed).ok()?.trim();
    if name == ANSWERER {
        return Some(nkeys::XKey::from_seed(seed).ok()?.public_key());
    }
    let pair = nkeys::KeyPair::from_seed(seed).ok()?;
    (pair.key_pair_type() == nkeys::KeyPairType::Account).then(|| pair.public_key())
}

/// Completes the Secrets: makes what is missing and keeps what is there. With cert-manager it makes no certificate of
/// NATS.
pub fn complete(existing: &Secrets, values: &Values, now: Timestamp) -> Result<Completed, SecretError> {
    let mut secrets = existing.clone();
    let mut files = Files::default();
    let mut made = Vec::new();
    complete_keys(&mut secrets, &mut files, &mut made)?;
    complete_login_keys(&mut secrets, &mut made)?;
    if values.nats.replicas == Replicas::Three && !secrets.nats.contains_key(ROUTE_PASSWORD) {
        // 52 random letters and digits of a seed that nobody uses.
        let password = user_key()?.seed.split_off(4);
        secrets.nats.insert(ROUTE_PASSWORD.to_owned(), password.into_bytes());
        made.push("the password of NATS's routes");
    }
    if !values.cert_manager && ![CA, CERT, KEY].iter().all(|key| secrets.tls.contains_key(*key)) {
        let made_now = nats_certificate(now)?;
        secrets.tls.extend(made_now);
        made.push(NATS_CERTIFICATE);
    }
    if let Some(ca) = secrets.tls.get(CA) {
        secrets.agent_tls = Data::from([(CA.to_owned(), ca.clone())]);
        files.0.insert(CA.to_owned(), String::from_utf8_lossy(ca).into_owned());
    }
    if !values.node_metrics {
        secrets.metrics = Data::new();
    } else if ![CA, CERT, KEY].iter().all(|key| secrets.metrics.contains_key(*key)) {
        let (data, scraper) = metrics_certificates(now)?;
        secrets.metrics = data;
        files.0.extend(scraper.0);
        made.push(METRICS_CERTIFICATES);
    }
    Ok(Completed { secrets, files, made })
}

/// The Secret of what was made, as `namespace/name`.
pub fn secret_of(made: &str) -> &'static str {
    match made {
        NATS_CERTIFICATE => "eno-system/eno-nats-tls",
        METRICS_CERTIFICATES => "eno-node/eno-metrics-tls",
        _ => NATS_SECRET,
    }
}

/// Those of these files that fit the Secrets: seeds of people whose public keys are there, and what scrapers need for the
/// authority that is there.
pub fn fitting(files: &Files, secrets: &Secrets) -> Files {
    let is_metrics =
        files.0.get(METRICS_CA).map(String::as_bytes) == secrets.metrics.get(CA).map(Vec::as_slice);
    let fits = |(name, text): &(&String, &String)| match name.strip_suffix(".seed") {
        Some(user) => {
            let public = nkeys::KeyPair::from_seed(text.trim()).map(|pair| pair.public_key().into_bytes());
            public.ok().as_ref() == secrets.nats.get(&format!("{user}.pub"))
        }
        None => is_metrics && [METRICS_CA, SCRAPER_CERT, SCRAPER_KEY].contains(&name.as_str()),
    };
    Files(files.0.iter().filter(fits).map(|(name, text)| (name.clone(), text.clone())).collect())
}

fn complete_keys(
    secrets: &mut Secrets,
    files: &mut Files,
    made: &mut Vec<&'static str>,
) -> Result<(), SecretError> {
    let mut is_new = false;
    for user in users() {
        let (seed, public) = (format!("{user}.seed"), format!("{user}.pub"));
        let is_person = PEOPLE.contains(&user);
        let key = match secrets.nats.get(&seed) {
            Some(stored) if !is_person => {
                let text = String::from_utf8_lossy(stored).trim().to_owned();
                let pair = nkeys::KeyPair::from_seed(&text)
                    .map_err(|_| SecretError::Damaged { secret: NATS_SECRET, key: seed.clone() })?;
                UserKey { seed: text, public: pair.public_key() }
            }
            _ if is_person && secrets.nats.contains_key(&public) => continue,
            _ => {
                is_new = true;
                user_key()?
            }
        };
        secrets.nats.insert(public, key.public.into_bytes());
        if is_person {
            files.0.insert(seed, key.seed);
        } else {
            secrets.nats.insert(seed, key.seed.into_bytes());
        }
    }
    if is_new {
        made.push("the keys of NATS users");
    }
    Ok(())
}

fn complete_login_keys(secrets: &mut Secrets, made: &mut Vec<&'static str>) -> Result<(), SecretError> {
    let mut is_new = false;
    for (name, new) in [ISSUER, ANSWERER].into_iter().zip(login_keys()?) {
        let (seed, public) = (format!("{name}.seed"), format!("{name}.pub"));
        let key = if let Some(stored) = secrets.nats.get(&seed) {
            let damaged = || SecretError::Damaged { secret: NATS_SECRET, key: seed.clone() };
            public_login_key(name, stored).ok_or_else(damaged)?
        } else {
            is_new = true;
            secrets.nats.insert(seed, new.seed.into_bytes());
            new.public
        };
        secrets.nats.insert(public, key.into_bytes());
    }
    if is_new {
        made.push("the keys of agents' logins");
    }
    Ok(())
}

/// Makes an authority and the certificate of NATS.
pub fn nats_certificate(now: Timestamp) -> Result<Data, SecretError> {
    let authority = Authority::new("ENO NATS authority", now)?;
    let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let (certificate, key) = authority.sign("eno-nats", &NATS_NAMES, &usages, now)?;
    Ok(data([(CA, authority.certificate), (CERT, certificate), (KEY, key)]))
}

/// Makes an authority and two certificates: of agents' metrics, and of a scraper.
pub fn metrics_certificates(now: Timestamp) -> Result<(Data, Files), SecretError> {
    let authority = Authority::new("ENO metrics authority", now)?;
    let server = authority.sign("eno-agent", &["eno-agent"], &[ExtendedKeyUsagePurpose::ServerAuth], now)?;
    let scraper =
        authority.sign("eno-scraper", &["eno-scraper"], &[ExtendedKeyUsagePurpose::ClientAuth], now)?;
    let files = BTreeMap::from([
        (METRICS_CA.to_owned(), authority.certificate.clone()),
        (SCRAPER_CERT.to_owned(), scraper.0),
        (SCRAPER_KEY.to_owned(), scraper.1),
    ]);
    Ok((data([(CA, authority.certificate), (CERT, server.0), (KEY, server.1)]), Files(files)))
}

fn data<const N: usize>(entries: [(&str, String); N]) -> Data {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.into_bytes())).collect()
}

/// A certificate authority that lives as long as this value.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    fn new(name: &str, now: Timestamp) -> Result<Self, SecretError> {
        let what = "a certificate authority";
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        set_validity(&mut params, now);
        let key = KeyPair::generate().map_err(crypto(what))?;
        let certificate = params.self_signed(&key).map_err(crypto(what))?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// The PEM texts of a certificate and of its key.
    fn sign(
        &self,
        name: &str,
        names: &[&str],
        usages: &[ExtendedKeyUsagePurpose],
        now: Timestamp,
    ) -> Result<(String, String), SecretError> {
        let what = "a certificate";
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).map_err(crypto(what))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now);
        let key = KeyPair::generate().map_err(crypto(what))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(crypto(what))?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// From the day before, for clocks that differ, for [`YEARS`].
fn set_validity(params: &mut CertificateParams, now: Timestamp) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let date = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(
            i32::from(date.year()),
            u8::try_from(date.month()).unwrap_or(1),
            u8::try_from(date.day()).unwrap_or(1),
        )
    };
    params.not_before = date(today.saturating_sub(1.day()));
    params.not_after = date(today.saturating_add(YEARS.years()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-24T12:00:00Z".parse().expect("a time")
    }

    fn values(text: &str) -> Values {
        Values::parse(text).expect("valid values")
    }

    #[test]
    fn new_installation_gets_all_and_keeps_it() {
        let values = values("nats: {replicas: 3}\nnodeMetrics: true");
        let first = complete(&Secrets::default(), &values, now()).expect("made");
        assert_eq!(first.made.len(), 5);
        let names: Vec<_> = first.files.0.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["admin.seed", "ca.crt", "inspect.seed", "metrics-ca.crt", "scraper.crt", "scraper.key"]
        );
        // Seeds of people are not in the cluster.
        assert!(!first.secrets.nats.contains_key("admin.seed"));
        // Agents have tokens.
        assert!(!first.secrets.has_shared_agent_key());
        let text = |key: &str| String::from_utf8(first.secrets.nats[key].clone()).expect("text");
        assert!(text("issuer.seed").starts_with("SA") && text("issuer.pub").starts_with('A'));
        assert!(text("answerer.seed").starts_with("SX") && text("answerer.pub").starts_with('X'));
        assert_eq!(first.secrets.agent_tls.keys().collect::<Vec<_>>(), [CA]);
        let second = complete(&first.secrets, &values, now()).expect("kept");
        assert_eq!((second.secrets, second.made), (first.secrets, Vec::new()));
        assert_eq!(second.files.0.keys().collect::<Vec<_>>(), [CA]);
    }

    #[test]
    fn only_files_of_the_clusters_keys_fit() {
        let values = values("nodeMetrics: true");
        let [ours, others] = [(); 2].map(|()| complete(&Secrets::default(), &values, now()).expect("made"));
        let names = |files: Files| files.0.into_keys().collect::<Vec<_>>();
        let all = ["admin.seed", "inspect.seed", "metrics-ca.crt", "scraper.crt", "scraper.key"];
        assert_eq!(names(fitting(&ours.files, &ours.secrets)), all);
        assert!(names(fitting(&others.files, &ours.secrets)).is_empty());
        let mixed = Secrets { metrics: others.secrets.metrics.clone(), ..ours.secrets.clone() };
        assert_eq!(names(fitting(&ours.files, &mixed)), all[..2]);
        assert_eq!(names(fitting(&others.files, &mixed)), all[2..]);
        assert!(names(fitting(&ours.files, &Secrets::default())).is_empty());
    }

    #[test]
    fn missing_keys_are_added_and_public_keys_repaired() {
        let values = Values::default();
        let mut existing = complete(&Secrets::default(), &values, now()).expect("made").secrets;
        let before = existing.clone();
        existing.nats.remove("driver-nad.seed");
        existing.nats.insert("engine.pub".into(), b"U".to_vec());
        existing.nats.remove("inspect.pub");
        let completed = complete(&existing, &values, now()).expect("completed");
        let nats = &completed.secrets.nats;
        assert_eq!(nats["engine.pub"], before.nats["engine.pub"]);
        assert_ne!(nats["driver-nad.seed"], before.nats["driver-nad.seed"]);
        assert_ne!(nats["driver-nad.pub"], before.nats["driver-nad.pub"]);
        assert_eq!(completed.files.0.keys().collect::<Vec<_>>(), [CA, "inspect.seed"]);
        for key in ["engine.seed", "issuer.seed", "answerer.seed"] {
            let mut existing = before.clone();
            existing.nats.insert(key.into(), b"nonsense".to_vec());
            let error = complete(&existing, &values, now()).expect_err("damaged").to_string();
            assert!(error.contains(&format!("eno-system/eno-nats: {key}")), "{error}");
            assert!(!error.contains("nonsense"), "{error}");
        }
        // A user's seed is no issuer's.
        existing.nats.insert("issuer.seed".into(), before.nats["engine.seed"].clone());
        complete(&existing, &values, now()).expect_err("damaged");
    }

    #[test]
    fn shared_key_of_agents_is_kept_until_it_is_dropped() {
        let values = Values::default();
        let new = complete(&Secrets::default(), &values, now()).expect("made").secrets;
        let mut old = new.clone();
        old.nats.insert("agent.pub".into(), b"U1".to_vec());
        old.nats.insert("agent.next.pub".into(), b"U2".to_vec());
        old.agent.insert("agent.seed".into(), b"SU".to_vec());
        let mut kept = complete(&old, &values, now()).expect("completed").secrets;
        assert_eq!(kept, old);
        assert!(kept.has_shared_agent_key());
        assert_eq!(kept.drop_shared_agent_key(), ["agent.next.pub", "agent.pub"]);
        assert_eq!(kept, new);
        assert!(!kept.has_shared_agent_key());
    }

    #[test]
    fn upgrade_adds_the_key_of_a_new_user_and_changes_no_other() {
        let values = values("nats: {replicas: 3}\nnodeMetrics: true");
        let after = complete(&Secrets::default(), &values, now()).expect("made").secrets;
        for user in system_users() {
            let is_new = |key: &String| *key == format!("{user}.seed") || *key == format!("{user}.pub");
            // An installation of a version without this user.
            let mut before = after.clone();
            before.nats.retain(|key, _| !is_new(key));
            let completed = complete(&before, &values, now()).expect("completed");
            assert_eq!(completed.made, ["the keys of NATS users"], "{user}");
            // No seed of a person is made again.
            assert_eq!(completed.files.0.keys().collect::<Vec<_>>(), [CA], "{user}");
            let mut upgraded = completed.secrets;
            let new: Data = upgraded.nats.extract_if(.., |key, _| is_new(key)).collect();
            assert!(upgraded == before, "the other keys and certificates stay: {user}");
            let text = |key: &str| String::from_utf8(new[&format!("{user}.{key}")].clone()).expect("text");
            let pair = nkeys::KeyPair::from_seed(&text("seed")).expect("a seed");
            assert_eq!(pair.public_key(), text("pub"), "{user}");
        }
    }

    #[test]
    fn metrics_and_certificates_follow_the_values() {
        let secrets =
            complete(&Secrets::default(), &values("certManager: true"), now()).expect("made").secrets;
        assert!(secrets.tls.is_empty() && secrets.agent_tls.is_empty() && secrets.metrics.is_empty());
        let on = complete(&secrets, &values("nodeMetrics: true"), now()).expect("made").secrets;
        assert_eq!(on.metrics.len(), 3);
        let off = complete(&on, &Values::default(), now()).expect("made").secrets;
        assert!(off.metrics.is_empty());
    }

    #[test]
    fn debug_output_hides_secrets() {
        let completed = complete(&Secrets::default(), &Values::default(), now()).expect("made");
        let text = format!("{completed:?}");
        assert!(!text.contains("SU") && !text.contains("PRIVATE"), "{text}");
    }
}
