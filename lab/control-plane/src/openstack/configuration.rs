//! Configuration files of Keystone and Neutron.

use std::path::Path;

use super::{ADMIN_PASSWORD, REGION};
use crate::directory::{DirectoryError, write_private};

/// Directory of the databases and keys, inside that of the configuration.
pub(super) const DATA: &str = "data";

/// The request pipeline of Neutron. That of the packages has parts that differ between releases.
const PIPELINE: &str = "\
[composite:neutron]
use = egg:Paste#urlmap
/: versions
/v2.0: v2

[pipeline:v2]
pipeline = request_id catch_errors authtoken keystonecontext extensions api

[app:versions]
paste.app_factory = neutron.pecan_wsgi.app:versions_factory

[filter:request_id]
paste.filter_factory = oslo_middleware:RequestId.factory

[filter:catch_errors]
paste.filter_factory = oslo_middleware:CatchErrors.factory

[filter:authtoken]
paste.filter_factory = keystonemiddleware.auth_token:filter_factory

[filter:keystonecontext]
paste.filter_factory = neutron.auth:NeutronKeystoneContext.factory

[filter:extensions]
paste.filter_factory = neutron.api.extensions:plugin_aware_extension_middleware_factory

[app:api]
paste.app_factory = neutron.api.v2.router:APIRouter.factory
";

/// What differs between instances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings<'a> {
    /// URL of Keystone, with `/v3`.
    pub(super) auth_url: &'a str,
    /// Maximum objects in one answer; `None` for no limit.
    pub(super) page_limit: Option<u32>,
    /// Whether Neutron accepts tags when it creates ports.
    pub(super) port_tags_at_creation: bool,
}

/// Writes the configuration files into a directory.
pub(super) fn write(directory: &Path, settings: Settings<'_>) -> Result<(), DirectoryError> {
    write_private(&directory.join("keystone.conf"), &keystone(directory))?;
    write_private(&directory.join("api-paste.ini"), PIPELINE)?;
    write_private(&directory.join("neutron.conf"), &neutron(directory, settings))
}

/// Writes the configuration files for making databases.
pub(super) fn write_template(directory: &Path) -> Result<(), DirectoryError> {
    write(directory, TEMPLATE)
}

/// All texts that new databases depend on.
pub(super) fn template(directory: &Path) -> String {
    keystone(directory) + &neutron(directory, TEMPLATE)
}

const TEMPLATE: Settings<'_> = Settings { auth_url: "", page_limit: None, port_tags_at_creation: false };

fn keystone(directory: &Path) -> String {
    let data = directory.join(DATA);
    let data = data.display();
    format!(
        "\
[database]
connection = sqlite:///{data}/keystone.sqlite?timeout=60

[token]
provider = fernet
# One day, in seconds.
expiration = 86400

[fernet_tokens]
key_repository = {data}/fernet-keys

[fernet_receipts]
key_repository = {data}/fernet-keys

[credential]
key_repository = {data}/credential-keys

[identity]
# The least, for fast logins.
password_hash_rounds = 4

[oslo_messaging_notifications]
driver = noop
"
    )
}

fn neutron(directory: &Path, settings: Settings<'_>) -> String {
    let Settings { auth_url, page_limit, port_tags_at_creation } = settings;
    let page_limit = page_limit.map_or(-1, i64::from);
    let port_tags = if port_tags_at_creation { ",tag_ports_during_bulk_creation" } else { "" };
    let directory = directory.display();
    format!(
        "\
[DEFAULT]
core_plugin = ml2
service_plugins = trunk,tag,revisions,timestamp
api_paste_config = {directory}/api-paste.ini
state_path = {directory}/state
auth_strategy = keystone
# There are no agents.
transport_url = fake://
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
pagination_max_limit = {page_limit}

[oslo_concurrency]
lock_path = {directory}/lock

[database]
connection = sqlite:///{directory}/{DATA}/neutron.sqlite?timeout=60

[oslo_messaging_notifications]
driver = noop

[keystone_authtoken]
www_authenticate_uri = {auth_url}
auth_url = {auth_url}
auth_type = password
username = admin
password = {ADMIN_PASSWORD}
project_name = admin
user_domain_id = default
project_domain_id = default
region_name = {REGION}

[ml2]
type_drivers = flat,vlan,vxlan
# Networks without provider attributes leave the VLAN IDs to those that name one.
tenant_network_types = vxlan
# A trunk needs a driver that supports trunks.
mechanism_drivers = openvswitch
extension_drivers = port_security{port_tags}

[ml2_type_vlan]
network_vlan_ranges = datacentre:100:2999,external:10:99

[ml2_type_vxlan]
vni_ranges = 1:10000
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_in_configuration() {
        let auth_url = "http://127.0.0.1:5000/v3";
        let settings = Settings { auth_url, page_limit: Some(50), port_tags_at_creation: true };
        let text = neutron(Path::new("/run/x"), settings);
        for line in [
            "pagination_max_limit = 50",
            "auth_url = http://127.0.0.1:5000/v3",
            "extension_drivers = port_security,tag_ports_during_bulk_creation",
            "connection = sqlite:////run/x/data/neutron.sqlite?timeout=60",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(neutron(Path::new("/"), TEMPLATE).contains("\npagination_max_limit = -1\n"));
    }
}
