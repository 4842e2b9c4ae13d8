//! How BGP speakers on nodes of a [`World`](super::World) answer devices.

use std::collections::BTreeMap;
use std::net::IpAddr;

use eno_core::Target;
use eno_schemas::{BgpError, BgpGroup, BgpSession, BgpState, FabricDesired, Outcome};

use super::World;

/// By address of a node: the state of its session, and the last NOTIFICATION. Others are established.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Speakers(pub BTreeMap<IpAddr, (BgpState, Option<BgpError>)>);

impl Speakers {
    /// The sessions that a device knows. `state`: what it has; `desired`: what is commanded.
    pub fn sessions(
        &self,
        state: &FabricDesired,
        desired: Option<&FabricDesired>,
    ) -> BTreeMap<String, Vec<BgpSession>> {
        let groups = |fabric: &'_ FabricDesired| -> Vec<BgpGroup> {
            fabric.vrfs.iter().flat_map(|vrf| vrf.bgp.clone()).collect()
        };
        let wanted = desired.map(groups).unwrap_or_default();
        let there = groups(state).into_iter().filter(|group| wanted.contains(group));
        let session = |address: &IpAddr| {
            let (state, last_error) = self.0.get(address).copied().unwrap_or((BgpState::Established, None));
            BgpSession { address: *address, state, since: None, last_error }
        };
        let of = |group: BgpGroup| {
            let is_offered =
                |address: &&IpAddr| group.dynamic_neighbours.iter().any(|net| net.contains(*address));
            let connected = self.0.keys().filter(is_offered);
            (group.owner.clone(), group.neighbours.iter().chain(connected).map(session).collect())
        };
        there.map(of).collect()
    }
}

impl World {
    /// The speaker at an address answers otherwise, and the driver of a device reports that.
    pub fn speak(&mut self, device: &str, address: &str, state: BgpState, error: Option<BgpError>) {
        self.speakers.0.insert(address.parse().unwrap(), (state, error));
        let target = Target::Fabric(device.into());
        let command = self.command(&target);
        self.send_report(&target, &command, Outcome::Applied, Vec::new());
        self.settle();
    }
}
