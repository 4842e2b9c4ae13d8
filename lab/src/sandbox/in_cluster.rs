//! What a cluster needs so that the operator runs as pods, as on any cluster: images, a name service and volumes.

use std::path::Path;
use std::process::Stdio;

use eno_control_plane::SERVICE_NETWORK;
use eno_control_plane::node::{CLUSTER_DOMAIN, CNI_BIN, DNS_ADDRESS, NodeImage, POD_NETWORK, ProgramsImage};
use eno_control_plane::parts::{Part, Parts};
use kube::api::DynamicObject;
use nix::unistd::{Gid, Uid, chown};
use serde_json::{Value, json};
use tokio::fs;

use super::{InCluster, MANAGER, OperatorImages, Sandbox, SandboxError, TEST_IMAGE};
use eno::apply::apply_all;
use eno::install::context::{ClusterContext, ContextStore};
use eno::install::{Values, cluster, install, plan};
use eno::programs;

/// The image names of `deploy/`.
const ENO: &str = "eno:dev";
const NATS: &str = "eno-nats:dev";
/// The images of an earlier version. Its nats-server is the same program under another name.
const EARLIER_ENO: &str = "eno-earlier:dev";
const EARLIER_NATS: &str = "eno-nats-earlier:dev";
/// The CNI plugin.
const PLUGIN: &str = "eno-ipam";
/// The image of the name service.
const DNS: &str = "eno.k8s.io/coredns:latest";
/// The port of the name service in its pod, which needs no privileges.
const DNS_PORT: u16 = 5353;
/// The user of the pods that write to volumes.
const USER: u32 = 65532;
/// Number of volumes. A claim that is deleted leaves its volume unusable.
const VOLUMES: usize = 8;

/// The images of the operator and of the name service.
pub(super) async fn images(options: &InCluster, parts: &Parts) -> Result<Vec<NodeImage>, SandboxError> {
    let of_program =
        |name: &str, programs| NodeImage::Programs(ProgramsImage { name: name.to_owned(), programs });
    let dns = of_program(DNS, vec![parts.get(Part::Coredns).await?]);
    let (eno, nats) = match &options.images {
        OperatorImages::Programs => {
            let programs = eno_parts::programs().map(|program| programs::find_program(program.binary));
            let programs = programs.collect::<Result<_, _>>()?;
            (of_program(ENO, programs), of_program(NATS, vec![parts.get(Part::NatsServer).await?]))
        }
        OperatorImages::Layouts(directory) => {
            let layout = |name: &str, folder| NodeImage::Layout {
                name: name.to_owned(),
                directory: directory.join(folder),
            };
            (layout(ENO, "eno"), layout(NATS, "eno-nats"))
        }
    };
    let mut images = vec![dns, eno];
    if let Some(directory) = &options.earlier {
        // That version may lack programs which this one has.
        let programs = eno_parts::programs().map(|program| directory.join(program.binary));
        let programs = programs.filter(|program| program.is_file()).collect();
        images.extend([of_program(EARLIER_ENO, programs), nats.named(EARLIER_NATS)]);
    }
    images.push(nats);
    Ok(images)
}

/// Applies the name service, a default StorageClass and its volumes.
pub(super) async fn prepare(sandbox: &Sandbox) -> Result<(), SandboxError> {
    let mut objects = name_service();
    objects.push(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "shared",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
    }));
    for number in 0..VOLUMES {
        let path = sandbox.dir().join("volumes").join(number.to_string());
        fs::create_dir_all(&path).await.map_err(SandboxError::file("making the directory", &path))?;
        chown(&path, Some(Uid::from_raw(USER)), Some(Gid::from_raw(USER)))
            .map_err(|errno| SandboxError::file("changing the owner of", &path)(errno.into()))?;
        objects.push(volume(number, &path));
    }
    let objects = objects.into_iter().map(object).collect::<Result<Vec<_>, _>>()?;
    apply_all(&sandbox.client, MANAGER, &objects).await?;
    Ok(())
}

/// The directory of the admin's contexts, in place of `~/.eno`.
pub(super) const CONTEXTS: &str = "eno";

/// The admin's context of this cluster.
pub(super) async fn context(sandbox: &Sandbox) -> Result<ClusterContext, SandboxError> {
    let uid = cluster::uid(&sandbox.client).await.map_err(eno::install::InstallError::from)?;
    Ok(ContextStore::at(sandbox.dir().join(CONTEXTS)).cluster(&uid))
}

/// Installs the operator as `eno install` does, and waits until it is ready.
pub(super) async fn install_operator(sandbox: &Sandbox) -> Result<(), SandboxError> {
    let Some(earlier) = sandbox.options.in_cluster.as_ref().and_then(|options| options.earlier.as_ref())
    else {
        return install_values(sandbox, values(sandbox)).await;
    };
    let mut values = values(sandbox);
    values["image"] = json!(EARLIER_ENO);
    values["natsImage"] = json!(EARLIER_NATS);
    if !earlier.join(PLUGIN).is_file() {
        // That version has no plugin, and no value for its directory.
        if let Some(values) = values.as_object_mut() {
            values.remove("cniDirectory");
        }
    }
    let eno = earlier.join("eno");
    if run(sandbox, &eno, &["install", "--help"]).await.is_err() {
        // That version has manifests only. They differ little from this one's.
        return install_values(sandbox, values).await;
    }
    let file = sandbox.dir().join("earlier.yaml");
    fs::write(&file, values.to_string()).await.map_err(SandboxError::file("writing", &file))?;
    run(sandbox, &eno, &["install", "--values", &file.to_string_lossy()]).await
}

async fn install_values(sandbox: &Sandbox, values: Value) -> Result<(), SandboxError> {
    // JSON is YAML.
    let values = Values::parse(&values.to_string()).map_err(SandboxError::Values)?;
    let plan = plan(&sandbox.client, &values).await?;
    let context = context(sandbox).await?;
    let report = |line: &str| (sandbox.options.report)(line);
    let timeout = sandbox.options.ready_timeout;
    install(&sandbox.client, &values, plan, Some(&context), timeout, &report).await?;
    Ok(())
}

/// Runs an `eno` program against the sandbox's cluster.
async fn run(sandbox: &Sandbox, program: &Path, arguments: &[&str]) -> Result<(), SandboxError> {
    let what = || format!("running {} {}", program.display(), arguments.join(" "));
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", sandbox.control_plane.kubeconfig())
        .env("ENO_HOME", sandbox.dir().join(CONTEXTS))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| SandboxError::Exec { what: what(), why: error.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(SandboxError::Exec { what: what(), why })
}

/// The values of the installation, by their names in a values file.
pub(super) fn values(sandbox: &Sandbox) -> Value {
    let host = sandbox.control_plane.address();
    let [a, b, c, _] = host.octets();
    let mut values = json!({
        "clusterID": sandbox.options.cluster_id,
        // Receivers of callbacks run on the host.
        "callbackAllow": [format!("{host}/32")],
        "callbackDeny": [POD_NETWORK, SERVICE_NETWORK],
        "nodeCIDRs": [format!("{a}.{b}.{c}.0/24")],
        "sampleImage": TEST_IMAGE,
        "cniDirectory": CNI_BIN,
        // The user space datapath needs no kernel module and works on every machine.
        "agent": {"ovsDatapath": "netdev", "allowInterfaces": sandbox.options.agent_interfaces},
    });
    if let Some(log) = &sandbox.options.log {
        values["log"] = json!(log);
    }
    let changes =
        sandbox.options.in_cluster.as_ref().map(|options| options.values.clone()).unwrap_or_default();
    for (name, value) in changes {
        values[name] = value;
    }
    values
}

fn object(value: Value) -> Result<DynamicObject, SandboxError> {
    serde_json::from_value(value).map_err(|_| eno::apply::ApplyError::Unnamed.into())
}

/// A volume that every node reaches, as one on a network: the nodes share the host's file system.
fn volume(number: usize, path: &Path) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("shared-{number}")},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "hostPath": {"path": path},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "shared",
        },
    })
}

/// CoreDNS, with the names of Services and pods.
fn name_service() -> Vec<Value> {
    let metadata = json!({"name": "coredns", "namespace": "kube-system"});
    let labels = json!({"k8s-app": "kube-dns"});
    let configuration = format!(
        ".:{DNS_PORT} {{\n  errors\n  health :8080\n  ready :8181\n  kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{\n    \
         pods insecure\n    fallthrough in-addr.arpa\n  }}\n  forward . /etc/resolv.conf\n  cache 5\n}}\n"
    );
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "coredns"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coredns"},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"Corefile": configuration},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
            "spec": {
                "clusterIP": DNS_ADDRESS,
                "selector": labels,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": DNS_PORT},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": DNS_PORT},
                ],
            },
        }),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": "coredns",
                        "dnsPolicy": "Default",
                        "priorityClassName": "system-cluster-critical",
                        "containers": [{
                            "name": "coredns",
                            "image": DNS,
                            "args": ["-conf", "/etc/coredns/Corefile"],
                            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
                            "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns"}],
                        }],
                        "volumes": [{"name": "configuration", "configMap": {"name": "coredns"}}],
                    },
                },
            },
        }),
    ]
}
