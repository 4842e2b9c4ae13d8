//! The commands.

use std::time::{Duration, Instant};

use eno_ipam::{Error, Lease, PoolDir, Requester, Root, Taken, is_gone};
use ipnet::IpNet;
use serde_json::Value;

use crate::answer;
use crate::changes::Changes;
use crate::failure::{Code, Failure};
use crate::request::{Attachment, Request};

/// How long a pod waits for an address. kubelet repeats what failed.
const WAIT: Duration = Duration::from_secs(20);

/// Takes an address of each pool, or of none.
pub fn add(root: &Root, request: &Request) -> Result<Value, Failure> {
    let until = Instant::now() + WAIT;
    let pools = request.pools(root)?;
    let who = request.requester()?;
    let answered = take_all(&pools, &who, until).and_then(|addresses| answer::addresses(request, &addresses));
    if answered.is_err() {
        // The first error is the one that matters.
        for pool in pools.iter().filter(|pool| pool.exists()) {
            let _ = pool.lock().and_then(|mut locked| locked.release(&who.container, &who.ifname));
        }
    }
    answered
}

fn take_all(pools: &[PoolDir], who: &Requester, until: Instant) -> Result<Vec<IpNet>, Failure> {
    let mut taken = vec![None; pools.len()];
    let mut changes = None;
    loop {
        let mut reasons = Vec::new();
        for (pool, taken) in pools.iter().zip(&mut taken).filter(|(_, taken)| taken.is_none()) {
            let mut locked = pool.lock()?;
            match locked.take(who)? {
                Taken::Lease(address) => *taken = Some(address),
                Taken::Wait(reason) => {
                    // Nothing changes before the lock is released.
                    changes.get_or_insert_with(Changes::new).watch(pool);
                    reasons.push(format!("Subnet {}: {reason}", pool.subnet()));
                }
            }
        }
        let Some(changes) = changes.as_ref().filter(|_| !reasons.is_empty()) else { break };
        if !changes.wait(until) {
            let message =
                format!("pod {}/{} has no address after {} s", who.namespace, who.pod, WAIT.as_secs());
            return Err(Failure::new(Code::TryAgainLater, message).with(reasons.join("; ")));
        }
    }
    let taken: Vec<IpNet> = taken.into_iter().flatten().collect();
    let foreign = who.wanted.iter().find(|wanted| !taken.iter().any(|taken| taken.addr() == **wanted));
    foreign.map_or(Ok(taken), |foreign| {
        Err(Failure::new(Code::Config, format!("ips: {foreign} is in the network of no Subnet of the NAD")))
    })
}

/// Releases the addresses of an interface. It needs no namespace, and succeeds where ADD gives nothing.
pub fn del(root: &Root, request: &Request) -> Result<(), Failure> {
    let Attachment { container, ifname } = Attachment::from_env()?;
    let Ok(pools) = request.pools(root) else { return Ok(()) };
    for pool in pools.iter().filter(|pool| pool.exists()) {
        match pool.lock()?.release(&container, &ifname) {
            Ok(_) | Err(Error::Name { .. } | Error::Container(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fails unless the interface has an address of each pool, as `prevResult` tells them.
pub fn check(root: &Root, request: &Request) -> Result<(), Failure> {
    let Attachment { container, ifname } = Attachment::from_env()?;
    let former = request.former_addresses()?;
    for pool in request.pools(root)? {
        let lease = if pool.exists() { pool.lock()?.lease(&container, &ifname)? } else { None };
        let address = lease.map(|lease| lease.address).ok_or_else(|| {
            Failure::new(
                Code::NoLease,
                format!("{ifname} of {container} has no address of Subnet {}", pool.subnet()),
            )
        })?;
        if former.as_ref().is_some_and(|former| !former.contains(&address)) {
            let message = format!("{ifname} of {container} has {address} of Subnet {}", pool.subnet());
            return Err(Failure::new(Code::NoLease, message + ", which prevResult has not"));
        }
    }
    Ok(())
}

/// Releases the addresses of interfaces that the caller doesn't know and whose sandbox is gone. Both: other networks,
/// which the caller doesn't tell here, may have the same pool and the same name.
pub fn gc(root: &Root, request: &Request) -> Result<(), Failure> {
    let valid = request.valid()?;
    for pool in request.pools(root)?.iter().filter(|pool| pool.exists()) {
        let mut locked = pool.lock()?;
        for lease in locked.leases()?.into_iter().filter(|lease| is_gone(&lease.netns)) {
            let Lease { container, ifname, .. } = lease;
            let attachment = Attachment { container, ifname };
            if !valid.contains(&attachment) {
                locked.release(&attachment.container, &attachment.ifname)?;
            }
        }
    }
    Ok(())
}

/// Fails unless the files can be read.
pub fn status(root: &Root, request: &Request) -> Result<(), Failure> {
    let unavailable =
        |error: String| Failure::new(Code::NotAvailable, "addresses can't be given").with(error);
    for pool in request.pools(root)?.iter().filter(|pool| pool.exists()) {
        let locked = pool.lock().map_err(|error| unavailable(error.to_string()))?;
        locked.ranges().and(locked.leases()).map_err(|error| unavailable(error.to_string()))?;
    }
    root.pools().map(|_| ()).map_err(|error| unavailable(format!("list the pools: {error}")))
}
