//! Health of the NATS connection, for probes and metrics.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_nats::Client;
use async_nats::connection::State;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The NATS connection as probes and metrics see it, also before it exists. A server that misses its pings
/// counts as disconnected (`ping_interval`).
#[derive(Clone, Default)]
pub struct NatsHealth(Arc<OnceLock<Client>>);

impl NatsHealth {
    /// Sets the first connection.
    pub fn set(&self, client: Client) {
        // The client reconnects by itself, so it is set once.
        let _ = self.0.set(client);
    }

    /// `Err` describes what is missing.
    pub fn check(&self) -> Result<(), String> {
        match self.0.get().map(Client::connection_state) {
            Some(State::Connected) => Ok(()),
            Some(_) => Err("NATS does not answer".into()),
            None => Err("no connection to NATS yet".into()),
        }
    }

    /// Adds the gauge `nats_connected` to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Collector for NatsHealth {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "1 while NATS answers";
        let metric = encoder.encode_descriptor("nats_connected", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(self.check().is_ok())).encode(metric)
    }
}

impl fmt::Debug for NatsHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NatsHealth").field(&self.check()).finish()
    }
}
