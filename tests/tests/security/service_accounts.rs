//! Clients that impersonate the service accounts of `deploy/`.

use eno_parts::{Account, Part};
use eno_tests::System;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub const ENGINE: Account = eno_parts::ENGINE.account;
pub const BGP_SPEAKER: Account = eno_parts::DRIVER_BGP_SPEAKER.account;
pub const NAD: Account = eno_parts::DRIVER_NAD.account;

/// The parts, one for each account. NATS has the default account, which gets no token.
pub fn parts() -> impl Iterator<Item = &'static Part> {
    eno_parts::ALL.into_iter().filter(|part| part.workload.is_some())
}

/// A client with the permissions of this account's token, its groups included.
pub async fn client(account: Account, system: &System) -> Client {
    let path = system.sandbox.control_plane().kubeconfig();
    let kubeconfig = Kubeconfig::read_from(path).expect("the administrator's kubeconfig");
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    config.auth_info.impersonate = Some(account.user());
    let groups =
        ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", account.namespace)];
    let authenticated = "system:authenticated".to_owned();
    config.auth_info.impersonate_groups = Some([&groups[..], &[authenticated]].concat());
    Client::try_from(config).expect("a client")
}
