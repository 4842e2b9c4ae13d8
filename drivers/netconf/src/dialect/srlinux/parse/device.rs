//! Finds the VLANs and the ports in what was parsed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_sbi::TooLarge;
use eno_schemas::{VlanId, VlanSet, vlan_name};

use super::{Encap, Instance, Interface, Sub};
use crate::dialect::srlinux::{
    Attachment, Member, ORPHANS, SrLinuxLayout, Subinterface, Subinterfaces, TAGGING, UNTAGGED, Vrf,
    vid_of_name,
};
use crate::memory::Counter;
use crate::plan::{Layout, Mode, ObservedConfig, ObservedPort, ObservedVlan, Setting};

/// The network-instances of a device, with their subinterfaces and VLANs.
pub(super) struct Device {
    instances: Vec<Instance>,
    /// By port and index of a subinterface: the network-instance, and the position among its interfaces.
    instances_by_subinterface: BTreeMap<Arc<str>, BTreeMap<u32, (u32, u32)>>,
    /// The network-instance of each VLAN.
    vlans: BTreeMap<VlanId, usize>,
    /// Reasons against renaming VLANs.
    rename_blocker: BTreeMap<VlanId, String>,
}

impl Device {
    pub(super) fn of(mut instances: Vec<Instance>) -> Self {
        instances.sort_by(|one, other| one.name.cmp(&other.name));
        let mut instances_by_subinterface: BTreeMap<Arc<str>, BTreeMap<u32, (u32, u32)>> = BTreeMap::new();
        for (at, instance) in (0..).zip(&instances) {
            for (which, attached) in (0..).zip(&instance.interfaces) {
                let Some((port, index)) = attached.subinterface_key() else { continue };
                if let Some(of_port) = instances_by_subinterface.get_mut(port) {
                    of_port.insert(index, (at, which));
                } else {
                    instances_by_subinterface.insert(port.into(), [(index, (at, which))].into());
                }
            }
        }
        let named = |(at, instance): (usize, &Instance)| Some((vid_of_name(&instance.name)?, at));
        // Of several network-instances for a VID, the first by name counts.
        let vlans = instances.iter().enumerate().rev().filter_map(named).collect();
        Self { instances, instances_by_subinterface, vlans, rename_blocker: BTreeMap::new() }
    }

    /// The network-instance of a subinterface, and its name there.
    fn network_instance_of(&self, port: &str, index: u32) -> Option<(usize, &Member)> {
        let (at, which) = *self.instances_by_subinterface.get(port)?.get(&index)?;
        let at = at as usize;
        let attached = self.instances.get(at)?.interfaces.get(which as usize)?;
        Some((at, &attached.name))
    }

    pub(super) fn observed(
        mut self,
        interfaces: Vec<Interface>,
        mut kept: Counter,
    ) -> Result<ObservedConfig, TooLarge> {
        self.find_foreign(&interfaces);
        let (mut ports, mut layout) = (BTreeMap::new(), SrLinuxLayout::default());
        for interface in interfaces {
            let (port, subinterfaces) = self.port(&interface, &mut kept)?;
            ports.insert(interface.name.clone(), port);
            layout.ports.insert(interface.name, subinterfaces);
        }
        let mut vlans = BTreeMap::new();
        for (vid, at) in &self.vlans {
            let instance = &self.instances[*at];
            let is_vrf = instance.kind == "mac-vrf";
            let name =
                if is_vrf { instance.name.clone() } else { format!("{} ({})", instance.name, instance.kind) };
            let rename_blocker = self.rename_blocker(*vid, instance);
            vlans.insert(*vid, ObservedVlan { name: Some(name), active: !instance.disabled, rename_blocker });
        }
        // Freed early, since a full device has too many to keep twice.
        self.instances_by_subinterface.clear();
        let vrfs = self.instances.into_iter().map(|instance| {
            let interfaces: Arc<[Member]> =
                instance.interfaces.into_iter().map(|attached| attached.name).collect();
            (instance.name, instance.description, interfaces)
        });
        let vrfs: Vec<_> = vrfs.collect();
        for (vid, at) in self.vlans {
            let (name, description, interfaces) = &vrfs[at];
            let (name, description) = (name.clone(), description.clone());
            layout.vrfs.insert(vid, Vrf { name, description, interfaces: Arc::clone(interfaces) });
        }
        let (layout, memory) = (Layout::new(layout), kept.into());
        Ok(ObservedConfig { vlans: vlans.into(), ports, layout, memory, ..ObservedConfig::default() })
    }

    /// Adds foreign mac-vrfs as the VLANs of the VIDs that ports have in them.
    fn find_foreign(&mut self, interfaces: &[Interface]) {
        let mut found: BTreeMap<usize, BTreeSet<VlanId>> = BTreeMap::new();
        for interface in interfaces.iter().filter(|interface| interface.tagging) {
            for sub in interface.subinterfaces.iter().filter(|sub| sub.bridged()) {
                let (Some(Encap::Vlan(vid)), Some((at, _))) =
                    (&sub.encap, self.network_instance_of(&interface.name, sub.index))
                else {
                    continue;
                };
                if self.instances[at].kind == "mac-vrf" && self.vlans.get(vid) != Some(&at) {
                    found.entry(at).or_default().insert(*vid);
                }
            }
        }
        for (at, vids) in found {
            let name = &self.instances[at].name;
            let own = vid_of_name(name);
            for vid in &vids {
                if let Some(other) = self.vlans.get(vid) {
                    let why =
                        format!("network-instances {} and {name} both use it", self.instances[*other].name);
                    self.rename_blocker.entry(*vid).or_insert(why);
                } else if own.is_none() {
                    self.vlans.insert(*vid, at);
                    if vids.len() > 1 {
                        let why = format!("network-instance {name} is used for {} VIDs", vids.len());
                        self.rename_blocker.entry(*vid).or_insert(why);
                    }
                }
            }
        }
    }

    fn rename_blocker(&self, vid: VlanId, instance: &Instance) -> Option<String> {
        if instance.kind != "mac-vrf" {
            return Some(format!("network-instance {} is no mac-vrf", instance.name));
        }
        if let Some(why) = self.rename_blocker.get(&vid) {
            return Some(why.clone());
        }
        if instance.interfaces.iter().any(|attached| {
            attached.reference.as_ref().is_some_and(|reference| reference.interface.is_some())
        }) {
            return Some(format!("network-instance {} names its interfaces by interface-ref", instance.name));
        }
        let settings: Vec<&str> = instance.settings.iter().map(String::as_str).collect();
        (!settings.is_empty()).then(|| {
            format!(
                "network-instance {} has {}, which would be lost, since it can't be renamed",
                instance.name,
                settings.join(", ")
            )
        })
    }

    fn port(
        &self,
        interface: &Interface,
        kept: &mut Counter,
    ) -> Result<(ObservedPort, Subinterfaces), TooLarge> {
        kept.port(&interface.name);
        kept.check()?;
        let mut port = ObservedPort {
            configured: true,
            aggregate: interface.name.starts_with("lag"),
            mode: interface.tagging.then_some(Mode::Trunk),
            ..ObservedPort::default()
        };
        let mut layout = Subinterfaces { tagging: interface.tagging, ..Subinterfaces::default() };
        if let Some(lag) = &interface.aggregate {
            port.unfit = Some(format!("is a member of the LAG {lag}: name that as Lag of the port"));
        } else if interface.is_broken_out {
            port.unfit = Some("is broken out into ports of their own".into());
        }
        for sub in &interface.subinterfaces {
            layout.used.insert(sub.index);
            if let Some(unread) = &sub.unread {
                port.unfit.get_or_insert_with(|| unread.clone());
            } else if interface.tagging {
                self.tagged(interface, sub, &mut port, &mut layout, kept)?;
            } else if sub.bridged() {
                port.mode = Some(Mode::Access);
                layout.whole.insert(sub.index);
                port.access = self.untagged(interface, sub, &mut port, kept)?;
            } else {
                port.unfit.get_or_insert_with(|| {
                    format!("is not VLAN-tagged, and all its frames are {}.{}'s", interface.name, sub.index)
                });
            }
        }
        port.settings = settings(interface, &layout, &port.leftovers);
        Ok((port, layout))
    }

    /// The VLAN of untagged frames, known if the mac-vrf's name has its VID. The VIDs of the mac-vrf are taken on the
    /// port.
    fn untagged(
        &self,
        interface: &Interface,
        sub: &Sub,
        port: &mut ObservedPort,
        kept: &mut Counter,
    ) -> Result<Option<VlanId>, TooLarge> {
        let Some((at, _)) = self.network_instance_of(&interface.name, sub.index) else { return Ok(None) };
        let vlans: Vec<VlanId> =
            self.vlans.iter().filter(|(_, vlan)| **vlan == at).map(|(vid, _)| *vid).collect();
        kept.taken(vlans.len());
        kept.check()?;
        let what = format!("it has the frames without a tag as {}.{}", interface.name, sub.index);
        port.taken.extend(vlans.into_iter().map(|vid| (vid, what.clone())));
        Ok(vid_of_name(&self.instances[at].name).filter(|vid| self.vlans.get(vid) == Some(&at)))
    }

    /// Adds a subinterface of a port with `vlan-tagging`.
    fn tagged(
        &self,
        interface: &Interface,
        sub: &Sub,
        port: &mut ObservedPort,
        layout: &mut Subinterfaces,
        kept: &mut Counter,
    ) -> Result<(), TooLarge> {
        let name = format!("{}.{}", interface.name, sub.index);
        let network_instance = self.network_instance_of(&interface.name, sub.index);
        let owner = match network_instance {
            Some((at, _)) => format!("{name} of network-instance {}", self.instances[at].name),
            None => format!(
                "{name}, a {} subinterface of no network-instance",
                sub.kind.as_deref().unwrap_or("bridged")
            ),
        };
        match &sub.encap {
            Some(Encap::Vlan(vid)) => match network_instance {
                None if sub.bridged() && !layout.vlans.contains_key(vid) => {
                    if let Some((cluster, _)) =
                        sub.name_in_description.as_ref().filter(|(_, marked)| marked == vid)
                    {
                        kept.taken(1);
                        port.leftovers.insert(*vid, vlan_name(cluster, *vid));
                    }
                    layout.vlans.insert(*vid, Subinterface { index: sub.index, attached: Attachment::None });
                }
                Some((at, attached)) if sub.bridged() && self.vlans.get(vid) == Some(&at) => {
                    port.tagged.push((*vid, *vid));
                    let attached = match attached {
                        Member::Subinterface(port, index)
                            if **port == *interface.name && *index == sub.index =>
                        {
                            Attachment::Usual
                        }
                        Member::Other(name) => Attachment::Named(Arc::clone(name)),
                        other @ Member::Subinterface(..) => Attachment::Named(other.to_string().into()),
                    };
                    layout.vlans.insert(*vid, Subinterface { index: sub.index, attached });
                }
                _ => {
                    kept.taken(1);
                    port.tagged.push((*vid, *vid));
                    port.taken.insert(*vid, format!("it belongs to {owner}"));
                }
            },
            Some(Encap::Outer(vid)) => {
                kept.taken(1);
                port.tagged.push((*vid, *vid));
                port.taken.insert(*vid, format!("it is an outer tag of {owner}"));
            }
            Some(Encap::Ranges(ranges)) => {
                for (first, last) in ranges {
                    kept.taken(usize::from(last.get().saturating_sub(first.get())) + 1);
                    kept.check()?;
                    port.tagged.push((*first, *last));
                    let vids = (first.get()..=last.get()).filter_map(|id| VlanId::new(id).ok());
                    port.taken.extend(vids.map(|vid| (vid, format!("it is in a range of {owner}"))));
                }
            }
            Some(Encap::Untagged) => {
                layout.untagged.insert(sub.index);
                port.native = self.untagged(interface, sub, port, kept)?;
            }
            Some(Encap::Any) => {
                port.unfit.get_or_insert_with(|| format!("carries every VLAN to {owner}"));
            }
            None => {
                port.unfit.get_or_insert_with(|| format!("has frames that no VLAN is said for: {owner}"));
            }
        }
        kept.check()
    }
}

/// The settings that our first VLAN changes, and the subinterfaces that our VLANs may use.
fn settings(
    interface: &Interface,
    layout: &Subinterfaces,
    leftovers: &BTreeMap<VlanId, String>,
) -> BTreeMap<&'static str, Setting> {
    let untagged = |sub: &&Sub| matches!(sub.encap, Some(Encap::Untagged));
    let untagged = interface.subinterfaces.iter().find(untagged).filter(|_| interface.tagging);
    let orphans: VlanSet = layout
        .vlans
        .iter()
        .filter(|(vid, sub)| sub.attached == Attachment::None && !leftovers.contains_key(vid))
        .map(|(vid, _)| *vid)
        .collect();
    let known = layout.vlans.len() - orphans.len() + usize::from(untagged.is_some());
    // Any other subinterface needs `vlan-tagging`.
    let tagging_is_ours =
        !interface.tagging_set || interface.tagging && interface.subinterfaces.len() == known;
    let tagging = interface.tagging_set.then(|| interface.tagging.to_string());
    let untagged = untagged.map(|sub| sub.index.to_string());
    let orphans = (!orphans.is_empty()).then(|| orphans.to_string());
    [
        (TAGGING, Setting::of(tagging.as_deref(), tagging_is_ours)),
        (UNTAGGED, Setting::of(untagged.as_deref(), interface.tagging)),
        (ORPHANS, Setting::of(orphans.as_deref(), false)),
    ]
    .into()
}
