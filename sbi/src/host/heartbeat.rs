//! The driver's presence in the drivers bucket.

use std::time::Duration;

use eno_schemas::{DriverHello, MessageError, encode, subject};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::nats::Connection;

const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// Puts `hello` into the drivers bucket at each [`RENEWAL_INTERVAL`], and deletes it when `stop` is
/// cancelled.
pub(super) async fn run(
    connection: Connection,
    hello: DriverHello,
    stop: CancellationToken,
) -> Result<(), MessageError> {
    let key = subject::key(&hello.driver, &hello.instance);
    let bytes = encode(&hello)?;
    let mut delay = RENEWAL_INTERVAL;
    while !stop.is_cancelled() {
        match connection.jetstream.get_key_value(subject::DRIVERS).await {
            Ok(store) => {
                let renewed = store.put(&key, bytes.clone().into()).await;
                connection.store.note(subject::DRIVERS, &renewed);
                match renewed {
                    Ok(_) => delay = RENEWAL_INTERVAL,
                    Err(error) => warn!(%error, "renewing the driver's presence"),
                }
            }
            Err(error) => {
                debug!(%error, "no bucket of drivers");
                delay = Duration::from_millis(500);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stop.cancelled() => {}
        }
    }
    if let Ok(store) = connection.jetstream.get_key_value(subject::DRIVERS).await
        && let Err(error) = store.delete(&key).await
    {
        debug!(%error, "taking the driver's presence back");
    }
    Ok(())
}
