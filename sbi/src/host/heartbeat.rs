//! The driver's presence in the drivers bucket.

use std::time::Duration;

use eno_schemas::{DriverHello, MessageError, encode, subject};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::nats::{Connection, bucket};
use crate::work::PARTS;

const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// The same after a failure, as while the bucket does not exist yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Puts `hello` with the current time into the drivers bucket at each [`RENEWAL_INTERVAL`], and deletes it when `stop`
/// is cancelled. Adds the capability [`PARTS`] once `reads_parts` is true. Waits while it is `None`: a process that seems
/// to read whole commands only would have all of them sent again.
pub(super) async fn run(
    connection: Connection,
    mut hello: DriverHello,
    mut reads_parts: watch::Receiver<Option<bool>>,
    stop: CancellationToken,
) -> Result<(), MessageError> {
    let key = subject::key(&hello.driver, &hello.instance);
    let place = (subject::DRIVERS, &*key);
    tokio::select! {
        _ = reads_parts.wait_for(Option::is_some) => {}
        () = stop.cancelled() => return Ok(()),
    }
    while !stop.is_cancelled() {
        if *reads_parts.borrow_and_update() == Some(true)
            && !hello.capabilities.iter().any(|one| one == PARTS)
        {
            hello.capabilities.push(PARTS.to_owned());
        }
        let now = DriverHello { at: Some(Timestamp::now().to_string()), ..hello.clone() };
        let renewed = bucket::put(&connection.jetstream, place, encode(&now)?.into(), None).await;
        connection.store.note(subject::DRIVERS, &renewed);
        let delay = match renewed {
            Ok(_) => RENEWAL_INTERVAL,
            Err(error) => {
                debug!(%error, "renewing the driver's presence");
                RETRY_INTERVAL
            }
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            Ok(()) = reads_parts.changed() => {}
            () = stop.cancelled() => {}
        }
    }
    if let Err(error) = bucket::remove(&connection.jetstream, place, None).await {
        debug!(%error, "taking the driver's presence back");
    }
    Ok(())
}
