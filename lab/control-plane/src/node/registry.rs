//! The image registry of the nodes (OCI distribution specification, pull only). It serves the built images under their
//! names and aliases, which the crate `container-registry` can't: it stores what is pushed to it, in a directory.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use eno_image::{Blob, Image};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Normalises an image reference as containerd does, without tag: `busybox` is `docker.io/library/busybox`.
fn repository(reference: &str) -> String {
    let name = reference.split('@').next().unwrap_or_default();
    // A colon before the last slash precedes a port.
    let (folder, last) = name.rsplit_once('/').map_or(("", name), |(folder, last)| (folder, last));
    let last = last.split(':').next().unwrap_or_default();
    let name = if folder.is_empty() { last.to_owned() } else { format!("{folder}/{last}") };
    match name.split_once('/') {
        None => format!("docker.io/library/{name}"),
        Some((registry, _)) if registry.contains(['.', ':']) || registry == "localhost" => name,
        Some(_) => format!("docker.io/{name}"),
    }
}

/// The images by name, regardless of tags.
#[derive(Debug, Default)]
pub(crate) struct Images {
    manifests: BTreeMap<String, Blob>,
    blobs: BTreeMap<String, Blob>,
}

impl Images {
    pub(crate) fn add(&mut self, reference: &str, image: &Image) {
        self.manifests.insert(repository(reference), image.manifest.clone());
        for blob in [&image.manifest, &image.config, &image.layer] {
            self.blobs.insert(blob.digest.clone(), blob.clone());
        }
    }

    /// Finds `NAME/manifests/TAG|DIGEST` or `NAME/blobs/DIGEST` of a registry.
    fn find(&self, registry: &str, path: &str) -> Option<&Blob> {
        if let Some((name, reference)) = path.rsplit_once("/manifests/") {
            let manifest = self.manifests.get(&format!("{registry}/{name}"))?;
            return (!reference.starts_with("sha256:") || reference == manifest.digest).then_some(manifest);
        }
        let (_, digest) = path.rsplit_once("/blobs/")?;
        self.blobs.get(digest)
    }
}

/// The running server; dropping it stops the server.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Registry {
    pub(crate) async fn start(address: Ipv4Addr, images: Images) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let routes = Router::new()
            .route("/v2/", get(|| async { "{}" }))
            .route("/v2/{*path}", get(serve_blob))
            .with_state(Arc::new(images));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the registry of the nodes ended");
            }
        });
        Ok(Self { url, task })
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a manifest or blob. The query parameter `ns` of containerd is the registry of the image's name.
async fn serve_blob(
    State(images): State<Arc<Images>>,
    Path(path): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let registry = query.get("ns").map_or("docker.io", String::as_str);
    match images.find(registry, &path) {
        Some(blob) => {
            let headers = [(header::CONTENT_TYPE, blob.media_type.as_str()), (DIGEST, blob.digest.as_str())];
            (headers, blob.bytes.clone()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_normalizes_names_as_containerd_does() {
        for (reference, name) in [
            ("busybox", "docker.io/library/busybox"),
            ("nicolaka/netshoot:latest", "docker.io/nicolaka/netshoot"),
            ("docker.io/nicolaka/netshoot", "docker.io/nicolaka/netshoot"),
            ("localhost:5000/a:1", "localhost:5000/a"),
            ("eno.k8s.io/test:latest", "eno.k8s.io/test"),
            ("quay.io/a/b@sha256:00", "quay.io/a/b"),
        ] {
            assert_eq!(repository(reference), name, "{reference}");
        }
    }

    #[test]
    fn images_are_found_by_tag_and_digest() {
        let image = super::super::image::pause().unwrap();
        let mut images = Images::default();
        images.add("nicolaka/netshoot", &image);
        let manifest = &image.manifest.digest;
        for path in
            ["nicolaka/netshoot/manifests/v1".to_owned(), format!("nicolaka/netshoot/manifests/{manifest}")]
        {
            assert_eq!(images.find("docker.io", &path).unwrap().digest, *manifest);
        }
        assert!(images.find("docker.io", "nicolaka/netshoot/manifests/sha256:00").is_none());
        assert!(images.find("quay.io", "nicolaka/netshoot/manifests/v1").is_none());
        let blob = format!("nicolaka/netshoot/blobs/{}", image.layer.digest);
        assert_eq!(images.find("docker.io", &blob).unwrap().bytes, image.layer.bytes);
    }
}
