//! Tokens with which the agents of the sandbox log in to NATS, as the kubelet writes them for pods. They are bound to Nodes,
//! since the agents are no pods.

use std::path::PathBuf;

use eno_control_plane::{ControlPlaneError, write_private};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};

use super::{MANAGER, Sandbox, SandboxError};
use crate::manifests::{self, AGENT_NAMESPACE};
use eno::apply::apply_all;

/// The service account of the agents.
const ACCOUNT: &str = "eno-agent";
/// The audience of the tokens.
const AUDIENCE: &str = "eno-nats";
/// How long a token is valid, in seconds: longer than a sandbox runs. Each start of an agent gets another one.
const LIFETIME: i64 = 365 * 24 * 3600;

/// Applies the namespace and the service account of the agents.
pub(super) async fn prepare(sandbox: &Sandbox) -> Result<(), SandboxError> {
    let mut objects = manifests::agent()?;
    objects.retain(|object| {
        object
            .types
            .as_ref()
            .is_some_and(|types| ["Namespace", "ServiceAccount"].contains(&types.kind.as_str()))
    });
    apply_all(&sandbox.client, MANAGER, &objects).await?;
    Ok(())
}

/// Writes a new token of the agent of a node, and returns its file.
pub(super) async fn write(sandbox: &Sandbox, node: &str) -> Result<PathBuf, SandboxError> {
    let token = token(sandbox, node).await?;
    let path = sandbox.control_plane.nats().seeds().join(format!("{node}.token"));
    write_private(&path, &token).map_err(ControlPlaneError::from)?;
    Ok(path)
}

async fn token(sandbox: &Sandbox, node: &str) -> Result<String, SandboxError> {
    let client = sandbox.client();
    let bound = Api::<Node>::all(client.clone()).get_metadata(node).await;
    let bound = bound.map_err(SandboxError::kubernetes(format!("reading node {node}")))?;
    let spec = TokenRequestSpec {
        audiences: Some(vec![AUDIENCE.to_owned()]),
        bound_object_ref: Some(BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: bound.uid(),
        }),
        expiration_seconds: Some(LIFETIME),
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client, AGENT_NAMESPACE);
    let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
    let answer = answer.map_err(SandboxError::kubernetes(format!("asking for a token of node {node}")))?;
    Ok(answer.status.and_then(|status| status.token).unwrap_or_default())
}
