//! What an interface had before it was changed, where the kernel does not tell it any more.
//!
//! It is written on the interface itself ([`mark::Former`]), as an alternative name, before it is changed: once for each
//! property. When nothing is asked of that any more, the interface gets it back, and the name goes.

use eno_schemas::PodLink;

use super::{Op, Planner};
use crate::netlink::{Link, Request};
use crate::pods::mark::{self, Former, Property};

impl Planner<'_> {
    /// What `property` was before it was changed, if it was.
    pub(super) fn former(&self, link: &PodLink, found: &Link, property: &Property) -> Option<Former> {
        mark::formers(self.wanted.cluster, self.wanted.uid, &link.id, found).remove(property)
    }

    /// Before `property` is changed: `value` is what it is, unless that is written down already.
    pub(super) fn remember(&mut self, link: &PodLink, found: &Link, property: &Property, value: &str) {
        if self.former(link, found, property).is_none() {
            let (cluster, uid) = (self.wanted.cluster, self.wanted.uid);
            let altname = mark::former_altname(cluster, uid, &link.id, property, value);
            let request = Request::add_altname(&found.name, found.index, &altname);
            self.push(Some(&link.id), Op::Remember(request));
        }
    }

    /// It has it back.
    pub(super) fn given_back(&mut self, link: &PodLink, found: &Link, former: &Former) {
        self.in_pod(link, Request::delete_altname(&found.name, found.index, &former.altname));
    }
}
