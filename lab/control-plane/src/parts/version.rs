//! Versions in the output of programs and of pinned modules.

use std::fmt;

/// Major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Finds the first `N.N.N` in a text such as `Kubernetes v1.36.3` or `etcd Version: 3.6.8`.
    pub fn find(text: &str) -> Option<Self> {
        text.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(|word| {
            let mut numbers = word.split('.').map(str::parse);
            match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
                (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Some(Self(major, minor, patch)),
                _ => None,
            }
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The accepted versions of an installed program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionRequirement {
    AtLeast(Version),
    /// Any patch of one minor version.
    Minor(u32, u32),
}

impl VersionRequirement {
    pub(super) fn allows(self, version: Version) -> bool {
        match self {
            Self::AtLeast(least) => version >= least,
            Self::Minor(major, minor) => (version.0, version.1) == (major, minor),
        }
    }
}

impl fmt::Display for VersionRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(version) => write!(f, "{version} or newer"),
            Self::Minor(major, minor) => write!(f, "{major}.{minor}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_reads_versions_from_program_output() {
        for (text, version) in [
            ("Kubernetes v1.36.3", Version(1, 36, 3)),
            ("etcd Version: 3.6.8\nGit SHA: Not provided\nGo Version: go1.26.8", Version(3, 6, 8)),
            ("nats-server: v2.10.0-beta.1", Version(2, 10, 0)),
            ("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0", Version(1, 32, 4)),
        ] {
            assert_eq!(Version::find(text), Some(version), "{text}");
        }
        assert_eq!(Version::find("go1.26"), None);
        assert_eq!(Version::find("10.0.0.1"), None);
    }

    #[test]
    fn minor_requirement_allows_patch_versions_only() {
        let requirement = VersionRequirement::Minor(1, 36);
        assert!(requirement.allows(Version(1, 36, 0)) && requirement.allows(Version(1, 36, 9)));
        assert!(!requirement.allows(Version(1, 35, 9)) && !requirement.allows(Version(1, 37, 0)));
        assert!(!VersionRequirement::AtLeast(Version(2, 10, 0)).allows(Version(2, 9, 25)));
    }
}
