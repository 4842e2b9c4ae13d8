//! A login that a command asks for, and whether an admin's own word confirms it: the FabricDevice, or the file beside
//! a mounted credential. Pure.

use eno_sbi::is_secret_name;
use eno_schemas::Device;
use serde::Deserialize;

use crate::SecretError;

/// Maximum characters of a value that a message shows.
const MAX_SHOWN: usize = 120;
/// Maximum characters of a line for the file, in a message. An RSA key of 8192 bits has 1,400.
const MAX_LINE: usize = 2000;

/// A login as a command asks for it. It says where a password would go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    driver: &'static str,
    device: String,
    address: String,
    host_key: Option<String>,
    secret: Option<String>,
    default_port: Option<u16>,
}

impl Login {
    /// The login of `driver` to the device of a command for the target `device`.
    pub fn new(driver: &'static str, device: &str, commanded: &Device) -> Self {
        Self {
            driver,
            device: device.to_owned(),
            address: commanded.address.clone(),
            host_key: commanded.host_key.clone(),
            secret: commanded.credential.clone(),
            default_port: None,
        }
    }

    /// Addresses without a port mean this one.
    #[must_use]
    pub fn default_port(self, port: u16) -> Self {
        Self { default_port: Some(port), ..self }
    }

    /// The name of the FabricDevice.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Where the device is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The host key that the device must show, an OpenSSH public key line.
    pub fn host_key(&self) -> Option<&str> {
        self.host_key.as_deref()
    }

    /// The name of the Secret.
    pub fn secret(&self) -> Result<&str, SecretError> {
        let name = self.secret.as_deref().ok_or(SecretError::NotNamed)?;
        if is_secret_name(name) { Ok(name) } else { Err(SecretError::BadName(name.to_owned())) }
    }

    /// Compares it with the spec of the FabricDevice.
    pub(crate) fn compare(&self, spec: &DeviceSpec) -> Result<(), Mismatch> {
        let differs = |field, declared: Option<&str>, commanded: Option<&str>| {
            let shown = |value: Option<&str>| value.map_or_else(|| "absent".to_owned(), shown);
            Err(Mismatch {
                device: self.device.clone(),
                field,
                declared: shown(declared),
                commanded: shown(commanded),
            })
        };
        let declared_secret = spec.credentials.as_ref().map(|credentials| credentials.secret_name.as_str());
        if spec.driver != self.driver {
            differs("Driver", Some(&spec.driver), Some(self.driver))
        } else if self.with_port(&spec.address) != self.with_port(&self.address) {
            differs("Address", Some(&spec.address), Some(&self.address))
        } else if spec.host_key.as_deref().map(key) != self.host_key.as_deref().map(key) {
            differs("HostKey", spec.host_key.as_deref(), self.host_key.as_deref())
        } else if declared_secret != self.secret.as_deref() {
            differs("Credentials.SecretName", declared_secret, self.secret.as_deref())
        } else {
            Ok(())
        }
    }

    /// True if a line of the file beside the credential has this address and host key.
    pub(crate) fn is_listed(&self, lines: &str) -> bool {
        let wanted = self.host_key.as_deref().map(key);
        lines.lines().map(str::trim).any(|line| {
            let (address, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let listed = Some(rest.trim()).filter(|rest| !rest.is_empty()).map(key);
            !address.is_empty()
                && !address.starts_with('#')
                && self.with_port(address) == self.with_port(&self.address)
                && listed == wanted
        })
    }

    /// The line of the file that would list it, for messages.
    pub(crate) fn line(&self) -> String {
        let words = self.address.split_whitespace();
        let words = words.chain(self.host_key.iter().flat_map(|line| key(line)).flatten());
        let line = words.collect::<Vec<_>>().join(" ");
        line.chars().filter(|char| !char.is_control()).take(MAX_LINE).collect()
    }

    /// The address with the port that it means.
    fn with_port(&self, address: &str) -> String {
        let Some(default) = self.default_port else { return address.to_owned() };
        match address.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                let port = port.parse().map_or_else(|_| port.to_owned(), |port: u16| port.to_string());
                format!("{host}:{port}")
            }
            _ => format!("{address}:{default}"),
        }
    }
}

/// The type and the key of an OpenSSH public key line. Its comment means nothing.
fn key(line: &str) -> [Option<&str>; 2] {
    let mut words = line.split_whitespace();
    [words.next(), words.next()]
}

/// A value in a message: quoted, in one line, and shortened.
pub(crate) fn shown(value: &str) -> String {
    let mut start: String = value.chars().take(MAX_SHOWN).collect();
    if start.len() < value.len() {
        start.push('…');
    }
    format!("{start:?}")
}

/// The part of a FabricDevice's spec that says where its password goes. Not the type of the CRD, so that a driver
/// understands FabricDevices with fields of later versions.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DeviceSpec {
    driver: String,
    address: String,
    host_key: Option<String>,
    credentials: Option<DeviceCredentials>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceCredentials {
    secret_name: String,
}

/// A command and its FabricDevice say different things. A retry helps: the engine commands anew what the FabricDevice
/// says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no login: {field} of FabricDevice {device} is {declared}, and the command says {commanded}. A driver logs in only \
     as the FabricDevice says, so a plan with other values has no preview until they are applied. If a command is \
     refused for long, the FabricDevice may be invalid (status.message), or somebody else writes commands on NATS"
)]
pub struct Mismatch {
    device: String,
    field: &'static str,
    declared: String,
    commanded: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3Nz";

    fn login(change: impl FnOnce(&mut Device)) -> Login {
        let mut device = Device {
            credential: Some("leaf1".into()),
            host_key: Some(KEY.into()),
            ..Device::new("192.0.2.1:830")
        };
        change(&mut device);
        Login::new("netconf", "leaf1", &device).default_port(830)
    }

    fn spec(change: &Value) -> DeviceSpec {
        let mut spec = json!({
            "Driver": "netconf",
            "Address": "192.0.2.1",
            "HostKey": KEY,
            "Credentials": { "SecretName": "leaf1" },
            "AFieldOfALaterVersion": [],
        });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn equal_values_in_other_spellings_are_the_same_login() {
        for change in [
            json!({}),
            json!({ "Address": "192.0.2.1:830" }),
            json!({ "Address": "192.0.2.1:0830" }),
            json!({ "HostKey": format!("{KEY} admin@example.com") }),
        ] {
            assert_eq!(login(|_| ()).compare(&spec(&change)), Ok(()), "{change}");
        }
        let v6 = login(|device| device.address = "[2001:db8::1]:830".into());
        assert_eq!(v6.compare(&spec(&json!({ "Address": "[2001:db8::1]" }))), Ok(()));
        let bare = login(|device| (device.host_key, device.credential) = (None, None));
        assert_eq!(bare.compare(&spec(&json!({ "HostKey": null, "Credentials": null }))), Ok(()));
    }

    #[test]
    fn each_other_value_is_named() {
        let forged: [(&str, Login); 8] = [
            ("Address", login(|device| device.address = "198.51.100.66:830".into())),
            ("Address", login(|device| device.address = "192.0.2.1:2222".into())),
            ("Address", login(|device| device.address = "192.0.2.1:830:830".into())),
            ("HostKey", login(|device| device.host_key = Some("ssh-ed25519 BBBB".into()))),
            ("HostKey", login(|device| device.host_key = Some("ssh-rsa AAAAC3Nz".into()))),
            ("HostKey", login(|device| device.host_key = None)),
            ("Credentials.SecretName", login(|device| device.credential = Some("leaf2".into()))),
            ("Credentials.SecretName", login(|device| device.credential = None)),
        ];
        for (field, login) in forged {
            let error = login.compare(&spec(&json!({}))).unwrap_err();
            assert_eq!(error.field, field, "{login:?}");
            assert!(error.to_string().contains(&format!("{field} of FabricDevice leaf1 is")), "{error}");
        }
        let declared = [
            ("Driver", json!({ "Driver": "neutron" })),
            ("Address", json!({ "Address": "leaf1" })),
            ("HostKey", json!({ "HostKey": null })),
            ("Credentials.SecretName", json!({ "Credentials": null })),
        ];
        for (field, change) in declared {
            assert_eq!(login(|_| ()).compare(&spec(&change)).unwrap_err().field, field);
        }
        // An address of a driver without a default port is compared as it is.
        let url = "https://keystone.example.com:5000/v3";
        let neutron = |address: &str| {
            let device = Device { credential: Some("leaf1".into()), ..Device::new(address) };
            Login::new("neutron", "leaf1", &device)
        };
        let cloud = spec(&json!({ "Driver": "neutron", "Address": url, "HostKey": null }));
        assert_eq!(neutron(url).compare(&cloud), Ok(()));
        for other in
            ["http://keystone.example.com:5000/v3", "https://keystone.example.com:5000", "https://evil/v3"]
        {
            assert_eq!(neutron(other).compare(&cloud).unwrap_err().field, "Address", "{other}");
        }
    }

    #[test]
    fn messages_are_short_lines() {
        let address = format!("evil\n{}", "x".repeat(10_000));
        let login = login(|device| device.address = address);
        let error = login.compare(&spec(&json!({}))).unwrap_err().to_string();
        assert!(error.len() < 700 && !error.contains('\n'), "{error}");
        assert!(login.line().len() == MAX_LINE && !login.line().contains('\n'), "{}", login.line());
    }

    #[test]
    fn files_list_addresses_with_their_host_keys() {
        let file = format!("# leaf1\n\n  192.0.2.1 {KEY} a comment\nleaf2:2222\t{KEY}\nleaf3\n");
        let listed = |address: &str, host_key: Option<&str>| {
            login(|device| {
                (device.address, device.host_key) = (address.into(), host_key.map(str::to_owned));
            })
            .is_listed(&file)
        };
        assert!(listed("192.0.2.1:830", Some(KEY)));
        assert!(listed("leaf2:2222", Some(&format!("{KEY} another comment"))));
        // Nothing is sent to a device without a pinned host key.
        assert!(listed("leaf3:830", None));
        for (address, host_key) in [
            ("192.0.2.1:830", Some("ssh-ed25519 BBBB")),
            ("192.0.2.1:830", None),
            ("192.0.2.1:2222", Some(KEY)),
            ("leaf2:830", Some(KEY)),
            ("leaf3:830", Some(KEY)),
            ("leaf4:830", Some(KEY)),
            ("", None),
            ("#", None),
        ] {
            assert!(!listed(address, host_key), "{address} {host_key:?}");
        }
        let login = login(|_| ());
        assert!(login.is_listed(&login.line()) && !login.is_listed(""));
    }
}
