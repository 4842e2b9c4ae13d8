//! Drivers and agents that are alive.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::DriverHello;

use super::cluster::NodeFact;
use super::{Check, Fact, NODE, Name, Problem, SYSTEM, count, listed};

/// The driver of NADs.
const NAD_DRIVER: &str = "nad";
/// The driver of nodes: the agents.
const NODE_DRIVER: &str = "node";

/// The checks of drivers: that of NADs, and one for each driver that FabricDevices name.
///
/// `devices` has the driver of each FabricDevice, by its name.
pub fn judge_drivers(
    hellos: &Fact<Vec<DriverHello>>,
    devices: &Fact<BTreeMap<String, String>>,
) -> Vec<Check> {
    let name = Name::Drivers;
    let hellos = match hellos {
        Ok(hellos) => hellos,
        Err(unread) => return vec![Check::unread(name, "", unread)],
    };
    let mut needed: BTreeMap<&str, Vec<&str>> = BTreeMap::from([(NAD_DRIVER, Vec::new())]);
    let mut checks = Vec::new();
    match devices {
        Ok(devices) => {
            for (device, driver) in devices {
                needed.entry(driver).or_default().push(device);
            }
        }
        Err(unread) => checks.push(Check::unread(name, "drivers of FabricDevices", unread)),
    }
    for (driver, devices) in needed {
        let alive = hellos.iter().filter(|hello| hello.driver == driver).count();
        let users = if driver == NAD_DRIVER {
            String::new()
        } else {
            format!(", {}", count(devices.len(), "device"))
        };
        let subject = format!("driver {driver}: {}{users}", count(alive, "process"));
        if alive > 0 {
            checks.push(Check::ok(name, subject));
            continue;
        }
        let what = match devices.as_slice() {
            [] => format!("driver {driver} is not running, so no NADs are written"),
            devices => format!(
                "driver {driver} is not running; these FabricDevices wait for it: {}",
                listed(devices)
            ),
        };
        let remedy = format!(
            "look at it: kubectl -n {SYSTEM} get pods -l app.kubernetes.io/name=eno-driver-{driver}, or correct Driver \
             of the FabricDevices"
        );
        checks.push(Check::failed(name, subject, Problem::new(what, remedy)));
    }
    checks
}

/// The nodes with a live agent, by what NATS knows.
pub fn nodes_of_hellos(hellos: &[DriverHello]) -> BTreeSet<String> {
    let agents = hellos.iter().filter(|hello| hello.driver == NODE_DRIVER);
    agents.map(|hello| hello.target.clone().unwrap_or_else(|| hello.instance.clone())).collect()
}

/// The check that each ready Linux node has a live agent. `agents` are the nodes that have one.
pub fn judge_agents(agents: &Fact<BTreeSet<String>>, nodes: &Fact<Vec<NodeFact>>) -> Check {
    let name = Name::Agents;
    let (agents, nodes) = match (agents, nodes) {
        (Ok(agents), Ok(nodes)) => (agents, nodes),
        (Err(unread), _) | (_, Err(unread)) => return Check::unread(name, "", unread),
    };
    let linux: Vec<&NodeFact> = nodes.iter().filter(|node| node.is_linux()).collect();
    let with_agent = linux.iter().filter(|node| agents.contains(&node.name)).count();
    let subject = format!("{}, {}", count(linux.len(), "node"), count(with_agent, "agent"));
    let lacking: Vec<&NodeFact> = linux.into_iter().filter(|node| !agents.contains(&node.name)).collect();
    let names = |is_ready| {
        let those = lacking.iter().filter(move |node| node.is_ready == is_ready);
        those.map(|node| node.name.as_str()).collect::<Vec<_>>()
    };
    let remedy = format!("look at them: kubectl -n {NODE} get pods -o wide");
    match (names(true), names(false)) {
        (ready, _) if !ready.is_empty() => {
            let what = format!("ready nodes without a live agent: {}", listed(ready));
            Check::failed(name, subject, Problem::new(what, remedy))
        }
        (_, unready) if !unready.is_empty() => {
            let what = format!("nodes that are not ready have no live agent: {}", listed(unready));
            Check::warning(
                name,
                subject,
                Problem::new(what, "restore the nodes, or delete their Node objects"),
            )
        }
        _ => Check::ok(name, subject),
    }
}

/// The check of the versions of drivers and agents; `wanted` is that of this program.
pub fn judge_versions(hellos: &Fact<Vec<DriverHello>>, wanted: &str) -> Check {
    let name = Name::DriverVersions;
    let hellos = match hellos {
        Ok(hellos) => hellos,
        Err(unread) => return Check::unread(name, "", unread),
    };
    // Drivers that ENO does not ship have versions of their own.
    let own = hellos.iter().filter(|hello| eno_parts::drivers().any(|own| own == hello.driver));
    let other: Vec<String> = own
        .clone()
        .filter(|hello| hello.version != wanted)
        .map(|hello| format!("{} {} {}", hello.driver, hello.instance, hello.version))
        .collect();
    let subject = format!("{}, version {wanted}", count(own.count(), "process"));
    if other.is_empty() {
        return Check::ok(name, subject);
    }
    let what = format!("of another version than this program: {}", listed(other));
    let remedy =
        "wait for a rolling update that is under way, run eno install, or use the eno of that version";
    Check::warning(name, subject, Problem::new(what, remedy))
}

#[cfg(test)]
mod tests {
    use super::super::Unread;
    use super::super::tests::{assert_outcome, text};
    use super::*;

    fn hello(driver: &str, instance: &str, version: &str) -> DriverHello {
        DriverHello {
            driver: driver.into(),
            instance: instance.into(),
            version: version.into(),
            kinds: Vec::new(),
            capabilities: Vec::new(),
            target: (driver == NODE_DRIVER).then(|| instance.to_owned()),
            at: None,
        }
    }

    #[test]
    fn each_needed_driver_must_be_alive() {
        let devices = || Ok(BTreeMap::from([("leaf1".to_owned(), "netconf".to_owned())]));
        let outcomes = |hellos: &[DriverHello]| {
            judge_drivers(&Ok(hellos.to_vec()), &devices()).iter().map(text).collect::<Vec<_>>()
        };
        let (nad, netconf) = (hello("nad", "a", "1"), hello("netconf", "a", "1"));
        assert_eq!(outcomes(&[nad.clone(), netconf.clone()]), ["ok", "ok"]);
        let without_netconf = outcomes(std::slice::from_ref(&nad));
        assert!(
            without_netconf[1].starts_with("failed: driver netconf is not running|")
                || without_netconf[1].contains("leaf1")
        );
        assert!(outcomes(&[netconf])[0].contains("no NADs are written"));
        let unread = judge_drivers(&Ok(vec![nad]), &Err(Unread::Forbidden("list fabricdevices".into())));
        assert_eq!(
            unread.iter().map(|check| text(check).split(':').next().map(str::to_owned)).collect::<Vec<_>>(),
            [Some("skipped".to_owned()), Some("ok".to_owned())]
        );
    }

    #[test]
    fn ready_nodes_must_have_an_agent() {
        let node = |name: &str, is_ready| NodeFact { name: name.into(), is_ready, ..NodeFact::default() };
        let windows = NodeFact { system: "windows".into(), ..node("w", true) };
        let hellos = [hello(NODE_DRIVER, "a", "1"), hello("nad", "b", "1")];
        for (nodes, expected) in [
            (vec![node("a", true), windows], "ok"),
            (vec![node("a", true), node("b", true)], "failed: without a live agent: b"),
            (vec![node("a", true), node("b", false)], "warning: not ready have no live agent: b"),
        ] {
            assert_outcome(&judge_agents(&Ok(nodes_of_hellos(&hellos)), &Ok(nodes)), expected);
        }
    }

    #[test]
    fn other_versions_are_a_warning() {
        let judge = |hellos: Vec<DriverHello>| judge_versions(&Ok(hellos), "1");
        assert_outcome(&judge(vec![hello("nad", "a", "1"), hello("json-file", "a", "7")]), "ok");
        assert_outcome(&judge(vec![hello("nad", "a", "0")]), "warning: nad a 0");
    }
}
