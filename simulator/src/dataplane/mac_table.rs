//! Reads the MAC tables of bridges from ovs-vswitchd.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::dataplane::ovs::CONTROL_SOCKET;
use crate::dataplane::plan::Bridge;
use crate::dataplane::unixctl;
use crate::mac_table::Learnt;

/// Reads the MAC table of a switch.
#[derive(Debug)]
pub(crate) struct MacTableReader {
    /// Directory of Open vSwitch's sockets.
    directory: PathBuf,
    /// The bridge.
    bridge: String,
    /// The ports of the switch by their interfaces.
    ports: BTreeMap<String, String>,
}

impl MacTableReader {
    /// The reader of a bridge.
    pub(super) fn new(directory: PathBuf, bridge: &Bridge) -> Self {
        let ports = bridge.ports.iter().map(|port| (port.interface.clone(), port.name.clone()));
        Self { directory, bridge: bridge.name.clone(), ports: ports.collect() }
    }

    /// What the bridge has learnt on the ports of the switch.
    pub(crate) async fn read(&self) -> io::Result<Vec<Learnt>> {
        let call = |method, parameters: Vec<String>| async move {
            unixctl::call(&self.directory, CONTROL_SOCKET, method, &parameters).await
        };
        let table = call("fdb/show", vec![self.bridge.clone()]).await?;
        let numbers = call("dpif/show", Vec::new()).await?;
        Ok(self.parse(&table, &numbers))
    }

    /// The entries of `fdb/show`, whose ports are OpenFlow port numbers. `dpif/show` tells the interfaces of these.
    fn parse(&self, table: &str, numbers: &str) -> Vec<Learnt> {
        let mut ports = BTreeMap::new();
        for line in numbers.lines() {
            let mut fields = line.split_whitespace();
            let (Some(interface), Some(number)) = (fields.next(), fields.next()) else { continue };
            if let (Some(port), Some((number, _))) = (self.ports.get(interface), number.split_once('/')) {
                ports.insert(number, port);
            }
        }
        let entry = |line: &str| {
            let mut fields = line.split_whitespace();
            let port = (*ports.get(fields.next()?)?).clone();
            let vlan = fields.next()?.parse().ok()?;
            Some(Learnt { mac: fields.next()?.to_owned(), vlan, port })
        };
        table.lines().filter_map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::plan::Plan;
    use crate::topology::Topology;

    /// Output of Open vSwitch 3.1.
    const TABLE: &str = "\
 port  VLAN  MAC                Age
    3   100  02:5e:00:00:00:01    0
    4     0  02:5e:00:00:00:02   12
    1   100  02:5e:00:00:00:03   12
LOCAL     0  02:e0:00:00:00:01    4
";
    const NUMBERS: &str = "\
netdev@ovs-netdev: hit:48 missed:34
  sw1:
    sw1 65534/1: (tap)
    sw1d 1/3: (system)
    sw1p1 3/7: (system)
    sw1p49 4/8: (system)
  sw2:
    sw2p1 3/9: (system)
";

    #[test]
    fn entries_on_ports_of_the_switch_are_read() {
        let wires = ["leaf1/Ethernet1=eth1".parse().expect("a wire")];
        let plan = Plan::new(&Topology::leaf_spine(1, 1, 1), &wires).expect("it fits");
        let reader = MacTableReader::new(PathBuf::new(), &plan.bridges[0]);
        let shown: Vec<_> = reader
            .parse(TABLE, NUMBERS)
            .into_iter()
            .map(|Learnt { mac, vlan, port }| format!("{mac} {vlan} {port}"))
            .collect();
        assert_eq!(shown, ["02:5e:00:00:00:01 100 Ethernet1", "02:5e:00:00:00:02 0 Ethernet49"]);
    }
}
