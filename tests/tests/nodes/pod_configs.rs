//! The kinds of the pod-network operators, with manifests from their documentation.

use eno_nbi_crds::{ConfigPhase, ConfigStatus, PodConfig, PodNetworkConfig};
use eno_tests::{System, deployment, unchecked_namespace, with_shared_nodes};
use kube::core::object::HasStatus;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

const PODCONFIG: &str = include_str!("manifests/podconfig.yaml");
const PODNETWORK: &str = include_str!("manifests/podnetworkconfig.yaml");
const BRIDGE: &str = include_str!("manifests/bridge.yaml");

/// Waits until the status of a configuration, `namespace/name`, fulfils `good` for its current spec.
pub async fn configured<K>(system: &System, name: &str, good: impl Fn(&ConfigStatus) -> bool) -> K
where
    K: Resource<DynamicType = ()>
        + HasStatus<Status = ConfigStatus>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize
        + Send
        + 'static,
{
    let is_current =
        |object: &K, status: &ConfigStatus| status.observed_generation == object.meta().generation;
    let is_good =
        |object: &K| object.status().is_some_and(|status| is_current(object, status) && good(status));
    system.until_one(name, "configured", is_good).await
}

/// The value of a key in an entry such as `{podVethName:pc05 podIPAddr:192.168.100.2/24}`.
pub fn field<'a>(entry: &'a str, key: &str) -> &'a str {
    let inner = entry.trim_start_matches('{').trim_end_matches('}');
    inner.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix(':')).unwrap_or_default()
}

#[test]
#[ignore = "needs root: real nodes"]
fn podconfig_adds_and_removes_two_networks_per_pod() {
    with_shared_nodes(async |system| {
        let namespace = unchecked_namespace("cnf-test");
        system.apply(&namespace).await;
        let config = PODCONFIG.replace("metadata:\n", "metadata:\n  namespace: cnf-test\n");
        system.apply(&config).await;
        let pods = system.running("cnf-test", "podconfig=podconfig-sample-a", 2).await;
        let object: PodConfig = configured(system, "cnf-test/podconfig-sample-a", |status| {
            status.phase == Some(ConfigPhase::Configured)
                && status.pod_configurations.iter().filter(|pod| pod.config_list.len() == 2).count() == 2
        })
        .await;
        assert!(object.finalizers().iter().any(|finalizer| finalizer == "podconfig.finalizers.opdev.io"));
        let status = object.status.expect("a status");
        let mut taken = std::collections::BTreeSet::new();
        for pod in &status.pod_configurations {
            assert!(pods.contains_key(&pod.pod_name), "{pod:?}");
            let interfaces = system.interfaces("cnf-test", &pod.pod_name).await;
            for (entry, (prefix, bridge, net)) in pod
                .config_list
                .iter()
                .zip([("pc0", "pcbr0", "192.168.100."), ("pc1", "pcbr1", "192.168.99.")])
            {
                let (name, address) = (field(entry, "podVethName"), field(entry, "podIPAddr"));
                assert!(name.starts_with(prefix) && name[prefix.len()..].parse::<u32>().is_ok(), "{entry}");
                assert_eq!(field(entry, "peerVethName"), format!("h{name}"));
                assert_eq!(field(entry, "bridge"), bridge);
                assert!(address.starts_with(net) && taken.insert(address.to_owned()), "{entry}");
                let text = interfaces.get(name).unwrap_or_else(|| panic!("{name} in {interfaces:?}"));
                assert!(text.contains(&format!("inet {address}")), "{text}");
                // The bridge has the first address.
                system.pings("cnf-test", &pod.pod_name, &format!("{net}1"), true).await;
            }
        }

        // A pod that loses its label loses the networks, and its replacement gets them.
        let first = &status.pod_configurations[0];
        let name = field(&first.config_list[0], "podVethName").to_owned();
        system.label("cnf-test", &first.pod_name, "podconfig", None).await;
        system
            .until_inside("cnf-test", &first.pod_name, &["ip", "link", "show", &name], |output| {
                output.is_none()
            })
            .await;
        configured::<PodConfig>(system, "cnf-test/podconfig-sample-a", |status| {
            let names: Vec<&str> = status.pod_configurations.iter().map(|pod| &*pod.pod_name).collect();
            status.phase == Some(ConfigPhase::Configured)
                && names.len() == 2
                && !names.contains(&&*first.pod_name)
                && status.pod_configurations.iter().all(|pod| pod.config_list.len() == 2)
        })
        .await;

        // One of the networks is removed from the object.
        let one = config.split("    - name: pc1").next().expect("the first part");
        system.apply(one).await;
        let object: PodConfig = configured(system, "cnf-test/podconfig-sample-a", |status| {
            status.phase == Some(ConfigPhase::Configured)
                && status.pod_configurations.iter().all(|pod| pod.config_list.len() == 1)
        })
        .await;
        let status = object.status.expect("a status");
        for pod in &status.pod_configurations {
            let interfaces = system.interfaces("cnf-test", &pod.pod_name).await;
            assert!(!interfaces.keys().any(|name| name.starts_with("pc1")), "{interfaces:?}");
        }

        // Deleting the object removes its sample Deployment.
        let pod = status.pod_configurations[0].pod_name.clone();
        system.delete(&config).await;
        let interfaces = system.interfaces("cnf-test", &pod).await;
        assert!(!interfaces.keys().any(|name| name.starts_with("pc")), "{interfaces:?}");
        system.running("cnf-test", "podconfig=podconfig-sample-a", 0).await;
        for node in ["node1", "node2"] {
            let links = system.on_node(node, &["ip", "-br", "link"]).await;
            assert!(!links.contains("pcbr") && !links.contains("hpc"), "{node}: {links}");
        }
        system.delete(&namespace).await;
    });
}

#[test]
#[ignore = "needs root: real nodes"]
fn podnetworkconfig_adds_an_interface_and_sets_the_primary_mtu() {
    with_shared_nodes(async |system| {
        let namespace = unchecked_namespace("cnf-telco");
        system.apply(&namespace).await;
        // Another test uses the documentation's addresses, and on a node an address belongs to one bridge.
        let other = |manifest: &str| manifest.replace("192.168.100.", "192.168.101.");
        let (bridge, podnetwork) = (other(BRIDGE), other(PODNETWORK));
        system.apply(&bridge).await;
        system.apply(&podnetwork).await;
        // No pod is selected yet, so there is nothing to do.
        configured::<PodNetworkConfig>(system, "cnf-telco/podnetwork-sample-a", |status| {
            status.phase == Some(ConfigPhase::Configured)
        })
        .await;
        let cnf = deployment(
            "cnf-telco",
            "cnf",
            2,
            &serde_json::json!({ "podNetworkConfig": "podnetwork-sample-a" }),
        );
        system.apply(&cnf).await;
        let pods = system.running("cnf-telco", "podNetworkConfig=podnetwork-sample-a", 2).await;
        let object: PodNetworkConfig = configured(system, "cnf-telco/podnetwork-sample-a", |status| {
            status.phase == Some(ConfigPhase::Configured)
                && status.pod_network_configs.iter().filter(|pod| pod.config_list.len() == 1).count() == 2
        })
        .await;
        let status = object.status.expect("a status");
        for pod in &status.pod_network_configs {
            assert!(field(&pod.config_list[0], "podVethName").starts_with("pno"), "{pod:?}");
            system.pings("cnf-telco", &pod.pod_name, "192.168.101.1", true).await;
        }

        let pod = pods.keys().next().expect("a pod");
        let mtu =
            |text: &str| text.split("mtu ").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        let show = ["ip", "link", "show", "eth0"];
        let before = mtu(&system.exec("cnf-telco", pod, &show).await.expect("eth0")).expect("an MTU");
        assert_ne!(before, "1400");
        let smaller = format!("{podnetwork}\n  eth0: {{mtu: 1400}}\n");
        system.apply(&smaller).await;
        let is = |wanted: String| {
            move |text: Option<&str>| text.and_then(mtu).is_some_and(|found| found == wanted)
        };
        system.until_inside("cnf-telco", pod, &show, is("1400".into())).await;
        configured::<PodNetworkConfig>(system, "cnf-telco/podnetwork-sample-a", |status| {
            status
                .pod_network_configs
                .iter()
                .all(|pod| pod.config_list.iter().any(|entry| entry.contains("MTU: 1400")))
        })
        .await;
        system.delete(&podnetwork).await;
        system.until_inside("cnf-telco", pod, &show, is(before)).await;
        system.delete(&bridge).await;
        system.delete(&namespace).await;
    });
}
