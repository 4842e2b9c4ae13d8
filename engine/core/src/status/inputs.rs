//! A hash of an object's inputs that is the same in every process and build.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Collects the inputs of an object, part by part.
#[derive(Debug, Default)]
pub(crate) struct Inputs(Vec<u8>);

impl Inputs {
    /// Adds a part.
    pub fn add(&mut self, part: &(impl Serialize + ?Sized)) {
        // Serialising can't fail: all keys are text, and a vector takes all bytes.
        let _ = serde_json::to_writer(&mut self.0, part);
        self.0.push(b'\n');
    }

    /// SHA-256 over the parts as JSON, each on a line; the first 8 bytes.
    pub fn finish(&self) -> u64 {
        let digest = Sha256::digest(&self.0);
        digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_hash_is_stable_across_builds() {
        let mut inputs = Inputs::default();
        inputs.add(&100_u16);
        inputs.add("dc-gw");
        assert_eq!(inputs.finish(), 0xeac9_faeb_0c3e_2df1);
    }

    #[test]
    fn inputs_hash_separates_parts() {
        let number = |parts: &[&[u8]]| {
            let mut inputs = Inputs::default();
            for part in parts {
                inputs.add(part);
            }
            inputs.finish()
        };
        assert_ne!(number(&[&[1, 2], &[3]]), number(&[&[1], &[2, 3]]));
        assert_ne!(number(&[&[1, 2]]), number(&[&[1], &[2]]));
    }
}
