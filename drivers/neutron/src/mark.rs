//! The mark of networks and ports that are ours: their name and description.
//!
//! Neutron sets tags by a request per resource, after the resource exists. A process that dies between the two would
//! leave a network without an owner. It sets name and description with the resource, so these are the mark.

use eno_schemas::{FabricDesired, VlanId, parse_vlan_name, vlan_name};

/// Maximum characters of a description (Neutron, `DESCRIPTION_FIELD_SIZE`).
const MAX_DESCRIPTION: usize = 255;

/// The mark of one FabricDevice of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    cluster: String,
    /// The start of the descriptions of all FabricDevices of the cluster.
    prefix: String,
    description: String,
    /// The description of tenant networks: their marks tell them from provider networks to a credential that can't see
    /// what they are.
    tenant_description: String,
}

/// The name of a FabricDevice is too long for a description. Trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of the FabricDevice has {length} characters, and the driver neutron writes at most {max} of them to \
     descriptions: give the FabricDevice a shorter name"
)]
pub struct NameTooLong {
    length: usize,
    max: usize,
}

impl Mark {
    /// The mark of the FabricDevice `target`.
    pub fn new(desired: &FabricDesired, target: &str) -> Result<Self, NameTooLong> {
        let cluster = desired.cluster.clone();
        let uid = desired.cluster_uid.as_ref().map(|uid| format!(" ({uid})")).unwrap_or_default();
        let prefix = format!("ENO cluster {cluster}{uid}, FabricDevice ");
        let description = format!("{prefix}{target}");
        let tenant_description = format!("{description}, tenant network");
        match tenant_description.len().checked_sub(MAX_DESCRIPTION) {
            None | Some(0) => Ok(Self { cluster, prefix, description, tenant_description }),
            Some(more) => Err(NameTooLong { length: target.len(), max: target.len().saturating_sub(more) }),
        }
    }

    /// The name of the network and of the ports of a VLAN, as on switches: `eno-<cluster>-<vid>`.
    pub fn name(&self, vid: VlanId) -> String {
        vlan_name(&self.cluster, vid)
    }

    /// The description of all ports and provider networks of ours.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The description of all tenant networks of ours.
    pub fn tenant_description(&self) -> &str {
        &self.tenant_description
    }

    /// The VLAN of a network or port with this name and description; `None`: it is not ours.
    pub fn vid_of(&self, name: &str, description: &str) -> Option<VlanId> {
        if description != self.description && description != self.tenant_description {
            return None;
        }
        let (cluster, vid) = parse_vlan_name(name)?;
        (cluster == self.cluster).then_some(vid)
    }

    /// True when a network or port with this name and description is that of another cluster. Another cluster may have
    /// the same identifier.
    pub fn is_of_other_cluster(&self, name: &str, description: &str) -> bool {
        if description.starts_with("ENO cluster ") {
            return !description.starts_with(&self.prefix);
        }
        parse_vlan_name(name).is_some_and(|(other, _)| other != self.cluster)
    }
}

/// The tag of a network that somebody else made for a VLAN: `eno-vlan-<vid>`.
pub fn offer_tag(vid: VlanId) -> String {
    format!("eno-vlan-{vid}")
}

#[cfg(test)]
mod tests {
    use eno_conformance::fabrics;
    use eno_schemas::Device;

    use super::*;

    fn desired(cluster: &str, uid: Option<&str>) -> FabricDesired {
        let desired = fabrics::desired(cluster, Device::new("https://keystone/v3"), "", &[]);
        FabricDesired { cluster_uid: uid.map(Into::into), ..desired }
    }

    #[test]
    fn marks_of_clusters_and_devices_differ() {
        let vid = VlanId::new(100).unwrap();
        let mark = Mark::new(&desired("c1", Some("u1")), "vim1").unwrap();
        let (name, description) = (mark.name(vid), mark.description());
        assert_eq!((name.as_str(), description), ("eno-c1-100", "ENO cluster c1 (u1), FabricDevice vim1"));
        assert_eq!(mark.vid_of(&name, description), Some(vid));
        assert_eq!(mark.vid_of("eno-c1-0100", description), None);
        assert_eq!(mark.vid_of("eno-c2-100", description), None);
        for (cluster, uid, target) in [("c2", "u1", "vim1"), ("c1", "u2", "vim1"), ("c1", "u1", "vim2")] {
            let other = Mark::new(&desired(cluster, Some(uid)), target).unwrap();
            assert_eq!(other.vid_of(&other.name(vid), description), None, "{cluster} {uid} {target}");
        }
        for (name, description, other) in [
            ("eno-c2-100", "", true),
            ("eno-c1-100", "", false),
            ("eno-c1-100", "ENO cluster c1 (u1), FabricDevice vim2", false),
            ("eno-c1-100", "ENO cluster c1 (u2), FabricDevice vim1", true),
            ("eno-c2-x", "", false),
            ("blue", "any", false),
        ] {
            assert_eq!(mark.is_of_other_cluster(name, description), other, "{name} {description}");
        }
    }

    #[test]
    fn long_names_of_devices_are_refused() {
        let desired = desired("c1", None);
        let longest = "v".repeat(255 - "ENO cluster c1, FabricDevice , tenant network".len());
        assert_eq!(Mark::new(&desired, &longest).unwrap().tenant_description().len(), 255);
        let error = Mark::new(&desired, &format!("{longest}v")).unwrap_err();
        assert!(error.to_string().contains(&format!("at most {} of them", longest.len())), "{error}");
    }
}
