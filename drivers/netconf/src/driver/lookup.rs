//! Answers the lookup of a command: on which ports the device has learnt the MAC addresses of probes.
//!
//! The MAC table is read once for each value of the lookup, and never without one. A device that can't answer keeps all
//! that was applied, and is not asked again before another value. A read whose session broke is no answer: the next
//! reconcile reads again.

use eno_fabric_driver::report::answer_lookup;
use eno_sbi::Reconciled;
use eno_schemas::{Applied, FabricDesired, Lookup};

use super::{Device, OpenSession};
use crate::session::{CallError, Session as _};
use crate::stations::{Found, Wanted};

/// The answer to the last lookup.
pub(super) struct Answer {
    revision: String,
    /// What was found, or why nothing was asked.
    found: Result<Found, String>,
}

impl Device {
    /// Puts the answer into the report on a state that was read back. Returns false when the session is of no further use.
    pub(super) async fn answer_lookup(
        &mut self,
        open_session: &OpenSession,
        desired: &FabricDesired,
        reconciled: &mut Reconciled,
    ) -> bool {
        let Some(revision) = &desired.lookup else {
            self.answer = None;
            return true;
        };
        let Some(Applied::Fabric { lookup, .. }) = &mut reconciled.applied else { return true };
        let mut is_answered = true;
        let kept = self.answer.take().filter(|answer| answer.revision == *revision);
        let answer = if let Some(kept) = kept {
            kept
        } else {
            let read = read(open_session, desired).await;
            is_answered = read.is_ok();
            let found = read.unwrap_or_else(|error| Err(error.to_string()));
            Answer { revision: revision.clone(), found }
        };
        match &answer.found {
            Ok(Found { stations, .. }) => {
                // Another command with the same lookup may list fewer ports.
                let is_listed = |port: &String| desired.ports.iter().any(|listed| listed.name == *port);
                let stations = stations.iter().filter(|station| is_listed(&station.port)).cloned().collect();
                *lookup = Some(Lookup { revision: revision.clone(), stations });
            }
            Err(why) => answer_lookup(desired, reconciled, || why.clone()),
        }
        self.answer = Some(answer).filter(|_| is_answered);
        is_answered
    }
}

/// Reads the MAC table. An error: the session is of no further use.
async fn read(
    open_session: &OpenSession,
    desired: &FabricDesired,
) -> Result<Result<Found, String>, CallError> {
    let dialect = open_session.dialect;
    let Some(table) = dialect.mac_table() else {
        return Ok(Err(format!("the dialect {} reads no MAC tables", dialect.name())));
    };
    let reply = match open_session.session.call(table.mac_table_request()).await {
        Err(refused @ CallError::Refused { .. }) => return Ok(Err(refused.to_string())),
        reply => reply?,
    };
    let found = table.parse_mac_table(&reply, &Wanted::of(desired));
    Ok(found.map_err(|error| format!("its MAC table can't be read: {error}")))
}
