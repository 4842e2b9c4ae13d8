//! Keystone and Neutron of OpenStack on one machine, with the Neutron plugin ML2 and SQLite databases. There are no
//! agents, so networks and ports exist in the API only.
//!
//! Neutron has the physical networks of [`PHYSICAL_NETWORKS`]. Only the administrator may set and see provider
//! attributes, as is the default.

mod client;
mod configuration;
mod packages;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use client::OpenStackClient;
pub use packages::{Packages, Release};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::directory::{Directory, DirectoryError, Kind, write_private};
use crate::parts::{Parts, PartsError};
use crate::ports::pick_ports;
use crate::supervisor::{Exited, SuperviseError, Supervisor};

/// The physical networks with the ranges of their VLAN IDs. The administrator may use any ID from 1 to 4094 on them.
/// Neutron picks IDs in the range.
pub const PHYSICAL_NETWORKS: [(&str, std::ops::RangeInclusive<u16>); 2] =
    [("datacentre", 100..=2999), ("external", 10..=99)];
/// The region of all endpoints.
pub const REGION: &str = "RegionOne";

/// Name of the default domain, which all users and projects are in.
const DOMAIN: &str = "Default";
/// Same for all instances: they listen on loopback only and hold nothing but test data.
const ADMIN_PASSWORD: &str = "admin-password";
const SERVE: &str = include_str!("../../python/openstack/serve.py");
/// Names of the child processes.
const KEYSTONE: &str = "keystone";
const NEUTRON: &str = "neutron";
/// Timeout of a start; generous for busy machines.
const START_TIMEOUT: Duration = Duration::from_mins(3);
/// Poll interval for conditions without notification.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum start attempts. Another process can take a picked port before the program binds it.
const MAX_START_ATTEMPTS: usize = 3;
const PORTS_FILE: &str = "ports.json";

/// OpenStack can't be started or used.
#[derive(Debug, thiserror::Error)]
pub enum OpenStackError {
    /// The cache can't be used.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// The directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A child process can't be started.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// No port is free.
    #[error("picking a port: {0}")]
    Ports(#[source] std::io::Error),
    /// The name is not that of a [`Release`].
    #[error("there is no release {name:?}: there are current and debian")]
    UnknownRelease {
        /// The name.
        name: String,
    },
    /// No usable Python is on `PATH`.
    #[error("OpenStack needs Python 3.11 or newer with venv: install python3 and python3-venv")]
    NoPython,
    /// A Debian package is missing.
    #[error("install the Debian packages python3-neutron, python3-keystone and python3-waitress")]
    NoDebianPackages,
    /// A program for the packages or databases failed, mostly for lack of network. A retry starts anew.
    #[error("{operation} failed ({status}):\n{output}")]
    Program {
        /// The failed operation.
        operation: &'static str,
        /// The exit status.
        status: String,
        /// The last lines of its output.
        output: String,
    },
    /// A server exited.
    #[error("{0}")]
    Exited(Exited),
    /// A start took too long; a retry can help on a machine that is less busy.
    #[error("OpenStack does not answer after {} s; see the logs in {}", START_TIMEOUT.as_secs(), logs.display())]
    NotReady {
        /// Directory of the logs.
        logs: PathBuf,
    },
    /// A request got no answer.
    #[error("{request}: {source}")]
    Request {
        /// Method and URL.
        request: String,
        /// The cause.
        source: reqwest::Error,
    },
    /// A request was answered with an error.
    #[error("{request}: {status}: {body}")]
    Refused {
        /// Method and URL.
        request: String,
        /// The status.
        status: StatusCode,
        /// The body, which is JSON in most cases.
        body: String,
    },
    /// An answer lacks a field or header.
    #[error("{request}: the answer has no {missing}")]
    Unexpected {
        /// Method and path.
        request: String,
        /// What is missing.
        missing: &'static str,
    },
}

/// Options of an instance.
#[derive(Debug, Clone)]
pub struct OpenStackOptions {
    /// Directory with all state; created if absent. A start with an existing directory resumes the same instance.
    pub dir: PathBuf,
    /// Has the cache of the packages.
    pub parts: Parts,
    /// The release that runs.
    pub release: Release,
    /// Maximum objects in one answer to a list; `None`, the default of Neutron, for no limit.
    pub page_limit: Option<u32>,
    /// Whether Neutron accepts tags in requests that create ports (`tag-ports-during-bulk-creation`). Without, which
    /// is its default, it ignores them.
    pub port_tags_at_creation: bool,
}

impl OpenStackOptions {
    /// Creates options with the defaults of Neutron and the current release.
    pub fn new(dir: impl Into<PathBuf>, parts: Parts) -> Self {
        Self {
            dir: dir.into(),
            parts,
            release: Release::default(),
            page_limit: None,
            port_tags_at_creation: false,
        }
    }
}

/// A user and its project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name of the user.
    pub user: String,
    /// ID of the user.
    pub user_id: String,
    /// Password of the user.
    pub password: String,
    /// Name of the user's domain.
    pub user_domain: String,
    /// Name of the project.
    pub project: String,
    /// ID of the project.
    pub project_id: String,
    /// Name of the project's domain.
    pub project_domain: String,
}

/// A credential that logs a program in as a user in a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationCredential {
    /// The ID.
    pub id: String,
    /// The secret.
    pub secret: String,
}

/// Running Keystone and Neutron. [`OpenStack::stop`] stops them in order; dropping this kills them.
#[derive(Debug)]
pub struct OpenStack {
    /// The child processes. Dropped before the directory, so that they end before its lock is released.
    supervisor: Supervisor,
    keystone: String,
    auth_url: String,
    neutron: String,
    admin: Account,
    client: OpenStackClient,
    /// The locked directory with all state.
    directory: Directory,
}

/// The last ports.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Ports {
    keystone: u16,
    neutron: u16,
}

impl OpenStack {
    /// Names of the child processes.
    pub const SERVERS: [&str; 2] = [KEYSTONE, NEUTRON];

    /// Obtains the packages and starts the servers. Returns when Neutron answers an authorised request, and the
    /// catalogue has the public and internal endpoints of both.
    pub async fn start(options: OpenStackOptions) -> Result<Self, OpenStackError> {
        let directory = Directory::open(&options.dir, Kind::OpenStack)?;
        let packages = Packages::get(&options.parts, options.release).await?;
        packages.copy_databases(&directory.join(configuration::DATA))?;
        write_private(&directory.join("serve.py"), SERVE)?;
        let supervisor = Supervisor::new(directory.join("logs"))?;
        let mut last = directory.read_json(PORTS_FILE);
        let mut attempt = 1;
        let (keystone, neutron) = loop {
            let started = start_servers(&options, &packages, &directory, &supervisor, last).await;
            match started {
                Ok(urls) => break urls,
                Err(OpenStackError::Exited(exited))
                    if port_was_taken(&exited) && attempt < MAX_START_ATTEMPTS =>
                {
                    tracing::warn!(child = exited.name, "its port was taken; trying others");
                    supervisor.stop().await;
                    last = None;
                    attempt += 1;
                }
                Err(error) => {
                    supervisor.stop().await;
                    return Err(error);
                }
            }
        };
        let admin = admin();
        let client = OpenStackClient::new(&keystone, &neutron, &admin)?;
        let auth_url = auth_url(&keystone);
        let mut openstack = Self { supervisor, keystone, auth_url, neutron, admin, client, directory };
        if let Err(error) = openstack.finish_start().await {
            openstack.supervisor.stop().await;
            return Err(error);
        }
        Ok(openstack)
    }

    /// Absolute path of the directory.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// URL of Keystone's API: `http://127.0.0.1:PORT/v3`.
    pub fn auth_url(&self) -> &str {
        &self.auth_url
    }

    /// URL of Neutron in the catalogue: `http://127.0.0.1:PORT`.
    pub fn network_url(&self) -> &str {
        &self.neutron
    }

    /// The administrator.
    pub fn admin(&self) -> &Account {
        &self.admin
    }

    /// A client with the administrator's rights.
    pub fn client(&self) -> &OpenStackClient {
        &self.client
    }

    /// Creates a client with the rights of an account.
    pub fn client_for(&self, account: &Account) -> Result<OpenStackClient, OpenStackError> {
        OpenStackClient::new(&self.keystone, &self.neutron, account)
    }

    /// Creates a project, and a user of the same name that has the role `member` in it. Uses those that exist.
    pub async fn create_project(&self, name: &str) -> Result<Account, OpenStackError> {
        let project_id = self.find_or_create("project", name, json!({})).await?;
        let password = format!("{name}-password");
        let user_id = self.find_or_create("user", name, json!({ "password": password })).await?;
        let account = Account {
            user: name.to_owned(),
            user_id,
            password,
            project: name.to_owned(),
            project_id,
            ..admin()
        };
        self.grant_role(&account, "member").await?;
        Ok(account)
    }

    /// Gives an account's user a role in its project, such as `admin`, which may set provider attributes.
    pub async fn grant_role(&self, account: &Account, role: &str) -> Result<(), OpenStackError> {
        let roles = self.client.get(&format!("/v3/roles?name={role}")).await?;
        let role = text(&roles, "/roles/0/id")?;
        let (project, user) = (&account.project_id, &account.user_id);
        self.client
            .put(&format!("/v3/projects/{project}/users/{user}/roles/{role}"), json!({}))
            .await
            .map(drop)
    }

    /// The id of a project or a user of the default domain, which is created if absent.
    async fn find_or_create(
        &self,
        kind: &'static str,
        name: &str,
        more: Value,
    ) -> Result<String, OpenStackError> {
        let found = self.client.get(&format!("/v3/{kind}s?domain_id=default&name={name}")).await?;
        if let Some(id) = found.pointer(&format!("/{kind}s/0/id")).and_then(Value::as_str) {
            return Ok(id.to_owned());
        }
        let mut attributes = json!({ "name": name, "domain_id": "default" });
        if let (Some(attributes), Some(more)) = (attributes.as_object_mut(), more.as_object()) {
            attributes.extend(more.clone());
        }
        let created = self.client.post(&format!("/v3/{kind}s"), json!({ kind: attributes })).await?;
        text(&created[kind], "/id")
    }

    /// Creates an application credential of an account with all its roles. Names are unique per user.
    pub async fn create_application_credential(
        &self,
        account: &Account,
        name: &str,
    ) -> Result<ApplicationCredential, OpenStackError> {
        let path = format!("/v3/users/{}/application_credentials", account.user_id);
        let body = json!({ "application_credential": { "name": name } });
        // Only the user itself may create it.
        let created = self.client_for(account)?.post(&path, body).await?;
        Ok(ApplicationCredential {
            id: text(&created, "/application_credential/id")?,
            secret: text(&created, "/application_credential/secret")?,
        })
    }

    /// Sets limits of a project by the names of resources, such as `network`, `port` and `trunk`. -1 is no limit.
    /// Other limits remain.
    pub async fn set_quota(&self, project_id: &str, limits: &[(&str, i64)]) -> Result<(), OpenStackError> {
        let limits: Value =
            limits.iter().map(|(resource, limit)| ((*resource).to_owned(), json!(limit))).collect();
        let body = json!({ "quota": limits });
        self.client.put(&format!("/v2.0/quotas/{project_id}"), body).await.map(drop)
    }

    /// The supervisor of the child processes `keystone` and `neutron`. After [`Supervisor::respawn`], see
    /// [`Self::until_ready`].
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Waits until both servers answer.
    pub async fn until_ready(&self) -> Result<(), OpenStackError> {
        wait_for(&self.supervisor, &self.directory, until_ready(&self.keystone, &self.neutron)).await?
    }

    /// Waits for the next child process that exits unexpectedly.
    pub async fn exited(&self) -> Exited {
        self.supervisor.exited().await
    }

    /// Stops the child processes in reverse order of their start. The directory remains.
    pub async fn stop(self) {
        self.supervisor.stop().await;
    }

    /// Writes the catalogue and reads the administrator's IDs.
    async fn finish_start(&mut self) -> Result<(), OpenStackError> {
        let client = &self.client;
        let old = client.get("/v3/services").await?;
        for service in old["services"].as_array().into_iter().flatten() {
            client.delete(&format!("/v3/services/{}", text(service, "/id")?)).await?;
        }
        for (kind, name, url) in [("identity", KEYSTONE, &self.auth_url), ("network", NEUTRON, &self.neutron)]
        {
            let service = json!({ "service": { "type": kind, "name": name } });
            let service = client.post("/v3/services", service).await?;
            let service = text(&service, "/service/id")?;
            for interface in ["public", "internal"] {
                let endpoint = json!({ "endpoint": {
                    "service_id": service, "interface": interface, "url": url, "region_id": REGION,
                } });
                client.post("/v3/endpoints", endpoint).await?;
            }
        }
        let user = client.get("/v3/users?name=admin").await?;
        let project = client.get("/v3/projects?name=admin").await?;
        self.admin.user_id = text(&user, "/users/0/id")?;
        self.admin.project_id = text(&project, "/projects/0/id")?;
        // Proves that Neutron can verify tokens, which needs the catalogue.
        client.get("/v2.0/networks?limit=1").await?;
        Ok(())
    }
}

/// Starts both servers, preferably on the last ports, and returns their URLs when they answer.
async fn start_servers(
    options: &OpenStackOptions,
    packages: &Packages,
    directory: &Directory,
    supervisor: &Supervisor,
    last: Option<Ports>,
) -> Result<(String, String), OpenStackError> {
    let last = last.unwrap_or(Ports { keystone: 0, neutron: 0 });
    let wanted = [last.keystone, last.neutron].map(|port| (Ipv4Addr::LOCALHOST, port));
    let ports = pick_ports(wanted).map_err(OpenStackError::Ports)?;
    let [keystone, neutron] = ports.map(|port| format!("http://{}:{port}", Ipv4Addr::LOCALHOST));
    directory.write_json(PORTS_FILE, &Ports { keystone: ports[0], neutron: ports[1] })?;
    let settings = configuration::Settings {
        auth_url: &auth_url(&keystone),
        page_limit: options.page_limit,
        port_tags_at_creation: options.port_tags_at_creation,
    };
    configuration::write(directory.path(), settings)?;
    for (name, port) in [KEYSTONE, NEUTRON].into_iter().zip(ports) {
        supervisor.spawn(name, serve(packages, directory, name, port)).await?;
    }
    wait_for(supervisor, directory, until_ready(&keystone, &neutron)).await??;
    Ok((keystone, neutron))
}

/// The command of a server.
fn serve(packages: &Packages, directory: &Directory, name: &str, port: u16) -> Command {
    let mut command = Command::new(packages.python());
    // `-I` ignores the user's Python settings.
    command.arg("-I").arg(directory.join("serve.py")).arg(name).arg(directory.path()).arg(port.to_string());
    // Neutron asks Keystone directly.
    command.env("no_proxy", Ipv4Addr::LOCALHOST.to_string());
    for variable in ["OS_KEYSTONE_CONFIG_FILES", "OS_KEYSTONE_CONFIG_DIR"] {
        command.env_remove(variable);
    }
    command
}

/// Waits until both servers answer. Fails only if no client can be created.
async fn until_ready(keystone: &str, neutron: &str) -> Result<(), OpenStackError> {
    let client = OpenStackClient::new(keystone, neutron, &admin())?;
    for url in [auth_url(keystone), format!("{neutron}/")] {
        while !client.answers(&url).await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Waits for a condition. Fails if a child process exits or after [`START_TIMEOUT`].
async fn wait_for<T>(
    supervisor: &Supervisor,
    directory: &Directory,
    condition: impl Future<Output = T>,
) -> Result<T, OpenStackError> {
    tokio::select! {
        biased;
        exited = supervisor.exited() => Err(OpenStackError::Exited(exited)),
        value = condition => Ok(value),
        () = tokio::time::sleep(START_TIMEOUT) => Err(OpenStackError::NotReady { logs: directory.join("logs") }),
    }
}

/// The administrator, without IDs.
fn admin() -> Account {
    Account {
        user: "admin".to_owned(),
        user_id: String::new(),
        password: ADMIN_PASSWORD.to_owned(),
        user_domain: DOMAIN.to_owned(),
        project: "admin".to_owned(),
        project_id: String::new(),
        project_domain: DOMAIN.to_owned(),
    }
}

fn auth_url(keystone: &str) -> String {
    format!("{keystone}/v3")
}

fn port_was_taken(exited: &Exited) -> bool {
    exited.log_tail.contains("Address already in use")
}

/// The text at a JSON pointer in an answer.
fn text(answer: &Value, pointer: &'static str) -> Result<String, OpenStackError> {
    let found = answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| OpenStackError::Unexpected { request: answer.to_string(), missing: pointer })
}
