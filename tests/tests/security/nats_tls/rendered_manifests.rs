//! Rendered manifests of a folder, and nats-server and ENO's programs with their configuration. Only hosts, ports and
//! folders differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::{NatsUser, nats_keys, pick_port};
use eno_tests::poll;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::security::pod_security::rendered;

const NATS: &str = "eno-nats";
/// The mount path of the Secret `eno-nats-tls` in the servers.
const TLS: &str = "/etc/nats-tls";

/// The rendered objects of a folder.
pub struct RenderedManifests(Vec<DynamicObject>);

impl RenderedManifests {
    /// Renders a folder of this project.
    pub async fn of(folder: &str) -> Self {
        Self(rendered(folder).await)
    }

    fn is_a(object: &DynamicObject, kind: &str) -> bool {
        object.types.as_ref().is_some_and(|types| types.kind == kind)
    }

    /// The pod spec of a workload.
    fn pod(&self, workload: &str) -> &Value {
        let object = self.0.iter().find(|object| {
            object.name_any() == workload && object.data.pointer("/spec/template/spec").is_some()
        });
        &object.unwrap_or_else(|| panic!("no workload {workload}")).data["spec"]["template"]["spec"]
    }

    /// The data of a ConfigMap; a generated name ends with a hash.
    fn map(&self, name: &str) -> BTreeMap<String, String> {
        let maps = self.0.iter().filter(|object| Self::is_a(object, "ConfigMap"));
        let mut found = maps.filter(|map| map.name_any() == name);
        let map = found.next().unwrap_or_else(|| panic!("no ConfigMap {name}"));
        serde_json::from_value(map.data["data"].clone()).expect("texts")
    }

    /// The workloads that connect to NATS.
    pub fn clients(&self) -> BTreeSet<&str> {
        let kinds = ["Deployment", "DaemonSet"];
        let clients = self.0.iter().filter(|object| kinds.iter().any(|kind| Self::is_a(object, kind)));
        clients.filter_map(|object| object.metadata.name.as_deref()).collect()
    }

    /// The environment of the first container, without variables that only a cluster can resolve.
    pub fn environment(&self, workload: &str) -> BTreeMap<String, String> {
        let container = &self.pod(workload)["containers"][0];
        let all = |key: &str| container[key].as_array().cloned().unwrap_or_default();
        let maps = all("envFrom").into_iter();
        let maps =
            maps.flat_map(|from| self.map(from["configMapRef"]["name"].as_str().expect("a ConfigMap")));
        let own = all("env").into_iter().filter_map(|variable| {
            let text = |key: &str| variable[key].as_str().map(str::to_owned);
            Some((text("name")?, text("value")?))
        });
        maps.chain(own).collect()
    }

    /// The Secret and key that are mounted at a path in the first container.
    pub fn secret_at(&self, workload: &str, path: &str) -> (String, String) {
        let pod = self.pod(workload);
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts").iter();
        let mut found = mounts.filter_map(|mount| {
            let file = path.strip_prefix(mount["mountPath"].as_str()?)?.strip_prefix('/')?;
            let volumes = pod["volumes"].as_array()?;
            let secret = &volumes.iter().find(|volume| volume["name"] == mount["name"])?["secret"];
            let name = secret["secretName"].as_str()?.to_owned();
            match secret["items"].as_array() {
                None => Some((name, file.to_owned())),
                Some(items) => {
                    let item = items.iter().find(|item| item["path"] == file)?;
                    Some((name, item["key"].as_str()?.to_owned()))
                }
            }
        });
        found.next_back().unwrap_or_else(|| panic!("{workload}: nothing at {path}"))
    }

    /// The token of the service account that is mounted at a path in the first container.
    pub fn token_at(&self, workload: &str, path: &str) -> Value {
        let pod = self.pod(workload);
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts").iter();
        let mut found = mounts.filter_map(|mount| {
            let file = path.strip_prefix(mount["mountPath"].as_str()?)?.strip_prefix('/')?;
            let volume = pod["volumes"].as_array()?.iter().find(|volume| volume["name"] == mount["name"])?;
            let tokens = volume["projected"]["sources"].as_array()?.iter();
            tokens.map(|source| &source["serviceAccountToken"]).find(|token| token["path"] == file).cloned()
        });
        found.next().unwrap_or_else(|| panic!("{workload}: no token at {path}"))
    }

    /// The keys of a Secret that are mounted into a workload's pods.
    pub fn keys_of(&self, workload: &str, secret: &str) -> Vec<String> {
        let volumes = self.pod(workload)["volumes"].as_array().expect("volumes").iter();
        let of = volumes.filter(|volume| volume["secret"]["secretName"] == secret);
        let items = of.flat_map(|volume| volume["secret"]["items"].as_array().expect("the keys are named"));
        items.map(|item| item["key"].as_str().expect("a key").to_owned()).collect()
    }

    /// The configuration files of nats-server, by name.
    fn configuration(&self) -> BTreeMap<String, String> {
        let volumes = self.pod(NATS)["volumes"].as_array().expect("volumes").iter();
        let mut maps = volumes.filter_map(|volume| volume["configMap"]["name"].as_str());
        self.map(maps.next().expect("a configuration"))
    }
}

/// The files that `certificates.sh` creates.
pub struct Certificates(TempDir);

impl Certificates {
    /// Creates a CA and certificates signed by it.
    pub fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/nats-tls/certificates.sh").canonicalize();
        let output =
            std::process::Command::new("sh").arg(script.expect("it is there")).current_dir(&dir).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(dir)
    }

    /// One of `ca.crt`, `tls.crt` and `tls.key`.
    pub fn file(&self, key: &str) -> PathBuf {
        self.0.path().join(key)
    }

    /// The CA certificate of the servers.
    pub fn authority(&self) -> PathBuf {
        self.file("ca.crt")
    }
}

struct Server {
    client: u16,
    route: u16,
    _child: Child,
}

/// Running nats-servers, killed when dropped.
pub struct NatsServers {
    all: Vec<Server>,
    dir: TempDir,
    /// The servers' certificates.
    pub certificates: Certificates,
}

impl NatsServers {
    /// Starts as many servers as the StatefulSet has replicas, and waits until they listen.
    pub async fn start(manifests: &RenderedManifests, count: usize) -> Self {
        let program = Parts::from_env().expect("a cache").get(Part::NatsServer).await.expect("a nats-server");
        let dir = TempDir::new().expect("a directory");
        let certificates = Certificates::new();
        let keys = nats_keys(dir.path()).expect("keys");
        let ports: Vec<[u16; 3]> =
            (0..count).map(|_| [(); 3].map(|()| pick_port().expect("a free port"))).collect();
        // The variables of the routes, as in `servers.yaml`.
        let routes: Vec<_> = (0..count)
            .map(|n| {
                let name = format!("ROUTE_{n}");
                let route = format!("\"nats-route://eno:{ROUTE_PASSWORD}@localhost:{}\"", ports[n][1]);
                (name, route)
            })
            .collect();
        let mut all = Vec::new();
        for (n, [client, route, monitor]) in ports.iter().copied().enumerate() {
            let server_dir = dir.path().join(format!("eno-nats-{n}"));
            fs::create_dir(&server_dir).expect("a directory");
            for (file, text) in manifests.configuration() {
                let text = ["tls.crt", "tls.key", "ca.crt"].iter().fold(text, |text, key| {
                    let mounted = format!("{TLS}/{key}");
                    assert_eq!(
                        manifests.secret_at(NATS, &mounted),
                        ("eno-nats-tls".to_owned(), (*key).to_owned())
                    );
                    text.replace(&mounted, &certificates.file(key).display().to_string())
                });
                let text =
                    [(4222, client), (6222, route), (8222, monitor)].iter().fold(text, |text, (from, to)| {
                        text.replace(&format!("0.0.0.0:{from}"), &format!("127.0.0.1:{to}"))
                    });
                assert!(!text.contains("0.0.0.0") && !text.contains(TLS), "{file}: {text}");
                fs::write(server_dir.join(file), text).expect("a file");
            }
            let child = Command::new(&program)
                .arg("--config")
                .arg(server_dir.join("nats.conf"))
                .env("POD_NAME", format!("eno-nats-{n}"))
                .env("STORE_DIR", server_dir.join("jetstream"))
                .env("ROUTE_PASSWORD", format!("\"{ROUTE_PASSWORD}\""))
                .envs(routes.iter().cloned())
                .envs(keys.iter().map(|(user, key)| (user.variable(), key)))
                .stdout(Stdio::null())
                .stderr(fs::File::create(server_dir.join("log")).expect("a log"))
                .kill_on_drop(true)
                .spawn()
                .expect("nats-server starts");
            all.push(Server { client, route, _child: child });
        }
        let servers = Self { all, dir, certificates };
        for n in 0..count {
            let listens = poll(async || TcpStream::connect(servers.client_address(n)).await.ok()).await;
            assert!(listens.is_some(), "it does not listen: {}", servers.log(n));
        }
        servers
    }

    /// The log of a server.
    pub fn log(&self, n: usize) -> String {
        fs::read_to_string(self.dir.path().join(format!("eno-nats-{n}/log"))).unwrap_or_default()
    }

    /// The address for clients.
    pub fn client_address(&self, n: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.all[n].client).into()
    }

    /// The address for routes.
    pub fn route_address(&self, n: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.all[n].route).into()
    }

    /// The URL for clients, with a host name of the certificate.
    pub fn url(&self, n: usize) -> String {
        format!("tls://localhost:{}", self.all[n].client)
    }

    fn seed_file(&self, key: &str) -> PathBuf {
        self.dir.path().join(key)
    }

    /// The seed of a user's nkey.
    pub fn seed(&self, user: NatsUser) -> String {
        let seed = fs::read_to_string(self.seed_file(&format!("{}.seed", user.name())));
        seed.expect("a seed").trim().to_owned()
    }

    /// A user's CONNECT message in the NATS protocol.
    pub fn connect_message(&self, user: NatsUser, nonce: &str) -> String {
        let key = nkeys::KeyPair::from_seed(&self.seed(user)).expect("a seed");
        let signature = URL_SAFE_NO_PAD.encode(key.sign(nonce.as_bytes()).expect("a signature"));
        let connect_message =
            json!({ "verbose": true, "pedantic": false, "nkey": key.public_key(), "sig": signature });
        format!("CONNECT {connect_message}\r\nPING\r\n")
    }

    /// Starts a program with a workload's arguments and environment; killed when dropped.
    pub fn program(&self, manifests: &RenderedManifests, workload: &str, kubeconfig: &Path) -> Child {
        let mut environment = manifests.environment(workload);
        for variable in ["ENO_NATS_CREDENTIALS", "ENO_NATS_CA"] {
            let (secret, key) = manifests.secret_at(workload, &environment[variable]);
            let file = if secret == NATS { self.seed_file(&key) } else { self.certificates.file(&key) };
            environment.insert(variable.to_owned(), file.display().to_string());
        }
        let url = environment["ENO_NATS_URL"].replace("eno-nats:4222", &self.url(0)["tls://".len()..]);
        environment.insert("ENO_NATS_URL".to_owned(), url);
        environment.insert("ENO_LISTEN".to_owned(), "127.0.0.1:0".to_owned());
        let arguments =
            manifests.pod(workload)["containers"][0]["args"].as_array().expect("arguments").iter();
        let log = fs::File::create(self.dir.path().join(workload)).expect("a log");
        let program = eno::programs::eno().expect("the program: cargo build --workspace --bins");
        let child = Command::new(program)
            .args(arguments.map(|argument| argument.as_str().expect("a text")))
            .envs(environment)
            .env("ENO_NAMESPACE", "eno-system")
            // The sandbox's nodes have no agents.
            .env("ENO_NODES", "false")
            .env("KUBECONFIG", kubeconfig)
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        child.expect("the program starts")
    }
}

/// The password of routes; letters need no quoting in a URL.
pub const ROUTE_PASSWORD: &str = "secret";
