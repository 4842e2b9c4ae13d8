//! A receiver of callbacks, like an NFVO's.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use eno_lab::receiver::Answer;
pub use eno_lab::receiver::Callback;
use tokio::time::timeout;

use crate::TIMEOUT;

/// Listens until it is dropped, and takes every callback.
pub struct Receiver(eno_lab::receiver::Receiver);

impl Receiver {
    /// Starts listening on the loopback interface.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST).await
    }

    /// Starts listening at an address of this machine.
    pub async fn start_at(address: Ipv4Addr) -> Self {
        let receiver = eno_lab::receiver::Receiver::start_with(address, Box::new(|_, _| Answer::Taken));
        Self(receiver.await.expect("a free port"))
    }

    /// The value for `CallbackURL`.
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// The callbacks of one object, `Kind [namespace/]name`, in the order of arrival, without repeats.
    pub fn of(&self, object: &str) -> Vec<Callback> {
        let mut ids = BTreeSet::new();
        self.0.read(|seen| {
            let of_it = seen.iter().filter(|callback| callback.object == object);
            of_it.filter(|callback| ids.insert(callback.id.clone())).cloned().collect()
        })
    }

    /// The phases in one object's callbacks, in order, without repeats.
    pub fn phases(&self, object: &str) -> Vec<String> {
        self.of(object).into_iter().map(|callback| callback.phase).collect()
    }

    /// Checks that every callback of these objects came, in order, and returns their number.
    pub fn assert_complete(&self, objects: &[String]) -> usize {
        let of_object = |object: &String| {
            let numbers: Vec<_> = self.of(object).iter().map(|callback| callback.transition).collect();
            let complete: Vec<_> = (1..=numbers.len() as u64).collect();
            assert_eq!(numbers, complete, "the callbacks of {object}: {:?}", self.phases(object));
            numbers.len()
        };
        objects.iter().map(of_object).sum()
    }

    /// Discards the callbacks received so far.
    pub fn forget(&self) {
        self.0.take();
    }

    /// Waits until the last callback of each of these objects has this phase.
    pub async fn until(&self, objects: &[String], phase: &str) {
        let last = |seen: &[Callback], object: &str| {
            let last =
                seen.iter().filter(|callback| callback.object == object).max_by_key(|last| last.transition);
            last.map(|callback| callback.phase.clone())
        };
        let all =
            self.0.until(|seen| objects.iter().all(|object| last(seen, object).as_deref() == Some(phase)));
        if timeout(TIMEOUT, all).await.is_err() {
            let missing = self.0.read(|seen| {
                let last = objects.iter().map(|object| (object, last(seen, object)));
                last.filter(|(_, last)| last.as_deref() != Some(phase)).collect::<Vec<_>>()
            });
            panic!("no callback says {phase} of {} objects; their last ones say {missing:?}", missing.len());
        }
    }
}
