//! One NetworkAttachmentDefinition as a target.

use std::collections::BTreeSet;

use eno_schemas::{
    Cni, Desired, InterfaceType, NadDesired, NadOwner, NadVlans, Report, VlanAttachment, VlanId, VlanType,
};

use crate::kinds::Plugin;
use crate::status::hop::HopState;
use crate::status::whole::WholeTarget;
use crate::{Key, Name};

/// The state of one NAD.
#[derive(Debug)]
pub struct NadTarget {
    /// Its desired state and the last report.
    whole: WholeTarget,
    /// The hash of the desired state if nothing were leased.
    inputs: Box<str>,
    /// It has to exist.
    pub wanted: bool,
    /// `metadata.uid` of the attachment that it belongs to.
    pub uid: Name,
}

impl NadTarget {
    /// A NAD that nothing is known of.
    pub fn new(uid: Name) -> Self {
        Self { whole: WholeTarget::default(), inputs: "".into(), wanted: false, uid }
    }

    /// Sets the desired state, and what it would be if nothing were leased. Returns true when it is new.
    pub fn want(&mut self, desired: &Desired, unleased: &Desired) -> bool {
        let is_new = self.whole.want(desired);
        self.inputs = if unleased == desired { self.whole.hash().into() } else { unleased.hash().into() };
        self.wanted = matches!(desired, Desired::Nad(NadDesired { attachment: Some(_), .. }));
        is_new
    }

    /// The desired state could not be rendered, since a referenced object is gone. It counts as new when that is
    /// back.
    pub fn mark_unpublished(&mut self) {
        self.whole.mark_unpublished();
    }

    /// Processes a report of the driver.
    pub fn report(&mut self, report: Report) {
        self.whole.report(report);
    }

    /// Its state.
    pub fn hop(&self) -> HopState<'_> {
        self.whole.hop()
    }

    /// The part of a ready attachment's inputs that is about the NAD. Leases don't change it.
    pub fn inputs(&self) -> &str {
        &self.inputs
    }
}

/// The desired state of the NAD of `key`; `attachment: None`: it must not exist.
pub fn desired(key: &Key, uid: &Name, attachment: Option<VlanAttachment>) -> Desired {
    Desired::Nad(NadDesired {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        owner: NadOwner { uid: uid.to_string() },
        attachment,
    })
}

/// The CNI plugin with its options, and the VLANs of the NAD.
pub fn cni(
    plugin: &Plugin,
    interface: InterfaceType,
    vlan_type: VlanType,
    vids: &BTreeSet<VlanId>,
) -> (Cni, NadVlans) {
    let access = vids.first().copied().unwrap_or(VlanId::MIN);
    let vlans = match vlan_type {
        VlanType::Access => NadVlans::Access(access),
        VlanType::Trunk => NadVlans::Trunk,
        VlanType::SelectiveTrunk => NadVlans::Selective(vids.iter().copied().collect()),
    };
    // The agent creates the subinterface with this name.
    let subinterface = |master: &str| match vlan_type {
        VlanType::Access => format!("{master}.{access}"),
        VlanType::Trunk | VlanType::SelectiveTrunk => master.to_owned(),
    };
    let cni = match plugin.clone() {
        Plugin::Ovs { bridge_name, socket_file, pool_name, .. } => {
            Cni::Ovs { bridge: bridge_name, socket_file, pool: pool_name }
        }
        Plugin::Bridge { bridge_name } => Cni::Bridge { bridge: bridge_name },
        Plugin::Macvlan { master } => Cni::Macvlan { master: subinterface(&master) },
        Plugin::Ipvlan { master } => Cni::Ipvlan { master: subinterface(&master) },
        Plugin::Vlan { master } => Cni::Vlan { master },
        Plugin::HostDevice { pool_name } => Cni::HostDevice { pool: pool_name },
        Plugin::Sriov { pool_name } => Cni::Sriov { pool: pool_name, interface },
        Plugin::Userspace { bridge_name, engine, if_type } => {
            Cni::Userspace { engine, iftype: if_type, bridge: bridge_name }
        }
    };
    (cni, vlans)
}
