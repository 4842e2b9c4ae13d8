//! Finds the sandboxes of pods, with one list call for all concurrent requests.
//!
//! A runtime iterates over all its sandboxes for each list: 200 lists on a node of 200 pods would cost 40,000
//! steps. Requests that arrive during a list call share the next one. No request is answered from a list that
//! began before it.

use std::collections::HashMap;

use eno_cri::protocol::PodUid;
use tokio::sync::{mpsc, oneshot};

use crate::runtime::{POD_UID, Runtime, RuntimeError};
use crate::wire::{PodSandbox, SANDBOX_READY};

/// Maximum waiting requests; more than the maximum of connections.
const MAX_WAITING: usize = 1024;

struct ListRequest {
    pod: PodUid,
    answer: oneshot::Sender<Result<Option<String>, RuntimeError>>,
}

/// Finds sandboxes.
#[derive(Clone, Debug)]
pub struct SandboxLister(mpsc::Sender<ListRequest>);

impl SandboxLister {
    /// Lists with `runtime`, in a task that ends with the last clone.
    pub fn new(runtime: Runtime) -> Self {
        let (sender, mut requests) = mpsc::channel::<ListRequest>(MAX_WAITING);
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while requests.recv_many(&mut waiting, MAX_WAITING).await > 0 {
                answer_all(&runtime, &mut waiting).await;
            }
        });
        Self(sender)
    }

    /// The id of a pod's newest ready sandbox, if it has one.
    pub async fn find(&self, pod: PodUid) -> Result<Option<String>, RuntimeError> {
        let ended = || RuntimeError::Unavailable("the resolver is about to end".into());
        let (answer, answered) = oneshot::channel();
        self.0.send(ListRequest { pod, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

async fn answer_all(runtime: &Runtime, waiting: &mut Vec<ListRequest>) {
    let only = match waiting.as_slice() {
        [request] => Some(&request.pod),
        _ => None,
    };
    let listed = runtime.ready_sandboxes(only).await.map(newest);
    for ListRequest { pod, answer } in waiting.drain(..) {
        let found = match &listed {
            Ok(newest) => Ok(newest.get(pod.as_str()).map(|sandbox| sandbox.id.clone())),
            Err(error) => Err(error.clone()),
        };
        // The receiver may have been dropped.
        let _ = answer.send(found);
    }
}

/// The newest ready sandbox of each pod. While kubelet replaces a sandbox, both may exist for a moment.
fn newest(sandboxes: Vec<PodSandbox>) -> HashMap<String, PodSandbox> {
    let mut newest: HashMap<String, PodSandbox> = HashMap::new();
    for sandbox in sandboxes.into_iter().filter(|sandbox| sandbox.state == SANDBOX_READY) {
        let Some(uid) = sandbox.labels.get(POD_UID) else { continue };
        let is_older = newest.get(uid).is_some_and(|other| sandbox.created_at < other.created_at);
        if !is_older {
            newest.insert(uid.clone(), sandbox);
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SANDBOX_NOTREADY: i32 = 1;

    fn sandbox(id: &str, pod: &str, state: i32, created_at: i64) -> PodSandbox {
        let labels = [(POD_UID.to_owned(), pod.to_owned())].into();
        PodSandbox { id: id.into(), state, created_at, labels }
    }

    #[test]
    fn newest_ready_sandbox_wins() {
        let mut all = vec![
            sandbox("first", "a", SANDBOX_READY, 10),
            sandbox("second", "a", SANDBOX_READY, 20),
            sandbox("ended", "a", SANDBOX_NOTREADY, 30),
            sandbox("other", "b", SANDBOX_READY, 40),
            PodSandbox { labels: [].into(), ..sandbox("nobody's", "", SANDBOX_READY, 50) },
        ];
        for _ in 0..2 {
            let newest = newest(all.clone());
            assert_eq!(newest.len(), 2);
            assert_eq!((&*newest["a"].id, &*newest["b"].id), ("second", "other"));
            all.reverse();
        }
    }

    #[tokio::test]
    async fn all_waiting_requests_get_the_runtime_error() {
        let lister = SandboxLister::new(Runtime::new([], Duration::from_secs(5)));
        let all = ["a", "b", "c"].map(|uid| lister.find(PodUid::parse(uid).unwrap()));
        for found in futures::future::join_all(all).await {
            assert!(matches!(found, Err(RuntimeError::Unavailable(_))), "{found:?}");
        }
    }
}
