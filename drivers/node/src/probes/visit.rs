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
    /// The number of its ports; absent: its agent does not say it.
    pub ports: Option<u64>,
}

impl There {
    /// Where it has been since `before`: on the same ports.
    pub fn since(&self, before: &Self) -> VlanSet {
        if self.ports == before.ports { self.vlans.intersection(&before.vlans) } else { VlanSet::EMPTY }
    }
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
        let (vlans_asked, echo_asked) = (vlans.clone(), echo.clone());
        let visit =
            Visit { point, network, id, vlans: vlans_asked, echo: echo_asked, there: None, ports: None };
        peers.send(node, &visit).await;
        match timeout(ANSWER, answered).await {
            Ok(Ok(there)) => {
                let vlans = there.vlans.intersection(vlans);
                Ok(There { echo: there.echo.intersection(echo).intersection(&vlans), vlans, ..there })
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
            let _ = waiting.answer.send(There { vlans: there, echo: visit.echo, ports: visit.ports });
        }
    }

    /// Answers a visit.
    pub async fn answer(&self, to: &str, visit: Visit, there: There) {
        if let Some(peers) = self.peers.get() {
            let There { vlans, echo, ports } = there;
            peers.send(to, &Visit { there: Some(vlans), echo, ports, ..visit }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_stays_where_it_has_the_same_ports() {
        let there = |vlans: &str, ports| There { vlans: vlans.parse().unwrap(), ports, ..There::default() };
        for (before, after, same) in [
            (there("1-3", Some(7)), there("2-4", Some(7)), "2-3"),
            (there("1-3", Some(7)), there("1-3", Some(8)), ""),
            (there("1-3", Some(7)), there("1-3", None), ""),
            (there("1-3", None), there("1-3", Some(7)), ""),
            // Agents of an earlier version.
            (there("1-3", None), there("1-3", None), "1-3"),
        ] {
            assert_eq!(after.since(&before).to_string(), same, "{before:?} {after:?}");
        }
    }
}
