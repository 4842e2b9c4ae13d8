//! Keystone's part: the login, and where Neutron is (Identity API v3). Pure.

use std::net::Ipv4Addr;
use std::time::Duration;

use eno_device_secrets::{DeviceSecret, Hidden, SecretError};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::text::shown;

/// The keys of a Secret that are read. They are those of an entry of `clouds.yaml`, and `ca.crt`.
pub const KEYS: [&str; 16] = [
    "application_credential_id",
    "application_credential_name",
    "application_credential_secret",
    "username",
    "user_id",
    "password",
    "user_domain_name",
    "user_domain_id",
    "project_name",
    "project_id",
    "project_domain_name",
    "project_domain_id",
    "region_name",
    "interface",
    "network_endpoint_override",
    "ca.crt",
];

/// How to log in to Keystone, and which endpoint of Neutron to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The Secret's name, for messages.
    pub name: String,
    /// The body of `POST /v3/auth/tokens`. It contains the secret.
    login: Hidden,
    /// The region; absent: the only one.
    pub region: Option<String>,
    /// The interface of the endpoint: `public`, `internal` or `admin`.
    pub interface: String,
    /// The URL of Neutron in the place of the catalogue's.
    endpoint: Option<String>,
    /// PEM certificates of the authorities to accept besides the public ones.
    pub authorities: Option<Hidden>,
}

impl Credentials {
    /// Reads a Secret. The error names the keys that are missing.
    pub fn of(secret: &DeviceSecret) -> Result<Self, SecretError> {
        let text = |key: &str| secret.line(key).map(|text| text.expose().to_owned());
        let domain = |of: &str| -> Option<Value> {
            let id = text(&format!("{of}_domain_id")).map(|id| json!({ "id": id }));
            id.or_else(|| text(&format!("{of}_domain_name")).map(|name| json!({ "name": name })))
        };
        let user = || -> Option<Value> {
            let id = text("user_id").map(|id| json!({ "id": id }));
            let name = || Some(json!({ "name": text("username")?, "domain": domain("user")? }));
            id.or_else(name)
        };
        let auth = if let Some(key) = text("application_credential_secret") {
            let id = text("application_credential_id").map(|id| json!({ "id": id, "secret": key }));
            let by_name = || {
                let name = text("application_credential_name")?;
                Some(json!({ "name": name, "secret": key, "user": user()? }))
            };
            let credential = id.or_else(by_name).ok_or_else(|| {
                secret.lacks(
                    "application_credential_id, or application_credential_name, username and user_domain_name",
                )
            })?;
            json!({ "identity": {
                "methods": ["application_credential"], "application_credential": credential,
            } })
        } else if let Some(password) = text("password") {
            let mut user = user().ok_or_else(|| secret.lacks("user_id, or username and user_domain_name"))?;
            if let Some(user) = user.as_object_mut() {
                user.insert("password".to_owned(), password.into());
            }
            let project = text("project_id")
                .map(|id| json!({ "id": id }))
                .or_else(|| Some(json!({ "name": text("project_name")?, "domain": domain("project")? })));
            let project =
                project.ok_or_else(|| secret.lacks("project_id, or project_name and project_domain_name"))?;
            json!({
                "identity": { "methods": ["password"], "password": { "user": user } },
                "scope": { "project": project },
            })
        } else {
            return Err(secret.lacks("application_credential_secret or password"));
        };
        Ok(Self {
            name: secret.name.clone(),
            login: json!({ "auth": auth }).to_string().into(),
            region: text("region_name"),
            interface: text("interface").unwrap_or_else(|| "public".to_owned()),
            endpoint: text("network_endpoint_override"),
            authorities: secret.text("ca.crt"),
        })
    }

    /// The body of the login.
    pub fn login(&self) -> &Hidden {
        &self.login
    }
}

/// A token's description.
#[derive(Clone, Debug, Deserialize)]
pub struct Token {
    /// When it was made, RFC 3339.
    issued_at: String,
    /// When it ends, RFC 3339.
    expires_at: String,
    /// Absent: the token is not of a project.
    pub project: Option<Project>,
    /// Absent: the login has no project or role.
    #[serde(default)]
    catalog: Vec<Service>,
}

/// A project.
#[derive(Clone, Debug, Deserialize)]
pub struct Project {
    /// Its id.
    #[serde(default)]
    pub id: String,
    /// Its name.
    pub name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Deserialize)]
struct Endpoint {
    interface: String,
    #[serde(default)]
    region_id: Option<String>,
    url: String,
}

/// The catalogue has no endpoint that fits. A retry may help, since an admin of the cloud may add it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEndpoint {
    /// No service of the type `network`.
    #[error(
        "the catalogue of project {project} has no service of type network: the cloud has no Neutron, or the user has \
         no role in the project"
    )]
    Service {
        /// The project.
        project: String,
    },
    /// None in this region with this interface.
    #[error(
        "the catalogue has no {interface} endpoint of the service network in {region}; there are: {there}. Set \
         region_name and interface of the Secret {secret}"
    )]
    Endpoint {
        /// The interface.
        interface: String,
        /// The region, as a text.
        region: String,
        /// Regions and interfaces that exist.
        there: String,
        /// The Secret.
        secret: String,
    },
    /// Several regions, and none was chosen.
    #[error("the cloud has several regions, {regions}: set region_name of the Secret {secret}")]
    Region {
        /// Their names.
        regions: String,
        /// The Secret.
        secret: String,
    },
    /// A host that the admin named neither as Keystone's nor in the Secret. Keystone alone must not decide where a token
    /// goes.
    #[error(
        "the catalogue names {url} as the endpoint of Neutron, which is neither on Keystone's host {keystone} nor in its \
         parent domain, so it gets no token. If it is the cloud's Neutron, write the URL into network_endpoint_override \
         of the Secret {secret}"
    )]
    Elsewhere {
        /// The endpoint.
        url: String,
        /// Keystone's host.
        keystone: String,
        /// The Secret.
        secret: String,
    },
    /// No URL of HTTP.
    #[error(
        "the endpoint of Neutron, {url}, is no URL with http: or https: and a host: correct the cloud's catalogue, or \
         network_endpoint_override of the Secret {secret}"
    )]
    NoUrl {
        /// The endpoint.
        url: String,
        /// The Secret.
        secret: String,
    },
    /// HTTP behind HTTPS.
    #[error(
        "the endpoint of Neutron is {url}, without TLS, and Keystone's has TLS: the token would be readable on the \
         way. Let the cloud's catalogue name an https endpoint, or set interface or network_endpoint_override of the \
         Secret {secret}"
    )]
    Plain {
        /// The endpoint.
        url: String,
        /// The Secret.
        secret: String,
    },
}

impl Token {
    /// How long it lasts; `None`: its times can't be read.
    pub fn lifetime(&self) -> Option<Duration> {
        // Keystone 22 writes the end of an application credential without a zone.
        let time = |text: &str| -> Option<Timestamp> {
            text.parse()
                .ok()
                .or_else(|| Some(text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp()))
        };
        let (issued, expires) = (time(&self.issued_at)?, time(&self.expires_at)?);
        // A token of a credential that expires now ends before it was made.
        Some(Duration::try_from(expires.duration_since(issued)).unwrap_or_default())
    }

    /// The URL of Neutron, with `/v2.0/`. The catalogue may name Keystone's own host, or one in its parent domain.
    pub fn neutron(&self, credentials: &Credentials, keystone: &Url) -> Result<Url, NoEndpoint> {
        let secret = || credentials.name.clone();
        let (text, from_catalogue) = match &credentials.endpoint {
            Some(url) => (url.as_str(), false),
            None => (self.endpoint(credentials)?, true),
        };
        let base = text.trim_end_matches('/');
        let base = base.strip_suffix("/v2.0").unwrap_or(base);
        let url = || shown(text);
        let no_url = || NoEndpoint::NoUrl { url: url(), secret: secret() };
        let parsed = Url::parse(&format!("{base}/v2.0/")).map_err(|_| no_url())?;
        let host = parsed.host_str().filter(|_| matches!(parsed.scheme(), "http" | "https"));
        let (host, keystones) = (host.ok_or_else(no_url)?, keystone.host_str().unwrap_or_default());
        if keystone.scheme() == "https" && parsed.scheme() != "https" {
            return Err(NoEndpoint::Plain { url: url(), secret: secret() });
        }
        if from_catalogue && !is_near(keystones, host) {
            let keystone = keystones.to_owned();
            return Err(NoEndpoint::Elsewhere { url: url(), keystone, secret: secret() });
        }
        Ok(parsed)
    }

    /// The URL of Neutron in the catalogue.
    fn endpoint(&self, credentials: &Credentials) -> Result<&str, NoEndpoint> {
        let endpoints: Vec<&Endpoint> = self
            .catalog
            .iter()
            .filter(|service| service.kind == "network")
            .flat_map(|service| &service.endpoints)
            .collect();
        if endpoints.is_empty() {
            let project = self.project.as_ref().map(|project| project.name.clone()).unwrap_or_default();
            return Err(NoEndpoint::Service { project });
        }
        let secret = credentials.name.clone();
        let fits = |endpoint: &&&Endpoint| {
            let region = credentials.region.as_ref();
            endpoint.interface == credentials.interface
                && region.is_none_or(|region| endpoint.region_id.as_ref() == Some(region))
        };
        let fitting: Vec<&Endpoint> = endpoints.iter().filter(fits).copied().collect();
        let endpoint = match fitting.as_slice() {
            [endpoint] => endpoint,
            // The same service twice.
            [endpoint, others @ ..] if others.iter().all(|other| other.region_id == endpoint.region_id) => {
                endpoint
            }
            [] => {
                let there = endpoints.iter().map(|endpoint| {
                    format!(
                        "{} ({})",
                        endpoint.region_id.as_deref().unwrap_or("no region"),
                        endpoint.interface
                    )
                });
                return Err(NoEndpoint::Endpoint {
                    interface: credentials.interface.clone(),
                    region: credentials
                        .region
                        .as_ref()
                        .map_or("any region".into(), |r| format!("region {r}")),
                    there: there.collect::<Vec<_>>().join(", "),
                    secret,
                });
            }
            several => {
                let regions = several.iter().filter_map(|endpoint| endpoint.region_id.as_deref());
                return Err(NoEndpoint::Region { regions: regions.collect::<Vec<_>>().join(", "), secret });
            }
        };
        Ok(&endpoint.url)
    }
}

/// True for Keystone's own host, a host below it, and a host in its parent domain if that has at least two labels, as
/// `keystone.example.com` and `neutron.example.com`.
fn is_near(keystone: &str, host: &str) -> bool {
    let (keystone, host) = (keystone.trim_end_matches('.'), host.trim_end_matches('.'));
    if keystone == host {
        return true;
    }
    // An address has no domain.
    if keystone.starts_with('[') || keystone.parse::<Ipv4Addr>().is_ok() {
        return false;
    }
    let is_in =
        |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let parent = keystone.split_once('.').map(|(_, parent)| parent).filter(|parent| parent.contains('.'));
    is_in(keystone) || parent.is_some_and(is_in)
}

#[cfg(test)]
mod tests {
    use eno_device_secrets::{Login, SecretSource};
    use eno_schemas::Device;

    use super::*;

    async fn credentials(values: &[(&str, &str)]) -> Result<Credentials, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("vim")).unwrap();
        for (key, value) in values.iter().chain(&[("devices", "https://keystone")]) {
            std::fs::write(directory.path().join("vim").join(key), value).unwrap();
        }
        let source = SecretSource::Directory(directory.path().to_owned());
        let device = Device { credential: Some("vim".into()), ..Device::new("https://keystone") };
        let permit = source.permit(Login::new("neutron", "vim", &device)).await.unwrap();
        let secret = source.read(&permit, &KEYS).await.unwrap();
        Credentials::of(&secret).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn secrets_make_logins_or_name_missing_keys() {
        let password = [
            ("username", "u\n"),
            ("user_domain_name", "Default"),
            ("password", "s3cret\n"),
            ("project_name", "p"),
            ("project_domain_id", "default"),
        ];
        let read = credentials(&password).await.unwrap();
        let login: Value = serde_json::from_str(read.login().expose()).unwrap();
        let user = json!({ "name": "u", "domain": { "name": "Default" }, "password": "s3cret" });
        assert_eq!(login["auth"]["identity"]["password"]["user"], user);
        let project = json!({ "name": "p", "domain": { "id": "default" } });
        assert_eq!(login["auth"]["scope"]["project"], project);
        assert_eq!(read.interface, "public");
        assert!(!format!("{read:?}").contains("s3cret"));

        let application = [("application_credential_id", "i"), ("application_credential_secret", "s3cret")];
        let login = credentials(&application).await.unwrap().login;
        let login: Value = serde_json::from_str(login.expose()).unwrap();
        let identity = &login["auth"]["identity"];
        assert_eq!(identity["application_credential"], json!({ "id": "i", "secret": "s3cret" }));
        assert!(login["auth"].get("scope").is_none(), "Keystone refuses a scope here");

        for (missing, error) in [
            ("password", "credential \"vim\" lacks application_credential_secret or password"),
            ("user_domain_name", "credential \"vim\" lacks user_id, or username and user_domain_name"),
            ("project_name", "credential \"vim\" lacks project_id, or project_name and project_domain_name"),
        ] {
            let rest: Vec<_> = password.into_iter().filter(|(key, _)| *key != missing).collect();
            assert_eq!(credentials(&rest).await.unwrap_err(), error);
        }
    }

    /// A token with these endpoints of Neutron: region, interface and URL.
    fn token(endpoints: &[(&str, &str, &str)]) -> Token {
        let endpoint = |(region, interface, url): &(&str, &str, &str)| json!({ "region_id": region, "interface": interface, "url": url });
        serde_json::from_value(json!({
            "issued_at": "2026-01-01T00:00:00Z",
            "expires_at": "2026-01-01T01:00:00Z",
            "project": { "name": "p" },
            "catalog": [
                { "type": "identity", "endpoints": [endpoint(&("a", "public", "https://keystone"))] },
                { "type": "network", "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>() },
            ],
        }))
        .unwrap()
    }

    async fn application_credential() -> Credentials {
        credentials(&[("application_credential_id", "i"), ("application_credential_secret", "s")])
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn endpoint_is_that_of_region_and_interface() {
        let mut read = application_credential().await;
        let neutron = |token: &Token, read: &Credentials| {
            let url = token.neutron(read, &Url::parse("https://one.example.com:5000/v3").unwrap());
            url.map(String::from).map_err(|error| error.to_string())
        };
        let two = token(&[
            ("a", "public", "https://one.example.com:9696/v2.0/"),
            ("b", "public", "https://two.example.com/net"),
        ]);
        assert!(neutron(&two, &read).unwrap_err().contains("regions, a, b"));
        read.region = Some("a".into());
        assert_eq!(neutron(&two, &read).unwrap(), "https://one.example.com:9696/v2.0/");
        assert_eq!(two.lifetime(), Some(Duration::from_hours(1)));
        let without_zone = Token { expires_at: "2026-01-01T00:30:00.000000".into(), ..two.clone() };
        assert_eq!(without_zone.lifetime(), Some(Duration::from_mins(30)));
        read.region = Some("b".into());
        assert_eq!(neutron(&two, &read).unwrap(), "https://two.example.com/net/v2.0/");
        read.region = Some("c".into());
        let error = neutron(&two, &read).unwrap_err();
        assert!(error.contains("in region c; there are: a (public), b (public)"), "{error}");
        let none = neutron(&token(&[]), &read).unwrap_err();
        assert!(none.contains("project p has no service of type network"), "{none}");
    }

    #[tokio::test]
    async fn catalogue_sends_tokens_only_near_keystone() {
        let mut read = application_credential().await;
        let neutron = |read: &Credentials, keystone: &str, url: &str| {
            token(&[("a", "public", url)]).neutron(read, &Url::parse(keystone).unwrap())
        };
        for (keystone, url) in [
            ("https://cloud.example.com:5000/v3", "https://cloud.example.com:9696"),
            ("https://cloud.example.com/identity/v3", "https://CLOUD.example.com/networking"),
            ("https://keystone.example.com/v3", "https://neutron.example.com/v2.0"),
            ("https://auth.cloud.example.net/v3", "https://network.compute.gra.cloud.example.net"),
            (
                "https://keystone.openstack.svc.cluster.local/v3",
                "https://neutron.openstack.svc.cluster.local:9696",
            ),
            ("https://example.com/v3", "https://network.example.com"),
            ("https://192.0.2.1:5000/v3", "https://192.0.2.1:9696"),
            ("https://[2001:db8::1]:5000/v3", "https://[2001:db8:0::1]:9696"),
            ("http://127.0.0.1:5000/v3", "http://127.0.0.1:9696"),
            ("http://127.0.0.1:5000/v3", "https://127.0.0.1:9696"),
        ] {
            assert!(neutron(&read, keystone, url).is_ok(), "{keystone} {url}");
        }
        for (keystone, url) in [
            ("https://keystone.example.com/v3", "https://evil.example.org"),
            ("https://keystone.example.com/v3", "https://evilexample.com"),
            ("https://keystone.example.com/v3", "https://keystone.example.com.evil.org"),
            ("https://keystone.example.com/v3", "https://keystone.example.com@evil.org"),
            ("https://keystone.example.com/v3", "https://169.254.169.254"),
            ("https://example.com/v3", "https://evil.com"),
            ("https://keystone/v3", "https://neutron"),
            ("https://192.0.2.1:5000/v3", "https://192.0.2.2:9696"),
            ("https://192.0.2.1:5000/v3", "https://evil.192.0.2.1.example.org"),
            ("https://[2001:db8::1]:5000/v3", "https://[2001:db8::2]:9696"),
        ] {
            let error = neutron(&read, keystone, url).unwrap_err();
            assert!(matches!(error, NoEndpoint::Elsewhere { .. }), "{keystone} {url}: {error}");
        }
        let keystone = "https://keystone.example.com/v3";
        for url in ["file:///etc/passwd", "neutron", "https://", "ftp://keystone.example.com"] {
            let error = neutron(&read, keystone, url).unwrap_err();
            assert!(matches!(error, NoEndpoint::NoUrl { .. }), "{url}: {error}");
        }
        let plain = neutron(&read, keystone, "http://keystone.example.com:9696").unwrap_err();
        assert!(plain.to_string().contains("without TLS"), "{plain}");

        // The Secret may name any host, and no plain one.
        read.endpoint = Some("https://elsewhere.example.org:9696/v2.0/".into());
        let url = neutron(&read, keystone, "https://evil.example.org").unwrap();
        assert_eq!(url.as_str(), "https://elsewhere.example.org:9696/v2.0/");
        read.endpoint = Some("http://elsewhere.example.org:9696".into());
        assert!(matches!(neutron(&read, keystone, "").unwrap_err(), NoEndpoint::Plain { .. }));
    }
}
