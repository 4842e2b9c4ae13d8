//! Reads a [`View`] from Neutron.

use std::collections::{BTreeMap, BTreeSet};

use eno_fabric_driver::desired::{listed_name, vlans_of};
use eno_schemas::{FabricDesired, NetworkType, VlanId, VlanSet};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::error::ApiError;
use crate::http::Api;
use crate::mark::{Mark, offer_tag};
use crate::plan::Attributes;
use crate::request::{Kind, Request};
use crate::view::{Id, Network, Port, SubPort, Trunk, View};

const NETWORKS: &str = Kind::Network.collection();
const PORTS: &str = Kind::Port.collection();
const TRUNKS: &str = "trunks";
/// Maximum ids or names in one query: proxies allow 8 kB for a URL.
const MAX_IDS: usize = 100;
/// Maximum names in one query: each has at most 63 characters, which may be escaped.
const MAX_NAMES: usize = 30;
/// Requests at a time.
const CONCURRENT: usize = 4;
/// Maximum tags in one query.
const MAX_TAGS: usize = 250;
/// Changed networks, ports and trunks up to which only these are read back.
const MAX_CHANGED: usize = 200;

const NETWORK_FIELDS: [&str; 12] = [
    "id",
    "name",
    "description",
    "project_id",
    "mtu",
    "admin_state_up",
    "port_security_enabled",
    "revision_number",
    "provider:network_type",
    "provider:physical_network",
    "provider:segmentation_id",
    "tags",
];
const PORT_FIELDS: [&str; 10] = [
    "id",
    "name",
    "project_id",
    "description",
    "network_id",
    "mac_address",
    "admin_state_up",
    "port_security_enabled",
    "allowed_address_pairs",
    "revision_number",
];
const TRUNK_FIELDS: [&str; 7] =
    ["id", "name", "project_id", "port_id", "status", "admin_state_up", "sub_ports"];

/// Reads all that is ours, the listed trunks, and what else has desired VLANs.
pub async fn read(api: &Api, desired: &FabricDesired, mark: &Mark) -> Result<View, ApiError> {
    // It replaces what was read before.
    drop(api.count_anew());
    let of_ports = [("description", mark.description())];
    let of_networks = [of_ports[0], ("description", mark.tenant_description())];
    let (networks, ports, found) = tokio::try_join!(
        list::<Network>(api, NETWORKS, &of_networks, &NETWORK_FIELDS),
        list::<Port>(api, PORTS, &of_ports, &PORT_FIELDS),
        find_trunks(api, desired, mark),
    )?;
    let mut view = View {
        project: api.project().to_owned(),
        networks: networks.into_iter().map(|network| (network.id.clone(), network)).collect(),
        ports: ports.into_iter().map(|port| (port.id.clone(), port)).collect(),
        ..found
    };
    let attributes = Attributes::new(desired, mark, None);
    let wanted = vlans_of(&desired.ports);
    if attributes.network_type() == NetworkType::Provider {
        read_networks_of_others(api, mark, attributes, &wanted, &mut view).await?;
    }
    // Sub-ports of others that have desired VLANs, and the parents of trunks.
    let parents: BTreeSet<&str> = view.trunks.values().map(|trunk| trunk.port_id.as_str()).collect();
    let ids = parents.iter().copied().chain(unread_sub_ports(&view, &wanted));
    let others: Vec<Port> = list_by(api, PORTS, "id", ids.collect::<BTreeSet<_>>(), &PORT_FIELDS).await?;
    let of_parents = others.iter().filter(|port| parents.contains(port.id.as_str()));
    let of_parents: BTreeSet<&str> = of_parents.map(|port| port.network_id.as_str()).collect();
    let of_parents: Vec<Network> = list_by(api, NETWORKS, "id", of_parents, &["id", "mtu"]).await?;
    view.parent_mtu = of_parents.iter().filter_map(|network| network.mtu).min();
    view.ports.extend(others.into_iter().map(|port| (port.id.clone(), port)));
    Ok(view)
}

/// Reads again what requests changed: these things alone, or all when they are many.
pub async fn read_back(
    api: &Api,
    desired: &FabricDesired,
    mark: &Mark,
    mut view: View,
    changed: &Changed,
) -> Result<View, ApiError> {
    if changed.len() > MAX_CHANGED {
        return read(api, desired, mark).await;
    }
    // It replaces parts of what was read before.
    let before = api.count_anew();
    let Changed { networks, ports, trunks } = changed;
    let (found_networks, found_ports, found_trunks) = tokio::try_join!(
        list_by::<Network>(api, NETWORKS, "id", networks.iter().map(String::as_str), &NETWORK_FIELDS),
        list_by::<Port>(api, PORTS, "id", ports.iter().map(String::as_str), &PORT_FIELDS),
        list_by::<Trunk>(api, TRUNKS, "id", trunks.iter().map(String::as_str), &TRUNK_FIELDS),
    )?;
    // What was not found is gone.
    view.networks.retain(|id, _| !networks.contains(id));
    view.ports.retain(|id, _| !ports.contains(id));
    view.trunks.retain(|id, _| !trunks.contains(id));
    view.networks.extend(found_networks.into_iter().map(|network| (network.id.clone(), network)));
    view.ports.extend(found_ports.into_iter().map(|port| (port.id.clone(), port)));
    view.trunks.extend(found_trunks.into_iter().map(|trunk| (trunk.id.clone(), trunk)));
    // Another trunk may have the name by now.
    if view.trunk_of.values().any(|id| !view.trunks.contains_key(id)) {
        return read(api, desired, mark).await;
    }
    // Others may have put their ports on the trunks.
    let others = unread_sub_ports(&view, &vlans_of(&desired.ports));
    let others: Vec<Port> = list_by(api, PORTS, "id", others, &PORT_FIELDS).await?;
    view.ports.extend(others.into_iter().map(|port| (port.id.clone(), port)));
    api.count_as_before(before);
    Ok(view)
}

/// True when Neutron still has all trunks of a view.
pub async fn has_trunks(api: &Api, view: &View) -> Result<bool, ApiError> {
    let ids = view.trunks.keys().map(String::as_str);
    let before = api.count_anew();
    let found = list_by::<Trunk>(api, TRUNKS, "id", ids, &["id"]).await;
    api.count_as_before(before);
    let found = found?;
    let found: BTreeSet<&Id> = found.iter().map(|trunk| &trunk.id).collect();
    Ok(view.trunks.keys().all(|id| found.contains(id)))
}

/// The sub-ports with wanted VLANs that are not in the view.
fn unread_sub_ports<'a>(view: &'a View, wanted: &VlanSet) -> BTreeSet<&'a str> {
    let is_wanted = |sub: &&SubPort| sub.vid().is_some_and(|vid| wanted.contains(vid));
    let all = view.trunks.values().flat_map(|trunk| trunk.sub_ports.iter().filter(is_wanted));
    all.map(|sub| sub.port_id.as_str()).filter(|id| !view.ports.contains_key(*id)).collect()
}

/// The ids of what requests changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    networks: BTreeSet<Id>,
    ports: BTreeSet<Id>,
    trunks: BTreeSet<Id>,
}

impl Changed {
    /// Notes that a request changed the things with these ids.
    pub fn add(&mut self, request: &Request, ids: Vec<Id>) {
        let of_kind = match request {
            Request::CreateNetworks(_) => &mut self.networks,
            Request::CreatePorts(_) => &mut self.ports,
            Request::AddSubPorts { .. } | Request::RemoveSubPorts { .. } => &mut self.trunks,
            Request::Update { resource, .. } | Request::Delete { resource } => match resource.kind {
                Kind::Network => &mut self.networks,
                Kind::Port => &mut self.ports,
            },
        };
        of_kind.extend(ids);
    }

    fn len(&self) -> usize {
        self.networks.len() + self.ports.len() + self.trunks.len()
    }
}

/// Reads the networks that others made for desired VLANs without a network of ours.
async fn read_networks_of_others(
    api: &Api,
    mark: &Mark,
    attributes: Attributes<'_>,
    wanted: &VlanSet,
    view: &mut View,
) -> Result<(), ApiError> {
    let of_ours = view.networks.values().filter_map(|network| view.own_network(network, mark));
    let missing: Vec<VlanId> = wanted.difference(&of_ours.collect()).iter().collect();
    let tags: Vec<String> = missing
        .chunks(MAX_TAGS)
        .map(|vids| vids.iter().map(|vid| offer_tag(*vid)).collect::<Vec<_>>().join(","))
        .collect();
    let offered = tags
        .iter()
        .map(async |tags| list::<Network>(api, NETWORKS, &[("tags-any", tags)], &NETWORK_FIELDS).await);
    let offered: Vec<Network> = all(offered).await?;
    let is_offered = |vid: &VlanId| {
        offered.iter().any(|network| {
            network.tags.contains(&offer_tag(*vid)) && attributes.may_offer(network, api.project())
        })
    };
    let missing: Vec<String> =
        missing.iter().filter(|vid| !is_offered(vid)).map(ToString::to_string).collect();
    view.networks.extend(offered.into_iter().map(|network| (network.id.clone(), network)));
    let Some(physical_network) = attributes.physical_network() else { return Ok(()) };
    let foreign = missing.chunks(MAX_IDS).map(async |vids| {
        let mut query = vec![("provider:physical_network", physical_network)];
        query.extend(vids.iter().map(|vid| ("provider:segmentation_id", vid.as_str())));
        list::<Network>(api, NETWORKS, &query, &NETWORK_FIELDS).await
    });
    let foreign = all(foreign).await?;
    view.networks.extend(foreign.into_iter().map(|network| (network.id.clone(), network)));
    Ok(())
}

/// Finds the listed trunks by their id or name, or by that of their parent port.
async fn find_trunks(api: &Api, desired: &FabricDesired, mark: &Mark) -> Result<View, ApiError> {
    let physical_network = Attributes::new(desired, mark, None).physical_network();
    let names = desired.ports.iter().map(listed_name).filter(|name| physical_network != Some(*name));
    let names: BTreeSet<&str> = names.collect();
    let mut trunks: Vec<Trunk> = by_id_or_name(api, TRUNKS, &names, &TRUNK_FIELDS).await?;
    let mut view = View::default();
    let mut others = BTreeSet::new();
    for name in names {
        let named = named(api, &trunks, name, |trunk| [&trunk.id, &trunk.name, &trunk.project_id]);
        match named.as_slice() {
            [] => drop(others.insert(name)),
            [trunk] => drop(view.trunk_of.insert(name.to_owned(), trunk.id.clone())),
            several => {
                let ids = several.iter().map(|trunk| trunk.id.as_str()).collect::<Vec<_>>().join(", ");
                let reason = format!("several trunks have the name {name}: list the id of one of {ids}");
                view.unresolved.insert(name.to_owned(), reason);
            }
        }
    }
    let ports: Vec<Port> = by_id_or_name(api, PORTS, &others, &["id", "name", "project_id"]).await?;
    let ids: BTreeSet<&str> = ports.iter().map(|port| port.id.as_str()).collect();
    let of_ports: Vec<Trunk> = list_by(api, TRUNKS, "port_id", ids, &TRUNK_FIELDS).await?;
    for name in others {
        let named = named(api, &ports, name, |port| [&port.id, &port.name, &port.project_id]);
        let trunk = |port: &Port| of_ports.iter().find(|trunk| trunk.port_id == port.id);
        let reason = match named.as_slice() {
            [] => format!(
                "Neutron shows this credential neither a trunk nor a port {name}: check the name, and that the trunk \
                 is in the credential's project"
            ),
            [port] => match trunk(port) {
                Some(trunk) => {
                    view.trunk_of.insert(name.to_owned(), trunk.id.clone());
                    continue;
                }
                None => format!(
                    "port {name} is the parent of no trunk: make one with openstack network trunk create \
                     --parent-port {} NAME",
                    port.id
                ),
            },
            several => {
                let ids = several.iter().map(|port| port.id.as_str()).collect::<Vec<_>>().join(", ");
                format!("several ports have the name {name}: list the id of one of {ids}")
            }
        };
        view.unresolved.insert(name.to_owned(), reason);
    }
    trunks.extend(of_ports);
    let listed: BTreeSet<&Id> = view.trunk_of.values().collect();
    view.trunks = trunks
        .into_iter()
        .filter(|trunk| listed.contains(&trunk.id))
        .map(|trunk| (trunk.id.clone(), trunk))
        .collect::<BTreeMap<_, _>>();
    Ok(view)
}

/// Those with the id `name`, and those of the credential's project with this name: an admin sees those of all projects.
fn named<'a, T>(api: &Api, all: &'a [T], name: &str, keys: impl Fn(&T) -> [&String; 3]) -> Vec<&'a T> {
    let is_named = |one: &&T| {
        let [id, own, project] = keys(one);
        id == name || (own == name && project == api.project())
    };
    all.iter().filter(is_named).collect()
}

/// The resources with one of these ids, or with one of these names.
async fn by_id_or_name<T: for<'a> serde::Deserialize<'a>>(
    api: &Api,
    collection: &str,
    names: &BTreeSet<&str>,
    fields: &[&str],
) -> Result<Vec<T>, ApiError> {
    let (ids, names): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| is_id(name));
    let (mut found, named) = tokio::try_join!(
        list_by(api, collection, "id", ids, fields),
        list_by(api, collection, "name", names, fields),
    )?;
    found.extend(named);
    Ok(found)
}

/// True for a UUID with hyphens.
fn is_id(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The resources whose attribute `key` is one of `values`.
async fn list_by<'a, T: for<'b> serde::Deserialize<'b>>(
    api: &Api,
    collection: &str,
    key: &str,
    values: impl IntoIterator<Item = &'a str>,
    fields: &[&str],
) -> Result<Vec<T>, ApiError> {
    let values: Vec<&str> = values.into_iter().collect();
    let at_once = if key == "name" { MAX_NAMES } else { MAX_IDS };
    let queries = values.chunks(at_once).map(async |values| {
        let query: Vec<(&str, &str)> = values.iter().map(|value| (key, *value)).collect();
        list(api, collection, &query, fields).await
    });
    all(queries).await
}

/// Runs queries, a few at a time.
async fn all<T>(
    queries: impl Iterator<Item = impl Future<Output = Result<Vec<T>, ApiError>>>,
) -> Result<Vec<T>, ApiError> {
    let queries: Vec<_> = queries.collect();
    let answers: Vec<Vec<T>> = stream::iter(queries).buffered(CONCURRENT).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

async fn list<T: for<'a> serde::Deserialize<'a>>(
    api: &Api,
    collection: &str,
    query: &[(&str, &str)],
    fields: &[&str],
) -> Result<Vec<T>, ApiError> {
    let fields = fields.iter().map(|field| ("fields", *field));
    api.list(collection, &query.iter().copied().chain(fields).collect::<Vec<_>>()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids() {
        assert!(is_id("f52ae11a-5046-4267-8786-dbc08e4af370"));
        for name in
            ["worker1-trunk", "f52ae11a50464267878cdbc08e4af370", "f52ae11a-5046-4267-8786-dbc08e4af37x"]
        {
            assert!(!is_id(name), "{name}");
        }
    }
}
