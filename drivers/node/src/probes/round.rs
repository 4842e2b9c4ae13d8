//! Rounds of probes: the agent of the next node goes to some VLANs, and this node asks there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use eno_sbi::random;
use eno_schemas::{CrossedVlans, VlanId, VlanSet};
use tokio::time::Interval;
use tracing::debug;

use super::ask::{self, Ask};
use super::crossing::Crossing;
use super::port::Placed;
use super::schedule::{Aim, Batch, Outcome, Place, Verdict};
use super::slots::Use;
use super::visit::There;
use super::{ProbeError, Shared, Shelf, duplicate, echo};
use crate::netlink::Namespace;

/// Where this node asks from.
struct Here {
    placed: Placed,
    namespace: Option<Namespace>,
    /// The number of this node's ports.
    ports: Option<u64>,
    /// The addresses of the next node.
    addresses: BTreeMap<VlanId, Ipv6Addr>,
}

impl Here {
    /// The question, on one VLAN, for the next node's address of the same or another VLAN.
    fn ask(&self, vlan: VlanId, of: VlanId) -> Option<Ask> {
        let (index, address) = (self.placed.there.get(&vlan)?, self.addresses.get(&of)?);
        Some(Ask { index: *index, address: (*address).into() })
    }
}

/// Goes to VLANs, to ask there for the next node's addresses of `others`.
async fn go(
    shared: &Shared,
    ports: &Shelf,
    place: &Place,
    vlans: &VlanSet,
    next: Option<&str>,
    others: &VlanSet,
) -> Result<Here, ProbeError> {
    let mut ports = ports.lock(shared).await;
    let placed = ports.go(place, vlans, Use::Asking).await?;
    let of = |next| others.iter().map(|vlan| (vlan, ports.address(next, place, vlan))).collect();
    let addresses = next.map_or_else(BTreeMap::new, of);
    Ok(Here { placed, namespace: ports.namespace(), ports: ports.number(place), addresses })
}

/// Probes a batch, and records what was found.
pub async fn probe(shared: &Shared, ports: &Shelf, batch: &Batch, pace: &mut Interval) {
    let found = match find(shared, ports, batch, pace).await {
        Ok(found) => found,
        Err(error) => {
            let reason = error.to_string();
            batch.vlans.keys().map(|vlan| (*vlan, Outcome::unasked(&reason))).collect()
        }
    };
    ports.lock(shared).await.end_asking(&batch.place).await;
    shared.metrics.count(&batch.place.point, found.values());
    let changed = shared.schedule().record(batch, found, Instant::now(), random());
    shared.notify(changed);
}

/// What is found on the VLANs of a batch.
async fn find(
    shared: &Shared,
    ports: &Shelf,
    batch: &Batch,
    pace: &mut Interval,
) -> Result<BTreeMap<VlanId, Outcome>, ProbeError> {
    let (vlans, next) = (batch.vlan_set(), batch.next_node());
    let visit = async {
        match next {
            Some(next) => shared.exchange.ask(next, &batch.place, &vlans, &VlanSet::EMPTY).await,
            None => Ok(There::default()),
        }
    };
    let (there, here) = tokio::join!(visit, go(shared, ports, &batch.place, &vlans, next, &vlans));
    let here = here?;
    let mut asks = BTreeMap::new();
    for (vlan, index) in &here.placed.there {
        let Some(aim) = batch.vlans.get(vlan) else { continue };
        asks.extend(aim.gateways.iter().map(|address| (Ask { index: *index, address: *address }, true)));
        if there.as_ref().is_ok_and(|there| there.vlans.contains(*vlan)) {
            asks.extend(here.ask(*vlan, *vlan).map(|ask| (ask, false)));
        }
    }
    let answers = match &here.namespace {
        Some(namespace) if !asks.is_empty() => ask::ask(namespace, asks, pace).await?,
        _ => BTreeMap::new(),
    };
    let outcome = |(vlan, aim): (&VlanId, &Arc<Aim>)| {
        let answered = |address| answers.get(&Ask { index: *here.placed.there.get(vlan)?, address });
        let next = here.addresses.get(vlan).copied().map(IpAddr::from);
        (*vlan, outcome(*vlan, aim, &here.placed, &there, next, answered))
    };
    let mut found = batch.vlans.iter().map(outcome).collect();
    ask_by_full_size(shared, batch, &here, &mut found, pace).await;
    Ok(found)
}

/// What was found on a VLAN. `there`: where the agent of the next node is.
fn outcome<'a>(
    vlan: VlanId,
    aim: &Aim,
    placed: &Placed,
    there: &Result<There, String>,
    address: Option<IpAddr>,
    answered: impl Fn(IpAddr) -> Option<&'a BTreeSet<[u8; 6]>>,
) -> Outcome {
    if !placed.there.contains_key(&vlan) {
        let reason = placed.failed.get(&vlan).map_or("this node can't go there", String::as_str);
        return Outcome::unasked(reason);
    }
    let next = aim.next.as_ref().map(|next| match there {
        Err(reason) => Verdict::Unasked(reason.into()),
        Ok(there) if !there.vlans.contains(vlan) => {
            Verdict::Unasked(format!("the agent of node {next} does not go to this VLAN").into())
        }
        Ok(_) => match address.and_then(&answered) {
            Some(macs) if !macs.is_empty() => Verdict::Passed,
            _ => Verdict::Lost,
        },
    });
    let macs = |address: &IpAddr| {
        let macs = answered(*address).into_iter().flatten().copied().map(text).collect();
        (*address, macs)
    };
    Outcome { next, gateways: aim.gateways.iter().map(macs).collect() }
}

/// Asks by packets of full size on the VLANs that have an MTU and have passed, and changes their verdicts. The next node
/// is visited anew: it answers them only as long as it has to.
async fn ask_by_full_size(
    shared: &Shared,
    batch: &Batch,
    here: &Here,
    found: &mut BTreeMap<VlanId, Outcome>,
    pace: &mut Interval,
) {
    let passed = |vlan| found.get(vlan).is_some_and(|one: &Outcome| one.next == Some(Verdict::Passed));
    let sizes = batch.vlans.iter().filter(|(vlan, _)| passed(vlan));
    let sizes: BTreeMap<VlanId, u16> = sizes.filter_map(|(vlan, aim)| Some((*vlan, aim.mtu?))).collect();
    let (Some(next), Some(namespace), false) = (batch.next_node(), &here.namespace, sizes.is_empty()) else {
        return;
    };
    let vlans = sizes.keys().copied().collect();
    let answered = async {
        let there = shared.exchange.ask(next, &batch.place, &vlans, &vlans).await?;
        let asked = sizes.iter().filter(|(vlan, _)| there.echo.contains(**vlan));
        let asks = asked.filter_map(|(vlan, size)| Some((here.ask(*vlan, *vlan)?, *size))).collect();
        let answered = echo::ask(namespace, asks, pace).await.map_err(|error| error.to_string())?;
        Ok::<_, String>((there, answered))
    };
    let answered = answered.await;
    for vlan in vlans.iter() {
        let verdict = match &answered {
            Err(reason) => Verdict::Unasked(reason.into()),
            Ok((there, _)) if !there.echo.contains(vlan) => {
                let reason = format!("the agent of node {next} does not answer packets of full size here");
                Verdict::Unasked(reason.into())
            }
            Ok((_, answered)) if here.ask(vlan, vlan).is_some_and(|ask| answered.contains(&ask)) => continue,
            Ok(_) => Verdict::TooBig,
        };
        if let Some(outcome) = found.get_mut(&vlan) {
            outcome.next = Some(verdict);
        }
    }
}

/// Asks across pairs of VLANs, and records what was found.
pub async fn cross(shared: &Shared, ports: &Shelf, crossing: &Crossing, pace: &mut Interval) {
    let found = confirm_leaks(shared, ports, crossing, pace).await.unwrap_or_else(|error| {
        debug!(%error, "can't ask across VLANs");
        BTreeMap::new()
    });
    ports.lock(shared).await.end_asking(&crossing.place).await;
    shared.metrics.count_crossing(&crossing.place.point, found.values());
    let changed = shared.schedule().record_crossing(crossing, &found, Instant::now(), random());
    shared.notify(changed);
}

/// Whether the next node answers across pairs of VLANs, while its agent stays. Those across which it does are asked about
/// again: a switch may forward for some time as if a port were still on its VLAN before.
async fn confirm_leaks(
    shared: &Shared,
    ports: &Shelf,
    crossing: &Crossing,
    pace: &mut Interval,
) -> Result<BTreeMap<CrossedVlans, bool>, ProbeError> {
    let Leaks { mut found, there: before, here } = find_leaks(shared, ports, crossing, pace).await?;
    // An agent that has left since does not answer either, and is not heard if this one has.
    let silent: VlanSet = found.iter().filter(|(_, leaks)| !**leaks).map(|(pair, _)| pair.other).collect();
    if let Some(next) = crossing.next_node().filter(|_| !silent.is_empty()) {
        let there = shared.exchange.ask(next, &crossing.place, &silent, &VlanSet::EMPTY).await;
        let stays = there.map_or(VlanSet::EMPTY, |there| there.since(&before));
        let is_here = ports.lock(shared).await.number(&crossing.place) == here;
        found.retain(|pair, leaks| *leaks || (is_here && stays.contains(pair.other)));
    }
    let mut leaking = crossing.clone();
    leaking.pairs.retain(|pair, _| found.get(pair).is_some_and(|leaks| *leaks));
    if !leaking.pairs.is_empty() {
        let again = find_leaks(shared, ports, &leaking, pace).await?.found;
        // Where both differ, nobody can say which is right.
        found.retain(|pair, leaks| !*leaks || again.get(pair) == Some(leaks));
    }
    Ok(found)
}

/// What was found across pairs of VLANs.
#[derive(Default)]
struct Leaks {
    /// Whether the next node answered, where its agent was on the other VLAN.
    found: BTreeMap<CrossedVlans, bool>,
    /// Where it was.
    there: There,
    /// The number of this node's ports.
    here: Option<u64>,
}

/// Whether the next node answers across pairs of VLANs, where its agent is on the other one.
async fn find_leaks(
    shared: &Shared,
    ports: &Shelf,
    crossing: &Crossing,
    pace: &mut Interval,
) -> Result<Leaks, ProbeError> {
    let Some(next) = crossing.next_node() else { return Ok(Leaks::default()) };
    let ((vlans, others), place) = (crossing.sides(), &crossing.place);
    let (there, here) = tokio::join!(
        shared.exchange.ask(next, place, &others, &VlanSet::EMPTY),
        go(shared, ports, place, &vlans, Some(next), &others)
    );
    let (there, here) = (there.map_err(ProbeError::Other)?, here?);
    let Some(namespace) = &here.namespace else { return Ok(Leaks::default()) };
    let asked = crossing.pairs.keys().filter(|pair| there.vlans.contains(pair.other));
    let asks: BTreeMap<CrossedVlans, Ask> =
        asked.filter_map(|pair| Some((*pair, here.ask(pair.vlan, pair.other)?))).collect();
    if asks.is_empty() {
        return Ok(Leaks::default());
    }
    let answered = duplicate::ask(namespace, &asks.values().copied().collect(), pace).await?;
    let found = asks.into_iter().map(|(pair, ask)| (pair, answered.contains(&ask))).collect();
    Ok(Leaks { found, there, here: here.ports })
}

/// A MAC address as text.
fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
