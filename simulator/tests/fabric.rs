//! The library interface of a fabric: persistence, errors and shutdown.

use std::collections::BTreeMap;

use eno_simulator::{Boot, Fabric, FabricError, FabricOptions, HandEdit, PortMode, Topology};

fn keeping(dir: &std::path::Path) -> FabricOptions {
    FabricOptions { state_dir: Some(dir.to_owned()), control: None, data_plane: None }
}

fn trunk(port: &str, vlan: u16) -> HandEdit {
    HandEdit {
        port: Some(port.to_owned()),
        mode: Some(PortMode::Trunk),
        vlans: [vlan].into_iter().collect(),
        define_vlans: BTreeMap::from([(vlan, format!("v{vlan}"))]),
        ..HandEdit::default()
    }
}

#[tokio::test]
async fn restart_with_same_directory_restores_switches() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let topology = Topology::leaf_spine(1, 1, 1);
    let fabric = Fabric::start(&topology, keeping(dir.path())).await.expect("starts");
    let leaf = fabric.switch("leaf1").expect("leaf1");
    leaf.change_by_hand(&trunk("Ethernet1", 100)).expect("the port exists");
    let (info, view) = (fabric.info().to_vec(), leaf.view());
    assert_eq!(view.ports["Ethernet1"].vlans.to_string(), "100");
    fabric.shutdown().await;

    let again = Fabric::start(&topology, keeping(dir.path())).await.expect("starts again");
    let leaf = again.switch("leaf1").expect("leaf1");
    assert_eq!(leaf.view(), view);
    for (before, after) in info.iter().zip(again.info()) {
        // The port may differ: another program may have taken it in the meantime.
        assert_eq!((&before.name, &before.password), (&after.name, &after.password));
        assert_eq!(before.host_key, after.host_key);
    }
    leaf.reboot(Boot::Factory);
    assert!(leaf.view().vlans.is_empty());
    again.shutdown().await;
}

#[tokio::test]
async fn start_error_names_switch_with_taken_address() {
    let fabric =
        Fabric::start(&Topology::leaf_spine(1, 0, 0), FabricOptions::default()).await.expect("starts");
    let mut topology = Topology::leaf_spine(1, 0, 0);
    topology.switches[0].listen = fabric.info()[0].netconf;
    let error = Fabric::start(&topology, FabricOptions::default()).await.expect_err("the port is taken");
    assert!(matches!(error, FabricError::Listen { .. }), "{error}");
    assert!(error.to_string().contains("switch leaf1"), "{error}");
    fabric.shutdown().await;
}

#[tokio::test]
async fn invalid_initial_configuration_is_refused() {
    let mut topology = Topology::leaf_spine(1, 0, 0);
    topology.switches[0].configuration = Some("<x xmlns=\"urn:nobody\"/>".to_owned());
    let error = Fabric::start(&topology, FabricOptions::default()).await.expect_err("not in the model");
    assert!(error.to_string().contains("urn:nobody"), "{error}");
}

#[tokio::test]
async fn debug_output_omits_passwords() {
    let fabric =
        Fabric::start(&Topology::leaf_spine(1, 0, 0), FabricOptions::default()).await.expect("starts");
    let info = &fabric.info()[0];
    assert_eq!(info.password.len(), 24);
    assert!(!format!("{info:?} {fabric:?}").contains(&info.password));
    fabric.shutdown().await;
}

#[tokio::test]
async fn version_watch_wakes_on_change() {
    let fabric =
        Fabric::start(&Topology::leaf_spine(1, 0, 0), FabricOptions::default()).await.expect("starts");
    let leaf = fabric.switch("leaf1").expect("leaf1");
    let mut version = leaf.version();
    let before = *version.borrow();
    leaf.change_by_hand(&trunk("Ethernet1", 7)).expect("the port exists");
    version.wait_for(|version| *version > before).await.expect("the switch is there");
    assert!(leaf.change_by_hand(&trunk("Ethernet999", 7)).is_err());
    fabric.shutdown().await;
}
