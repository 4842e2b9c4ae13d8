//! A local port that leads to NATS in the cluster, through the API server, as `kubectl port-forward` does.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::install::render::{NATS, SYSTEM};

/// The port of NATS's clients.
const PORT: u16 = 4222;

/// Forwards a local port to a NATS server that is ready, as long as the process runs. Returns the local address.
pub async fn to_nats(client: Client) -> anyhow::Result<SocketAddr> {
    let pods: Api<Pod> = Api::namespaced(client, SYSTEM);
    ready_pod(&pods).await?;
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening on a port of 127.0.0.1")?;
    let address = listener.local_addr().context("reading the address of a port of 127.0.0.1")?;
    tokio::spawn(async move {
        while let Ok((local, _)) = listener.accept().await {
            tokio::spawn(connect(pods.clone(), local));
        }
    });
    Ok(address)
}

/// The name of a pod of NATS that is ready.
async fn ready_pod(pods: &Api<Pod>) -> anyhow::Result<String> {
    let params = ListParams::default().labels(&format!("app.kubernetes.io/name={NATS}"));
    let listed = pods.list(&params).await.with_context(|| format!("listing the pods of NATS in {SYSTEM}"))?;
    let ready = listed.items.iter().find(|pod| is_ready(pod)).map(ResourceExt::name_any);
    match ready {
        Some(name) => Ok(name),
        None => bail!("eno check shows why: no pod of NATS in {SYSTEM} is ready"),
    }
}

/// A client that connects again may get another server.
async fn connect(pods: Api<Pod>, mut local: TcpStream) {
    let forwarded = async {
        let name = ready_pod(&pods).await?;
        let mut forwarder = pods.portforward(&name, &[PORT]).await?;
        let mut stream = forwarder.take_stream(PORT).context("there is no stream of the port")?;
        copy_bidirectional(&mut local, &mut stream).await?;
        anyhow::Ok(())
    };
    if let Err(error) = forwarded.await {
        tracing::warn!(%error, "forwarding a port of NATS");
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
