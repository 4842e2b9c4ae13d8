//! Asks whether the next node has an address where it should have none.
//!
//! If two VLANs leak into each other, a switch may have learnt the MAC address of this node on the wrong one, and an answer
//! to it would not come back. So the kernel asks for a duplicate of the address: the answer goes to all nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::{Interval, sleep};

use super::ProbeError;
use super::ask::Ask;
use super::port::execute;
use crate::netlink::{Namespace, Netlink, Request};

/// How long an answer may take. The kernel asks four times in it, and a second later the address would be an own one.
const WAIT: Duration = Duration::from_millis(3500);

/// Asks these questions, one per tick of `pace`. Returns those that were answered.
pub async fn ask(
    namespace: &Namespace,
    asks: &BTreeSet<Ask>,
    pace: &mut Interval,
) -> Result<BTreeSet<Ask>, ProbeError> {
    let found = find(namespace, asks, pace).await;
    execute(namespace, requests(asks, Request::forget_duplicate)).await?;
    Ok(found?.into_iter().filter(|ask| asks.contains(ask)).collect())
}

/// Asks, and returns which addresses somebody has.
async fn find(
    namespace: &Namespace,
    asks: &BTreeSet<Ask>,
    pace: &mut Interval,
) -> Result<Vec<Ask>, ProbeError> {
    for request in requests(asks, Request::ask_for_duplicate) {
        pace.tick().await;
        execute(namespace, vec![request]).await?;
    }
    sleep(WAIT).await;
    let found = namespace.run(|| Netlink::open()?.duplicates()).await??;
    Ok(found.into_iter().map(|(index, address)| Ask { index, address }).collect())
}

/// The requests of these questions.
fn requests(asks: &BTreeSet<Ask>, request: impl Fn(u32, std::net::Ipv6Addr) -> Request) -> Vec<Request> {
    let each = |ask: &Ask| match ask.address {
        IpAddr::V6(address) => Some(request(ask.index, address)),
        IpAddr::V4(_) => None,
    };
    asks.iter().filter_map(each).collect()
}
