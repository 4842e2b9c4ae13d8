//! The users that keep an object from being deleted.

use crate::Key;
use crate::kinds::Users;
use crate::name::and_more;
use crate::validate::Validator;

impl Validator<'_> {
    /// The user that keeps an object from being deleted, as text.
    pub fn blocking_user(&self, key: &Key) -> Option<String> {
        match key.kind.facts().users {
            Users::Pods => return self.nad.blocking_pods(self.store, key),
            Users::BridgeLinks => return self.pods.blocking_bridge_user(self.store, key),
            Users::Referrers => {}
        }
        let counts = |user: &&Key| self.store.get(user).is_some_and(|record| !record.generated);
        let mut users = self.store.referrers(key).filter(counts).peekable();
        let first = *users.peek()?;
        let name =
            first.namespace().map_or_else(|| first.name.to_string(), |ns| format!("{ns}/{}", first.name));
        Some(and_more(&format!("{} {name}", first.kind), users.count()))
    }
}
