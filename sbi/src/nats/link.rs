//! Whether NATS answers, for probes and metrics.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_nats::Client;
use async_nats::connection::State;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The connection to NATS as probes and metrics see it, also before there is one. A server that is asked for a sign of
/// life and gives none counts as gone (`ping_interval`).
#[derive(Clone, Default)]
pub struct Link(Arc<OnceLock<Client>>);

impl Link {
    /// The first connection is there.
    pub fn set(&self, client: Client) {
        // It reconnects by itself, so there is one only.
        let _ = self.0.set(client);
    }

    /// `Err` says what is missing.
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

impl Collector for Link {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "1 while NATS answers";
        let metric = encoder.encode_descriptor("nats_connected", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(self.check().is_ok())).encode(metric)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.check()).finish()
    }
}
