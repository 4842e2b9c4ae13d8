//! Answers to what came in by an interface leave by it, also those of pods behind NAT.
//!
//! A new connection that comes in by the interface gets a mark. Packets of the other direction take that mark over,
//! and a policy rule leads them to the interface's table, which has a default route to the gateway. Connection tracking
//! knows packets of a pod before their addresses are translated back, and so before they are routed.

use std::net::IpAddr;

use eno_schemas::MarkMask;
use netlink_packet_netfilter::nftables::MetaKey;

use super::guard::Refusal;
use super::ownership;
use super::plan::{ItemRef, Planner};
use crate::netlink::nftables::{self, Connection};
use crate::netlink::{Link, MarkChain, MarkPlace, MarkRule, Rule, TableChange};

/// Interfaces of data planes in eBPF, which translate addresses without the kernel's connection tracking.
const EBPF_INTERFACES: [(&str, &str); 2] = [("cilium_host", "Cilium"), ("bpfin.cali", "Calico")];

/// The first gateway of each family.
pub(super) fn first_of_each_family(gateways: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    [IpAddr::is_ipv4, IpAddr::is_ipv6].into_iter().filter_map(|is| gateways.iter().copied().find(is))
}

impl Planner<'_> {
    /// Checks that connections of this host can be marked.
    pub(super) fn check_return_path(&self) -> Result<(), Refusal> {
        let found = EBPF_INTERFACES.into_iter().find(|(name, _)| self.state.named(name).is_some());
        found.map_or(Ok(()), |(name, data_plane)| Err(Refusal::Ebpf { name, data_plane }))
    }

    /// Plans what leads answers back by an interface to gateways.
    pub(super) fn return_path(
        &mut self,
        item: &ItemRef,
        link: &Link,
        gateways: &[IpAddr],
    ) -> Result<(), Refusal> {
        let mask = self.state.installation.return_path_mask;
        let mark = self.free_mark(link, mask).ok_or(Refusal::Marks { mask })?;
        let chains = chains(&link.name, link.index, mask, mark);
        let is_there = |chain: &MarkChain| self.state.chains.get(&chain.name) == Some(&chain.rules);
        if !chains.iter().all(is_there) {
            let change = TableChange::set(&link.name, &chains);
            self.step(item, change, format!("connections by {} were not marked", link.name));
        }
        self.chains.extend(chains.into_iter().map(|chain| chain.name));
        for gateway in first_of_each_family(gateways) {
            let rule = Self::rule_of(link, gateway.is_ipv6());
            self.own_rule(item, Rule { mark: Some((mark, mask.bits())), ..rule });
        }
        Ok(())
    }

    /// The mark of an interface, of which its policy rules are the record; else the first that no other has.
    fn free_mark(&self, link: &Link, mask: MarkMask) -> Option<u32> {
        let rules = || {
            let known = self.state.snapshot.rules.iter().filter(|rule| ownership::is_table(rule.table));
            known.chain(&self.rules).filter_map(|rule| Some((rule.table, rule.mark?.0)))
        };
        let table = ownership::table(link.index);
        let is_free = |mark: &u32| rules().all(|(other, taken)| other == table || taken != *mark);
        let own = rules().find(|(other, mark)| *other == table && mask.marks().any(|known| known == *mark));
        own.map(|(_, mark)| mark).filter(is_free).or_else(|| mask.marks().find(is_free))
    }

    /// Keeps the chains of a refused network.
    pub(super) fn keep_chains(&mut self, name: &str) {
        let there = names(name).into_iter().filter(|name| self.state.chains.contains_key(name));
        self.chains.extend(there);
    }

    /// Deletes chains of ENO's table whose interface does not lead answers back.
    pub(super) fn remove_stale_chains(&mut self, item: &ItemRef) {
        let state = self.state;
        let (kept, stale): (Vec<&String>, Vec<&String>) =
            state.chains.keys().partition(|name| self.chains.contains(*name));
        if kept.is_empty() && !stale.is_empty() {
            // No table stays without chains, also if the agent ends now.
            return self.step(item, TableChange::delete_table(), "the table eno of nftables is not wanted");
        }
        for name in stale {
            self.step(item, TableChange::delete(name), format!("the chain {name} is not wanted"));
        }
    }
}

fn names(interface: &str) -> [String; 2] {
    [format!("{interface}-incoming"), format!("{interface}-own")]
}

/// The chains that mark the connections of an interface, and answers to them.
pub(super) fn chains(interface: &str, index: u32, mask: MarkMask, mark: u32) -> [MarkChain; 2] {
    let mark_new: MarkRule = vec![
        nftables::read_packet(MetaKey::Iif),
        nftables::demand(&index.to_ne_bytes()),
        nftables::read_connection(Connection::State),
        nftables::change(nftables::STATE_NEW, 0),
        nftables::refuse(&0_u32.to_ne_bytes()),
        nftables::read_connection(Connection::Mark),
        nftables::change(!mask.bits(), mark),
        nftables::write_connection_mark(),
    ];
    let mark_answers: MarkRule = vec![
        nftables::read_connection(Connection::Direction),
        nftables::demand(&[nftables::DIRECTION_REPLY]),
        nftables::read_connection(Connection::Mark),
        nftables::change(mask.bits(), 0),
        nftables::demand(&mark.to_ne_bytes()),
        nftables::read_packet(MetaKey::Mark),
        nftables::change(!mask.bits(), mark),
        nftables::write_packet_mark(),
    ];
    let [incoming, own] = names(interface);
    [
        MarkChain { name: incoming, place: MarkPlace::Incoming, rules: vec![mark_new, mark_answers.clone()] },
        MarkChain { name: own, place: MarkPlace::Own, rules: vec![mark_answers] },
    ]
}
