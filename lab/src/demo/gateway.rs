//! The gateway behind the fabric, and what agents find of it and of each other.

use anyhow::{Context as _, ensure};
use eno_nbi_crds::{Condition, L2ServiceAttachment};
use kube::Api;
use kube::runtime::wait::await_condition;

use super::{Demo, LIMIT, screen};

/// The machine behind the fabric.
const GATEWAY: &str = "dc-gw";
/// Its addresses by VLAN: the next hops of the examples, and what pods reach.
const ADDRESSES: [(u16, &str); 7] = [
    (100, "10.10.100.1/24"),
    (100, "2001:db8:100::1/64"),
    (101, "10.10.101.1/24"),
    (102, "10.10.102.1/24"),
    (103, "10.10.103.1/24"),
    (104, "10.10.104.1/24"),
    (300, "10.30.0.1/24"),
];
/// The attachments of the example whose packets agents can send.
const VERIFIED: (&str, [&str; 2]) = ("cnf-a", ["oam", "signalling"]);

impl Demo<'_> {
    /// Configures the gateway like its administrator: an interface in each VLAN, with addresses.
    pub(super) fn set_up_gateway(&self) -> anyhow::Result<()> {
        self.on_gateway(
            "ovs-vsctl --may-exist add-br gw -- set bridge gw datapath_type=netdev \
             -- --may-exist add-port gw eth1",
        )?;
        for (vlan, address) in ADDRESSES {
            let port = format!("vlan{vlan}");
            self.on_gateway(&format!(
                "ovs-vsctl --may-exist add-port gw {port} tag={vlan} -- set interface {port} type=internal"
            ))?;
            self.on_gateway(&format!("ip link set {port} up"))?;
            self.on_gateway(&format!("ip address replace {address} dev {port}"))?;
        }
        Ok(())
    }

    fn on_gateway(&self, command: &str) -> anyhow::Result<()> {
        let machine = self.sandbox.machine(GATEWAY).context("the topology has no network dc-gw")?;
        let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
        let output = machine.command(program).args(arguments.split_whitespace()).output();
        let output = output.with_context(|| format!("running {program} on {GATEWAY}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program} on {GATEWAY}: {errors}");
        Ok(())
    }

    /// Waits until agents have found that packets pass, and shows what they say.
    pub(super) async fn show_verdicts(&self) -> anyhow::Result<()> {
        let (namespace, names) = VERIFIED;
        let api: Api<L2ServiceAttachment> = Api::namespaced(self.client.clone(), namespace);
        for name in names {
            let passes = |object: Option<&L2ServiceAttachment>| {
                verdict(object).is_some_and(|verdict| verdict.status == "True")
            };
            let waited = tokio::time::timeout(LIMIT, await_condition(api.clone(), name, passes)).await;
            let found = match waited {
                Ok(found) => found.with_context(|| format!("watching {name}"))?,
                Err(_) => api.get_opt(name).await.with_context(|| format!("reading {name}"))?,
            };
            let verdict = verdict(found.as_ref()).with_context(|| format!("no agent probes {name}"))?;
            ensure!(verdict.status == "True", "packets of {name} don't pass: {}", verdict.message);
            screen::line(&format!("L2ServiceAttachment {namespace}/{name}: {}", verdict.message));
        }
        Ok(())
    }
}

/// What probes tell of an attachment.
fn verdict(object: Option<&L2ServiceAttachment>) -> Option<&Condition> {
    object?.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == "Verified")
}
