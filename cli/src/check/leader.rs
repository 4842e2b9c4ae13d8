//! The leading engine, by its Lease.

use jiff::{SignedDuration, Timestamp};

use super::{Check, Fact, Name, Problem, SYSTEM};

/// The name of the Lease, in [`SYSTEM`].
pub const LEASE: &str = "eno-engine";

/// The Lease of the engines.
#[derive(Clone, Debug, Default)]
pub struct LeaderLease {
    /// The engine that leads.
    pub holder: Option<String>,
    /// The last renewal by the engine's clock.
    pub renewed: Option<Timestamp>,
    /// For how long it is valid after a renewal.
    pub duration: SignedDuration,
    /// When it was read, by the API server's clock.
    pub at: Timestamp,
    /// Whether it was renewed while it was watched, whatever the clocks say.
    pub renewed_meanwhile: bool,
}

impl LeaderLease {
    /// Whether its times show that it was valid when it was read.
    pub fn is_fresh(&self) -> bool {
        self.renewed.is_some_and(|renewed| self.at.duration_since(renewed).abs() <= self.duration)
    }
}

/// The check of the leading engine. `None`: there is no Lease.
pub fn judge(lease: &Fact<Option<LeaderLease>>) -> Check {
    let name = Name::Leader;
    let subject = format!("Lease {SYSTEM}/{LEASE}");
    let remedy = format!("look at the engine: kubectl -n {SYSTEM} logs deployment/eno-engine");
    let lease = match lease {
        Ok(Some(lease)) => lease,
        Ok(None) => {
            return Check::failed(
                name,
                subject,
                Problem::new("no engine has led yet: there is no Lease", remedy),
            );
        }
        Err(unread) => return Check::unread(name, subject, unread),
    };
    let Some(holder) = lease.holder.as_deref().filter(|holder| !holder.is_empty()) else {
        return Check::failed(
            name,
            subject,
            Problem::new("no engine leads: the last one released the Lease", remedy),
        );
    };
    let subject = format!("{subject}: {holder} leads");
    if lease.renewed_meanwhile || lease.is_fresh() {
        return Check::ok(name, subject);
    }
    let what = match lease.renewed {
        Some(renewed) => format!(
            "no engine leads: {holder} renewed the Lease {} s ago, and it is valid for {} s",
            lease.at.duration_since(renewed).as_secs(),
            lease.duration.as_secs()
        ),
        None => format!("no engine leads: {holder} never renewed the Lease"),
    };
    Check::failed(name, format!("Lease {SYSTEM}/{LEASE}"), Problem::new(what, remedy))
}

#[cfg(test)]
mod tests {
    use super::super::Unread;
    use super::super::tests::assert_outcome;
    use super::*;

    #[test]
    fn a_lease_must_be_held_and_fresh() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let lease = |holder: &str, age: i64, renewed_meanwhile| {
            Ok(Some(LeaderLease {
                holder: Some(holder.to_owned()),
                renewed: Some(now - SignedDuration::from_secs(age)),
                duration: SignedDuration::from_secs(10),
                at: now,
                renewed_meanwhile,
            }))
        };
        for (lease, expected) in [
            (lease("engine-1", 2, false), "ok"),
            // The engine's clock is wrong.
            (lease("engine-1", 200, true), "ok"),
            (lease("engine-1", 30, false), "failed: engine-1 renewed the Lease 30 s ago"),
            (lease("", 1, false), "failed: released"),
            (Ok(None), "failed: no Lease"),
            (Ok(Some(LeaderLease { holder: Some("a".into()), ..LeaderLease::default() })), "failed: never"),
            (Err(Unread::Forbidden("get leases".into())), "skipped: get leases"),
        ] {
            assert_outcome(&judge(&lease), expected);
        }
    }
}
