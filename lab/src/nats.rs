//! What a sandbox's NATS stores, read as the read-only user.

use std::time::Duration;

use anyhow::Context as _;
use eno::messages::{Messages, command};
use eno_control_plane::NatsUser;
use eno_sbi::nats::{Connection, NatsArgs, connect};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::sandbox::Sandbox;

/// Maximum time for a connection to NATS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects as the read-only user.
pub(crate) async fn connect_inspector(sandbox: &Sandbox) -> anyhow::Result<Connection> {
    let nats = sandbox.control_plane().nats();
    let args = NatsArgs {
        nats_url: nats.url.clone(),
        nats_credentials: Some(nats.seed_of(NatsUser::Inspect)),
        nats_ca: None,
        nats_replicas: 1,
    };
    let stop = CancellationToken::new();
    let connection = tokio::time::timeout(CONNECT_TIMEOUT, connect(&args, "eno-cli", &stop)).await;
    Ok(connection.context("NATS does not let us in")??)
}

/// The last command of a target as a whole one, also if it is stored in parts. `None`: there is none that can be read.
pub async fn last_command(sandbox: &Sandbox, driver: &str, target: &str) -> anyhow::Result<Option<Value>> {
    let messages = Messages::Nats(Box::new(connect_inspector(sandbox).await?));
    let command = command(&messages, driver, target).await?;
    command.map(|command| serde_json::to_value(command).context("writing a command")).transpose()
}
