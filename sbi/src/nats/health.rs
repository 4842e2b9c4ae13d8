//! Health of the NATS connection, for probes and metrics.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use async_nats::connection::State;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Connection;

/// The NATS connection as probes and metrics see it, also before it exists. A server that misses its pings
/// counts as disconnected (`ping_interval`).
#[derive(Clone, Default)]
pub struct NatsHealth(Arc<OnceLock<Connection>>);

impl NatsHealth {
    /// Sets the first connection.
    pub fn set(&self, connection: &Connection) {
        // The client reconnects by itself, so it is set once.
        let _ = self.0.set(connection.clone());
    }

    /// `Err` describes what is missing: the connection, or space for what this process writes.
    pub fn check(&self) -> Result<(), String> {
        self.check_connection()?.store.check()
    }

    fn check_connection(&self) -> Result<&Connection, String> {
        let connection = self.0.get().ok_or("no connection to NATS yet")?;
        match connection.client.connection_state() {
            State::Connected => Ok(connection),
            _ => Err("NATS does not answer".into()),
        }
    }

    /// Adds the gauges `nats_connected` and `nats_refuses` and the counter `nats_sent_bytes` to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Collector for NatsHealth {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "1 while NATS answers";
        let metric = encoder.encode_descriptor("nats_connected", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(self.check_connection().is_ok())).encode(metric)?;
        let help = "1 while NATS stores nothing in a stream that this process writes";
        let metric = encoder.encode_descriptor("nats_refuses", help, None, MetricType::Gauge)?;
        let refuses = self.0.get().is_some_and(|connection| connection.store.check().is_err());
        ConstGauge::new(i64::from(refuses)).encode(metric)?;
        let help = "bytes that this process sent to NATS";
        let metric = encoder.encode_descriptor("nats_sent_bytes", help, None, MetricType::Counter)?;
        let sent =
            self.0.get().map(|connection| connection.client.statistics().out_bytes.load(Ordering::Relaxed));
        ConstCounter::new(sent.unwrap_or_default()).encode(metric)
    }
}

impl fmt::Debug for NatsHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NatsHealth").field(&self.check()).finish()
    }
}
