//! The ports by which probes reach VLANs: pairs of interfaces, one end of which is in the namespace of probes.
//!
//! - On a bridge, the other end is a port on one VLAN. Ports move between VLANs, so there are few of them.
//! - On a NIC with VLAN subinterfaces, a macvlan is made on that of the VLAN, and deleted after its use.
//!
//! A port that nobody uses is down in the namespace, so it has no address and answers nothing.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::Arc;

use eno_schemas::{VlanId, VlanSet, probe_address, probe_mac};
use ipnet::{IpNet, Ipv6Net};
use tokio::time::Instant;
use tracing::debug;

use super::host_end::{Job, Network, Reach, ReachKind};
use super::schedule::Place;
use super::slots::{Link, Slots, Use};
use super::{ProbeError, namespace};
use crate::driver::Switch;
use crate::netlink::{Namespace, Netlink, Request};
use crate::ovs::{PortDesired, PortVlans};
use crate::pods::ownership::digest;

/// What is wanted of the ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaches {
    /// The cluster.
    pub cluster: String,
    /// The places to reach.
    pub places: BTreeMap<Place, Reach>,
}

/// The ports of a place.
#[derive(Debug)]
struct PortSet {
    reach: Reach,
    slots: Slots,
    /// A random number, so that ports which are made anew are known.
    number: u64,
}

impl PortSet {
    /// No ports yet.
    fn new(reach: Reach) -> Self {
        Self { reach, slots: Slots::default(), number: RandomState::new().build_hasher().finish() }
    }
}

/// VLANs on which this node is.
#[derive(Debug, Default)]
pub struct Placed {
    /// The index of the interface on each.
    pub there: BTreeMap<VlanId, u32>,
    /// Why it is not on others.
    pub failed: BTreeMap<VlanId, String>,
}

/// All ports of probes of this node.
pub struct Ports {
    node: String,
    /// The namespace of the host.
    host: Namespace,
    proc_sys_net: PathBuf,
    switch: Arc<Switch>,
    wanted: Reaches,
    /// The namespace of probes; absent: none is needed, or it could not be made.
    namespace: Option<Namespace>,
    /// True while echo requests are answered there.
    echo: bool,
    sets: BTreeMap<Place, PortSet>,
}

impl Ports {
    /// No ports.
    pub fn new(node: String, host: Namespace, proc_sys_net: PathBuf, switch: Arc<Switch>) -> Self {
        let (wanted, sets) = (Reaches::default(), BTreeMap::new());
        Self { node, host, proc_sys_net, switch, wanted, namespace: None, echo: false, sets }
    }

    /// The namespace of probes, if there is one.
    pub fn namespace(&self) -> Option<Namespace> {
        self.namespace.clone()
    }

    /// The address at which the agent of a node answers on a VLAN.
    pub fn address(&self, node: &str, place: &Place, vlan: VlanId) -> Ipv6Addr {
        probe_address(&self.wanted.cluster, node, &place.point, vlan)
    }

    /// The number of a place's ports; `None`: there are none. Once they are made anew, it is another one.
    pub fn number(&self, place: &Place) -> Option<u64> {
        self.sets.get(place).map(|set| set.number)
    }

    /// Sets where ports may be. Others are removed.
    pub async fn want(&mut self, wanted: Reaches) {
        if self.wanted == wanted {
            return;
        }
        let is_other_cluster = self.wanted.cluster != wanted.cluster;
        self.wanted = wanted;
        let stays = |place: &Place, set: &PortSet| self.wanted.places.get(place) == Some(&set.reach);
        let gone = self.sets.iter().filter(|(place, set)| is_other_cluster || !stays(place, set));
        let gone: Vec<Place> = gone.map(|(place, _)| place.clone()).collect();
        for place in gone {
            self.remove(&place).await;
        }
        if self.wanted.places.is_empty() {
            (self.namespace, self.echo) = (None, false);
        }
        self.settle_echo().await;
    }

    /// Brings ports to these VLANs, as far as there are any. After a failure there are no ports of the place.
    pub async fn go(&mut self, place: &Place, vlans: &VlanSet, purpose: Use) -> Result<Placed, ProbeError> {
        let done = self.try_to_go(place, vlans, purpose).await;
        if done.is_err() {
            self.remove(place).await;
        }
        self.settle_echo().await;
        done
    }

    /// Answers echo requests while others visit these VLANs of a place, and not for other visits there. Until then all
    /// ports of the namespace that are up answer them. Returns the VLANs if it does.
    pub async fn set_echo(&mut self, place: &Place, vlans: VlanSet) -> VlanSet {
        if let Some(set) = self.sets.get_mut(place) {
            set.slots.set_echo(&vlans);
        }
        self.settle_echo().await;
        if self.echo { vlans } else { VlanSet::EMPTY }
    }

    /// Has the namespace answer echo requests exactly while a visit asks for it.
    async fn settle_echo(&mut self) {
        let wanted = self.sets.values().any(|set| set.slots.echoes());
        let Some(inside) = self.namespace.clone().filter(|_| wanted != self.echo) else { return };
        match namespace::set_echo(&inside, self.proc_sys_net.clone(), wanted).await {
            Ok(()) => self.echo = wanted,
            Err(error) => {
                debug!(%error, wanted, "can't change whether echo requests are answered");
                if self.echo {
                    self.discard().await;
                }
            }
        }
    }

    /// Removes all ports, and their namespace. They are made anew when they are needed.
    async fn discard(&mut self) {
        let places: Vec<Place> = self.sets.keys().cloned().collect();
        for place in places {
            self.remove(&place).await;
        }
        (self.namespace, self.echo) = (None, false);
    }

    async fn try_to_go(
        &mut self,
        place: &Place,
        vlans: &VlanSet,
        purpose: Use,
    ) -> Result<Placed, ProbeError> {
        let reach = self.wanted.places.get(place).cloned();
        let reach = reach.ok_or_else(|| ProbeError::Other("it is not wanted any more".to_owned()))?;
        let inside = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => namespace::create(self.proc_sys_net.clone()).await?,
        };
        self.namespace = Some(inside.clone());
        let set = self.sets.entry(place.clone()).or_insert_with(|| PortSet::new(reach.clone()));
        if matches!(purpose, Use::Visited(_)) {
            set.slots.end_visits_but(vlans);
            // Before another VLAN is chosen for them.
            self.set_idle_down(place).await?;
        }
        let Some(set) = self.sets.get_mut(place) else { return Ok(Placed::default()) };
        let chosen = set.slots.choose(vlans, purpose);
        let mut failed = self.connect(place, &reach, &inside, &chosen).await?;
        let none = "no port is free";
        failed.extend(
            vlans.iter().filter(|vlan| !chosen.contains_key(vlan)).map(|vlan| (vlan, none.to_owned())),
        );
        let working = chosen.into_iter().filter(|(vlan, _)| !failed.contains_key(vlan)).collect();
        let there = self.set_up(place, &inside, working).await?;
        Ok(Placed { there, failed })
    }

    /// This node asks no more in a place.
    pub async fn end_asking(&mut self, place: &Place) {
        let Some(set) = self.sets.get_mut(place) else { return };
        set.slots.end_asking();
        self.settle_idle(place).await;
        self.settle_echo().await;
    }

    /// Ends the visits whose time is over.
    pub async fn end_visits(&mut self, now: Instant) {
        let places: Vec<Place> = self.sets.keys().cloned().collect();
        for place in places {
            let Some(set) = self.sets.get_mut(&place) else { continue };
            set.slots.end_visits(now);
            self.settle_idle(&place).await;
        }
        self.settle_echo().await;
    }

    /// When the next visit ends.
    pub fn next_end(&self) -> Option<Instant> {
        self.sets.values().filter_map(|set| set.slots.next_end()).min()
    }

    async fn settle_idle(&mut self, place: &Place) {
        if let Err(error) = self.set_idle_down(place).await {
            debug!(%error, ?place, "ports of probes are made anew");
            self.remove(place).await;
        }
    }

    /// Makes and moves the ends on the host. Returns why VLANs can't be reached.
    async fn connect(
        &mut self,
        place: &Place,
        reach: &Reach,
        inside: &Namespace,
        chosen: &BTreeMap<VlanId, usize>,
    ) -> Result<BTreeMap<VlanId, String>, ProbeError> {
        let Some(set) = self.sets.get(place) else { return Ok(BTreeMap::new()) };
        let to_move = chosen.iter().filter(|(_, at)| set.slots.0.get(**at).is_some_and(|slot| !slot.moved));
        let jobs: Vec<Job> = to_move
            .map(|(vlan, at)| {
                let link = set.slots.0.get(*at).and_then(|slot| slot.link);
                let host = link.and_then(|link| link.host);
                let name = self.name(place, *at);
                Job { number: *at, vlan: *vlan, name, host, made: link.is_some() }
            })
            .collect();
        if jobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let network = Network {
            cluster: self.wanted.cluster.clone(),
            name: place.network.clone(),
            reach: reach.clone(),
            mac: probe_mac(&self.wanted.cluster, &self.node, &place.point),
            namespace: inside.clone(),
        };
        let work = move || {
            let mut netlink = Netlink::open()?;
            let each = |job: Job| Ok((job.number, job.vlan, network.connect(&mut netlink, &job)?));
            jobs.into_iter().map(each).collect::<Result<Vec<_>, ProbeError>>()
        };
        let connected = self.host.run(work).await??;
        let mut failed = BTreeMap::new();
        let names: Vec<(usize, String)> =
            connected.iter().map(|(number, ..)| (*number, self.name(place, *number))).collect();
        let inner = inside
            .run(move || {
                let netlink = Netlink::open()?;
                let index = |(number, name): (usize, String)| Some((number, netlink.index_of(&name).ok()?));
                Ok::<_, ProbeError>(names.into_iter().filter_map(index).collect::<BTreeMap<_, _>>())
            })
            .await??;
        let Some(set) = self.sets.get_mut(place) else { return Ok(failed) };
        for (number, vlan, host) in connected {
            let Some(slot) = set.slots.0.get_mut(number) else { continue };
            match (host, inner.get(&number)) {
                (Ok(host), Some(inner)) => {
                    slot.link = Some(Link { inner: *inner, host });
                    slot.moved = reach.kind != ReachKind::Ovs;
                    // What is up comes with an address of the VLAN before.
                    slot.up = false;
                }
                (Err(reason), _) => drop(failed.insert(vlan, reason)),
                (Ok(_), None) => drop(failed.insert(vlan, "its interface is gone".to_owned())),
            }
        }
        if reach.kind == ReachKind::Ovs {
            self.move_in_switch(place, chosen, &mut failed).await?;
        }
        Ok(failed)
    }

    /// Has Open vSwitch take the ports to their VLANs.
    async fn move_in_switch(
        &mut self,
        place: &Place,
        chosen: &BTreeMap<VlanId, usize>,
        failed: &mut BTreeMap<VlanId, String>,
    ) -> Result<(), ProbeError> {
        let open = self.switch.set_probes(self.switch_ports()).await?;
        let names: BTreeMap<usize, String> = chosen.values().map(|at| (*at, self.name(place, *at))).collect();
        let Some(set) = self.sets.get_mut(place) else { return Ok(()) };
        for (vlan, at) in chosen {
            let Some(slot) = set.slots.0.get_mut(*at) else { continue };
            slot.moved = names.get(at).is_some_and(|name| open.contains(name));
            if !slot.moved {
                failed.entry(*vlan).or_insert_with(|| "Open vSwitch has not opened its port".to_owned());
            }
        }
        Ok(())
    }

    /// The ports that are to be in Open vSwitch.
    fn switch_ports(&self) -> BTreeMap<String, PortDesired> {
        let sets = self.sets.iter().filter(|(_, set)| set.reach.kind == ReachKind::Ovs);
        let ports = sets.flat_map(|(place, set)| {
            set.slots.0.iter().enumerate().filter_map(move |(at, slot)| {
                let vlan = slot.vlan.filter(|_| slot.link.is_some())?;
                let port = PortDesired {
                    bridge: place.network.clone(),
                    id: format!("probe/{}/{at}", place.point),
                    vlans: PortVlans::Access(vlan.get()),
                    mtu: None,
                };
                Some((self.name(place, at), port))
            })
        });
        ports.collect()
    }

    /// Sets ports up, each with the address of its VLAN.
    async fn set_up(
        &mut self,
        place: &Place,
        inside: &Namespace,
        chosen: BTreeMap<VlanId, usize>,
    ) -> Result<BTreeMap<VlanId, u32>, ProbeError> {
        let (mut there, mut requests) = (BTreeMap::new(), Vec::new());
        let names: BTreeMap<usize, String> = chosen.values().map(|at| (*at, self.name(place, *at))).collect();
        let Some(set) = self.sets.get_mut(place) else { return Ok(there) };
        for (vlan, at) in chosen {
            let (Some(slot), Some(name)) = (set.slots.0.get_mut(at), names.get(&at)) else { continue };
            let Some(Link { inner, .. }) = slot.link else { continue };
            there.insert(vlan, inner);
            if slot.up {
                continue;
            }
            slot.up = true;
            let address = probe_address(&self.wanted.cluster, &self.node, &place.point, vlan);
            let net = IpNet::V6(Ipv6Net::new_assert(address, 64));
            requests.extend([
                // The addresses of another VLAN go.
                Request::set_up(name, inner, false),
                Request::set_neighbour_times(name, inner, false),
                Request::set_neighbour_times(name, inner, true),
                Request::set_up(name, inner, true),
                Request::add_address(name, inner, net),
            ]);
        }
        execute(inside, requests).await?;
        Ok(there)
    }

    /// Sets the ports down that nobody uses. A macvlan is deleted.
    async fn set_idle_down(&mut self, place: &Place) -> Result<(), ProbeError> {
        let Some(inside) = self.namespace.clone() else { return Ok(()) };
        let Some(set) = self.sets.get_mut(place) else { return Ok(()) };
        let mut requests = Vec::new();
        for slot in set.slots.0.iter_mut().filter(|slot| slot.is_idle()) {
            let Some(link) = slot.link else { continue };
            if set.reach.kind == ReachKind::Master {
                requests.push(Request::delete_link("a probe", link.inner));
                (slot.link, slot.vlan, slot.moved) = (None, None, false);
            } else if slot.up {
                requests.push(Request::set_up("a probe", link.inner, false));
            }
            slot.up = false;
        }
        execute(&inside, requests).await
    }

    /// Removes the ports of a place, as far as they can be reached.
    async fn remove(&mut self, place: &Place) {
        let Some(set) = self.sets.remove(place) else { return };
        if let Some(inside) = self.namespace.clone() {
            let links = set.slots.0.iter().filter_map(|slot| slot.link);
            let requests = links.map(|link| Request::delete_link("a probe", link.inner)).collect();
            if let Err(error) = execute(&inside, requests).await {
                debug!(%error, ?place, "ports of probes were not deleted");
            }
        }
        if set.reach.kind == ReachKind::Ovs
            && let Err(error) = self.switch.set_probes(self.switch_ports()).await
        {
            debug!(%error, ?place, "the next reconcile removes ports of probes from Open vSwitch");
        }
    }

    /// The name of the port's ends: 15 bytes that no other part of the agent gives.
    fn name(&self, place: &Place, number: usize) -> String {
        let digest = digest(&[&self.wanted.cluster, &self.node, &place.point, &place.network]);
        format!("enop{}{number:02}", digest.get(..9).unwrap_or_default())
    }
}

/// Carries out requests in a namespace, up to the end.
pub async fn execute(namespace: &Namespace, requests: Vec<Request>) -> Result<(), ProbeError> {
    if requests.is_empty() {
        return Ok(());
    }
    let work = move || Ok::<_, ProbeError>(Netlink::open()?.batch(requests));
    namespace.run(work).await??.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(())
}
