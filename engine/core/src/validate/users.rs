//! The users that keep an object from being deleted.

use crate::key::and_more;
use crate::validate::Validator;
use crate::{Key, Kind};

impl Validator<'_> {
    /// The user that keeps an object from being deleted, as text.
    pub fn blocking_user(&self, key: &Key) -> Option<String> {
        if key.kind == Kind::L2ServiceAttachment {
            return self.nad.blocking_pods(self.store, key);
        }
        if key.kind == Kind::Bridge {
            return self.pods.blocking_bridge_user(self.store, key);
        }
        let links = key.kind == Kind::FabricDevice;
        let counts = |user: &&Key| !links && self.store.get(user).is_some_and(|record| !record.generated);
        let mut users = self.store.referrers(key).filter(counts).peekable();
        let first = *users.peek()?;
        let name =
            first.namespace().map_or_else(|| first.name.to_string(), |ns| format!("{ns}/{}", first.name));
        Some(and_more(&format!("{} {name}", first.kind), users.count()))
    }
}
