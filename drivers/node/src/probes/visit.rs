//! Visits: before an agent asks the next node on VLANs, that node's agent goes there.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use eno_sbi::Peers;
use eno_schemas::{Visit, VlanSet};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::schedule::Place;

/// How long the answer to a visit may take.
const ANSWER: Duration = Duration::from_secs(2);

/// Where the agent of another node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct There {
    /// The VLANs.
    pub vlans: VlanSet,
    /// Of these, those on which it answers echo requests.
    pub echo: VlanSet,
}

/// The visit that is waited for. There is one at a time.
#[derive(Debug)]
struct Waiting {
    node: String,
    place: Place,
    id: u64,
    answer: oneshot::Sender<There>,
}

/// The visits that this agent asks others for.
#[derive(Debug, Default)]
pub struct Exchange {
    peers: OnceLock<Peers>,
    /// The number of the last visit, and the one that is waited for.
    state: Mutex<(u64, Option<Waiting>)>,
}

impl Exchange {
    /// Joins the agents.
    pub fn join(&self, peers: Peers) {
        // Only the first time counts: it is called once.
        let _ = self.peers.set(peers);
    }

    /// Has the agent of a node go to these VLANs, and answer echo requests on some of them. Returns where it does, or why
    /// it is not known.
    pub async fn ask(
        &self,
        node: &str,
        place: &Place,
        vlans: &VlanSet,
        echo: &VlanSet,
    ) -> Result<There, String> {
        let Some(peers) = self.peers.get() else {
            return Err("this agent can't reach those of other nodes".to_owned());
        };
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 += 1;
            let id = state.0;
            state.1 = Some(Waiting { node: node.to_owned(), place: place.clone(), id, answer });
            id
        };
        let Place { point, network } = place.clone();
        let visit = Visit { point, network, id, vlans: vlans.clone(), echo: echo.clone(), there: None };
        peers.send(node, &visit).await;
        match timeout(ANSWER, answered).await {
            Ok(Ok(there)) => {
                let vlans = there.vlans.intersection(vlans);
                Ok(There { echo: there.echo.intersection(echo).intersection(&vlans), vlans })
            }
            _ => Err(format!("the agent of node {node} does not answer")),
        }
    }

    /// Takes an answer. Another one than that which is waited for is left out.
    pub fn answered(&self, from: &str, visit: Visit, there: VlanSet) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = |waiting: &mut Waiting| {
            waiting.node == from
                && waiting.id == visit.id
                && waiting.place.point == visit.point
                && waiting.place.network == visit.network
        };
        if let Some(waiting) = state.1.take_if(expected) {
            // The one who asked may have stopped waiting.
            let _ = waiting.answer.send(There { vlans: there, echo: visit.echo });
        }
    }

    /// Answers a visit.
    pub async fn answer(&self, to: &str, visit: Visit, there: There) {
        if let Some(peers) = self.peers.get() {
            peers.send(to, &Visit { there: Some(there.vlans), echo: there.echo, ..visit }).await;
        }
    }
}
