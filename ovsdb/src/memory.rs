//! Counts what the process keeps of the answers of servers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are kept whatever others take.
const SMALL: usize = 1 << 20;

/// A value of JSON, in a list that grows by doubling.
pub(crate) const VALUE: usize = 64;
/// A map that is not empty.
pub(crate) const MAP: usize = 640;
/// An entry of a map, beside its value.
pub(crate) const ENTRY: usize = 112;

/// The bytes of one thing, and of all that count in `all`.
#[derive(Debug)]
pub(crate) struct Size {
    bytes: usize,
    all: &'static AtomicUsize,
}

impl Size {
    pub(crate) const fn new(all: &'static AtomicUsize) -> Self {
        Self { bytes: 0, all }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn remove(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// True when it is not small, and all take more than `limit`.
    pub(crate) fn is_one_of_too_many(&self, limit: usize) -> bool {
        self.bytes > SMALL && self.all.load(Ordering::Relaxed) > limit
    }
}

impl Clone for Size {
    fn clone(&self) -> Self {
        let mut new = Self::new(self.all);
        new.add(self.bytes);
        new
    }
}

impl Drop for Size {
    fn drop(&mut self) {
        self.remove(self.bytes);
    }
}

// It follows from what it is the size of.
impl PartialEq for Size {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Size {}
