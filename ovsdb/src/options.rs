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
    /// How long a request waits for a connection to be there. 5 s.
    pub patience: Duration,
    /// How long a request waits for its reply. 10 s.
    pub request_timeout: Duration,
    /// How long connecting may take, with the TLS handshake. 5 s.
    pub connect_timeout: Duration,
    /// After how long a silence the server is asked for an `echo`; after twice this it is given up. 5 s.
    pub probe_interval: Duration,
    /// The pause before connecting again, doubled with each failure, with jitter. 50 ms.
    pub min_backoff: Duration,
    /// The longest such pause. 5 s.
    pub max_backoff: Duration,
    /// How many requests may be without a reply; others wait. 128.
    pub max_in_flight: usize,
    /// How many bytes a message of the server may have. 64 MiB.
    pub max_message: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            probe_interval: Duration::from_secs(5),
            min_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(5),
            max_in_flight: 128,
            max_message: 64 << 20,
        }
    }
}
