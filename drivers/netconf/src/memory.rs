//! The memory that the configurations of devices take.

use std::sync::Arc;

use eno_sbi::{Memory, Share, TooLarge};

/// What is read of devices. The container's limit is more than twice that of all devices together. The configuration
/// of a device with 4,094 VLANs on 48 ports takes about half of that of one device.
static MEMORY: Memory = Memory::new(96 << 20, 176 << 20);

/// An entry of a map or a list, beside its content.
const ENTRY: usize = 64;
/// Bytes up to which a text is part of the figure of its entry.
const SHORT: usize = 32;
/// A VLAN that an interface uses for something else, with its description.
const TAKEN: usize = 96;
/// A set of VLANs that is not empty.
const SET: usize = 512;

/// Counts what a parser keeps of a reply, while it reads.
#[derive(Debug)]
pub(crate) struct Counter(Share);

impl Default for Counter {
    fn default() -> Self {
        Self(MEMORY.share())
    }
}

impl Counter {
    /// So many bytes. [`Self::check`] returns the error.
    pub(crate) fn bytes(&mut self, bytes: usize) {
        let _ = self.0.add(bytes);
    }

    /// An entry with so many bytes of its own.
    pub(crate) fn entry(&mut self, bytes: usize) {
        self.bytes(ENTRY + bytes);
    }

    /// A set of VLANs.
    pub(crate) fn set(&mut self) {
        self.bytes(SET);
    }

    /// Ranges of VLANs.
    pub(crate) fn ranges(&mut self, number: usize) {
        self.bytes(8 * number);
    }

    /// VLANs that an interface uses for something else.
    pub(crate) fn taken(&mut self, number: usize) {
        self.bytes(TAKEN * number);
    }

    /// A text that may be kept in an entry.
    pub(crate) fn text(&mut self, text: &str) {
        if text.len() > SHORT {
            self.bytes(text.len());
        }
    }

    /// The bytes that were counted.
    #[cfg(test)]
    pub(crate) fn counted(&self) -> usize {
        self.0.bytes()
    }

    /// Whether all that was counted may be kept.
    pub(crate) fn check(&self) -> Result<(), TooLarge> {
        self.0.check()
    }
}

/// The memory of an [`ObservedConfig`](crate::plan::ObservedConfig) or of [`Found`](crate::stations::Found), until that is
/// dropped.
#[derive(Clone, Debug, Default)]
pub struct Kept(#[expect(dead_code, reason = "dropping it gives the memory back")] Option<Arc<Counter>>);

impl From<Counter> for Kept {
    fn from(counter: Counter) -> Self {
        Self(Some(Arc::new(counter)))
    }
}
