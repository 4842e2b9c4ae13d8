//! Frame forwarding on the configured ports.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use eno_conformance::ovs_database::{output, program};

use crate::switch::fixture::{Switch, Transport, applied, on, reconcile};

/// Two hosts, each at an access port of VLAN 10 of a bridge of its own, whose uplinks `u1` and `u2` lead to the ports
/// `f1` and `f2` of `br-fabric`.
struct Lab {
    switch: Switch,
    namespaces: Vec<String>,
}

impl Lab {
    fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("enofab{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let namespaces: Vec<String> = ["", "-1", "-2"].map(|suffix| format!("{name}{suffix}")).to_vec();
        for namespace in &namespaces {
            output(Command::new("ip").args(["netns", "add", namespace]));
        }
        let switch = Switch::without_bridge(Transport::Unix, Some(name.clone()));
        let lab = Self { switch, namespaces };
        for host in ["1", "2"] {
            let (port, uplink, fabric) = (format!("h{host}"), format!("u{host}"), format!("f{host}"));
            let inside = format!("{name}-{host}");
            lab.ip(&name, &["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &inside]);
            lab.ip(&name, &["link", "add", &uplink, "type", "veth", "peer", "name", &fabric]);
            for interface in [&port, &uplink, &fabric] {
                lab.ip(&name, &["link", "set", interface, "up"]);
            }
            lab.ip(&inside, &["address", "add", &format!("10.0.0.{host}/24"), "dev", "eth0"]);
            lab.ip(&inside, &["link", "set", "eth0", "up"]);
        }
        let bridges = ["br1", "br2", "br-fabric"]
            .map(|bridge| format!("add-br {bridge} -- set Bridge {bridge} datapath_type=netdev"));
        lab.switch.vsctl_and_wait(&format!(
            "{} -- add-port br1 h1 tag=10 -- add-port br1 u1 -- add-port br2 h2 tag=10 -- add-port br2 u2 \
             -- add-port br-fabric f1 trunks=4095 -- add-port br-fabric f2 trunks=20",
            bridges.join(" -- ")
        ));
        lab
    }

    fn ip(&self, namespace: &str, args: &[&str]) {
        assert!(self.namespaces.iter().any(|own| own == namespace));
        output(Command::new("ip").args(["-n", namespace]).args(args));
    }

    /// Whether a ping from one host reaches the other. Waits first until the switch has applied its
    /// configuration.
    fn is_connected(&self) -> bool {
        let control = self.switch.path("switch.ctl").display().to_string();
        output(program("ovs-appctl").args(["-t", &control, "revalidator/wait"]));
        let mut ping = Command::new("ip");
        ping.args(["netns", "exec", &self.namespaces[1]]);
        ping.args(["ping", "-c", "3", "-i", "0.2", "-W", "1", "10.0.0.2"]);
        ping.output().unwrap().status.success()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.switch.stop_daemon();
        for namespace in &self.namespaces {
            // A panic here would abort a failing test.
            let _ = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

#[tokio::test]
#[ignore = "needs root: network namespaces and a switch in user space"]
async fn frames_are_forwarded_only_within_their_vlan() {
    let lab = Lab::start();
    let driver = lab.switch.driver();
    assert!(!lab.is_connected(), "before");
    for (one, other, through) in
        [("10", "10", true), ("10", "", false), ("10-12", "5,10", true), ("11", "11", false), ("", "", false)]
    {
        let wanted = [("f1", one), ("f2", other)];
        let done = reconcile(&driver, &lab.switch.desired(&wanted)).await;
        let wanted: Vec<(&str, &str)> = wanted.into_iter().filter(|(_, vlans)| !vlans.is_empty()).collect();
        assert_eq!(applied(&done), on(&wanted));
        assert_eq!(lab.is_connected(), through, "f1 carries {one:?}, f2 {other:?}");
    }
    assert_eq!((lab.switch.trunks("f1"), lab.switch.trunks("f2")), (vec![4095], vec![20]));
}
