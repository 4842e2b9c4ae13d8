//! What has no effect in `Opts` of a ConnectionPoint. It is no error: the object is as ready as without it.

use crate::Key;

use super::Engine;
use super::judge::Verdict;

impl Engine {
    /// Adds the condition UnknownOpts where it holds.
    pub(super) fn note_unknown_opts(&self, key: &Key, verdict: &mut Verdict) {
        let unknown = self.records.get(key).filter(|record| !record.deleting);
        if let Some(words) = unknown.and_then(|record| record.unknown_opts.as_deref()) {
            verdict.notes.push(("UnknownOpts", true, "UnknownKey", words.to_owned()));
        }
    }
}
