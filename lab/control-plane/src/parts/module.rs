//! The Go modules that pin the parts. They are embedded, so that an installed program can build without a checkout.

use std::path::Path;
use std::{fs, io};

use sha2::{Digest, Sha256};

/// A Go module that pins the programs of one upstream. Separate modules keep their dependencies independent.
pub(super) struct Module {
    /// Name of the directory in the cache.
    name: &'static str,
    /// Content of go.mod.
    go_mod: &'static str,
    /// Content of go.sum.
    go_sum: &'static str,
    /// Source files of a program of this project, by name. Empty for foreign programs.
    sources: &'static [(&'static str, &'static str)],
    /// `-X` linker definitions for the program's own version. `VERSION` stands for the pinned version.
    definitions: &'static [(&'static str, &'static str)],
    /// The Go module whose version identifies this module.
    main: &'static str,
}

/// Version definitions of Kubernetes programs.
const KUBERNETES_VERSION: &[(&str, &str)] = &[
    ("k8s.io/component-base/version.gitVersion", "VERSION"),
    ("k8s.io/component-base/version.gitMajor", "MAJOR"),
    ("k8s.io/component-base/version.gitMinor", "MINOR"),
    ("k8s.io/component-base/version.gitTreeState", "clean"),
];

pub(super) static KUBERNETES: Module = Module {
    name: "kubernetes",
    go_mod: include_str!("../../go/kubernetes/go.mod"),
    go_sum: include_str!("../../go/kubernetes/go.sum"),
    sources: &[],
    definitions: KUBERNETES_VERSION,
    main: "k8s.io/kubernetes",
};

/// Separate from [`KUBERNETES`], so that it is built only for nodes.
pub(super) static NODE: Module = Module {
    name: "node",
    go_mod: include_str!("../../go/node/go.mod"),
    go_sum: include_str!("../../go/node/go.sum"),
    sources: &[],
    definitions: KUBERNETES_VERSION,
    main: "k8s.io/kubernetes",
};

pub(super) static NATS: Module = Module {
    name: "nats",
    go_mod: include_str!("../../go/nats/go.mod"),
    go_sum: include_str!("../../go/nats/go.sum"),
    sources: &[],
    definitions: &[],
    main: "github.com/nats-io/nats-server/v2",
};

pub(super) static CNI: Module = Module {
    name: "cni",
    go_mod: include_str!("../../go/cni/go.mod"),
    go_sum: include_str!("../../go/cni/go.sum"),
    sources: &[],
    definitions: &[("github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion", "VERSION")],
    main: "github.com/containernetworking/plugins",
};

pub(super) static COREDNS: Module = Module {
    name: "coredns",
    go_mod: include_str!("../../go/coredns/go.mod"),
    go_sum: include_str!("../../go/coredns/go.sum"),
    sources: &[],
    definitions: &[],
    main: "github.com/coredns/coredns",
};

pub(super) static METALLB: Module = Module {
    name: "metallb",
    go_mod: include_str!("../../go/metallb/go.mod"),
    go_sum: include_str!("../../go/metallb/go.sum"),
    sources: &[],
    definitions: &[],
    main: "go.universe.tf/metallb",
};

pub(super) static GITOPS: Module = Module {
    name: "gitops",
    go_mod: include_str!("../../go/gitops/go.mod"),
    go_sum: include_str!("../../go/gitops/go.sum"),
    sources: &[("main.go", include_str!("../../go/gitops/main.go"))],
    definitions: &[],
    main: "github.com/fluxcd/cli-utils",
};

pub(super) static HELM: Module = Module {
    name: "helm4",
    go_mod: include_str!("../../go/helm4/go.mod"),
    go_sum: include_str!("../../go/helm4/go.sum"),
    sources: &[],
    definitions: &[],
    main: "helm.sh/helm/v4",
};

pub(super) static HELM3: Module = Module {
    name: "helm3",
    go_mod: include_str!("../../go/helm3/go.mod"),
    go_sum: include_str!("../../go/helm3/go.sum"),
    sources: &[],
    // The version of Kubernetes that `helm template` assumes.
    definitions: &[
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", "1"),
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", "36"),
    ],
    main: "helm.sh/helm/v3",
};

impl Module {
    /// Whether the module pins the package, with a `tool` line or as the package itself.
    #[cfg(test)]
    pub(super) fn pins(&self, package: &str) -> bool {
        let own = |line: &str| !self.sources.is_empty() && line.strip_prefix("module ") == Some(package);
        self.go_mod.lines().any(|line| line.trim().trim_start_matches("tool ") == package || own(line))
    }

    /// The pinned version of the Go module that contains a package, such as `v1.36.3`. For a program of this project,
    /// it
    /// is that of the main dependency. Empty if the package is not pinned.
    pub(super) fn version_of(&self, package: &str) -> &'static str {
        let package = if self.sources.is_empty() { package } else { self.main };
        self.go_mod
            .lines()
            .take_while(|line| !line.starts_with("replace"))
            .filter_map(|line| {
                let mut words = line.trim().trim_start_matches("require ").split_whitespace();
                let (path, version) = (words.next()?, words.next()?);
                let holds = package == path || package.starts_with(&format!("{path}/"));
                (holds && version.starts_with('v')).then_some((path.len(), version))
            })
            .max_by_key(|(length, _)| *length)
            .map_or("", |(_, version)| version)
    }

    /// Linker flags: strip symbols and define the version.
    pub(super) fn linker_flags(&self) -> String {
        let version = self.version_of(self.main);
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        self.definitions.iter().fold("-s -w".to_owned(), |flags, (name, value)| {
            let value = value.replace("VERSION", version).replace("MAJOR", major).replace("MINOR", minor);
            format!("{flags} -X {name}={value}")
        })
    }

    /// Name of the directory in the cache. It changes with the version of any pinned dependency.
    pub(super) fn directory_name(&self) -> String {
        let sources = self.sources.iter().map(|(_, text)| *text);
        let flags = self.linker_flags();
        let digest =
            digest([self.go_mod, self.go_sum, &flags, std::env::consts::ARCH].into_iter().chain(sources));
        format!("{}-{}-{digest}", self.name, self.version_of(self.main))
    }

    /// Writes the module into a directory.
    pub(super) fn write_to(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        fs::write(directory.join("go.mod"), self.go_mod)?;
        fs::write(directory.join("go.sum"), self.go_sum)?;
        self.sources.iter().try_for_each(|(name, text)| fs::write(directory.join(name), text))
    }
}

/// A hash of texts, for the name of a directory in the cache.
pub(crate) fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text);
        hash.update([0]);
    }
    // Four bytes suffice to distinguish the few directories of a cache.
    let digest = hash.finalize().iter().take(4).fold(0_u32, |digest, byte| digest << 8 | u32::from(*byte));
    format!("{digest:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_reads_pinned_versions() {
        assert!(KUBERNETES.version_of("k8s.io/kubernetes/cmd/kubectl").starts_with("v1."));
        assert!(KUBERNETES.version_of("go.etcd.io/etcd/server/v3").starts_with("v3."));
        assert!(CNI.version_of("github.com/containernetworking/cni/cnitool").starts_with("v1."));
        assert_eq!(NATS.version_of("example.org/other"), "");
    }

    #[test]
    fn staging_modules_match_kubernetes_release() {
        let version = KUBERNETES.version_of("k8s.io/kubernetes");
        let staging = version.replacen("v1.", "v0.", 1);
        let replaced: Vec<_> = KUBERNETES.go_mod.lines().filter_map(|line| line.split_once(" => ")).collect();
        assert!(!replaced.is_empty());
        for (module, by) in replaced {
            assert_eq!(by.trim(), format!("{} {staging}", module.trim()));
        }
    }

    #[test]
    fn linker_flags_define_version() {
        let flags = KUBERNETES.linker_flags();
        let version = KUBERNETES.version_of("k8s.io/kubernetes");
        assert!(flags.contains(&format!("version.gitVersion={version} ")), "{flags}");
        assert!(flags.contains("version.gitMajor=1 "), "{flags}");
        assert_eq!(NATS.linker_flags(), "-s -w");
    }
}
