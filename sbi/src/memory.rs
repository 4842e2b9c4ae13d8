//! Bounds the memory that the answers of devices and clouds take.
//!
//! A [`Memory`] has two limits: one for each [`Share`], which is what one device makes the process keep, and one for all
//! shares together. Who exceeds a limit gets an error, and gives its memory back. Nobody waits, so nobody waits for a
//! device that never ends its answer.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What a share gets while all others have used up the limit, so that devices with little to say are not affected.
const RESERVE: usize = 1 << 20;

/// Counts the bytes that a process keeps of answers.
#[derive(Debug)]
pub struct Memory {
    each: usize,
    all: usize,
    used: AtomicUsize,
}

/// An answer is larger than what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// More than one device may take.
    #[error(
        "it answers more than this driver keeps of one device, {} MiB: let the credential's user see less there, or \
         find out why it has so much",
        limit >> 20
    )]
    Each {
        /// The limit in bytes.
        limit: usize,
    },
    /// More than is left.
    #[error(
        "it answers more than the driver can keep now: answers of all devices take {} MiB at most. It is tried again; if \
         this lasts, one of them answers too much",
        limit >> 20
    )]
    All {
        /// The limit in bytes.
        limit: usize,
    },
}

impl Memory {
    /// Limits in bytes: of each share, and of all together.
    pub const fn new(each: usize, all: usize) -> Self {
        Self { each, all, used: AtomicUsize::new(0) }
    }

    /// An empty share.
    pub const fn share(&'static self) -> Share {
        Share { of: self, bytes: 0, refused: None }
    }

    /// The bytes of all shares.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one device makes the process keep. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Share {
    of: &'static Memory,
    bytes: usize,
    refused: Option<TooLarge>,
}

impl Share {
    /// Counts further bytes. After an error it counts no more, and returns the same error.
    pub fn add(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.check()?;
        let Memory { each, all, used } = self.of;
        let own = self.bytes.saturating_add(bytes);
        if own > *each {
            self.refused = Some(TooLarge::Each { limit: *each });
        } else if used.fetch_add(bytes, Ordering::Relaxed) + bytes > *all && own > RESERVE {
            used.fetch_sub(bytes, Ordering::Relaxed);
            self.refused = Some(TooLarge::All { limit: *all });
        } else {
            self.bytes = own;
        }
        self.check()
    }

    /// The error of an earlier [`add`](Self::add).
    pub fn check(&self) -> Result<(), TooLarge> {
        self.refused.map_or(Ok(()), Err)
    }

    /// Gives back bytes that were counted.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.of.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The counted bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The memory that JSON takes as a tree of values, about.
pub fn json_size(text: &[u8]) -> usize {
    /// A value, in a list that grows by doubling.
    const VALUE: usize = 64;
    /// A map that is not empty, and an entry of it beside its value.
    const MAP: usize = 640;
    const ENTRY: usize = 112;
    let (mut size, mut in_string, mut escaped) = (VALUE + text.len(), false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' if !in_string => size += VALUE,
            b'{' if !in_string => size += VALUE + MAP,
            b':' if !in_string => size += ENTRY,
            _ => {}
        }
    }
    size
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_ends_at_its_limit_and_gives_back() {
        static MEMORY: Memory = Memory::new(10, 100);
        let mut share = MEMORY.share();
        assert_eq!(share.add(10), Ok(()));
        assert_eq!(share.add(1), Err(TooLarge::Each { limit: 10 }));
        assert_eq!(share.add(0), Err(TooLarge::Each { limit: 10 }));
        assert_eq!((share.bytes(), MEMORY.used()), (10, 10));
        share.give_back(4);
        assert_eq!((share.bytes(), MEMORY.used()), (6, 6));
        assert_eq!(MEMORY.share().add(usize::MAX), Err(TooLarge::Each { limit: 10 }));
        drop(share);
        assert_eq!(MEMORY.used(), 0);
    }

    #[test]
    fn size_of_json_is_that_of_its_values() {
        for (text, values) in [
            ("0", 64),
            ("[0,0,0]", 4 * 64),
            (r#"{"a":[],"b":"c"}"#, 64 + 704 + 2 * 64 + 2 * 112),
            (r#""[,\\\",{:""#, 64),
        ] {
            assert_eq!(json_size(text.as_bytes()), values + text.len(), "{text}");
        }
    }

    #[test]
    fn small_shares_are_not_affected_by_large_ones() {
        static MEMORY: Memory = Memory::new(8 << 20, 12 << 20);
        let (mut one, mut two, mut small) = (MEMORY.share(), MEMORY.share(), MEMORY.share());
        one.add(8 << 20).unwrap();
        two.add(4 << 20).unwrap();
        assert_eq!(two.add(1), Err(TooLarge::All { limit: 12 << 20 }));
        assert_eq!(small.add(RESERVE), Ok(()));
        assert_eq!(small.add(1), Err(TooLarge::All { limit: 12 << 20 }));
        drop(one);
        assert_eq!(MEMORY.share().add(2 << 20), Ok(()));
        drop((two, small));
        assert_eq!(MEMORY.used(), 0);
    }
}
