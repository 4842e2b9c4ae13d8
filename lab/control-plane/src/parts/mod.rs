//! Finds, downloads or builds the programs ("parts") of the control plane and the tests.

mod build;
mod module;
mod prebuilt;
mod progress;
mod store;
mod version;

use std::fmt;
use std::str::FromStr;

use module::Module;
pub(crate) use module::digest;
pub(crate) use progress::{Event, StderrProgress};
pub use store::{Parts, PartsError};
pub(crate) use store::{cache_error, is_program};
pub use version::Version;
use version::VersionRequirement;

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The data store of the API server.
    Etcd,
    /// The Kubernetes API.
    KubeApiserver,
    /// The controllers of namespaces, garbage collection and service accounts.
    KubeControllerManager,
    /// The command line of Kubernetes.
    Kubectl,
    /// NATS with JetStream.
    NatsServer,
    /// Runs a CNI configuration in a network namespace.
    Cnitool,
    /// CNI plugin.
    Bridge,
    /// CNI plugin.
    Macvlan,
    /// CNI plugin.
    Vlan,
    /// CNI plugin.
    Ipvlan,
    /// CNI plugin.
    HostDevice,
    /// CNI address management plugin.
    HostLocal,
    /// CNI address management plugin.
    Static,
    /// CNI plugin.
    Loopback,
    /// The scheduler of pods.
    KubeScheduler,
    /// The agent that runs the pods of a node.
    Kubelet,
    /// Directs the addresses of Services to pods, on a node.
    KubeProxy,
    /// Resolves the names of Services.
    Coredns,
    /// Prints the status that GitOps tools compute for objects.
    GitopsVerdict,
    /// Installs charts.
    Helm,
    /// Its version 3.
    Helm3,
    /// Gives addresses to Services.
    MetallbController,
    /// Announces addresses of Services by BGP, on a node.
    MetallbSpeaker,
}

/// The version check of an installed program.
struct VersionCheck {
    version_arguments: &'static [&'static str],
    requirement: VersionRequirement,
}

struct Recipe {
    program: &'static str,
    module: &'static Module,
    package: &'static str,
    /// `None` if an installed program is never used. (`bridge` on `PATH` is that of iproute, not the CNI plugin.)
    installed: Option<VersionCheck>,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 23] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::Kubectl,
        Self::NatsServer,
        Self::Cnitool,
        Self::Bridge,
        Self::Macvlan,
        Self::Vlan,
        Self::Ipvlan,
        Self::HostDevice,
        Self::HostLocal,
        Self::Static,
        Self::Loopback,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Coredns,
        Self::GitopsVerdict,
        Self::Helm,
        Self::Helm3,
        Self::MetallbController,
        Self::MetallbSpeaker,
    ];

    /// The parts that [`crate::ControlPlane`] always runs.
    pub const CONTROL_PLANE: [Self; 4] =
        [Self::Etcd, Self::KubeApiserver, Self::KubeControllerManager, Self::NatsServer];

    /// Whether only root can run it.
    pub fn needs_root(self) -> bool {
        matches!(self, Self::Kubelet | Self::KubeProxy | Self::KubeScheduler | Self::Coredns)
    }

    /// Whether only the lanes run it.
    pub fn is_for_lanes(self) -> bool {
        matches!(self, Self::Helm3 | Self::MetallbController | Self::MetallbSpeaker)
    }

    /// Whether it is a CNI plugin.
    pub fn is_plugin(self) -> bool {
        std::ptr::eq(self.recipe().module, &raw const module::CNI) && self != Self::Cnitool
    }

    /// The program's file name.
    pub fn program(self) -> &'static str {
        self.recipe().program
    }

    fn recipe(self) -> Recipe {
        let kubernetes = |program, package, version_arguments, requirement| Recipe {
            program,
            module: &module::KUBERNETES,
            package,
            installed: Some(VersionCheck { version_arguments, requirement }),
        };
        let node = |program, package| Recipe {
            program,
            module: &module::NODE,
            package,
            installed: Some(VersionCheck {
                version_arguments: &["--version"],
                requirement: VersionRequirement::Minor(1, 36),
            }),
        };
        let built = |program, module, package| Recipe { program, module, package, installed: None };
        let cni = |program, package| built(program, &module::CNI, package);
        match self {
            // The API server relies on watch progress notifications, which work since etcd 3.5.8.
            Self::Etcd => kubernetes(
                "etcd",
                "go.etcd.io/etcd/server/v3",
                &["--version"],
                VersionRequirement::AtLeast(Version(3, 5, 8)),
            ),
            // The flags and the policies served by default depend on the minor version.
            Self::KubeApiserver => kubernetes(
                "kube-apiserver",
                "k8s.io/kubernetes/cmd/kube-apiserver",
                &["--version"],
                VersionRequirement::Minor(1, 36),
            ),
            Self::KubeControllerManager => kubernetes(
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                &["--version"],
                VersionRequirement::Minor(1, 36),
            ),
            Self::Kubectl => kubernetes(
                "kubectl",
                "k8s.io/kubernetes/cmd/kubectl",
                &["version", "--client"],
                VersionRequirement::AtLeast(Version(1, 30, 0)),
            ),
            Self::NatsServer => Recipe {
                program: "nats-server",
                module: &module::NATS,
                package: "github.com/nats-io/nats-server/v2",
                installed: Some(VersionCheck {
                    version_arguments: &["--version"],
                    // The first version with `sync_interval`.
                    requirement: VersionRequirement::AtLeast(Version(2, 10, 0)),
                }),
            },
            Self::KubeScheduler => node("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            Self::Kubelet => node("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            Self::KubeProxy => node("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
            // An installed one may be linked with libraries that its image lacks.
            Self::Coredns => built("coredns", &module::COREDNS, "github.com/coredns/coredns"),
            Self::Cnitool => cni("cnitool", "github.com/containernetworking/cni/cnitool"),
            Self::Bridge => cni("bridge", "github.com/containernetworking/plugins/plugins/main/bridge"),
            Self::Macvlan => cni("macvlan", "github.com/containernetworking/plugins/plugins/main/macvlan"),
            Self::Vlan => cni("vlan", "github.com/containernetworking/plugins/plugins/main/vlan"),
            Self::Ipvlan => cni("ipvlan", "github.com/containernetworking/plugins/plugins/main/ipvlan"),
            Self::HostDevice => {
                cni("host-device", "github.com/containernetworking/plugins/plugins/main/host-device")
            }
            Self::HostLocal => {
                cni("host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local")
            }
            Self::Static => cni("static", "github.com/containernetworking/plugins/plugins/ipam/static"),
            Self::GitopsVerdict => built("gitops-verdict", &module::GITOPS, "eno.invalid/tools/gitops"),
            Self::Helm => built("helm", &module::HELM, "helm.sh/helm/v4/cmd/helm"),
            Self::Helm3 => built("helm3", &module::HELM3, "helm.sh/helm/v3/cmd/helm"),
            Self::MetallbController => {
                built("metallb-controller", &module::METALLB, "go.universe.tf/metallb/controller")
            }
            Self::MetallbSpeaker => {
                built("metallb-speaker", &module::METALLB, "go.universe.tf/metallb/speaker")
            }
            Self::Loopback => cni("loopback", "github.com/containernetworking/plugins/plugins/main/loopback"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

impl FromStr for Part {
    type Err = PartsError;

    fn from_str(name: &str) -> Result<Self, PartsError> {
        Self::ALL
            .into_iter()
            .find(|part| part.program() == name)
            .ok_or_else(|| PartsError::Unknown { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_parses_from_its_name_and_is_pinned() {
        for part in Part::ALL {
            assert_eq!(part.program().parse::<Part>().unwrap(), part);
            let recipe = part.recipe();
            assert!(
                recipe.module.pins(recipe.package),
                "go.mod of {} has no tool line for {}",
                recipe.module.directory_name(),
                recipe.package
            );
        }
        assert!("kube-dns".parse::<Part>().is_err());
    }

    #[test]
    fn pinned_versions_satisfy_installed_requirements() {
        for part in Part::ALL {
            let recipe = part.recipe();
            let Some(installed) = recipe.installed else { continue };
            let pinned = recipe.module.version_of(recipe.package);
            assert!(installed.requirement.allows(Version::find(pinned).unwrap()), "{part} {pinned}");
        }
    }
}
