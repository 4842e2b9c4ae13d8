//! Derives the configuration of a data plane port from the running configuration of its switch. Does no IO.

use crate::dataplane::routed::RoutedVlans;
use crate::dataplane::veth::MTU;
use crate::dialect::{PortMode, PortView, View, VlanSet};
use crate::faults::Fault;

/// The access VLAN of a port without VLAN configuration. It is carried only if the switch defines it.
const DEFAULT_VLAN: u16 = 1;

/// A VLAN id that no frame has. A trunk with only this VLAN carries nothing; one without a list would carry all.
const NO_VLAN: u16 = 4095;

/// The configuration of a data plane port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortConfig {
    /// Whether the interface is up.
    pub(super) up: bool,
    /// The VLANs that it carries.
    pub(super) membership: VlanMembership,
    /// The MTU of the interface.
    pub(super) mtu: u32,
}

/// The VLANs that a port carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VlanMembership {
    /// No VLAN.
    None,
    /// This VLAN, untagged.
    Access(u16),
    /// Several VLANs, tagged except the native one.
    Trunk {
        /// The VLANs; at least one.
        vlans: VlanSet,
        /// The untagged VLAN, which is one of `vlans`.
        native: Option<u16>,
    },
}

impl PortConfig {
    /// Derives the configuration of a port. A member of a link aggregation has the VLANs of the aggregation. A port
    /// carries the VLANs of its sub-interfaces in VRFs, `routed`, too.
    pub(super) fn from_view(view: &View, routed: &RoutedVlans<'_>, port: &str) -> Self {
        let Some(own) = view.ports.get(port) else {
            return Self { up: false, membership: VlanMembership::None, mtu: MTU };
        };
        let membership = |name, port| vlan_membership(view, port).with(&routed.of_port(name));
        let Some(lag) = &own.lag else {
            return Self { up: !own.disabled, membership: membership(port, own), mtu: MTU };
        };
        match view.ports.get(lag) {
            Some(whole) => {
                let up = !own.disabled && !whole.disabled;
                Self { up, membership: membership(lag, whole), mtu: MTU }
            }
            None => Self { up: !own.disabled, membership: VlanMembership::None, mtu: MTU },
        }
    }

    /// The configuration that the data plane has with the faults of a port.
    pub(super) fn with_faults(self, port: &str, faults: &[Fault]) -> Self {
        let drops = |vlan| faults.iter().any(|fault| fault.drops(port, vlan));
        let mut membership = self.membership.without(drops);
        if let VlanMembership::Trunk { vlans, native } = &mut membership {
            let mut others = faults.iter().filter_map(|fault| fault.native_vlan(port));
            *native = others.find(|vlan| vlans.contains(*vlan)).or(*native);
        }
        let mtu = faults.iter().filter_map(|fault| fault.small_mtu(port)).min().unwrap_or(self.mtu);
        Self { membership, mtu, ..self }
    }

    /// The columns of the OVSDB table Port (ovs-vswitchd.conf.db(5)), as arguments of `ovs-vsctl set`.
    pub(super) fn columns(&self) -> [String; 3] {
        let (mode, tag, trunks) = match &self.membership {
            VlanMembership::None => ("trunk", String::new(), NO_VLAN.to_string()),
            VlanMembership::Access(vlan) => ("access", vlan.to_string(), String::new()),
            VlanMembership::Trunk { vlans, native } => {
                let ids: Vec<_> = vlans.iter().map(|id| id.to_string()).collect();
                let mode = if native.is_some() { "native-untagged" } else { "trunk" };
                (mode, native.map(|id| id.to_string()).unwrap_or_default(), ids.join(","))
            }
        };
        [format!("vlan_mode={mode}"), format!("tag=[{tag}]"), format!("trunks=[{trunks}]")]
    }
}

impl VlanMembership {
    /// Adds VLANs of tagged frames.
    fn with(self, tagged: &VlanSet) -> Self {
        if tagged.is_empty() {
            return self;
        }
        let (vlans, native) = match self {
            Self::None => (VlanSet::default(), None),
            Self::Access(vlan) => ([vlan].into_iter().collect(), Some(vlan)),
            Self::Trunk { vlans, native } => (vlans, native),
        };
        Self::Trunk { vlans: vlans.iter().chain(tagged.iter()).collect(), native }
    }

    fn without(self, drops: impl Fn(u16) -> bool) -> Self {
        match self {
            Self::Access(vlan) if drops(vlan) => Self::None,
            Self::Trunk { vlans, native } => {
                let vlans: VlanSet = vlans.iter().filter(|vlan| !drops(*vlan)).collect();
                let native = native.filter(|native| vlans.contains(*native));
                if vlans.is_empty() { Self::None } else { Self::Trunk { vlans, native } }
            }
            whole => whole,
        }
    }
}

fn vlan_membership(view: &View, port: &PortView) -> VlanMembership {
    match port.mode {
        Some(PortMode::Trunk) if port.vlans.is_empty() => VlanMembership::None,
        Some(PortMode::Trunk) => VlanMembership::Trunk {
            vlans: port.vlans.clone(),
            native: port.native.filter(|native| port.vlans.contains(*native)),
        },
        Some(PortMode::Access) | None => {
            let vlan = port.access.unwrap_or(DEFAULT_VLAN);
            if view.is_active(vlan) { VlanMembership::Access(vlan) } else { VlanMembership::None }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dialect::{RoutedView, VlanView, VrfView};

    fn vlans(text: &str) -> VlanSet {
        text.parse().expect("a list of VLANs")
    }

    /// A switch with the VLANs 10 and 20, the suspended VLAN 30, and one port `p`.
    fn view(port: PortView) -> View {
        let vlan = |status: &str| VlanView { name: None, status: status.to_owned() };
        View {
            vlans: BTreeMap::from([(10, vlan("ACTIVE")), (20, vlan("ACTIVE")), (30, vlan("SUSPENDED"))]),
            ports: BTreeMap::from([("p".to_owned(), port)]),
            ..View::default()
        }
    }

    fn config(view: &View, port: &str) -> PortConfig {
        PortConfig::from_view(view, &RoutedVlans::new(view), port)
    }

    fn columns(port: PortView) -> String {
        config(&view(port), "p").columns().join(" ")
    }

    const NO_VLANS: &str = "vlan_mode=trunk tag=[] trunks=[4095]";

    #[test]
    fn unconfigured_port_is_access_port_of_vlan_1() {
        assert_eq!(columns(PortView::default()), NO_VLANS);
        let mut with_it = view(PortView::default());
        with_it.vlans.insert(1, VlanView { name: None, status: "ACTIVE".to_owned() });
        assert_eq!(config(&with_it, "p").membership, VlanMembership::Access(1));
    }

    #[test]
    fn access_port_carries_its_vlan_only_if_active_on_switch() {
        let access = |id| PortView { mode: Some(PortMode::Access), access: Some(id), ..PortView::default() };
        assert_eq!(columns(access(10)), "vlan_mode=access tag=[10] trunks=[]");
        for suspended_or_absent in [30, 40] {
            assert_eq!(columns(access(suspended_or_absent)), NO_VLANS);
        }
    }

    #[test]
    fn trunk_carries_its_list_and_nothing_if_list_is_empty() {
        let trunk = |list: &str, native| PortView {
            mode: Some(PortMode::Trunk),
            vlans: vlans(list),
            native,
            ..PortView::default()
        };
        assert_eq!(columns(trunk("10,20", None)), "vlan_mode=trunk tag=[] trunks=[10,20]");
        assert_eq!(columns(trunk("10,20", Some(20))), "vlan_mode=native-untagged tag=[20] trunks=[10,20]");
        assert_eq!(columns(trunk("10", Some(20))), "vlan_mode=trunk tag=[] trunks=[10]");
        assert_eq!(columns(trunk("", Some(20))), NO_VLANS);
    }

    #[test]
    fn faults_change_what_a_port_forwards() {
        let access = PortView { mode: Some(PortMode::Access), access: Some(10), ..PortView::default() };
        let trunk = PortView {
            mode: Some(PortMode::Trunk),
            vlans: vlans("10,20"),
            native: Some(10),
            ..PortView::default()
        };
        let with = |port: &PortView, faults: &[Fault]| {
            config(&view(port.clone()), "p").with_faults("p", faults).columns().join(" ")
        };
        let without = |port: &PortView, dropped: &[u16]| {
            let drop = |vlan: &u16| Fault::DropFrames { vlan: Some(*vlan), port: Some("p".to_owned()) };
            with(port, &dropped.iter().map(drop).collect::<Vec<_>>())
        };
        assert_eq!(without(&access, &[20]), "vlan_mode=access tag=[10] trunks=[]");
        assert_eq!(without(&access, &[10]), NO_VLANS);
        assert_eq!(without(&trunk, &[20]), "vlan_mode=native-untagged tag=[10] trunks=[10]");
        assert_eq!(without(&trunk, &[10]), "vlan_mode=trunk tag=[] trunks=[20]");
        assert_eq!(without(&trunk, &[10, 20]), NO_VLANS);
        let native = |vlan, port: &str| [Fault::NativeVlan { vlan, port: port.to_owned() }];
        assert_eq!(with(&trunk, &native(20, "p")), "vlan_mode=native-untagged tag=[20] trunks=[10,20]");
        let unchanged = "vlan_mode=native-untagged tag=[10] trunks=[10,20]";
        assert_eq!(with(&trunk, &native(20, "q")), unchanged);
        assert_eq!(with(&trunk, &native(30, "p")), unchanged, "it does not carry it");
        let small = |bytes| Fault::SmallMtu { port: "p".to_owned(), bytes };
        let whole = config(&view(trunk), "p");
        assert_eq!(whole.clone().with_faults("p", &[small(1400), small(1300)]).mtu, 1300);
        assert_eq!(whole.clone().with_faults("q", &[small(1400)]), whole);
    }

    #[test]
    fn lag_member_follows_its_lag() {
        let member = PortView { lag: Some("lag1".to_owned()), ..PortView::default() };
        let mut whole = view(member);
        let found = config(&whole, "p");
        assert_eq!((found.up, found.membership), (true, VlanMembership::None));
        let lag = PortView {
            mode: Some(PortMode::Access),
            access: Some(20),
            disabled: true,
            ..PortView::default()
        };
        whole.ports.insert("lag1".to_owned(), lag);
        let found = config(&whole, "p");
        assert_eq!((found.up, found.membership), (false, VlanMembership::Access(20)));
    }

    #[test]
    fn disabled_or_unknown_port_is_down() {
        assert!(!config(&view(PortView { disabled: true, ..PortView::default() }), "p").up);
        assert!(!config(&view(PortView::default()), "gone").up);
    }
    #[test]
    fn port_carries_vlans_of_its_subinterfaces() {
        let sub = |port: &str, vlan| RoutedView {
            port: Some(port.to_owned()),
            vlan: Some(vlan),
            ..RoutedView::default()
        };
        let mut router = view(PortView::default());
        let interfaces = [("p.100", sub("p", 100)), ("q.100", sub("q", 100)), ("q.200", sub("q", 200))];
        let interfaces = interfaces.map(|(name, routed)| (name.to_owned(), routed));
        let vrf = VrfView { interfaces: interfaces.into(), ..VrfView::default() };
        router.vrfs.insert("blue".to_owned(), vrf);
        router.ports.insert("q".to_owned(), PortView::default());
        let carried = |port| config(&router, port).columns().join(" ");
        assert_eq!(carried("p"), "vlan_mode=trunk tag=[] trunks=[100]");
        assert_eq!(carried("q"), "vlan_mode=trunk tag=[] trunks=[200]", "the bridge has one VLAN 100");
    }
}
