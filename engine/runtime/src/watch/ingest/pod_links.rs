//! PodConfigs, PodNetworkConfigs and Bridges: the interfaces of running pods.

use std::collections::BTreeMap;

use eno_core::Name;
use eno_core::kinds::{BridgeSpec, Invalid, PodLinkSpec, PodLinksSpec, PrimarySpec};
use eno_nbi_crds::{self as crds, LinkFields, LinkType, VlanFields};
use eno_schemas::{LinkKind, Parent};

use super::{interface_name, link, vlan};

pub(super) fn bridge(source: crds::BridgeSpec) -> Result<BridgeSpec, Invalid> {
    interface_name("name", &source.name)?;
    if let Some(mtu) = source.mtu {
        link::mtu("mtu", mtu)?;
    }
    let cidrs = link::networks("", source.cidr.as_deref(), &source.cidrs)?;
    Ok(BridgeSpec { name: source.name, cidrs, mtu: source.mtu })
}

pub(super) fn pod_network_config(source: crds::PodNetworkConfigSpec) -> Result<PodLinksSpec, Invalid> {
    let list = source.additional_networks.iter().enumerate().map(|(index, network)| Listed {
        field: format!("additionalNetworks[{index}]"),
        name_field: "networkName",
        name: &network.network_name,
        fields: &network.link,
    });
    let primary = source.eth0.map(|primary| {
        link::mtu("eth0.mtu", primary.mtu)?;
        Ok(PrimarySpec { name: "eth0".into(), mtu: primary.mtu })
    });
    Ok(PodLinksSpec { links: links(list.collect(), &[])?, primary: primary.transpose()?, sample: None })
}

pub(super) fn pod_config(source: crds::PodConfigSpec) -> Result<PodLinksSpec, Invalid> {
    let list = source.network_attachments.iter().enumerate().map(|(index, attachment)| Listed {
        field: format!("networkAttachments[{index}]"),
        name_field: "name",
        name: &attachment.name,
        fields: &attachment.link,
    });
    let sample = match source.sample_deployment {
        Some(sample) if sample.create => {
            let name = sample.name.filter(|name| !name.is_empty());
            Some(name.ok_or_else(|| {
                Invalid::new("sampleDeployment.name", "is missing; with create a Deployment needs a name")
            })?)
        }
        _ => None,
    };
    Ok(PodLinksSpec {
        links: links(list.collect(), &source.vlans)?,
        primary: None,
        sample: sample.map(Name::from),
    })
}

/// An entry of a list of interfaces.
struct Listed<'a> {
    field: String,
    name_field: &'static str,
    name: &'a str,
    fields: &'a LinkFields,
}

/// All interfaces, ordered so that parents and masters come first.
fn links(list: Vec<Listed<'_>>, vlans: &[VlanFields]) -> Result<Vec<PodLinkSpec>, Invalid> {
    let mut names: BTreeMap<&str, LinkType> = BTreeMap::new();
    for Listed { field, name_field, name, fields } in &list {
        let field = format!("{field}.{name_field}");
        link::name(&field, name)?;
        if names.insert(name, fields.link_type.unwrap_or_default()).is_some() {
            return Err(Invalid::new(
                field,
                format!("{name} is there twice; give each interface a name of its own"),
            ));
        }
    }
    let mut links = Vec::with_capacity(list.len() + vlans.len());
    let mut fields = Vec::with_capacity(list.len() + vlans.len());
    for Listed { field, name, fields: source, .. } in list {
        links.push(link::link(&field, name, source, &names)?);
        fields.push(field);
    }
    for (index, source) in vlans.iter().enumerate() {
        let field = format!("vlans[{index}]");
        let (vlan, bridge) = subinterface(&field, source, &names)?;
        for link in bridge.into_iter().chain([vlan]) {
            match links.iter().find(|other| other.name == link.name) {
                // A bridge that several subinterfaces share.
                Some(other) if *other == link && matches!(link.kind, LinkKind::Bridge {}) => {}
                Some(_) => {
                    let problem =
                        format!("{} is there twice; name each VLAN of an interface once", link.name);
                    return Err(Invalid::new(field, problem));
                }
                None => {
                    links.push(link);
                    fields.push(field.clone());
                }
            }
        }
    }
    in_order(links, &fields)
}

/// A VLAN of an interface, and its bridge in the pod if that is not in the list.
fn subinterface(
    field: &str,
    source: &VlanFields,
    names: &BTreeMap<&str, LinkType>,
) -> Result<(PodLinkSpec, Option<PodLinkSpec>), Invalid> {
    let at = |leaf: &str| format!("{field}.{leaf}");
    let vlan = vlan(&at("vlanID"), source.vlan_id)?;
    let parent = link::parent(&at("parentInterfaceName"), &source.parent_interface_name, names)?;
    let name = format!("{}.{vlan}", source.parent_interface_name);
    link::name(&at("parentInterfaceName"), &name)?;
    let mut bridge = None;
    if let Some(text) = &source.bridge_name {
        match names.get(text.as_str()) {
            Some(LinkType::Bridge) => {}
            Some(other) => {
                let problem = format!("{text:?} has linkType {}; name a bridge", other.as_str());
                return Err(Invalid::new(at("bridgeName"), problem));
            }
            None => {
                link::name(&at("bridgeName"), text)?;
                bridge = Some(plain(text, LinkKind::Bridge {}));
            }
        }
    }
    let member_of = source.bridge_name.as_deref().map(Name::from);
    Ok((PodLinkSpec { member_of, ..plain(&name, LinkKind::Vlan { parent, vlan }) }, bridge))
}

/// An interface that is up, without further settings.
fn plain(name: &str, kind: LinkKind) -> PodLinkSpec {
    PodLinkSpec {
        name: name.into(),
        kind,
        member_of: None,
        cidrs: Vec::new(),
        addresses: Vec::new(),
        mtu: None,
        mac: None,
        alias: None,
        routes: Vec::new(),
        rules: Vec::new(),
        sysctls: BTreeMap::new(),
        up: true,
    }
}

/// Orders parents, bridges and VRFs before their dependents, and otherwise as in the manifest.
fn in_order(mut waiting: Vec<PodLinkSpec>, fields: &[String]) -> Result<Vec<PodLinkSpec>, Invalid> {
    let positions: BTreeMap<Name, usize> =
        waiting.iter().enumerate().map(|(index, link)| (link.name.clone(), index)).collect();
    let mut done: Vec<PodLinkSpec> = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let ready = waiting.iter().position(|link| {
            let parent = match &link.kind {
                LinkKind::Vlan { parent: Parent::Link(name), .. } => Some(name.as_str()),
                _ => None,
            };
            let needs = parent.into_iter().chain(link.member_of.as_deref());
            needs.into_iter().all(|name| done.iter().any(|other| *other.name == *name))
        });
        let Some(ready) = ready else {
            let circle: Vec<&str> = waiting.iter().map(|link| &*link.name).collect();
            let first =
                circle.first().and_then(|name| positions.get(*name)).and_then(|index| fields.get(*index));
            let problem = format!("{} need each other to be made first; break the circle", circle.join(", "));
            return Err(Invalid::new(first.map_or("", String::as_str), problem));
        };
        done.push(waiting.remove(ready));
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
