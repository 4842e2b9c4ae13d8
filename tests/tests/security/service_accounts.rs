//! The service accounts of `deploy/`, and clients that impersonate them.

use eno_tests::System;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A service account: namespace and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(pub &'static str, pub &'static str);

pub const ENGINE: Account = Account("eno-system", "eno-engine");
pub const NETCONF: Account = Account("eno-system", "eno-driver-netconf");
pub const OVS_FABRIC: Account = Account("eno-system", "eno-driver-ovs-fabric");
pub const NEUTRON: Account = Account("eno-system", "eno-driver-neutron");
pub const NAD: Account = Account("eno-system", "eno-driver-nad");
pub const AGENT: Account = Account("eno-node", "eno-agent");
/// The account of NATS, which gets no token.
pub const DEFAULT: Account = Account("eno-system", "default");

impl Account {
    /// All accounts.
    pub const ALL: [Self; 7] = [ENGINE, NETCONF, OVS_FABRIC, NEUTRON, NAD, AGENT, DEFAULT];

    /// The account's user name on the API server.
    pub fn user(self) -> String {
        format!("system:serviceaccount:{}:{}", self.0, self.1)
    }

    /// A client with the permissions of this account's token, its groups included.
    pub async fn client(self, system: &System) -> Client {
        let path = system.sandbox.control_plane().kubeconfig();
        let kubeconfig = Kubeconfig::read_from(path).expect("the administrator's kubeconfig");
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("a configuration");
        config.auth_info.impersonate = Some(self.user());
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", self.0)];
        let authenticated = "system:authenticated".to_owned();
        config.auth_info.impersonate_groups = Some([&groups[..], &[authenticated]].concat());
        Client::try_from(config).expect("a client")
    }
}
