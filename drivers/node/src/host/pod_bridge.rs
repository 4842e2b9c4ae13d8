//! Pod bridges: bridges without an uplink, for pods of this node only.
//!
//! A pod bridge may have addresses, so that its pods can reach the host. A policy rule selects the bridge's table for
//! packets *from such an address to its network*. So the host answers its pods, and no other traffic of the host uses
//! that table's routes.

use ipnet::IpNet;

use super::guard::{self, Refusal};
use super::ownership;
use super::plan::{ItemRef, Planner, bridge_message};
use crate::netlink::{Kind, Request, Rule};

impl Planner<'_> {
    pub(super) fn pod_bridge(
        &mut self,
        name: &str,
        addresses: &[IpNet],
        mtu: Option<u32>,
    ) -> Result<(), Refusal> {
        let item = ItemRef::Network(name.to_owned());
        guard::bridge_name(name)?;
        let found = self.owned_link(&item, name, |kind| matches!(kind, Kind::Bridge { .. }))?;
        self.claim_addresses(name, found.map(|bridge| bridge.index), addresses)?;
        let Some(bridge) = found else {
            let mac = ownership::mac(self.cluster, name).to_vec();
            let message = bridge_message(name, self.group, mtu).address(mac).build();
            self.step(&item, Request::add_link(name, message), format!("the bridge {name} was missing"));
            return Ok(());
        };
        if matches!(bridge.kind, Kind::Bridge { vlan_filtering: true, .. }) {
            let message = rtnetlink::LinkMessageBuilder::<rtnetlink::LinkBridge>::new(name)
                .index(bridge.index)
                .vlan_filtering(false)
                .build();
            let request = Request::change_link(format!("have {name} not filter VLANs"), message);
            self.step(&item, request, format!("the bridge {name} filtered VLANs"));
        }
        self.own_addresses(&item, bridge, addresses);
        self.configure(&item, bridge, mtu);
        for net in addresses.iter().filter(|net| net.prefix_len() < net.max_prefix_len()) {
            let rule = Self::rule_of(bridge, net.addr().is_ipv6());
            self.own_rule(&item, Rule { from: Some(net.addr().into()), to: Some(net.trunc()), ..rule });
        }
        self.own_routes(&item, bridge, addresses, std::iter::empty());
        Ok(())
    }
}
