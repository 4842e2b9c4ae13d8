//! Which sandbox is a pod's: one list for all who ask at once.
//!
//! A runtime goes through all of its sandboxes for each list, so that 200 lists on a node of 200 pods cost 40,000
//! looks. While one list is under way the next questions gather, and share the next one. Nobody is answered from a
//! list that began before the question came.

use std::collections::HashMap;

use eno_cri::protocol::PodUid;
use tokio::sync::{mpsc, oneshot};

use crate::runtime::{POD_UID, Runtime, RuntimeError};
use crate::wire::{PodSandbox, SANDBOX_READY};

/// More than connections are served at once.
const MOST_WAITING: usize = 1024;

struct Question {
    pod: PodUid,
    answer: oneshot::Sender<Result<Option<String>, RuntimeError>>,
}

/// Finds sandboxes.
#[derive(Clone, Debug)]
pub struct Lister(mpsc::Sender<Question>);

impl Lister {
    /// Lists by `runtime`, in a task that ends with the last clone.
    pub fn new(runtime: Runtime) -> Self {
        let (sender, mut questions) = mpsc::channel::<Question>(MOST_WAITING);
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while questions.recv_many(&mut waiting, MOST_WAITING).await > 0 {
                answer_all(&runtime, &mut waiting).await;
            }
        });
        Self(sender)
    }

    /// The id of a pod's newest ready sandbox, if it has one.
    pub async fn find(&self, pod: PodUid) -> Result<Option<String>, RuntimeError> {
        let ended = || RuntimeError::Unavailable("the resolver is about to end".into());
        let (answer, answered) = oneshot::channel();
        self.0.send(Question { pod, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

async fn answer_all(runtime: &Runtime, waiting: &mut Vec<Question>) {
    let only = match waiting.as_slice() {
        [question] => Some(&question.pod),
        _ => None,
    };
    let listed = runtime.ready_sandboxes(only).await.map(newest);
    for Question { pod, answer } in waiting.drain(..) {
        let found = match &listed {
            Ok(newest) => Ok(newest.get(pod.as_str()).map(|sandbox| sandbox.id.clone())),
            Err(error) => Err(error.clone()),
        };
        // Who asked may be gone.
        let _ = answer.send(found);
    }
}

/// The newest ready sandbox of each pod. (kubelet makes one anew when it ended; both may be there for a moment.)
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
    fn the_newest_ready_sandbox_counts() {
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
    async fn everyone_hears_that_there_is_no_runtime() {
        let lister = Lister::new(Runtime::new([], Duration::from_secs(5)));
        let all = ["a", "b", "c"].map(|uid| lister.find(PodUid::parse(uid).unwrap()));
        for found in futures::future::join_all(all).await {
            assert!(matches!(found, Err(RuntimeError::Unavailable(_))), "{found:?}");
        }
    }
}
