//! Limits of a client.

use std::time::Duration;

/// Limits of a client.
///
/// ```
/// use std::time::Duration;
/// let options = eno_ovsdb::Options { probe_interval: Duration::from_secs(1), ..Default::default() };
/// assert_eq!(options.max_in_flight, 128);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time that a request waits for a connection. 5 s.
    pub connection_wait: Duration,
    /// Time that a request waits for its reply. 10 s.
    pub request_timeout: Duration,
    /// Time limit of connecting, including the TLS handshake. 5 s.
    pub connect_timeout: Duration,
    /// Silence after which the server is sent an `echo`. After twice this it is disconnected. 5 s.
    pub probe_interval: Duration,
    /// Delay before the first reconnect, doubled with each failure, with jitter. 50 ms.
    pub min_backoff: Duration,
    /// Maximum delay before a reconnect. 5 s.
    pub max_backoff: Duration,
    /// Maximum requests without a reply; further ones wait. 128.
    pub max_in_flight: usize,
    /// Maximum bytes of a server's message. 16 MiB.
    pub max_message: usize,
    /// Maximum bytes that a message takes in memory once it is parsed. 64 MiB.
    pub max_parsed: usize,
    /// Maximum bytes of a mirror's replica. 32 MiB.
    pub max_replica: usize,
    /// Maximum bytes of the replicas of all clients of the process. One that is small is kept all the same. 96 MiB.
    pub max_replicas: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connection_wait: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            probe_interval: Duration::from_secs(5),
            min_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(5),
            max_in_flight: 128,
            max_message: 16 << 20,
            max_parsed: 64 << 20,
            max_replica: 32 << 20,
            max_replicas: 96 << 20,
        }
    }
}
