//! Original values of an interface's properties that the kernel does not keep.
//!
//! Before a property is changed for the first time, its value is recorded in an alternative name of the interface
//! ([`ownership::OriginalValue`]). When the property is not desired any more, the value is restored and the name
//! deleted.

use eno_schemas::PodLink;

use super::{Op, Planner, Setting};
use crate::netlink::{Link, Request};
use crate::pods::ownership::{self, OriginalValue, Property};

impl Planner<'_> {
    /// The recorded original value of `property`, if there is one.
    pub(super) fn original(
        &self,
        link: &PodLink,
        found: &Link,
        property: &Property,
    ) -> Option<OriginalValue> {
        ownership::original_values(self.desired.cluster, self.desired.uid, &link.id, found).remove(property)
    }

    /// Records `value` as the original value of `property`, unless one is recorded. To be called before a change.
    pub(super) fn record_original(&mut self, link: &PodLink, found: &Link, property: &Property, value: &str) {
        if self.original(link, found, property).is_none() {
            let (cluster, uid) = (self.desired.cluster, self.desired.uid);
            let altname = ownership::original_altname(cluster, uid, &link.id, property, value);
            self.push(Some(&link.id), Op::RecordOriginal(Setting::Altname(altname).of(found)));
        }
    }

    /// Deletes the record of an original value that is restored.
    pub(super) fn forget_original(&mut self, link: &PodLink, found: &Link, original: &OriginalValue) {
        self.in_pod(link, Request::delete_altname(&found.name, found.index, &original.altname));
    }
}
