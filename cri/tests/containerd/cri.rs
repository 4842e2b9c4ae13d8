//! kubelet's part: creates and removes pods through CRI.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use eno_control_plane::node::PAUSE_IMAGE;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodSandboxMetadata>,
    #[prost(map = "string, string", tag = "6")]
    labels: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(uint32, tag = "4")]
    attempt: u32,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    security_context: Option<LinuxSandboxSecurityContext>,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxSandboxSecurityContext {
    #[prost(message, optional, tag = "1")]
    namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, Message)]
struct NamespaceOption {
    #[prost(int32, tag = "1")]
    network: i32,
    #[prost(int32, tag = "2")]
    pid: i32,
}

/// A message with only an id.
#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<ImageSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerMetadata {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ImageSpec {
    #[prost(string, tag = "1")]
    image: String,
}

/// The network of a pod: `NamespaceMode`.
#[derive(Clone, Copy)]
pub enum Network {
    Pod = 0,
    Node = 2,
}

/// A running sandbox.
pub struct Sandbox {
    pub id: String,
    config: PodSandboxConfig,
}

/// A connection to a runtime.
pub struct Cri {
    channel: Channel,
    cgroup_parent: String,
}

impl Cri {
    pub fn new(socket: PathBuf, cgroup_parent: String) -> Self {
        let connector = tower::service_fn(move |_: http::Uri| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://cri").timeout(Duration::from_mins(1));
        Self { channel: endpoint.connect_with_connector_lazy(connector), cgroup_parent }
    }

    async fn call<Q, A>(&self, method: &str, request: Q) -> Result<A, tonic::Status>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.expect("a channel");
        let path = PathAndQuery::try_from(format!("/runtime.v1.RuntimeService/{method}")).expect("a path");
        let answer = grpc.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }

    /// True once the runtime answers.
    pub async fn is_ready(&self) -> bool {
        self.call::<_, Nothing>("Version", Nothing {}).await.is_ok()
            && self.call::<_, Nothing>("ListPodSandbox", Nothing {}).await.is_ok()
    }

    pub async fn run(&self, uid: &str, network: Network, attempt: u32) -> Sandbox {
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: format!("pod-{uid}"),
                uid: uid.into(),
                namespace: "default".into(),
                attempt,
            }),
            labels: [("io.kubernetes.pod.uid".to_owned(), uid.to_owned())].into(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup_parent.clone(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(NamespaceOption { network: network as i32, pid: 1 }),
                }),
            }),
        };
        let request = RunPodSandboxRequest { config: Some(config.clone()) };
        let Id { id } = self.call("RunPodSandbox", request).await.expect("a sandbox");
        Sandbox { id, config }
    }

    /// Creates a container; returns its id.
    pub async fn create(&self, sandbox: &Sandbox) -> String {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(ContainerConfig {
                metadata: Some(ContainerMetadata { name: "main".into() }),
                image: Some(ImageSpec { image: PAUSE_IMAGE.into() }),
            }),
            sandbox_config: Some(sandbox.config.clone()),
        };
        let Id { id } = self.call("CreateContainer", request).await.expect("a container");
        id
    }

    pub async fn start(&self, container: &str) {
        let request = Id { id: container.to_owned() };
        self.call::<_, Nothing>("StartContainer", request).await.expect("started");
    }

    pub async fn stop(&self, sandbox: &Sandbox) {
        let request = Id { id: sandbox.id.clone() };
        self.call::<_, Nothing>("StopPodSandbox", request).await.expect("stopped");
    }

    pub async fn remove(&self, sandbox: Sandbox) {
        self.call::<_, Nothing>("RemovePodSandbox", Id { id: sandbox.id }).await.expect("removed");
    }
}
