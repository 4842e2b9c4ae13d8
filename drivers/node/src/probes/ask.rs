//! Asks who has an address on a VLAN, with the neighbour table of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::GatewayAnswer;
use tokio::time::{Instant, Interval, timeout_at};

use super::ProbeError;
use crate::netlink::{Namespace, Neighbour, Netlink, NetlinkError, Readiness, Request, Watch};

/// How long an answer may take. The kernel asks three times, one second apart.
const WAIT: Duration = Duration::from_millis(3200);
/// How long others may take that answer for the same address, after the first one has.
const OTHERS: Duration = Duration::from_millis(400);
/// How often one question is asked anew because its neighbour was heard, but did not answer.
const REPEATS: u32 = 3;

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// The index of the interface.
    pub index: u32,
    /// Who is asked.
    pub address: IpAddr,
}

/// What became of a question.
#[derive(Clone, Debug, Default)]
struct State {
    /// It is the question for a gateway, for whose address several may answer.
    gateway: bool,
    /// When it was asked.
    asked: Option<Instant>,
    /// Who answered.
    macs: BTreeSet<[u8; 6]>,
    /// Who was heard, but did not answer.
    heard: BTreeSet<[u8; 6]>,
    /// When the first answer came.
    first: Option<Instant>,
    /// How often it was asked anew.
    repeats: u32,
}

impl State {
    /// When nothing more is waited for.
    fn end(&self) -> Option<Instant> {
        match self.first {
            Some(first) if self.gateway => Some(first + OTHERS),
            Some(first) => Some(first),
            None => self.asked.map(|asked| asked + WAIT),
        }
    }

    /// Takes what was seen of the neighbour. True: it is to be asked anew, since the kernel stops asking once it hears
    /// a neighbour.
    fn see(&mut self, seen: &Neighbour, now: Instant) -> bool {
        if self.asked.is_none() {
            return false;
        }
        let found = if seen.answered { &mut self.macs } else { &mut self.heard };
        if found.len() < GatewayAnswer::MAX_MACS {
            found.insert(seen.mac);
        }
        if seen.answered {
            self.first.get_or_insert(now);
        }
        let again = self.macs.is_empty() && self.repeats < REPEATS;
        self.repeats += u32::from(again);
        again
    }

    /// Who answered. A gateway that was only heard counts: some answer all at once.
    fn answers(self) -> BTreeSet<[u8; 6]> {
        if self.macs.is_empty() && self.gateway { self.heard } else { self.macs }
    }
}

/// Asks these questions, one per tick of `pace`; true: it is the question for a gateway. Returns who answered each.
pub async fn ask(
    namespace: &Namespace,
    asks: BTreeMap<Ask, bool>,
    pace: &mut Interval,
) -> Result<BTreeMap<Ask, BTreeSet<[u8; 6]>>, ProbeError> {
    let watch = namespace.run(Watch::neighbours).await??;
    let readiness = Arc::new(watch).register().map_err(|error| ProbeError::Other(error.to_string()))?;
    let open = |(ask, gateway)| (ask, State { gateway, ..State::default() });
    let mut states: BTreeMap<Ask, State> = asks.into_iter().map(open).collect();
    // The agents of other nodes stay for a short time only.
    let mut all: Vec<(bool, Ask)> = states.iter().map(|(ask, state)| (state.gateway, *ask)).collect();
    all.sort_unstable();
    for (_, ask) in all {
        pace.tick().await;
        send(namespace, ask).await?;
        if let Some(state) = states.get_mut(&ask) {
            state.asked = Some(Instant::now());
        }
    }
    while let Some(end) = states.values().filter_map(State::end).max().filter(|end| *end > Instant::now()) {
        let Ok(seen) = timeout_at(end, changes(&readiness, namespace)).await else { break };
        for seen in seen? {
            let ask = Ask { index: seen.index, address: seen.address };
            let again = states.get_mut(&ask).is_some_and(|state| state.see(&seen, Instant::now()));
            if again {
                send(namespace, ask).await?;
            }
        }
    }
    Ok(states.into_iter().map(|(ask, state)| (ask, state.answers())).collect())
}

/// Has the kernel ask, whatever it knows.
async fn send(namespace: &Namespace, ask: Ask) -> Result<(), ProbeError> {
    let requests = vec![
        Request::forget_neighbour(ask.index, ask.address),
        Request::ask_neighbour(ask.index, ask.address),
    ];
    let work = move || -> Result<(), NetlinkError> { Netlink::open()?.batch(requests).into_iter().collect() };
    Ok(namespace.run(work).await??)
}

/// Waits for changes of neighbour entries. If some are lost, all entries.
async fn changes(readiness: &Readiness, namespace: &Namespace) -> Result<Vec<Neighbour>, ProbeError> {
    let ready = readiness.readable().await;
    ready.map_err(|error| ProbeError::Other(error.to_string()))?.clear_ready();
    match readiness.get_ref().read_neighbours() {
        Some(seen) => Ok(seen),
        None => Ok(namespace.run(|| Netlink::open()?.neighbours()).await??),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_what_is_only_heard() {
        let now = Instant::now();
        let seen = |last, answered| Neighbour {
            index: 1,
            address: IpAddr::from([192, 0, 2, 1]),
            mac: [2, 0, 0, 0, 0, last],
            answered,
        };
        let asked = |gateway| State { gateway, asked: Some(now), ..State::default() };
        assert!(!State::default().see(&seen(1, true), now), "before it is asked");

        for gateway in [true, false] {
            let mut state = asked(gateway);
            let again: Vec<bool> = (0..5).map(|_| state.see(&seen(1, false), now)).collect();
            assert_eq!(again, [true, true, true, false, false]);
            assert_eq!(state.end(), Some(now + WAIT));
            assert_eq!(state.answers().len(), usize::from(gateway));
        }

        let mut state = asked(true);
        assert!(!state.see(&seen(1, true), now));
        assert!(!state.see(&seen(2, false), now), "it has answered");
        for last in 1..9 {
            state.see(&seen(last, true), now);
        }
        assert_eq!(state.end(), Some(now + OTHERS));
        assert_eq!(state.answers().len(), GatewayAnswer::MAX_MACS);
        let mut state = asked(false);
        state.see(&seen(1, true), now);
        assert_eq!(state.end(), Some(now));
    }
}
