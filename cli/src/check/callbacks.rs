//! Which of the cluster's own networks callbacks may reach.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;

use super::{Check, Fact, Name, Problem, count};
use crate::check::cluster::NodeFact;

/// Maximum number of networks in a proposal.
const MAX_NETWORKS: usize = 32;

/// The networks of Services.
pub fn service_networks(found: &[ServiceCIDR]) -> Vec<IpNet> {
    let texts = found.iter().flat_map(|cidr| &cidr.spec).flat_map(|spec| spec.cidrs.iter().flatten());
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// The networks that the environment variable of the engine names.
pub fn denied_networks(text: Option<&str>) -> Vec<IpNet> {
    text.unwrap_or_default().split(',').filter_map(|part| part.trim().parse().ok()).collect()
}

/// The check that no callback reaches pods, Services and nodes. `denied`: the networks that are refused.
pub fn judge(nodes: &Fact<Vec<NodeFact>>, services: &Fact<Vec<IpNet>>, denied: &Fact<Vec<IpNet>>) -> Check {
    let name = Name::CallbackNetworks;
    let (nodes, services, denied) = match (nodes, services, denied) {
        (Ok(nodes), Ok(services), Ok(denied)) => (nodes, services, denied),
        (Err(unread), _, _) | (_, Err(unread), _) | (_, _, Err(unread)) => {
            return Check::unread(name, "", unread);
        }
    };
    let all: Vec<IpNet> = nodes.iter().flat_map(|node| &node.networks).chain(services).copied().collect();
    let all = IpNet::aggregate(&all);
    let is_open = |network: &&IpNet| !denied.iter().any(|denied| denied.contains(*network));
    let open: Vec<String> = all.iter().filter(is_open).map(ToString::to_string).collect();
    let subject = format!("{} of pods, Services and nodes", count(all.len(), "network"));
    if open.is_empty() {
        return Check::ok(name, subject);
    }
    let more = match open.len().saturating_sub(MAX_NETWORKS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let listed = open[..open.len().min(MAX_NETWORKS)].join(", ");
    let what =
        format!("whoever writes an object can have callbacks sent to the cluster's own {listed}{more}");
    let remedy = format!(
        "unless receivers of callbacks are there: eno install with callbackDeny: [{listed}], and the networks of \
         further nodes"
    );
    Check::warning(name, subject, Problem::new(what, remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Unread;
    use super::super::tests::{assert_outcome, object};
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().expect("a network")).collect()
    }

    #[test]
    fn open_networks_of_the_cluster_are_proposed_for_refusal() {
        let node = |name: &str, address: &str, pods: &str| {
            NodeFact::new(&object(json!({
                "metadata": {"name": name},
                "spec": {"podCIDRs": [pods, "fd00:1::/64"]},
                "status": {"addresses": [
                    {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address},
                ]},
            })))
        };
        let nodes =
            Ok(vec![node("a", "192.0.2.4", "10.244.0.0/24"), node("b", "192.0.2.5", "10.244.1.0/24")]);
        let services =
            vec![object(json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}}))];
        let services = Ok(service_networks(&services));
        for (denied, expected) in [
            ("", "warning: 10.96.0.0/16, 10.244.0.0/23, 192.0.2.4/31, fd00:1::/64"),
            ("10.0.0.0/8, fd00:1::/48", "warning: own 192.0.2.4/31"),
            ("10.96.0.0/12,10.244.0.0/16,192.0.2.0/24,fd00::/8", "ok"),
        ] {
            let check = judge(&nodes, &services, &Ok(denied_networks(Some(denied))));
            assert_outcome(&check, expected);
        }
        let unread = Err(Unread::Forbidden("listing nodes".to_owned()));
        assert_outcome(&judge(&unread, &services, &Ok(networks(&[]))), "skipped: listing nodes");
        let many: Vec<_> =
            (0..40).map(|n| node("n", &format!("192.0.2.{}", n * 2), "10.244.0.0/24")).collect();
        assert_outcome(&judge(&Ok(many), &Ok(Vec::new()), &Ok(Vec::new())), "warning: and 10 more");
    }
}
