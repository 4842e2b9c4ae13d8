//! The command lines of the control plane's programs.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::nats::NatsKey;
use crate::pki::CertificateFiles;
use crate::ports::Ports;

/// The addresses of Services.
pub const SERVICE_NETWORK: &str = "10.0.0.0/24";

/// Paths of the audit policy and the audit log.
pub(crate) struct AuditFiles {
    pub(crate) policy: PathBuf,
    pub(crate) log: PathBuf,
}

/// Paths and addresses in the command lines.
pub(crate) struct Files {
    /// Listen address of the API server and NATS.
    pub(crate) address: Ipv4Addr,
    /// The API server's audit, if enabled.
    pub(crate) audit: Option<AuditFiles>,
    /// The API server's client certificate for kubelets, if there are nodes.
    pub(crate) kubelet_client: Option<CertificateFiles>,
    /// Whether Services work, also that of the API server.
    pub(crate) services: bool,
    /// Kubeconfig of kube-scheduler.
    pub(crate) scheduler_kubeconfig: PathBuf,
    /// Data directory of etcd.
    pub(crate) etcd: PathBuf,
    /// Certificate of etcd's authority.
    pub(crate) etcd_authority: PathBuf,
    /// Certificate of etcd.
    pub(crate) etcd_server: CertificateFiles,
    /// The API server's client certificate for etcd.
    pub(crate) etcd_client: CertificateFiles,
    /// Certificate of the cluster's authority.
    pub(crate) authority: PathBuf,
    /// Certificate of the API server.
    pub(crate) api_server: CertificateFiles,
    /// Key pair of the service account tokens.
    pub(crate) service_accounts: CertificateFiles,
    /// Kubeconfig of kube-controller-manager.
    pub(crate) controller_manager_kubeconfig: PathBuf,
    /// Directory of flex volume plugins.
    pub(crate) flex_volume_plugins: PathBuf,
    /// JetStream directory of nats-server.
    pub(crate) nats: PathBuf,
}

/// Creates a command without the environment variables of a prefix, which would configure the program.
pub(crate) fn command(program: &Path, foreign_prefix: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(foreign_prefix) {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) fn flag(name: &str, value: impl AsRef<Path>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.as_ref());
    flag
}

pub(crate) fn etcd(program: &Path, files: &Files, ports: Ports) -> Command {
    let client = format!("https://127.0.0.1:{}", ports.etcd);
    let peer = format!("https://127.0.0.1:{}", ports.etcd_peer);
    let mut etcd = command(program, "ETCD_");
    etcd.args([
        flag("data-dir", &files.etcd),
        flag("listen-client-urls", &client),
        flag("advertise-client-urls", &client),
        flag("listen-peer-urls", &peer),
        flag("initial-advertise-peer-urls", &peer),
        flag("initial-cluster", format!("default={peer}")),
        flag("trusted-ca-file", &files.etcd_authority),
        flag("cert-file", &files.etcd_server.certificate),
        flag("key-file", &files.etcd_server.key),
        flag("peer-trusted-ca-file", &files.etcd_authority),
        flag("peer-cert-file", &files.etcd_server.certificate),
        flag("peer-key-file", &files.etcd_server.key),
    ]);
    // Without fsync, a crash of etcd loses no data; a power failure can.
    etcd.args(["--client-cert-auth", "--peer-client-cert-auth", "--unsafe-no-fsync", "--log-level=warn"]);
    etcd
}

pub(crate) fn api_server(program: &Path, files: &Files, ports: Ports) -> Command {
    let mut server = command(program, "KUBE_");
    server.args([
        flag("etcd-servers", format!("https://127.0.0.1:{}", ports.etcd)),
        flag("etcd-cafile", &files.etcd_authority),
        flag("etcd-certfile", &files.etcd_client.certificate),
        flag("etcd-keyfile", &files.etcd_client.key),
        flag("secure-port", ports.api_server.to_string()),
        flag("tls-cert-file", &files.api_server.certificate),
        flag("tls-private-key-file", &files.api_server.key),
        flag("client-ca-file", &files.authority),
        flag("service-account-key-file", &files.service_accounts.certificate),
        flag("service-account-signing-key-file", &files.service_accounts.key),
    ]);
    if let Some(client) = &files.kubelet_client {
        server.args([
            flag("kubelet-client-certificate", &client.certificate),
            flag("kubelet-client-key", &client.key),
            flag("kubelet-certificate-authority", &files.authority),
            flag("kubelet-preferred-address-types", "InternalIP"),
        ]);
    }
    if let Some(audit) = &files.audit {
        server.args([flag("audit-policy-file", &audit.policy), flag("audit-log-path", &audit.log)]);
    }
    server.arg(flag("bind-address", files.address.to_string()));
    if !files.services {
        // The service `kubernetes` can't have a loopback address as its endpoint, so it has none.
        server.arg("--endpoint-reconciler-type=none");
    }
    server.arg(flag("service-cluster-ip-range", SERVICE_NETWORK));
    server.args([
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
    ]);
    server
}

pub(crate) fn controller_manager(program: &Path, files: &Files, disabled: &[String]) -> Command {
    let mut manager = command(program, "KUBE_");
    let controllers = disabled.iter().fold("*".to_owned(), |all, name| format!("{all},-{name}"));
    manager.args([
        flag("kubeconfig", &files.controller_manager_kubeconfig),
        flag("root-ca-file", &files.authority),
        flag("service-account-private-key-file", &files.service_accounts.key),
        flag("controllers", controllers),
        // It creates this directory, by default below /usr.
        flag("flex-volume-plugin-dir", &files.flex_volume_plugins),
    ]);
    manager.args([
        "--use-service-account-credentials=true",
        // A single instance that serves no port.
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
        // With the default of 20 requests per second, deleting a namespace of 1,000 objects takes minutes.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]);
    manager
}

pub(crate) fn scheduler(program: &Path, files: &Files) -> Command {
    let mut scheduler = command(program, "KUBE_");
    scheduler.arg(flag("kubeconfig", &files.scheduler_kubeconfig));
    // A single instance that serves no port.
    scheduler.args(["--leader-elect=false", "--secure-port=0", "--profiling=false"]);
    scheduler.args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    scheduler
}

/// The command of nats-server. `keys` are the public keys that the configuration refers to.
pub(crate) fn nats(
    program: &Path,
    files: &Files,
    configuration: &Path,
    ports: Ports,
    keys: &[(NatsKey, String)],
) -> Command {
    let mut nats = command(program, "NATS_");
    nats.args([
        flag("addr", files.address.to_string()),
        flag("port", ports.nats.to_string()),
        flag("store_dir", &files.nats),
        flag("config", configuration),
    ]);
    nats.envs(keys.iter().map(|(key, public)| (key.variable(), public)));
    nats.arg("--jetstream");
    nats
}
