//! What an interface had before it was changed, where the kernel does not tell it any more.
//!
//! It is written on the interface itself ([`ownership::OriginalValue`]), as an alternative name, before it is changed: once for each
//! property. When nothing is asked of that any more, the interface gets it back, and the name goes.

use eno_schemas::PodLink;

use super::{Op, Planner};
use crate::netlink::{Link, Request};
use crate::pods::ownership::{self, OriginalValue, Property};

impl Planner<'_> {
    /// What `property` was before it was changed, if it was.
    pub(super) fn original(
        &self,
        link: &PodLink,
        found: &Link,
        property: &Property,
    ) -> Option<OriginalValue> {
        ownership::original_values(self.desired.cluster, self.desired.uid, &link.id, found).remove(property)
    }

    /// Before `property` is changed: `value` is what it is, unless that is written down already.
    pub(super) fn record_original(&mut self, link: &PodLink, found: &Link, property: &Property, value: &str) {
        if self.original(link, found, property).is_none() {
            let (cluster, uid) = (self.desired.cluster, self.desired.uid);
            let altname = ownership::original_altname(cluster, uid, &link.id, property, value);
            let request = Request::add_altname(&found.name, found.index, &altname);
            self.push(Some(&link.id), Op::RecordOriginal(request));
        }
    }

    /// It has it back.
    pub(super) fn forget_original(&mut self, link: &PodLink, found: &Link, original: &OriginalValue) {
        self.in_pod(link, Request::delete_altname(&found.name, found.index, &original.altname));
    }
}
