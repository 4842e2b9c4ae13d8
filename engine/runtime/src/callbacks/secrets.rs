//! Reads the Secrets that sign callbacks, one by one when needed. They are never listed or watched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::api::Request;
use kube::{Client, Resource as _};

use super::keys::{Keys, KeysError};

/// Time for which the keys of a Secret are cached.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// Why a callback can't be signed. A retry helps after the Secret is corrected.
#[derive(Debug, thiserror::Error)]
#[error("Secret {namespace}/{name}: {why}")]
pub struct SecretError {
    namespace: String,
    name: String,
    why: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("it does not exist")]
    Missing,
    #[error("the engine may not read it: it needs a Role for Secrets other than eno-callback")]
    Refused,
    #[error("the API server did not answer for it")]
    Unanswered,
    #[error(transparent)]
    Keys(#[from] KeysError),
}

type Cache = HashMap<(String, String), (Instant, Arc<Keys>)>;

/// Reads and caches keys.
pub struct Secrets {
    client: Client,
    cache: Mutex<Cache>,
}

impl Secrets {
    pub fn new(client: Client) -> Self {
        Self { client, cache: Mutex::default() }
    }

    /// The keys of a Secret, at most [`CACHE_TTL`] old.
    pub async fn keys(&self, namespace: &str, name: &str) -> Result<Arc<Keys>, SecretError> {
        let id = (namespace.to_owned(), name.to_owned());
        if let Some((_, keys)) = self.fresh_cache().get(&id) {
            return Ok(keys.clone());
        }
        match self.read(namespace, name).await {
            Ok(keys) => {
                let keys = Arc::new(keys);
                self.fresh_cache().insert(id, (Instant::now(), keys.clone()));
                Ok(keys)
            }
            Err(why) => Err(SecretError { namespace: id.0, name: id.1, why }),
        }
    }

    fn fresh_cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|_, (read, _)| read.elapsed() < CACHE_TTL);
        cache
    }

    async fn read(&self, namespace: &str, name: &str) -> Result<Keys, Reason> {
        let path = Secret::url_path(&(), Some(namespace));
        let request = Request::new(path).get(name, &kube::api::GetParams::default());
        let request = request.map_err(|_| Reason::Missing)?;
        // Read as text: the client would log a value that it can't deserialise.
        let text = self.client.request_text(request).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => Reason::Missing,
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => Reason::Refused,
            _ => Reason::Unanswered,
        })?;
        let secret: Secret = serde_json::from_str(&text).map_err(|_| Reason::Unanswered)?;
        Ok(Keys::read(&secret.data.unwrap_or_default())?)
    }
}
